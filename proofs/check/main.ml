(* headroom-check [--json] [--] CERTIFICATE TENSORS.safetensors | CERTIFICATE Q.npy K.npy V.npy

   Checks a certificate with the extracted checker. Exit codes: 0 accepted, 1 rejected, 2 a file
   cannot be read, 4 no theorem covers it.

   What this program says rests on the theorem Certified.certified, on Coq's extraction and OCaml's
   compiler, and on this driver's reading of files: bytes to words, kernel text to a kernel. The
   numbers it looks for (Hints) are not trusted: the extracted checker decides. *)

open Certificate
open Hints

let read_file file =
  let channel = try open_in_bin file with Sys_error e -> raise (Tensors.Unreadable e) in
  Fun.protect ~finally:(fun () -> close_in channel) (fun () ->
    try
      let n = in_channel_length channel in
      if n > 16_000_000 then rejected "a certificate of %d bytes, expected at most 16 MB" n;
      really_input_string channel n
    with Sys_error e -> raise (Tensors.Unreadable (file ^ ": " ^ e)) | End_of_file -> rejected "%s: shrank" file)

(* The words of Q, K and V, their digests compared. *)
let tensors_of c files =
  let load = match files with
    | [ file ] ->
      let all = Tensors.safetensors file in
      fun suffix _ -> (match List.assoc_opt (c.prefix ^ suffix) all with
        | Some t -> c.prefix ^ suffix, t
        | None -> rejected "%s: found no tensor \"%s%s\"" file c.prefix suffix)
    | files -> fun _ i -> let file = List.nth files i in file, Tensors.npy file in
  let sq, sk, sv = c.stored and dq, dk, dv = c.digests in
  let shapes = ref [] in
  let rows suffix i head stored count channels digest =
    let name, t = load suffix i in
    let f = format_of stored in
    if t.Tensors.dtype <> f.dtype then rejected "%s: found %s, expected %s" name t.Tensors.dtype f.dtype;
    shapes := (suffix, t.Tensors.shape) :: !shapes;
    match Tensors.rows_of t c.layout c.batch head with
    | Some r when r.Tensors.count = count && r.Tensors.channels = channels && count > 0 && channels > 0 ->
      let found = Tensors.digest r in
      if found <> digest then rejected "%s: the digest is %s, the certificate has %s" name found digest;
      r
    | _ -> rejected "%s: shape or head does not fit the certificate" name in
  let q = rows "q" 0 c.query_head sq c.queries c.channels dq in
  let k = rows "k" 1 c.kv_head sk c.keys c.channels dk in
  let v = rows "v" 2 c.kv_head sv c.keys c.value_channels dv in
  (* grouped queries: query head h uses KV head h / (Hq / Hkv) *)
  let heads name = match List.assoc name !shapes, c.layout with
    | [ h; _; _ ], _ -> h | [ _; h; _; _ ], "bhnd" -> h | [ _; _; h; _ ], _ -> h | _ -> 1 in
  let hq = heads "q" and hk = heads "k" in
  if hk = 0 || hq mod hk <> 0 || c.query_head / (hq / hk) <> c.kv_head then
    rejected "head.kv_head: found %d for query head %d of %d, %d KV heads" c.kv_head c.query_head hq hk;
  q, k, v

(* How many keys a row sees: the first so many. *)
let visible c =
  if c.length > c.keys then rejected "head.length: found %d of %d keys" c.length c.keys;
  let most = min c.length c.keys in
  match c.mask with
  | "none" -> fun _ -> most
  | "causal" when c.queries <> c.keys -> rejected "head.mask: causal, with %d queries and %d keys" c.queries c.keys
  | "causal" | "causal-top-left" -> fun i -> min most (i + 1)
  | "causal-bottom-right" -> fun i -> max 0 (min most (i + 1 + c.keys - c.queries))
  | m -> raise (Model.Not_covered ("mask " ^ m))

