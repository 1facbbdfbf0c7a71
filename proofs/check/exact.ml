(* Exact numbers as certificates and kernel files write them. *)

exception Bad of string

let power k = if k >= 0 then Q.of_bigint (Z_.shift_left Z_.one k) else Q.make Z_.one (Z_.shift_left Z_.one (-k))

(* C99 hexadecimal floats: sign, 0x, digits with a point, p, exponent. *)
let hexadecimal s =
  let bad () = raise (Bad (Printf.sprintf "found \"%s\", expected a hexadecimal float" s)) in
  let n = String.length s in
  let negative = n > 0 && s.[0] = '-' in
  let at = if negative then 1 else 0 in
  if n < at + 5 || s.[at] <> '0' || s.[at + 1] <> 'x' then bad ();
  let p = match String.index_opt s 'p' with Some p -> p | None -> bad () in
  let digits = String.sub s (at + 2) (p - at - 2) in
  let whole, part = match String.index_opt digits '.' with
    | None -> digits, ""
    | Some i -> String.sub digits 0 i, String.sub digits (i + 1) (String.length digits - i - 1) in
  let hex = String.for_all (function '0'..'9' | 'a'..'f' -> true | _ -> false) in
  if whole = "" || not (hex whole && hex part) then bad ();
  let exponent = String.sub s (p + 1) (n - p - 1) in
  let unsigned = if exponent <> "" && (exponent.[0] = '+' || exponent.[0] = '-')
    then String.sub exponent 1 (String.length exponent - 1) else exponent in
  if unsigned = "" || String.length unsigned > 5 || not (String.for_all (function '0'..'9' -> true | _ -> false) unsigned)
  then bad ();
  let e = int_of_string unsigned * (if exponent.[0] = '-' then -1 else 1) in
  let mantissa = Z_.of_string_base 16 (whole ^ part) in
  let value = Q.mul (Q.of_bigint mantissa) (power (e - (4 * String.length part))) in
  if negative then Q.neg value else value

(* Whole numbers and fractions of them, in decimal. *)
let fraction s =
  let whole t =
    if t = "" || String.length t > 400 || not (String.for_all (function '0'..'9' -> true | _ -> false) t) then
      raise (Bad (Printf.sprintf "found \"%s\", expected a fraction" s));
    Z_.of_string_base 10 t in
  match String.split_on_char '/' s with
  | [ a ] -> Q.of_bigint (whole a)
  | [ a; b ] ->
    let den = whole b in
    if Z_.sign den = 0 then raise (Bad (Printf.sprintf "found \"%s\", expected a fraction" s));
    Q.make (whole a) den
  | _ -> raise (Bad (Printf.sprintf "found \"%s\", expected a fraction" s))

(* Whole multiples of 2^-64. *)
let units q =
  let scaled = Q.mul q (power 64) in
  if Z_.equal (Q.den scaled) Z_.one then Some (Q.num scaled) else None
let units_up q = Z_.cdiv (Z_.mul (Q.num q) (Z_.shift_left Z_.one 64)) (Q.den q)

(* To nearest even with 24 bits; [q] within FP32's normal range. *)
let fp32 q =
  let negative = Q.sign q < 0 in
  let q = Q.abs q in
  if Q.sign q = 0 then q else begin
    let e = ref 0 in
    while Q.geq q (power (!e + 1)) do incr e done;
    while Q.lt q (power !e) do decr e done;
    let scaled = Q.mul q (power (23 - !e)) in
    let whole = Z_.fdiv (Q.num scaled) (Q.den scaled) in
    let rest = Q.sub scaled (Q.of_bigint whole) in
    let half = Q.make Z_.one (Z_.of_int 2) in
    let up = Q.gt rest half || (Q.equal rest half && Z_.is_odd whole) in
    let rounded = Q.mul (Q.of_bigint (if up then Z_.succ whole else whole)) (power (!e - 23)) in
    if negative then Q.neg rounded else rounded
  end
