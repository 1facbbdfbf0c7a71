(* The canonical text of a kernel file, and the kernel of the theory that it stands for. *)

exception Not_covered of string   (* no theorem speaks of this kernel *)
exception Malformed of string

(* Lines `key = value` under `[section]`; facts (`[[fact]]`) are read over. *)
let fields text =
  let table = Hashtbl.create 64 in
  let section = ref "" in
  List.iter (fun line ->
    let line = String.trim line in
    let n = String.length line in
    if n = 0 then () else
    if n > 4 && String.sub line 0 2 = "[[" then section := "[["
    else if line.[0] = '[' && line.[n - 1] = ']' then section := String.sub line 1 (n - 2) ^ "."
    else if !section = "[[" then ()
    else match String.index_opt line '=' with
      | None -> raise (Malformed ("kernel.text: found " ^ line))
      | Some i ->
        let key = !section ^ String.trim (String.sub line 0 i) in
        let value = String.trim (String.sub line (i + 1) (n - i - 1)) in
        let value = match String.length value with
          | k when k >= 2 && value.[0] = '"' && value.[k - 1] = '"' -> String.sub value 1 (k - 2)
          | _ -> value in
        if Hashtbl.mem table key then raise (Malformed ("kernel.text: duplicate key " ^ key));
        Hashtbl.add table key value)
    (String.split_on_char '\n' text);
  table

(* Every key that a complete file has; any other is one that the theory does not know. *)
let known = [
  "complete"; "name"; "machine"; "operand"; "scale.scale"; "scale.log2e"; "scale.constant";
  "scale.arithmetic"; "centring.keys"; "centring.mean"; "centring.difference"; "score.accumulator";
  "score.order"; "score.flush_to_zero"; "score.rounded_products"; "score.store";
  "score.scale_before_store"; "exponent.format"; "exponent.fused"; "exp2.unit"; "exp2.result";
  "exp2.max_error_ulps"; "exp2.flush_to_zero"; "exp2.monotone_at_integers"; "exp2.propagates_nan";
  "exp2.evidence"; "exp2.source"; "p.format"; "p.saturate"; "p.flush_to_zero";
  "p.denominator_rounded"; "denominator.accumulator"; "denominator.order";
  "denominator.flush_to_zero"; "denominator.rounded_products"; "numerator.accumulator";
  "numerator.order"; "numerator.flush_to_zero"; "numerator.rounded_products"; "normalise.division";
  "normalise.reciprocal_max_error_ulps"; "normalise.reciprocal_flush_to_zero";
  "normalise.reciprocal_exact_at_powers_of_two"; "normalise.guard"; "normalise.guard_value";
  "normalise.output"; "normalise.evidence"; "normalise.source"; "stabilizer.norm";
  "stabilizer.store"; "stabilizer.round_up"; "gate.vmax"; "gate.gate"; "gate.unit";
  "gate.query_block"; "tiles.keys"; "tiles.padding"; "tiles.empty_row";
  (* optional ones: of sums below; of no consequence for O of rows that see a key *)
  "score.denormals_are_zero"; "denominator.denormals_are_zero"; "numerator.denormals_are_zero";
  "tiles.queries"; "lse.base" ]

