(* SHA-256 (FIPS 180-4), fed in pieces. OCaml's integers have 63 bits; words are masked to 32. *)

let k = [|
  0x428a2f98; 0x71374491; 0xb5c0fbcf; 0xe9b5dba5; 0x3956c25b; 0x59f111f1; 0x923f82a4; 0xab1c5ed5;
  0xd807aa98; 0x12835b01; 0x243185be; 0x550c7dc3; 0x72be5d74; 0x80deb1fe; 0x9bdc06a7; 0xc19bf174;
  0xe49b69c1; 0xefbe4786; 0x0fc19dc6; 0x240ca1cc; 0x2de92c6f; 0x4a7484aa; 0x5cb0a9dc; 0x76f988da;
  0x983e5152; 0xa831c66d; 0xb00327c8; 0xbf597fc7; 0xc6e00bf3; 0xd5a79147; 0x06ca6351; 0x14292967;
  0x27b70a85; 0x2e1b2138; 0x4d2c6dfc; 0x53380d13; 0x650a7354; 0x766a0abb; 0x81c2c92e; 0x92722c85;
  0xa2bfe8a1; 0xa81a664b; 0xc24b8b70; 0xc76c51a3; 0xd192e819; 0xd6990624; 0xf40e3585; 0x106aa070;
  0x19a4c116; 0x1e376c08; 0x2748774c; 0x34b0bcb5; 0x391c0cb3; 0x4ed8aa4a; 0x5b9cca4f; 0x682e6ff3;
  0x748f82ee; 0x78a5636f; 0x84c87814; 0x8cc70208; 0x90befffa; 0xa4506ceb; 0xbef9a3f7; 0xc67178f2 |]

type state = { h : int array; w : int array; block : Bytes.t; mutable fill : int; mutable total : int }

let start () = {
  h = [| 0x6a09e667; 0xbb67ae85; 0x3c6ef372; 0xa54ff53a; 0x510e527f; 0x9b05688c; 0x1f83d9ab; 0x5be0cd19 |];
  w = Array.make 64 0; block = Bytes.create 64; fill = 0; total = 0 }

let mask = 0xffffffff
let rotate x n = ((x lsr n) lor (x lsl (32 - n))) land mask

let compress s =
  let w = s.w in
  for i = 0 to 15 do
    w.(i) <- (Char.code (Bytes.get s.block (4 * i)) lsl 24) lor (Char.code (Bytes.get s.block (4 * i + 1)) lsl 16)
             lor (Char.code (Bytes.get s.block (4 * i + 2)) lsl 8) lor Char.code (Bytes.get s.block (4 * i + 3))
  done;
  for i = 16 to 63 do
    let a = w.(i - 15) and b = w.(i - 2) in
    let s0 = rotate a 7 lxor rotate a 18 lxor (a lsr 3) in
    let s1 = rotate b 17 lxor rotate b 19 lxor (b lsr 10) in
    w.(i) <- (w.(i - 16) + s0 + w.(i - 7) + s1) land mask
  done;
  let a = ref s.h.(0) and b = ref s.h.(1) and c = ref s.h.(2) and d = ref s.h.(3) in
  let e = ref s.h.(4) and f = ref s.h.(5) and g = ref s.h.(6) and h = ref s.h.(7) in
  for i = 0 to 63 do
    let s1 = rotate !e 6 lxor rotate !e 11 lxor rotate !e 25 in
    let ch = (!e land !f) lxor ((lnot !e) land !g land mask) in
    let t1 = (!h + s1 + ch + k.(i) + w.(i)) land mask in
    let s0 = rotate !a 2 lxor rotate !a 13 lxor rotate !a 22 in
    let maj = (!a land !b) lxor (!a land !c) lxor (!b land !c) in
    let t2 = (s0 + maj) land mask in
    h := !g; g := !f; f := !e; e := (!d + t1) land mask;
    d := !c; c := !b; b := !a; a := (t1 + t2) land mask
  done;
  List.iteri (fun i x -> s.h.(i) <- (s.h.(i) + x) land mask) [ !a; !b; !c; !d; !e; !f; !g; !h ]

let feed s byte =
  Bytes.set s.block s.fill byte;
  s.fill <- s.fill + 1;
  s.total <- s.total + 1;
  if s.fill = 64 then (compress s; s.fill <- 0)

let finish s =
  let bits = s.total * 8 in
  feed s '\x80';
  while s.fill <> 56 do feed s '\000' done;
  for i = 7 downto 0 do feed s (Char.chr ((bits lsr (8 * i)) land 255)) done;
  String.concat "" (Array.to_list (Array.map (Printf.sprintf "%08x") s.h))

let of_string text =
  let s = start () in
  String.iter (feed s) text;
  finish s
