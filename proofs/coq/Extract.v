(** * The checker as an OCaml program

    Integers become Zarith's. That these operations agree with Coq's is trusted, not proved; the
    division, shift and root below keep Coq's conventions (rounding toward minus infinity, 0 for the
    root of a negative number). *)

From Coq Require Import ZArith QArith Extraction ExtrOcamlBasic ExtrOcamlZBigInt ExtrOcamlNatInt.
From Headroom Require Import Kernel MainTheorem CheckRow CheckHead Checker Log2e Words Certified
  CheckReported Reported MachineIntegers FastSums FastCheck.

Extract Inlined Constant Z.add => "Z_.add".
Extract Inlined Constant Z.sub => "Z_.sub".
Extract Inlined Constant Z.mul => "Z_.mul".
Extract Inlined Constant Z.opp => "Z_.neg".
Extract Inlined Constant Z.abs => "Z_.abs".
Extract Inlined Constant Z.eqb => "Z_.equal".
Extract Inlined Constant Z.ltb => "Z_.lt".
Extract Inlined Constant Z.leb => "Z_.leq".
Extract Inlined Constant Z.of_nat => "Z_.of_int".
Extract Constant Z.shiftl =>
  "(fun x y -> let n = Z_.to_int y in if n >= 0 then Z_.shift_left x n else Z_.shift_right x (-n))".
Extract Constant Z.shiftr =>
  "(fun x y -> let n = Z_.to_int y in if n >= 0 then Z_.shift_right x n else Z_.shift_left x (-n))".
Extract Constant Z.div => "(fun x y -> if Z_.sign y = 0 then Z_.zero else Z_.fdiv x y)".
Extract Constant Z.modulo =>
  "(fun x y -> if Z_.sign y = 0 then x else Z_.sub x (Z_.mul y (Z_.fdiv x y)))".
Extract Constant Z.pow =>
  "(fun x y -> if Z_.sign y < 0 then Z_.zero else Z_.pow x (Z_.to_int y))".
Extract Constant Z.sqrt => "(fun x -> if Z_.sign x <= 0 then Z_.zero else Z_.sqrt x)".

(** Machine integers are OCaml's, each operation that of int63.ml. *)
Extract Inductive int => "int" [ "Z_.to_int" ] "(fun f n -> f (Z_.of_int n))".
Extract Inlined Constant big => "Z_.of_int".
Extract Inlined Constant plus => "Int63.plus".
Extract Inlined Constant minus => "Int63.minus".
Extract Inlined Constant times => "Int63.times".
Extract Inlined Constant bits_and => "Int63.bits_and".
Extract Inlined Constant shift_left => "Int63.shift_left".
Extract Inlined Constant shift_right => "Int63.shift_right".
Extract Inlined Constant equal => "Int63.equal".
Extract Inlined Constant less => "Int63.less".
Extract Inlined Constant at_most => "Int63.at_most".
Extract Inlined Constant upper => "Int63.upper".
Extract Inlined Constant lower => "Int63.lower".
Extract Inlined Constant zero => "0".
Extract Inlined Constant one => "1".

Extraction "checker.ml" check_words check_fast words_of lost_within head_margin kernel_okb constants_okb head_okb
  row_margin row_err row_mu_hi q_output q_lse q_flushed q_growth q_delta q_eta q_abs qF q2 head_score_depth depth_ok promise_of
  scale_encloses keeps_subnormals bf16_words fp16_words fp32_words.
