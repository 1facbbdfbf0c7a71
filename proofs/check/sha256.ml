(* SHA-256 (FIPS 180-4) of pieces of mapped bytes. OCaml's integers have 63 bits; words are masked to
   32 where a rotation or the result needs it. *)

type bytes_ = (char, Bigarray.int8_unsigned_elt, Bigarray.c_layout) Bigarray.Array1.t
external get32 : bytes_ -> int -> int32 = "%caml_bigstring_get32"
external swap32 : int32 -> int32 = "%bswap_int32"

let k = [|
  0x428a2f98; 0x71374491; 0xb5c0fbcf; 0xe9b5dba5; 0x3956c25b; 0x59f111f1; 0x923f82a4; 0xab1c5ed5;
  0xd807aa98; 0x12835b01; 0x243185be; 0x550c7dc3; 0x72be5d74; 0x80deb1fe; 0x9bdc06a7; 0xc19bf174;
  0xe49b69c1; 0xefbe4786; 0x0fc19dc6; 0x240ca1cc; 0x2de92c6f; 0x4a7484aa; 0x5cb0a9dc; 0x76f988da;
  0x983e5152; 0xa831c66d; 0xb00327c8; 0xbf597fc7; 0xc6e00bf3; 0xd5a79147; 0x06ca6351; 0x14292967;
  0x27b70a85; 0x2e1b2138; 0x4d2c6dfc; 0x53380d13; 0x650a7354; 0x766a0abb; 0x81c2c92e; 0x92722c85;
  0xa2bfe8a1; 0xa81a664b; 0xc24b8b70; 0xc76c51a3; 0xd192e819; 0xd6990624; 0xf40e3585; 0x106aa070;
  0x19a4c116; 0x1e376c08; 0x2748774c; 0x34b0bcb5; 0x391c0cb3; 0x4ed8aa4a; 0x5b9cca4f; 0x682e6ff3;
  0x748f82ee; 0x78a5636f; 0x84c87814; 0x8cc70208; 0x90befffa; 0xa4506ceb; 0xbef9a3f7; 0xc67178f2 |]

type state = { h : int array; w : int array; block : bytes_; mutable fill : int; mutable total : int }

let start () = {
  h = [| 0x6a09e667; 0xbb67ae85; 0x3c6ef372; 0xa54ff53a; 0x510e527f; 0x9b05688c; 0x1f83d9ab; 0x5be0cd19 |];
  w = Array.make 64 0; block = Bigarray.Array1.create Bigarray.char Bigarray.c_layout 64; fill = 0; total = 0 }

let mask = 0xffffffff
(* A word beside itself: its rotations are shifts of that. *)
let[@inline] double x = x lor (x lsl 32)
let[@inline] get a i = Array.unsafe_get a i

let rec rounds w i a b c d e f g h (out : int array) =
  if i = 64 then begin
    let add j x = out.(j) <- (out.(j) + x) land mask in
    add 0 a; add 1 b; add 2 c; add 3 d; add 4 e; add 5 f; add 6 g; add 7 h
  end else begin
    (* of the 64 bits of a word beside itself OCaml keeps 63: the rotations below need 57 *)
    let ee = double e and aa = double a in
    let s1 = (ee lsr 6) lxor (ee lsr 11) lxor (ee lsr 25) in
    let ch = g lxor (e land (f lxor g)) in
    let t1 = h + (s1 land mask) + ch + get k i + get w i in
    let s0 = (aa lsr 2) lxor (aa lsr 13) lxor (aa lsr 22) in
    let maj = (a land b) lxor (c land (a lxor b)) in
    let t2 = (s0 land mask) + maj in
    rounds w (i + 1) ((t1 + t2) land mask) a b c ((d + t1) land mask) e f g out
  end

let compress s (from : bytes_) at =
  let w = s.w in
  for i = 0 to 15 do
    Array.unsafe_set w i (Int32.to_int (swap32 (get32 from (at + (4 * i)))) land mask)
  done;
  for i = 16 to 63 do
    let x = double (get w (i - 15)) and y = double (get w (i - 2)) in
    let s0 = (x lsr 7) lxor (x lsr 18) lxor (get w (i - 15) lsr 3) in
    let s1 = (y lsr 17) lxor (y lsr 19) lxor (get w (i - 2) lsr 10) in
    Array.unsafe_set w i ((get w (i - 16) + (s0 land mask) + get w (i - 7) + (s1 land mask)) land mask)
  done;
  let h = s.h in
  rounds w 0 h.(0) h.(1) h.(2) h.(3) h.(4) h.(5) h.(6) h.(7) h

let feed_byte s byte =
  s.block.{s.fill} <- byte;
  s.fill <- s.fill + 1;
  if s.fill = 64 then (compress s s.block 0; s.fill <- 0)

(* [count] bytes from [at]: whole blocks where they lie, the rest through a block of its own. *)
let feed s (from : bytes_) at count =
  s.total <- s.total + count;
  let i = ref 0 in
  while !i < count && s.fill > 0 do feed_byte s from.{at + !i}; incr i done;
  while count - !i >= 64 do compress s from (at + !i); i := !i + 64 done;
  while !i < count do feed_byte s from.{at + !i}; incr i done

let finish s =
  let bits = s.total * 8 in
  feed_byte s '\x80';
  while s.fill <> 56 do feed_byte s '\000' done;
  for i = 7 downto 0 do feed_byte s (Char.chr ((bits lsr (8 * i)) land 255)) done;
  String.concat "" (Array.to_list (Array.map (Printf.sprintf "%08x") s.h))

let of_string text =
  let s = start () in
  s.total <- String.length text;
  String.iter (feed_byte s) text;
  finish s
