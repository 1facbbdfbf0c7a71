(* headroom-check CERTIFICATE TENSORS: checks a certificate with the extracted checker.

   Exit codes: 0 accepted, 1 rejected, 2 the tensors cannot be read, 4 no theorem covers it.

   What this program says rests on the theorem Certified.certified, on Coq's extraction and OCaml's
   compiler, and on this driver's reading of files: bytes to words, kernel text to a kernel. The
   numbers it looks for (hints) are not trusted: the extracted checker decides. *)

exception Rejected of string

let rejected fmt = Printf.ksprintf (fun s -> raise (Rejected s)) fmt
let zi = Z_.of_int

let read_file file =
  try
    let channel = open_in_bin file in
    Fun.protect ~finally:(fun () -> close_in channel)
      (fun () -> really_input_string channel (in_channel_length channel))
  with Sys_error e -> raise (Rejected e)

(* ---- the certificate ---- *)

type certificate = {
  kernel_text : string; policy : string; verdict : string; path : string; eps : Q.t;
  id : string; prefix : string; layout : string; batch : int; query_head : int; kv_head : int;
  queries : int; keys : int; channels : int; value_channels : int; mask : string; length : int;
  scale : string; stored : string * string * string; cast : bool; digests : string * string * string;
  cap : Q.t; kappa : Q.t }