(* A JSON string: what is no printable ASCII is escaped byte by byte. *)
let quoted s =
  let b = Buffer.create 64 in
  String.iter (fun c -> match c with
    | '"' | '\\' -> Buffer.add_char b '\\'; Buffer.add_char b c
    | ' ' .. '~' -> Buffer.add_char b c
    | c -> Buffer.add_string b (Printf.sprintf "\\u%04x" (Char.code c))) s;
  "\"" ^ Buffer.contents b ^ "\""
let print_json certificate result more =
  let members = ("schema", quoted "headroom-check/1") :: ("certificate", quoted certificate)
                :: ("result", quoted result) :: more in
  Printf.printf "{%s}\n" (String.concat ", " (List.map (fun (k, v) -> quoted k ^ ": " ^ v) members))
(* One line for a terminal: control characters are escaped. *)
let printable s =
  let b = Buffer.create 64 in
  String.iter (fun c -> if c < ' ' || c = '\x7f' then Buffer.add_string b (Printf.sprintf "\\x%02x" (Char.code c))
    else Buffer.add_char b c) s;
  Buffer.contents b

let run ~json certificate_file files =
  let c = Certificate.parse (read_file certificate_file) in
  let q, k, v = tensors_of c files in
  let seen = visible c in
  let most = ref 0 in
  for i = 0 to c.queries - 1 do most := max !most (seen i) done;
  if !most = 0 then raise (Model.Not_covered "a head whose rows see no key");
  if !most <> c.most_visible then rejected "values.most_visible: found %d, rows see %d" c.most_visible !most;
  let scale = scale_of c.scale in
  let binary = match scale with Checker.Binary _ -> true | _ -> false in
  let kernels, operand = Model.kernel c.kernel_text ~keys:!most ~log2_scale:binary in
  (let sq, sk, sv = c.stored in
   List.iter (fun s -> if s <> operand then raise (Model.Not_covered ("stored " ^ s ^ ", multiplied as " ^ operand)))
     [ sq; sk; sv ]);
  let f = format_of operand in
  let qe, _ = survey f q "Q" and ke, _ = survey f k "K" and ve, (vm, vexp) = survey f v "V" in
  let v_max = Z_.shift_left (zi vm) (if vm = 0 then 0 else vexp - ve) in
  let magnitude = Q.mul (Q.of_bigint v_max) (Exact.power ve) in
  if not (Q.equal magnitude c.v_magnitude) then
    rejected "values.v_magnitude: found %g, V has %g" (Q.to_float c.v_magnitude) (Q.to_float magnitude);
  let flo, fhi = factor scale in
  let fl x = Q.make x (Z_.shift_left Z_.one 64) in
  let constant = match scale with
    | Checker.Binary (a, b) -> Exact.fp32 (Q.make a b)
    | _ ->
      let lo = Exact.fp32 (fl flo) and hi = Exact.fp32 (fl fhi) in
      if not (Q.equal lo hi) then raise (Model.Not_covered "a scale so close to the middle of two FP32 numbers");
      lo in
  if Q.geq (Q.abs constant) (Exact.power 100) then raise (Model.Not_covered "a scale of 2^100 or more");
  let in_units what x = match Exact.units x with
    | Some u -> u | None -> raise (Model.Not_covered (what ^ " finer than 2^-64")) in
  let cap = match Q.den c.cap with d when Z_.equal d Z_.one -> Q.num c.cap | _ -> rejected "gate.C: expected an integer" in
  if Z_.gt cap (zi 127) then rejected "gate.C: found %s, and exp2 ends at 127" (Z_.to_string cap);
  if Z_.lt cap (zi 64) then
    raise (Model.Not_covered (Printf.sprintf "C = %s, below 64" (Z_.to_string cap)));
  if Q.sign c.kappa < 0 then rejected "gate.kappa: found a negative number";
  let open Checker in
  let d = c.channels in
  let base = {
    c_d = zi d; c_qe = zi qe; c_ke = zi ke; c_K2 = Z_.zero; c_flo = flo; c_fhi = fhi; c_e1 = Z_.zero; c_e0 = Z_.zero;
    c_err = Z_.zero; c_gn = Z_.zero; c_nn = Z_.zero; c_slope = in_units "kappa" c.kappa; c_C = cap; c_margin = Z_.zero } in
  let numbers constants = {
    n_constants = constants; n_constant = in_units "the factor" constant; n_N = zi !most; n_V = v_max; n_ve = zi ve;
    n_G = Z_.zero; n_q = Z_.zero; n_bound = of_q Q.zero } in
  let decide kernel =
  (* constants of a row, as constants_okb asks for them, rounded up *)
  let growth x h = Q.sub (Q.inv (Q.sub Q.one (Q.mul (Q.of_bigint h) x))) Q.one in
  let u = Exact.power (-24) in
  let g = growth (q_of (q_delta kernel.k_score)) (head_score_depth kernel (numbers base)) in
  let nodes = Q.of_int ((4 * d) + 1024) in
  let cc = Q.abs constant in
  let off = Q.max (Q.abs (Q.sub constant (fl flo))) (Q.abs (Q.sub constant (fl fhi))) in
  let eta = q_of (q_eta (Ieee kernel.k_flushes)) in
  (* the factor's own rounding, unless it is fused into the exponent *)
  let us, hs = if kernel.k_fused then Q.zero, Q.zero else u, eta in
  let e1 = Q.add (Q.add (Q.mul cc g) off) (Q.mul us (Q.mul cc (Q.add Q.one g))) in
  let e0 = Q.add (Q.mul (Q.mul cc (Q.mul (Q.mul nodes (q_of (q_eta kernel.k_score))) (Q.add Q.one g))) (Q.add Q.one us)) hs in
  let gn = growth u (zi (d + 1)) in
  let nn = Q.mul (Q.mul nodes eta) (Q.add Q.one gn) in
  let up128 x = Z_.cdiv (Z_.mul (Q.num x) (Z_.shift_left Z_.one 128)) (Q.den x) in
  let constants = { base with c_e1 = Exact.units_up e1; c_e0 = Exact.units_up e0; c_gn = Exact.units_up gn; c_nn = up128 nn } in
  (* mu from above, as row_mu_hi has it, in doubles *)
  let gn_f = Q.to_float gn and nn_f = Q.to_float nn and kappa = Q.to_float c.kappa and cap_f = float (Z_.to_int cap) in
  let mu q2 =
    let bound = Float.sqrt ((q2 *. (1. +. gn_f)) +. nn_f) *. kappa *. (1. +. 0x1p-24) *. (1. +. 0x1p-24) in
    let y = bound -. cap_f in y +. (Float.abs y *. 0x1p-23) in
  let factor_f = Q.to_float (fl flo) in
  let found = rows f q k ~seen ~c:factor_f ~mu in
  if not (Float.is_finite found.key2 && Float.is_finite found.query2) then raise (Model.Not_covered "norms beyond double precision");
  let key2 = upward found.key2 (2 * ke) and query2 = upward found.query2 (2 * qe) in
  let constants = { constants with c_K2 = key2 } in
  let constants = { constants with c_err = row_err constants query2 } in
  (* what the sums of rows err by in double precision *)
  let spread = factor_f *. Float.sqrt found.key2 *. Float.sqrt found.query2 in
  let slack = ((spread +. cap_f) *. float (d + !most + 64) *. 0x1p-51) +. 0x1p-40 in
  let margin = Q.of_float (if Float.is_finite found.margin then Float.max (-1e6) (found.margin -. slack) else 0.) in
  let scaled = Q.mul margin (Exact.power 64) in
  let constants = { constants with c_margin = Z_.fdiv (Q.num scaled) (Q.den scaled) } in
  let rec exponent g = if Q.leq magnitude (Exact.power g) then g else exponent (g + 1) in
  let g = exponent 0 in
  let h = { (numbers constants) with n_G = zi g } in
  if not (kernel_okb kernel) then raise (Model.Not_covered "this kernel's exp2, P and division together");
  if not (constants_okb kernel h) then rejected "head.scale, gate.kappa: beyond what the checker's constants allow";
  let bits = Q.to_float (fl (head_margin kernel h)) in
  if not (lost_within kernel h (Q.num c.eps) (Q.den c.eps)) then
    rejected "mass.lost: a margin of %.4f bits does not give %g" bits (Q.to_float c.eps);
  let accurate = Z_.sub (Z_.sub constants.c_margin constants.c_err)
      (Z_.shift_left (promise_of kernel.k_exp2 cap).pr_La 64) in
  if Z_.lt accurate (Z_.shift_left Z_.one 64) then
    raise (Model.Not_covered "rows whose mean lies among subnormal weights: the output's bound wants a bit above 2^-126");
  let bound = q_of (q_output kernel h) in
  (* as a number of 24 bits, upward *)
  let bound = if Q.sign bound <= 0 then Q.zero else Q.mul (Exact.fp32 bound) (Q.add Q.one (Exact.power (-22))) in
  let h = { h with n_bound = of_q bound } in
  let rec quotient e = if e > 120 then None else
      let h = { h with n_q = zi e } in if head_okb kernel h then Some h else quotient (e + 1) in
  let h = match quotient g with Some h -> h | None ->
    rejected "gate.C: %s is too large for %d keys and |V| <= 2^%d, or the output has no bound" (Z_.to_string cap) !most g in
  (match c.max_error with
   | Some most when Q.gt bound most ->
     rejected "parameters.max_error: found %g, the checker's own bound of the output is %g" (Q.to_float most) (Q.to_float bound)
   | _ -> ());
  (* the decision: in machine integers where they fit, else in integers of any size *)
  let decoder unit = {
    d_fraction = f.fraction; d_low = (1 lsl f.fraction) - 1; d_exponents = (1 lsl f.exponent_bits) - 1;
    d_sign = 1 lsl (f.fraction + f.exponent_bits); d_hidden = 1 lsl f.fraction;
    d_offset = bias f + f.fraction + unit; d_reach = 42 - f.fraction } in
  let t = {
    f_queries = c.queries; f_keys = c.keys; f_dims = d; f_dims_v = c.value_channels;
    f_q_format = f.words; f_k_format = f.words; f_v_format = f.words;
    f_q = Tensors.words q; f_k = Tensors.words k; f_v = Tensors.words v; f_seen = seen } in
  let fast = Z_.lt v_max (Z_.shift_left Z_.one 43)
             && check_fast kernel h t (decoder qe) (decoder ke) (decoder ve) (Z_.to_int v_max) scale in
  if not fast && not (check_words kernel h scale (words_of t)) then
    rejected "a row or a key does not hold its inequalities: C = %s, kappa = %g do not fit the data"
      (Z_.to_string cap) (Q.to_float c.kappa);
  (* some key of every row reaches the mean, less the error of its score and its exponent's rounding *)
  let reached = Q.sub (fl (Z_.sub constants.c_margin constants.c_err)) (Exact.power (-10)) in
  if not (Certificate.le (Certificate.Exact reached) c.exponent_upper) then
    rejected "exponent.upper.value: every row has an exponent of %.4f or more" (Q.to_float reached);
  kernel, bits, bound, q_of (q_lse kernel h), q_of (q_flushed kernel h) in
  (* every reading of the kernel; what is printed is the worst *)
  let decided = List.map decide kernels in
  let kernel = (fun (k, _, _, _, _) -> k) (List.hd decided) in
  let bits = List.fold_left (fun b (_, x, _, _, _) -> Float.min b x) infinity decided in
  let largest of_reading = List.fold_left (fun b x -> Q.max b (of_reading x)) Q.zero decided in
  let bound = largest (fun (_, _, x, _, _) -> x) in
  let lse = largest (fun (_, _, _, x, _) -> x) and flushed = largest (fun (_, _, _, _, x) -> x) in
  (* doubles not below the numbers *)
  let above x = Q.to_float x *. (1. +. 0x1p-50) in
  if json then
    print_json certificate_file "accepted" [
      "id", quoted c.id; "queries", string_of_int c.queries; "keys", string_of_int c.keys;
      "channels", string_of_int d; "largest_exponent", Z_.to_string cap;
      "least_denominator_log2", Z_.to_string (promise_of kernel.k_exp2 cap).pr_low;
      "mass_lost", quoted (Printf.sprintf "%h" (Q.to_float c.eps));
      "margin_bits", Printf.sprintf "%.6f" bits;
      "output_error", quoted (Printf.sprintf "%h" (above bound));
      "lse_error", quoted (Printf.sprintf "%h" (above lse));
      "flushed_products", quoted (Printf.sprintf "%h" (above flushed));
      "theorems", "[\"Certified.certified\", \"Certified.lost_mass_within\", \"Reported.lse_within\", \"Reported.flushed_within\"]" ]
  else begin
  Printf.printf "accepted %s\n" c.id;
  Printf.printf "  checked   every row of %d x %d x %d: finite, exponents <= %s, l >= 2^%s, lost mass <= %g (margin %.2f bits), |output - exact| <= %.3g\n"
    c.queries c.keys d (Z_.to_string cap) (Z_.to_string (promise_of kernel.k_exp2 cap).pr_low) (Q.to_float c.eps) bits (Q.to_float bound);
  Printf.printf "  besides   |log2 l + mu - log-sum-exp| <= %.3g log2 units; flushed products take at most %.3g from |O / l|\n"
    (above lse) (above flushed);
  Printf.printf "  theorem   Certified.certified, Certified.lost_mass_within, Reported.lse_within, Reported.flushed_within (proofs/coq)\n";
  Printf.printf "  unchecked sum.absorption; product.flush against eps; the numbers of claims: the theorem has its own\n";
  Printf.printf "  trusted   that the machine is as the kernel says; this driver's reading of files; Coq's kernel and extraction, OCaml, Zarith\n"
  end

let () =
  let check ~json certificate files =
    let answer result why code =
      if json then print_json certificate result [ "reason", quoted why ]
      else Printf.printf "%s %s: %s\n" (if code = 4 then "not covered" else result) (printable certificate) (printable why);
      code in
    let reject why = answer "rejected" why 1 in
    try run ~json certificate files; 0 with
    | Rejected why | Model.Malformed why -> reject why
    | Exact.Bad why | Json.Error why -> reject why
    | Tensors.Unreadable why -> Printf.eprintf "headroom: %s\n" (printable why); 2
    | Model.Not_covered what -> answer "not-covered" ("no theorem speaks of " ^ what) 4
    | Stack_overflow | Out_of_memory -> reject "the checker ran out of memory"
    | e -> reject ("the checker gave up: " ^ Printexc.to_string e) in
  let usage () =
    prerr_endline "headroom: usage: headroom-check [--json] CERTIFICATE TENSORS.safetensors | CERTIFICATE Q.npy K.npy V.npy"; 2 in
  let rec start json = function
    | "--json" :: rest -> start true rest
    | "--" :: rest -> files json rest
    | rest -> files json rest
  and files json = function
    | [ certificate; tensors ] -> check ~json certificate [ tensors ]
    | [ certificate; q; k; v ] -> check ~json certificate [ q; k; v ]
    | _ -> usage () in
  let code = start false (List.tl (Array.to_list Sys.argv)) in
  (* a full disk must not look like an answer *)
  exit (try flush stdout; code with Sys_error e -> prerr_endline ("headroom: cannot write to stdout: " ^ e); 2)
