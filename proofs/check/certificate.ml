(* A certificate's text to what it says; whatever contradicts itself is rejected. *)

exception Rejected of string
let rejected fmt = Printf.ksprintf (fun s -> raise (Rejected s)) fmt

type number = Minus_inf | Exact of Q.t | Inf
let number path = function
  | Json.String "inf" -> Inf | Json.String "-inf" -> Minus_inf
  | Json.String s -> (try Exact (Exact.hexadecimal s) with Exact.Bad e -> rejected "%s: %s" path e)
  | _ -> rejected "%s: expected a hexadecimal float" path
let le a b = match a, b with
  | Minus_inf, _ | _, Inf -> true
  | Inf, _ | _, Minus_inf -> false
  | Exact x, Exact y -> Q.leq x y

type t = {
  kernel_text : string; eps : Q.t; max_error : Q.t option;
  id : string; prefix : string; layout : string; batch : int; query_head : int; kv_head : int;
  queries : int; keys : int; channels : int; value_channels : int; mask : string; length : int;
  scale : string; stored : string * string * string; digests : string * string * string;
  cap : Q.t; kappa : Q.t; v_magnitude : Q.t; most_visible : int;
  exponent_upper : number   (* the largest stored exponent, as the claim has it *) }

(* What a certified head of `clis` has to claim. *)
let required_claims = [
  "operand.finite"; "exponent.defined"; "exp2.contract"; "sum.absorption"; "score.range"; "exponent.upper";
  "p.range"; "l.range"; "o.range"; "l.nonzero"; "normalise.range"; "mass.lost"; "product.flush"; "gate.conservative" ]

(* Claims of a range, in log2: FP32's is the widest of the formats that are covered. *)
let ranges = [ "exponent.defined"; "exponent.upper"; "p.range"; "l.range"; "o.range"; "normalise.range" ]

let check_claims v ~eps ~max_error ~most_visible =
  let exponent_upper = ref Inf in
  let seen = Hashtbl.create 32 in
  let one c =
    let id = Json.text "claims" "id" c in
    let number key = number (id ^ "." ^ key) in
    let lo, hi = match Json.member id "value" c with
      | Json.Array [ a; b ] -> number "value" a, number "value" b
      | _ -> rejected "%s.value: expected two numbers" id in
    if not (le lo hi) then rejected "%s.value: the ends are in the wrong order" id;
    let unit = Json.text id "unit" c in
    if unit <> "log2" && not (le (Exact Q.zero) lo) then rejected "%s.value: found a negative number" id;
    let kind = Json.text id "kind" c and limit = Json.member id "limit" c in
    let holds = match kind with
      | "at-most" -> le hi (number "limit" limit)
      | "at-least" -> le (number "limit" limit) lo
      | "none" -> if limit <> Json.Null then rejected "%s.limit: expected null" id else true
      | kind -> rejected "%s.kind: found \"%s\"" id kind in
    let stated = Json.text id "outcome" c in
    if (stated = "holds") <> holds then rejected "%s.outcome: found \"%s\" against its numbers" id stated;
    let required = match Json.member id "required" c with
      | Json.Bool b -> b | _ -> rejected "%s.required: expected true or false" id in
    if required && not holds then rejected "%s: required, and does not hold" id;
    let must = List.mem id required_claims || (id = "output.error" && max_error <> None) in
    if must && not required then rejected "%s.required: found false" id;
    let limited what = if kind <> "at-most" || number "limit" limit <> Exact what then
        rejected "%s.limit: found another than the parameters have" id in
    if id = "mass.lost" || id = "product.flush" then limited eps;
    (match id, max_error with "output.error", Some most -> limited most | _ -> ());
    if id = "score.range" then limited Q.zero;
    if List.mem id ranges && unit = "log2" && kind = "at-most" && not (le (number "limit" limit) (Exact (Q.of_int 128))) then
      rejected "%s.limit: beyond the range of FP32" id;
    if id = "sum.absorption" then
      (match hi with
       | Exact h when Q.to_float h < Float.log2 (float most_visible) -. 1e-9 ->
         rejected "sum.absorption.value: rows see %d keys" most_visible
       | _ -> ());
    if id = "exponent.upper" then exponent_upper := hi;
    (* a margin in bits is the difference, rounded down *)
    (match unit, kind, Json.member id "margin_bits" c with
     | "log2", "at-most", m when hi <> Minus_inf ->
       (match number "limit" limit, hi, number "margin_bits" m with
        | Exact l, Exact h, Exact m when Q.gt m (Q.sub l h) -> rejected "%s.margin_bits: more than limit less value" id
        | _ -> ())
     | "log2", "at-least", m ->
       (match number "limit" limit, lo, number "margin_bits" m with
        | Exact l, Exact h, Exact m when Q.gt m (Q.sub h l) -> rejected "%s.margin_bits: more than value less limit" id
        | _ -> ())
     | ("log2" | "relative" | "absolute"), _, _ -> ()
     | unit, _, _ -> rejected "%s.unit: found \"%s\"" id unit);
    Hashtbl.add seen id (required, Json.member id "margin_bits" c) in
  (match Json.member "" "claims" v with
   | Json.Array claims -> List.iter one claims
   | _ -> rejected "claims: expected an array");
  List.iter (fun id -> if not (Hashtbl.mem seen id) then rejected "claims: found no %s" id) required_claims;
  let binding = Json.text "" "binding" v in
  if not (List.exists (fun (required, margin) -> required && margin = Json.member "" "margin_bits" v)
            (Hashtbl.find_all seen binding)) then
    rejected "binding: no required claim \"%s\" has the margin that is stated" binding;
  !exponent_upper

(* head.id ends in the prefix and the head's number, after a colon. *)
let check_id ~id ~prefix ~batch ~query_head =
  let head = match batch with None -> string_of_int query_head | Some b -> Printf.sprintf "%d.%d" b query_head in
  let tail = ":" ^ prefix ^ head in
  let n = String.length id and k = String.length tail in
  if n <= k || String.sub id (n - k) k <> tail then rejected "head.id: found \"%s\", expected it to end in \"%s\"" id tail

let parse text =
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
    (* the certificate itself has to say which theorem is about it, or why none is *)
    let beyond =
      if policy <> "clis" then Some ("policy " ^ policy, "")
      else if verdict <> "certified" then Some ("verdict " ^ verdict, "")
      else if Json.has "modifiers" head then
        Some ("head.modifiers", ": windows, segments, masks, biases, softcaps and sinks")
      else if Json.member "head" "cast" head <> Json.Null then Some ("head.cast", ": tensors rounded before use")
      else None in
    let expected = match beyond with None -> "Certified.certified" | Some (what, _) -> "none: " ^ what in
    let theorem = Json.text "" "theorem" v in
    if theorem <> expected then rejected "theorem: found \"%s\", expected \"%s\"" theorem expected;
    (match beyond with Some (what, more) -> raise (Model.Not_covered (what ^ more)) | None -> ());
    let path = Json.text "" "path" v in
    if path <> "clis" then raise (Model.Not_covered ("path " ^ path));
    List.iter (fun key -> if Json.text "" key v <> "holds" then rejected "%s: a certified head has \"holds\"" key)
      [ "safe"; "accurate" ];
    (match Json.text "" "status" v with
     | "enclosed" | "assumed" -> () | s -> rejected "status: found \"%s\"" s);
    let eps = Exact.hexadecimal (Json.text "parameters" "eps" parameters) in
    if Q.sign eps <= 0 || Q.geq eps Q.one then rejected "parameters.eps: expected a number in (0, 1)";
    let max_error = match Json.member "parameters" "max_error" parameters with
      | Json.Null -> None | Json.String s -> Some (Exact.hexadecimal s)
      | _ -> rejected "parameters.max_error: expected a hexadecimal float or null" in
    let gate = Json.member "" "gate" v and values = Json.member "" "values" v in
    let most_visible = Json.count "values" "most_visible" values in
    let exponent_upper = check_claims v ~eps ~max_error ~most_visible in
    if Json.text "gate" "accepts" gate <> "yes" then rejected "gate.accepts: a certified head has \"yes\"";
    if Json.text "gate" "stabilizer" gate <> "clis" then rejected "gate.stabilizer: expected \"clis\"";
    let stored = Json.member "head" "stored" head and sha = Json.member "head" "sha256" head in
    let three o path = Json.text path "q" o, Json.text path "k" o, Json.text path "v" o in
    let batch = match Json.member "head" "batch" head with Json.Null -> None | _ -> Some (Json.count "head" "batch" head) in
    let id = Json.text "head" "id" head and prefix = Json.text "head" "prefix" head in
    let query_head = Json.count "head" "query_head" head in
    check_id ~id ~prefix ~batch ~query_head;
    { kernel_text; eps; max_error; id; prefix; layout = Json.text "head" "layout" head;
      batch = Option.value batch ~default:0; query_head; kv_head = Json.count "head" "kv_head" head;
      queries = Json.count "head" "queries" head; keys = Json.count "head" "keys" head;
      channels = Json.count "head" "channels" head; value_channels = Json.count "head" "value_channels" head;
      mask = Json.text "head" "mask" head; length = Json.count "head" "length" head;
      scale = Json.text "head" "scale" head; stored = three stored "head.stored";
      digests = three sha "head.sha256";
      cap = Exact.hexadecimal (Json.text "gate" "C" gate);
      kappa = Exact.hexadecimal (Json.text "gate" "kappa" gate);
      v_magnitude = Exact.hexadecimal (Json.text "values" "v_magnitude" values);
      most_visible; exponent_upper }
  with
  | Json.Error e -> rejected "%s" e
  | Exact.Bad e -> rejected "%s" e
