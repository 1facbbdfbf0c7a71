(** * Absorption: when a sum to nearest takes a term in

    The claim [sum.absorption] compares the number of terms with 2^prec. Below 2^prec times a term a
    sum to nearest still grows by it; equal terms are added exactly up to 2^prec of them, and there
    they stop (SumsInSequence). *)

From Coq Require Import ZArith Reals List Lia Lra.
From Flocq Require Import Core.
From Headroom Require Import Formats SumsInSequence.
Open Scope R_scope.

Section Absorption.
Variables emin prec : Z.
Context {prec_positive : Prec_gt_0 prec}.
Notation fexp := (FLT_exp emin prec).
Notation format := (generic_format radix2 fexp).

(** A unit of the last place of s is less than 2 t wherever 0 < s < 2^prec t, t a number. *)
Lemma ulp_below s t : format t -> 0 < t -> 0 < s < bpow radix2 prec * t -> ulp radix2 fexp s < 2 * t.
Proof.
intros Ft Ht [S0 S1]. rewrite ulp_neq_0 by lra. unfold cexp, FLT_exp.
destruct (Z.max_dec (mag radix2 s - prec) emin) as [H|H]; rewrite H.
- assert (B := bpow_mag_le radix2 s ltac:(lra)). rewrite Rabs_pos_eq in B by lra.
  assert (P := bpow_gt_0 radix2 (- prec)).
  replace (mag radix2 s - prec)%Z with (1 + ((mag radix2 s - 1) + - prec))%Z by ring.
  rewrite !bpow_plus. change (bpow radix2 1) with 2.
  apply Rle_lt_trans with (2 * (s * bpow radix2 (- prec))).
  + apply Rmult_le_compat_l; [lra|]. apply Rmult_le_compat_r; lra.
  + apply Rmult_lt_compat_l; [lra|]. apply Rlt_le_trans with (bpow radix2 prec * t * bpow radix2 (- prec)).
    * apply Rmult_lt_compat_r; lra.
    * right. replace (bpow radix2 prec * t * bpow radix2 (- prec))
        with (t * (bpow radix2 prec * bpow radix2 (- prec))) by ring.
      rewrite <- bpow_plus, Z.add_opp_diag_r. simpl. ring.
- assert (L : bpow radix2 emin <= t).
  { apply (generic_format_ge_bpow radix2 fexp emin); auto. intros k. unfold FLT_exp. lia. }
  assert (0 < bpow radix2 emin) by apply bpow_gt_0. lra.
Qed.
(** Then the sum rounded to nearest is more than s. *)
Theorem takes_in : forall choice s t, format s -> format t -> 0 < t -> 0 < s < bpow radix2 prec * t ->
  s < round radix2 fexp (Znearest choice) (s + t).
Proof.
intros choice s t Fs Ft Ht S. assert (U := ulp_below s t Ft Ht S).
assert (V : 0 < ulp radix2 fexp s).
{ rewrite ulp_neq_0 by lra. apply bpow_gt_0. }
apply Rlt_le_trans with (succ radix2 fexp s).
- rewrite succ_eq_pos by lra. lra.
- apply round_N_ge_midp; auto with typeclass_instances.
  + now apply generic_format_succ; auto with typeclass_instances.
  + rewrite pred_succ by auto with typeclass_instances. rewrite succ_eq_pos by lra. lra.
Qed.

(** ** Equal terms, one after another *)
Variable e : Z.
Hypothesis He : (emin <= e)%Z.
Hypothesis Hp2 : (2 <= prec)%Z.
Notation U k := (IZR k * bpow radix2 e).
Notation sum_of := (sequential_sum emin prec).

(** Up to 2^prec of them every partial sum is exact: nothing is absorbed; *)
Theorem equal_terms_exact : forall k j, (0 <= j)%Z -> (j + Z.of_nat k <= 2 ^ prec)%Z ->
  sum_of (U j) (repeat (U 1) k) = U (j + Z.of_nat k).
Proof.
induction k as [|k IH]; intros j Hj Hk; cbn [repeat sequential_sum].
- now rewrite Z.add_0_r.
- rewrite round_generic; auto with typeclass_instances.
  + replace (U j + U 1) with (U (j + 1)) by (rewrite plus_IZR; ring).
    rewrite IH by lia. do 2 f_equal. lia.
  + replace (U j + U 1) with (U (j + 1)) by (rewrite plus_IZR; ring). apply (format_scaled emin prec); lia.
Qed.

(** and from there on every one is. *)
Theorem further_terms_absorbed : forall k, sum_of (U (2 ^ prec)) (repeat (U 1) k) = U (2 ^ prec).
Proof.
induction k as [|k IH]; cbn [repeat sequential_sum]; [reflexivity|].
replace (U (2 ^ prec) + U 1) with (U (2 ^ prec + 1)) by (rewrite plus_IZR; ring).
rewrite (tie_down emin prec Hp2 e He). exact IH.
Qed.
End Absorption.