let check_claims v =
  let value_of = function
    | Json.String "inf" -> `Inf | Json.String "-inf" -> `Minus_inf
    | Json.String s -> `Exact (Exact.hexadecimal s)
    | _ -> rejected "claims: expected hexadecimal floats" in
  let le a b = match a, b with
    | `Minus_inf, _ | _, `Inf -> true
    | `Inf, _ | _, `Minus_inf -> false
    | `Exact x, `Exact y -> Q.leq x y in
  match Json.member "" "claims" v with
  | Json.Array claims ->
    List.iter (fun c ->
      let id = Json.text "claims" "id" c in
      let lo, hi = match Json.member id "value" c with
        | Json.Array [ a; b ] -> value_of a, value_of b
        | _ -> rejected "%s.value: expected two numbers" id in
      if not (le lo hi) then rejected "%s.value: the ends are in the wrong order" id;
      let holds = match Json.text id "kind" c, Json.member id "limit" c with
        | "at-most", limit -> le hi (value_of limit)
        | "at-least", limit -> le (value_of limit) lo
        | "none", _ -> true
        | kind, _ -> rejected "%s.kind: found \"%s\"" id kind in
      let stated = Json.text id "outcome" c in
      if (stated = "holds") <> holds then rejected "%s.outcome: found \"%s\" against its numbers" id stated;
      match Json.member id "required" c with
      | Json.Bool required -> if required && not holds then rejected "%s: required, and does not hold" id
      | _ -> rejected "%s.required: expected true or false" id) claims
  | _ -> rejected "claims: expected an array"

let certificate text =
  let v = try Json.parse text with Json.Error e -> rejected "not JSON: %s" e in
  try
    let schema = Json.text "" "schema" v in
    if schema <> "headroom-certificate/1" then rejected "schema: found \"%s\", expected \"headroom-certificate/1\"" schema;
    let kernel = Json.member "" "kernel" v and head = Json.member "" "head" v in
    let parameters = Json.member "" "parameters" v in
    let kernel_text = Json.text "kernel" "text" kernel in
    let digest = Json.text "kernel" "sha256" kernel in
    let found = Sha256.of_string kernel_text in
    if found <> digest then rejected "kernel.sha256: found %s, the text has %s" digest found;
    let policy = Json.text "" "policy" v and verdict = Json.text "" "verdict" v in
    if policy <> "clis" then raise (Model.Not_covered ("policy " ^ policy));
    if verdict <> "certified" then raise (Model.Not_covered ("verdict " ^ verdict));
    check_claims v;
    if Json.has "modifiers" head then raise (Model.Not_covered "head.modifiers");
    let gate = Json.member "" "gate" v in
    let stored = Json.member "head" "stored" head and sha = Json.member "head" "sha256" head in
    let three o path = Json.text path "q" o, Json.text path "k" o, Json.text path "v" o in
    { kernel_text; policy; verdict; path = Json.text "" "path" v;
      eps = Exact.hexadecimal (Json.text "parameters" "eps" parameters);
      id = Json.text "head" "id" head; prefix = Json.text "head" "prefix" head;
      layout = Json.text "head" "layout" head;
      batch = (match Json.member "head" "batch" head with Json.Null -> 0 | _ -> Json.count "head" "batch" head);
      query_head = Json.count "head" "query_head" head; kv_head = Json.count "head" "kv_head" head;
      queries = Json.count "head" "queries" head; keys = Json.count "head" "keys" head;
      channels = Json.count "head" "channels" head; value_channels = Json.count "head" "value_channels" head;
      mask = Json.text "head" "mask" head; length = Json.count "head" "length" head;
      scale = Json.text "head" "scale" head; stored = three stored "head.stored";
      cast = Json.member "head" "cast" head <> Json.Null; digests = three sha "head.sha256";
      cap = Exact.hexadecimal (Json.text "gate" "C" gate);
      kappa = Exact.hexadecimal (Json.text "gate" "kappa" gate) }
  with
  | Json.Error e -> rejected "%s" e
  | Exact.Bad e -> rejected "%s" e

(* ---- hints: numbers for the checker to decide on ---- *)

let scale_of text =
  let rational s =
    match (if String.length s > 1 && s.[0] = '0' && s.[1] = 'x' then Exact.hexadecimal s else Q.of_string s) with
    | q when Q.sign q > 0 -> q
    | _ -> rejected "head.scale: found \"%s\"" s
    | exception _ -> rejected "head.scale: found \"%s\"" s in
  let n = String.length text in
  if n > 8 && String.sub text 0 7 = "1/sqrt(" && text.[n - 1] = ')' then
    match int_of_string_opt (String.sub text 7 (n - 8)) with
    | Some d when d > 0 -> Checker.InverseRoot (zi d)
    | _ -> rejected "head.scale: found \"%s\"" text
  else if n > 5 && String.sub text 0 5 = "log2:" then
    let q = rational (String.sub text 5 (n - 5)) in Checker.Binary (Q.num q, Q.den q)
  else let q = rational text in Checker.Natural (Q.num q, Q.den q)

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

let format_of name = match name with
  | "bf16" -> Checker.bf16_words, "BF16", 7, 8
  | "fp16" -> Checker.fp16_words, "F16", 10, 5
  | "fp32" -> Checker.fp32_words, "F32", 23, 8
  | s -> raise (Model.Not_covered ("operands in " ^ s))

(* the least exponent of a nonzero word's last bit: the unit of the tensor's integers *)
let unit_of (r : Tensors.rows) fraction exponent_bits =
  let least = ref max_int in
  let bias = (1 lsl (exponent_bits - 1)) - 1 in
  for i = 0 to r.count - 1 do
    for c = 0 to r.channels - 1 do
      let w = Tensors.word r i c in
      let m = w land ((1 lsl fraction) - 1) in
      let e = (w lsr fraction) land ((1 lsl exponent_bits) - 1) in
      if e = (1 lsl exponent_bits) - 1 then rejected "the data hold NaN or infinity";
      let significand = if e = 0 then m else m lor (1 lsl fraction) in
      if significand <> 0 then least := min !least ((if e = 0 then 1 else e) - bias - fraction)
    done
  done;
  if !least = max_int then 0 else min !least 0

let run certificate_file tensor_file =
  let c = certificate (read_file certificate_file) in
  if c.path <> "clis" then raise (Model.Not_covered ("path " ^ c.path));
  if c.cast then raise (Model.Not_covered "tensors cast before use");
  let tensors = Tensors.load tensor_file in
  let rows suffix head stored count channels digest =
    let name = c.prefix ^ suffix in
    match List.assoc_opt name tensors with
    | None -> rejected "%s: found no tensor \"%s\"" tensor_file name
    | Some t ->
      let _, dtype, _, _ = format_of stored in
      if t.Tensors.dtype <> dtype then rejected "%s: found %s, expected %s" name t.Tensors.dtype dtype;
      (match Tensors.rows_of t c.layout c.batch head with
       | Some r when r.Tensors.count = count && r.Tensors.channels = channels ->
         let found = Tensors.digest r in
         if found <> digest then rejected "%s: the digest is %s, the certificate has %s" name found digest;
         r
       | _ -> rejected "%s: shape or head does not fit the certificate" name) in
  let sq, sk, sv = c.stored and dq, dk, dv = c.digests in
  let q = rows "q" c.query_head sq c.queries c.channels dq in
  let k = rows "k" c.kv_head sk c.keys c.channels dk in
  let v = rows "v" c.kv_head sv c.keys c.value_channels dv in
  (* grouped queries: query head h uses KV head h / (Hq / Hkv) *)
  let heads name = match (List.assoc (c.prefix ^ name) tensors).Tensors.shape, c.layout with
    | [ _; _ ], _ -> 1 | [ h; _; _ ], _ -> h | [ _; h; _; _ ], "bhnd" -> h | [ _; _; h; _ ], _ -> h | _ -> 1 in
  let hq = heads "q" and hk = heads "k" in
  if hk = 0 || hq mod hk <> 0 || c.query_head / (hq / hk) <> c.kv_head then
    rejected "head.kv_head: found %d for query head %d of %d, %d KV heads" c.kv_head c.query_head hq hk;
  let visible = min c.length c.keys in
  let seen = match c.mask with
    | "none" -> fun _ -> visible
    | "causal" when c.queries <> c.keys -> rejected "head.mask: causal, with %d queries and %d keys" c.queries c.keys
    | "causal" | "causal-top-left" -> fun i -> min visible (i + 1)
    | "causal-bottom-right" -> fun i -> max 0 (min visible (i + 1 + c.keys - c.queries))
    | m -> raise (Model.Not_covered ("mask " ^ m)) in
  let most = ref 0 in
  for i = 0 to c.queries - 1 do most := max !most (seen i) done;
  if !most = 0 then raise (Model.Not_covered "no row sees a key");
  let scale = scale_of c.scale in
  let binary = match scale with Checker.Binary _ -> true | _ -> false in
  let kernel, operand = try Model.kernel c.kernel_text ~keys:!most ~log2_scale:binary
    with Model.Malformed e -> rejected "%s" e in
  List.iter (fun s -> if s <> operand then raise (Model.Not_covered ("stored " ^ s ^ ", multiplied as " ^ operand)))
    [ sq; sk; sv ];
  let fmt, _, fraction, exponent_bits = format_of operand in
  let qe = unit_of q fraction exponent_bits and ke = unit_of k fraction exponent_bits
  and ve = unit_of v fraction exponent_bits in
  let words (r : Tensors.rows) i = List.init r.Tensors.channels (fun ch -> zi (Tensors.word r i ch)) in
  let bias = (1 lsl (exponent_bits - 1)) - 1 in
  let integer w unit =
    let m = w land ((1 lsl fraction) - 1) in
    let e = (w lsr fraction) land ((1 lsl exponent_bits) - 1) in
    let s = if e = 0 then m else m lor (1 lsl fraction) in
    let shift = (if e = 0 then 1 else e) - bias - fraction - unit in
    let x = if s = 0 then Z_.zero else if shift >= 0 then Z_.shift_left (zi s) shift else Z_.shift_right (zi s) (-shift) in
    if w lsr (fraction + exponent_bits) = 1 then Z_.neg x else x in
  let row r i unit = Array.init r.Tensors.channels (fun ch -> integer (Tensors.word r i ch) unit) in
  let square a = Array.fold_left (fun s x -> Z_.add s (Z_.mul x x)) Z_.zero a in
  let k2 = ref Z_.zero and v_max = ref Z_.zero in
  for j = 0 to c.keys - 1 do
    k2 := Z_.max !k2 (square (row k j ke));
    Array.iter (fun x -> v_max := Z_.max !v_max (Z_.abs x)) (row v j ve)
  done;
  let flo, fhi = factor scale in
  let constant = match scale with
    | Checker.Binary (a, b) -> Exact.fp32 (Q.make a b)
    | _ ->
      let lo = Exact.fp32 (Q.make flo (Z_.shift_left Z_.one 64)) and hi = Exact.fp32 (Q.make fhi (Z_.shift_left Z_.one 64)) in
      if not (Q.equal lo hi) then rejected "head.scale: too close to the middle of two FP32 numbers";
      lo in
  let in_units what x = match Exact.units x with
    | Some u -> u | None -> raise (Model.Not_covered (what ^ " finer than 2^-64")) in
  let cap = match Q.den c.cap with d when Z_.equal d Z_.one -> Q.num c.cap | _ -> rejected "gate.C: expected an integer" in
  let open Checker in
  let d = c.channels in
  let base = {
    c_d = zi d; c_qe = zi qe; c_ke = zi ke; c_K2 = !k2; c_flo = flo; c_fhi = fhi; c_e1 = Z_.zero; c_e0 = Z_.zero;
    c_err = Z_.zero; c_gn = Z_.zero; c_nn = Z_.zero; c_slope = in_units "kappa" c.kappa; c_C = cap; c_margin = Z_.zero } in
  let numbers constants = {
    n_constants = constants; n_constant = in_units "the factor" constant; n_N = zi !most; n_V = !v_max; n_ve = zi ve;
    n_G = Z_.zero; n_q = Z_.zero; n_bound = of_q Q.zero } in
  (* constants of a row, as constants_okb asks for them, rounded up *)
  let growth x h = Q.sub (Q.inv (Q.sub Q.one (Q.mul (Q.of_bigint h) x))) Q.one in
  let u = Exact.power (-24) in
  let g = growth (q_of (q_delta kernel.k_score)) (head_score_depth kernel (numbers base)) in
  let nodes = Q.of_int ((4 * d) + 1024) in
  let fl x = Q.make x (Z_.shift_left Z_.one 64) in
  let cc = Q.abs constant in
  let off = Q.max (Q.abs (Q.sub constant (fl flo))) (Q.abs (Q.sub constant (fl fhi))) in
  let eta = q_of (q_eta (Ieee kernel.k_flushes)) in
  let e1 = Q.add (Q.add (Q.mul cc g) off) (Q.mul u (Q.mul cc (Q.add Q.one g))) in
  let e0 = Q.add (Q.mul (Q.mul cc (Q.mul (Q.mul nodes (q_of (q_eta kernel.k_score))) (Q.add Q.one g))) (Q.add Q.one u)) eta in
  let gn = growth u (zi (d + 1)) in
  let nn = Q.mul (Q.mul nodes eta) (Q.add Q.one gn) in
  let up128 x = Z_.cdiv (Z_.mul (Q.num x) (Z_.shift_left Z_.one 128)) (Q.den x) in
  let constants = { base with c_e1 = Exact.units_up e1; c_e0 = Exact.units_up e0; c_gn = Exact.units_up gn; c_nn = up128 nn } in
  (* the largest score error and the least margin of any row *)
  let err = ref Z_.zero and margin = ref None in
  let sums = Array.make d Z_.zero and added = ref 0 in
  for i = 0 to c.queries - 1 do
    let n = seen i in
    if n > 0 then begin
      while !added < n do
        Array.iteri (fun ch x -> sums.(ch) <- Z_.add sums.(ch) x) (row k !added ke);
        incr added
      done;
      let r = row q i qe in
      let q2 = square r in
      let s = ref Z_.zero in
      Array.iteri (fun ch x -> s := Z_.add !s (Z_.mul x sums.(ch))) r;
      err := Z_.max !err (row_err constants q2);
      let m = row_margin constants (zi n) q2 !s in
      margin := Some (match !margin with None -> m | Some x -> Z_.min x m)
    end
  done;
  let least = match !margin with Some m -> m | None -> Z_.zero in
  let constants = { constants with c_err = !err; c_margin = least } in
  let magnitude = Q.mul (Q.of_bigint !v_max) (Exact.power ve) in
  let rec exponent g = if Q.leq magnitude (Exact.power g) then g else exponent (g + 1) in
  let g = exponent 0 in
  let h = { (numbers constants) with n_G = zi g } in
  let bound = q_of (q_output kernel h) in
  (* as a number of 24 bits, upward *)
  let bound = if Q.sign bound <= 0 then Q.zero else Q.mul (Exact.fp32 bound) (Q.add Q.one (Exact.power (-22))) in
  let h = { h with n_bound = of_q bound } in
  let rec quotient e = if e > 120 then None else
      let h = { h with n_q = zi e } in if head_okb kernel h then Some h else quotient (e + 1) in
  let h = match quotient g with Some h -> h | None ->
    let why = if not (kernel_okb kernel) then "the kernel" else "C or the margin" in
    rejected "%s: not within the theorem's conditions (margin %.2f bits)" why
      (Q.to_float (fl (Z_.sub least !err)) -. float (Z_.to_int (promise_of kernel.k_exp2 cap).pr_L)) in
  let eps_bits =
    let rec bits t = if Q.leq (Exact.power (-t)) c.eps then t else bits (t + 1) in
    if Q.sign c.eps <= 0 then rejected "parameters.eps: found nothing above 0" else bits 1 in
  let t = {
    t_queries = c.queries; t_keys = c.keys; t_dims = d; t_dims_v = c.value_channels;
    t_q_format = fmt; t_k_format = fmt; t_v_format = fmt;
    t_q = words q; t_k = words k; t_v = words v; t_seen = seen } in
  (* the decision *)
  if not (lost_within kernel h (zi eps_bits)) then
    rejected "mass.lost: the margin gives no 2^-%d" eps_bits;
  if not (check_words kernel h scale t) then begin
    if not (kernel_okb kernel) then rejected "the kernel is not one of the theorem's";
    if not (constants_okb kernel h) then rejected "the constants do not hold";
    rejected "a row or a key does not hold its inequalities: C = %s, kappa = %g do not fit the data"
      (Z_.to_string cap) (Q.to_float c.kappa)
  end;
  Printf.printf "accepted %s\n" c.id;
  Printf.printf "  checked   every row of %d x %d x %d: finite, l >= 2^%s, lost mass <= 2^-%d, |output - exact| <= %.3g\n"
    c.queries c.keys d (Z_.to_string (promise_of kernel.k_exp2 cap).pr_low) eps_bits (Q.to_float bound);
  Printf.printf "  theorem   Certified.certified, Certified.lost_mass_within (Coq, proofs/coq)\n";
  Printf.printf "  trusted   this driver's reading of files; Coq's extraction and Zarith; that the machine is as the kernel says\n"

let () =
  let code = match Sys.argv with
    | [| _; certificate; tensors |] ->
      (try run certificate tensors; 0 with
       | Rejected why -> Printf.printf "rejected %s: %s\n" certificate why; 1
       | Model.Malformed why -> Printf.printf "rejected %s: %s\n" certificate why; 1
       | Tensors.Unreadable why -> Printf.eprintf "error: %s\n" why; 2
       | Model.Not_covered what -> Printf.printf "not covered %s: no theorem speaks of %s\n" certificate what; 4)
    | _ -> prerr_endline "usage: headroom-check CERTIFICATE TENSORS.safetensors"; 2 in
  exit code
