(** * "The row maximum is at least 0" is false

    It holds for keys centred exactly by the mean of all of them (Centring.centered_max_nonneg). It
    fails as soon as the mean is rounded, and for causal rows, whose keys are a prefix. *)

From Coq Require Import ZArith Reals Lra Lia.
From Flocq Require Import Core.
Open Scope R_scope.

Notation bf16 := (round radix2 (FLT_exp (-133) 8) ZnearestE).

Lemma bf16_257 : bf16 257 = 256.
Proof.
unfold round, scaled_mantissa, cexp.
assert (M : (mag radix2 257 = 9 :> Z)%Z).
{ apply mag_unique. rewrite Rabs_pos_eq by lra. simpl. lra. }
rewrite M. change (FLT_exp (-133) 8 9) with 1%Z.
replace (257 * bpow radix2 (Z.opp 1)) with (IZR 128 + / 2) by (simpl; lra).
assert (N : ZnearestE (IZR 128 + / 2) = 128%Z).
{ assert (F : Zfloor (IZR 128 + / 2) = 128%Z) by (apply Zfloor_imp; rewrite plus_IZR; lra).
  unfold Znearest. rewrite F, Rcompare_Eq by lra. reflexivity. }
rewrite N. unfold F2R. simpl. lra.
Qed.

(** ** Under a rounded mean

    Keys (256, 258) and (258, 256): both channels have mean 257, which BF16 rounds to 256. The stored
    differences (0, 2) and (2, 0) are exact, and the query (-a, -a) scores -2a on both. *)
Theorem rounded_mean_all_scores_negative : forall a, 0 < a ->
  let mean := bf16 ((256 + 258) / 2) in
  let k1 := (bf16 (256 - mean), bf16 (258 - mean)) in
  let k2 := (bf16 (258 - mean), bf16 (256 - mean)) in
  let score k := - a * fst k + - a * snd k in
  score k1 < 0 /\ score k2 < 0.
Proof.
intros a Ha. cbv zeta. replace ((256 + 258) / 2) with 257 by lra. rewrite bf16_257.
replace (256 - 256) with 0 by ring. replace (258 - 256) with (bpow radix2 1) by (simpl; lra).
rewrite (round_generic _ _ _ (bpow radix2 1)) by (apply generic_format_FLT_bpow; [easy|lia]).
rewrite round_0 by auto with typeclass_instances. simpl fst. simpl snd.
change (bpow radix2 1) with 2. lra.
Qed.

(** ** Under a causal mask

    Keys -1 and 1, exactly centred. Row 0 sees the first alone. *)
Theorem causal_row_all_scores_negative :
  let key j := match j with O => -1 | _ => 1 end in
  key 0%nat + key 1%nat = 0 /\ (forall j, (j <= 0)%nat -> 1 * key j < 0).
Proof. split; [lra|]. intros j H. replace j with 0%nat by lia. lra. Qed.
