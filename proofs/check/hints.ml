(* Numbers for the checker to decide on, from the tensors in double precision.

   Nothing here is trusted: a number that is off makes the checker refuse a head, and never accept
   one. So each is moved outward by more than double precision can err. *)

open Certificate
let zi = Z_.of_int

let scale_of text =
  let n = String.length text in
  let bad () = rejected "head.scale: found \"%s\"" text in
  let fraction s = match Exact.fraction s with q when Q.sign q > 0 -> q | _ -> bad () | exception Exact.Bad _ -> bad () in
  if n > 8 && String.sub text 0 7 = "1/sqrt(" && text.[n - 1] = ')' then
    match int_of_string_opt (String.sub text 7 (n - 8)) with
    | Some d when d > 0 && d <= 1 lsl 30 -> Checker.InverseRoot (zi d)
    | _ -> bad ()
  else if n > 5 && String.sub text 0 5 = "log2:" then
    let q = fraction (String.sub text 5 (n - 5)) in Checker.Binary (Q.num q, Q.den q)
  else let q = fraction text in Checker.Natural (Q.num q, Q.den q)

(* ln 2, far enough: the checker proves its own enclosure of it *)
let ln2 = Q.make (Z_.of_string "818323753292969962226") (Z_.shift_left Z_.one 70)

(* lo <= factor <= hi in units of 2^-64, a few units apart *)
let factor = function
  | Checker.Binary (a, b) ->
    let scaled = Z_.mul a (Z_.shift_left Z_.one 64) in Z_.fdiv scaled b, Z_.cdiv scaled b
  | Checker.Natural (a, b) ->
    let q = Q.mul (Q.div (Q.make a b) ln2) (Exact.power 64) in
    let w = Z_.fdiv (Q.num q) (Q.den q) in
    let slack = Z_.succ (Z_.shift_right w 58) in Z_.sub w slack, Z_.add w slack
  | Checker.InverseRoot d ->
    (* 2^64 / (sqrt d ln 2): the root of 2^256 / d, over ln 2 in units of 2^-64 *)
    let root = Z_.sqrt (Z_.fdiv (Z_.shift_left Z_.one 256) d) in
    let q = Q.div (Q.make root (Z_.shift_left Z_.one 64)) ln2 in
    let w = Z_.fdiv (Q.num q) (Q.den q) in
    let slack = Z_.succ (Z_.shift_right w 58) in Z_.sub w slack, Z_.add w slack

let q_of (x : Checker.q) = Q.make x.Checker.qnum x.Checker.qden
let of_q x = { Checker.qnum = Q.num x; Checker.qden = Q.den x }

(* A stored format: its words in Coq, its dtype, fraction and exponent bits. *)
type format = { words : Checker.word_format; dtype : string; fraction : int; exponent_bits : int }
let format_of = function
  | "bf16" -> { words = Checker.bf16_words; dtype = "BF16"; fraction = 7; exponent_bits = 8 }
  | "fp16" -> { words = Checker.fp16_words; dtype = "F16"; fraction = 10; exponent_bits = 5 }
  | "fp32" -> { words = Checker.fp32_words; dtype = "F32"; fraction = 23; exponent_bits = 8 }
  | s -> raise (Model.Not_covered ("operands in " ^ s))

let bias f = (1 lsl (f.exponent_bits - 1)) - 1
(* m 2^e of a finite word, sign aside *)
let parts f w =
  let m = w land ((1 lsl f.fraction) - 1) and e = (w lsr f.fraction) land ((1 lsl f.exponent_bits) - 1) in
  (if e = 0 then m else m lor (1 lsl f.fraction)), (if e = 0 then 1 else e) - bias f - f.fraction
let negative f w = w lsr (f.fraction + f.exponent_bits) = 1
let infinite f w = (w lsr f.fraction) land ((1 lsl f.exponent_bits) - 1) = (1 lsl f.exponent_bits) - 1
let to_float f w =
  let m, e = parts f w in
  let x = Float.ldexp (float m) e in if negative f w then -. x else x

(* Of a tensor: the least exponent of a nonzero word's last bit, and the largest magnitude. *)
let survey f (r : Tensors.rows) name =
  let least = ref max_int and largest = ref 0. and most = ref (0, 0) in
  let look w =
    if infinite f w then rejected "%s: found NaN or infinity" name;
    let m, e = parts f w in
    if m <> 0 then begin
      least := min !least e;
      let x = Float.ldexp (float m) e in
      if x > !largest then (largest := x; most := (m, e))
    end in
  if r.Tensors.word_bytes = 2 then begin
    let seen = Bytes.make 65536 '\000' in
    for i = 0 to r.Tensors.count - 1 do
      let at = r.Tensors.offset i in
      for c = 0 to r.Tensors.channels - 1 do
        Bytes.unsafe_set seen (Tensors.get16 r.Tensors.source (at + (2 * c))) '\001'
      done
    done;
    Bytes.iteri (fun w c -> if c = '\001' then look w) seen
  end else
    for i = 0 to r.Tensors.count - 1 do
      for c = 0 to r.Tensors.channels - 1 do look (Tensors.word r i c) done
    done;
  (if !least = max_int then 0 else min !least 0), !most

(* Words to doubles. *)
let reader f (r : Tensors.rows) =
  if r.Tensors.word_bytes = 2 then begin
    let table = Array.init 65536 (fun w -> if infinite f w then 0. else to_float f w) in
    fun (into : float array) i ->
      let at = r.Tensors.offset i in
      for c = 0 to r.Tensors.channels - 1 do
        Array.unsafe_set into c (Array.unsafe_get table (Tensors.get16 r.Tensors.source (at + (2 * c))))
      done
  end else
    fun into i ->
      for c = 0 to r.Tensors.channels - 1 do
        into.(c) <- Int32.float_of_bits (Int32.of_int (Tensors.word r i c))
      done

let square (a : float array) =
  let s = ref 0. in
  for c = 0 to Array.length a - 1 do let x = Array.unsafe_get a c in s := !s +. (x *. x) done;
  !s

(* A double x upward to a whole number of units 2^e. *)
let upward x e =
  let q = Q.mul (Q.of_float (x *. (1. +. 0x1p-36))) (Exact.power (- e)) in
  Z_.cdiv (Q.num q) (Q.den q)

type rows_found = { key2 : float; query2 : float; margin : float }

(* Largest squares of norms, and the least of (mean score - mu) of any row, where [mu] bounds mu from
   the square of the norm and [c] is the factor. *)
let rows f (q : Tensors.rows) (k : Tensors.rows) ~seen ~c ~mu =
  let d = q.Tensors.channels in
  let read_q = reader f q and read_k = reader f k in
  let row = Array.make d 0. and sums = Array.make d 0. in
  let added = ref 0 and key2 = ref 0. and query2 = ref 0. and margin = ref infinity in
  let add () =
    read_k row !added;
    key2 := Float.max !key2 (square row);
    for i = 0 to d - 1 do Array.unsafe_set sums i (Array.unsafe_get sums i +. Array.unsafe_get row i) done;
    incr added in
  for i = 0 to q.Tensors.count - 1 do
    let n = seen i in
    if n > 0 then begin
      while !added < n do add () done;
      read_q row i;
      let q2 = square row in
      query2 := Float.max !query2 q2;
      let s = ref 0. in
      for i = 0 to d - 1 do s := !s +. (Array.unsafe_get row i *. Array.unsafe_get sums i) done;
      margin := Float.min !margin ((c *. !s /. float n) -. mu q2)
    end
  done;
  while !added < k.Tensors.count do add () done;
  { key2 = !key2; query2 = !query2; margin = !margin }