let kernel text ~keys ~log2_scale =
  let table = fields text in
  Hashtbl.iter (fun key _ -> if not (List.mem key known) then raise (Not_covered key)) table;
  let get key = match Hashtbl.find_opt table key with
    | Some v -> v | None -> raise (Malformed ("kernel.text: found no " ^ key)) in
  let flag key = match get key with
    | "true" -> true | "false" -> false
    | v -> raise (Malformed (Printf.sprintf "kernel.text: %s: found %s" key v)) in
  (* Subnormal inputs read as zero change nothing where none is left: sums that flush have no
     subnormal partial sum, the checker refuses subnormal operands where the score's sums flush
     (keeps_subnormals), and weights and P are none where exp2 and P flush. *)
  let daz section = Hashtbl.mem table (section ^ ".denormals_are_zero") && flag (section ^ ".denormals_are_zero") in
  let needs section key = if daz section && not (flag key) then
      raise (Not_covered (Printf.sprintf "%s.denormals_are_zero without %s" section key)) in
  needs "score" "score.flush_to_zero";
  needs "denominator" "denominator.flush_to_zero";
  needs "denominator" "exp2.flush_to_zero";
  needs "denominator" "p.flush_to_zero";
  needs "numerator" "numerator.flush_to_zero";
  needs "numerator" "exp2.flush_to_zero";
  needs "numerator" "p.flush_to_zero";
  let only key values =
    if not (List.mem (get key) values) then raise (Not_covered (key ^ " = " ^ get key)) in
  let number key = match get key with
    | s when String.length s > 1 && s.[0] = '0' && s.[1] = 'x' -> Exact.hexadecimal s
    | s -> (try Exact.fraction s with Exact.Bad _ -> raise (Malformed (Printf.sprintf "kernel.text: %s: found %s" key s))) in
  only "complete" [ "true" ];
  only "centring.keys" [ "none" ];
  only "scale.scale" [ "score" ];
  if not log2_scale then only "scale.log2e" [ "score" ];
  only "scale.constant" [ "fp32" ];
  List.iter (fun key -> only key [ "fp32" ])
    [ "score.accumulator"; "score.store"; "exponent.format"; "exp2.result"; "denominator.accumulator";
      "numerator.accumulator"; "stabilizer.norm"; "stabilizer.store" ];
  only "stabilizer.round_up" [ "true" ];
  only "p.format" [ "bf16"; "fp32"; "tf32" ];
  only "p.saturate" [ "false" ];
  only "denominator.rounded_products" [ "false" ];
  only "normalise.guard" [ "none"; "zero-to-one"; "zero-to-zero" ];
  only "normalise.output" [ "bf16"; "fp16"; "fp32" ];
  only "tiles.padding" [ "sliced"; "masked" ];
  let integer s = match int_of_string_opt s with
    | Some n when n >= 0 -> Z_.of_int n | _ -> raise (Malformed ("kernel.text: found " ^ s)) in
  let order key = match String.split_on_char ':' (get key) with
    | [ "sequential" ] -> Checker.Sequential
    | [ "pairwise" ] -> Checker.Pairwise
    | [ "any" ] -> Checker.AnyOrder
    | [ "tile"; n ] -> Checker.Tile (integer n)
    | [ "lanes"; n ] -> Checker.Lanes (integer n)
    | [ "matrix-unit"; _; k ] -> Checker.Steps (integer k)
    | _ -> raise (Malformed ("kernel.text: " ^ key)) in
  let adder section = match String.split_on_char ':' (get (section ^ ".order")) with
    | [ "matrix-unit"; f; k ] ->
      if flag (section ^ ".flush_to_zero") then raise (Not_covered (section ^ ": a matrix unit that flushes"));
      Checker.MatrixUnit (integer f, integer k)
    | _ -> Checker.Ieee (flag (section ^ ".flush_to_zero")) in
  (match adder "denominator" with
   | Checker.MatrixUnit _ -> raise (Not_covered "denominator.order") | Checker.Ieee _ -> ());
  (* k ulps of the result are k / (2^23 - k) relatively, here in units of 2^-60, rounded up *)
  let relative ulps = Z_.cdiv (Z_.mul (Q.num ulps) (Z_.shift_left Z_.one 60))
      (Z_.sub (Z_.mul (Q.den ulps) (Z_.shift_left Z_.one 23)) (Q.num ulps)) in
  let half = Q.make Z_.one (Z_.of_int 2) in
  let prec, emax = match get "p.format" with "bf16" -> 8, 128 | "tf32" -> 11, 128 | _ -> 24, 128 in
  let ulps = number "exp2.max_error_ulps" in
  let exp2 =
    if Q.leq ulps half then Checker.Rounded (flag "exp2.flush_to_zero")
    else begin
      if not (flag "exp2.flush_to_zero") then raise (Not_covered "exp2: ulps without flushing");
      (* weights of 2^h + 1 units: as fine as the error, P's bits and the sums' bits allow *)
      let error = relative ulps in
      let rounded_away = Z_.lt error (Z_.shift_left Z_.one (60 - prec)) in
      let fits h =
        Z_.leq error (Z_.shift_left Z_.one (60 - h)) && (rounded_away || h + 1 <= prec)
        && Z_.leq (Z_.mul (Z_.of_int keys) (Z_.succ (Z_.shift_left Z_.one h))) (Z_.shift_left Z_.one 24) in
      let h = ref 0 in
      while fits (!h + 1) do incr h done;
      Checker.Within (error, Z_.of_int 60, Z_.of_int !h)
    end in
  let rulps = number "normalise.reciprocal_max_error_ulps" in
  let reciprocal = get "normalise.division" = "reciprocal" in
  let exact = flag "normalise.reciprocal_exact_at_powers_of_two" && Q.leq rulps half in
  let division =
    if not reciprocal then Checker.Divide
    else if Q.leq rulps half then Checker.Reciprocal (Z_.one, Z_.of_int 24)
    else Checker.Reciprocal (relative rulps, Z_.of_int 60) in
  let out_prec, out_emax = match get "normalise.output" with "bf16" -> 8, 128 | "fp16" -> 11, 16 | _ -> 24, 128 in
  (* Whether the arithmetic that no key speaks of (norms, the factor, mu, O times 1 / l) flushes: as
     the rest outside matrix units does, or, where that is of two minds, both ways. *)
  let summed section = match adder section with
    | Checker.MatrixUnit _ -> [] | Checker.Ieee _ -> [ flag (section ^ ".flush_to_zero") ] in
  let stages = [ flag "denominator.flush_to_zero"; flag "exp2.flush_to_zero" ] @ summed "score" @ summed "numerator"
               @ (if reciprocal then [ flag "normalise.reciprocal_flush_to_zero" ] else []) in
  (* O is converted as P is, if to the same format *)
  let out_flushes flushes =
    if get "normalise.output" = "bf16" && get "p.format" = "bf16" then flag "p.flush_to_zero"
    else flushes && get "normalise.output" <> "fp16" in
  let readings = List.filter (fun b -> List.mem b stages) [ true; false ] in
  let z = Z_.of_int in
  List.map (fun flushes -> { Checker.k_flushes = flushes;
    k_score = adder "score"; k_score_order = order "score.order";
    k_score_rounded = flag "score.rounded_products"; k_fused = flag "exponent.fused"; k_exp2 = exp2;
    k_p_prec = z prec; k_p_emax = z emax; k_p_flushes = flag "p.flush_to_zero";
    k_sums_stored = flag "p.denominator_rounded";
    k_l_flushes = flag "denominator.flush_to_zero"; k_l_order = order "denominator.order";
    k_O = adder "numerator"; k_O_order = order "numerator.order";
    k_O_rounded = flag "numerator.rounded_products"; k_division = division;
    k_l_max = z (if reciprocal then (if exact then 126 else 125) else 128);
    k_out_prec = z out_prec; k_out_emax = z out_emax; k_out_flushes = out_flushes flushes }) readings,
  get "operand"
