(** * Weights: what exp2 delivers, and what P.V multiplies

    Two formats meet here. The denominator adds the result of exp2 (or its rounding), the numerator
    multiplies P as stored, which may be BF16 or FP16. Both are known by promises about results in
    terms of arguments. *)

From Coq Require Import ZArith Reals Lra Lia List.
From Flocq Require Import Core BinarySingleNaN Relative.
From Headroom Require Import Formats Exp2 Adders.
Open Scope R_scope.

Section Unit.
Variables prec emax : Z.
Context (prec_positive : Prec_gt_0 prec) (prec_below_emax : Prec_lt_emax prec emax).
Notation emin := (3 - emax - prec)%Z.
Notation fexp := (FLT_exp emin prec).
Notation float := (binary_float prec emax).
Notation value := (@B2R prec emax).

(** ** The promises of an exp2 unit

    For arguments up to C: a result is finite, nonnegative and at most w 2^l; from L on it is at
    least 2^low; from L_a on it is accurate to eps; below, it is still accurate or at most beta 2^x
    (beta = 0: it is flushed), and 0 for all arguments below Z0. *)
Record exp2_unit (E : float -> float -> Prop) (C L La Z0 low w l : Z) (eps beta : R) : Prop := {
  unit_finite : forall x y, E x y -> is_finite x = true -> value x <= IZR C ->
    is_finite y = true /\ 0 <= value y <= IZR w * bpow radix2 l;
  unit_kept : forall x y, E x y -> is_finite x = true -> IZR L <= value x <= IZR C ->
    bpow radix2 low <= value y;
  unit_accurate : forall x y, E x y -> is_finite x = true -> IZR La <= value x <= IZR C ->
    Rabs (value y - exp2 (value x)) <= eps * exp2 (value x);
  unit_below : forall x y, E x y -> is_finite x = true -> value x <= IZR C -> value x < IZR La ->
    value y = 0 \/
    (IZR Z0 <= value x /\ (Rabs (value y - exp2 (value x)) <= eps * exp2 (value x) \/
                           0 <= value y <= beta * exp2 (value x)))
}.

(** ** Correctly rounded, with or without flushing *)
Definition rounded_unit md flush (x y : float) : Prop :=
  is_finite x = true -> rounds prec emax md flush (exp2 (value x)) y.

Lemma rounded_in_range md C x : (emin <= C < emax)%Z -> x <= IZR C ->
  0 <= round radix2 fexp (round_mode md) (exp2 x) <= bpow radix2 C.
Proof.
intros HC Hx. assert (P := exp2_pos x). assert (Q := exp2_le _ _ Hx). rewrite exp2_Z in Q. split.
- apply round_ge_generic; auto with typeclass_instances; [apply generic_format_0|lra].
- apply round_le_generic; auto with typeclass_instances.
  apply (bpow_format emin prec (prec_positive := prec_positive)). lia.
Qed.

(** A result in the normal range is within [unit_of] of itself; relative to the exact value, then,
    within unit / (1 - unit). *)
Lemma result_relative md x : bpow radix2 (emin + prec - 1) <= round radix2 fexp (round_mode md) x ->
  Rabs (round radix2 fexp (round_mode md) x - x)
    <= unit_of prec md * round radix2 fexp (round_mode md) x.
Proof.
intros B. assert (P := bpow_gt_0 radix2 (emin + prec - 1)).
set (y := round radix2 fexp (round_mode md) x) in *.
assert (U : ulp radix2 fexp y <= y * bpow radix2 (1 - prec)).
{ rewrite <- (Rabs_pos_eq y) at 2 by lra. apply ulp_FLT_le. rewrite Rabs_pos_eq; lra. }
assert (N : forall choice, y = round radix2 fexp (Znearest choice) x ->
          Rabs (y - x) <= bpow radix2 (- prec) * y).
{ intros choice E. assert (Q := error_le_half_ulp_round radix2 fexp choice x). rewrite <- E in Q.
  apply Rle_trans with (1 := Q). replace (1 - prec)%Z with (1 + - prec)%Z in U by ring.
  rewrite bpow_plus in U. change (bpow radix2 1) with 2 in U. lra. }
assert (x0 : x <> 0). { intros Z. unfold y in B. rewrite Z, round_0 in B by auto with typeclass_instances. lra. }
assert (D : Rabs (y - x) <= bpow radix2 (1 - prec) * y).
{ assert (Q := error_lt_ulp_round radix2 fexp (round_mode md) x x0). fold y in Q. lra. }
destruct md; try exact D; now apply (N _ eq_refl).
Qed.

Definition relative_of (u : R) := u / (1 - u).

Lemma relative_of_result u x y : 0 <= u < 1 -> 0 <= x -> Rabs (y - x) <= u * y ->
  Rabs (y - x) <= relative_of u * x.
Proof.
intros Hu Hx H. unfold relative_of.
assert (Y : y * (1 - u) <= x). { assert (A := Rle_abs (y - x)). lra. }
apply Rle_trans with (1 := H). apply Rmult_le_reg_r with (1 - u); [lra|].
replace (u / (1 - u) * x * (1 - u)) with (u * x) by (field; lra).
rewrite Rmult_assoc. apply Rmult_le_compat_l; lra.
Qed.

Lemma unit_lt_1 md : (2 <= prec)%Z -> 0 < unit_of prec md < 1.
Proof.
intros H. split; [apply unit_pos|]. apply Rlt_le_trans with (bpow radix2 0); [|simpl; lra].
destruct md; apply bpow_lt; lia.
Qed.

(** Flushing below 2^low: nothing is lost from the integer threshold low on, and what is not
    flushed is accurate. *)
Theorem flushing_unit md C low : (2 <= prec)%Z -> (emin + prec - 1 <= low <= C)%Z -> (C < emax)%Z ->
  exp2_unit (rounded_unit md (Some low)) C low low (low - 1) low 1 C (relative_of (unit_of prec md)) 0.
Proof.
intros Hp Hlow HC. assert (HC' : (emin <= C < emax)%Z) by lia.
assert (Hu := unit_lt_1 md Hp).
assert (R : forall x y, rounded_unit md (Some low) x y -> is_finite x = true -> value x <= IZR C ->
  is_finite y = true /\ value y = flushed low (round radix2 fexp (round_mode md) (exp2 (value x)))).
{ intros x y H F Hx. destruct (rounded_in_range md C (value x) HC' Hx) as [B1 B2].
  apply (H F). rewrite Rabs_pos_eq by exact B1. apply Rle_lt_trans with (1 := B2).
  apply bpow_lt. lia. }
assert (P0 : 0 < bpow radix2 low) by apply bpow_gt_0.
assert (Kept : forall x, IZR low <= x ->
  bpow radix2 low <= round radix2 fexp (round_mode md) (exp2 x)).
{ intros x Hx. apply round_ge_generic; auto with typeclass_instances.
  - apply (bpow_format emin prec (prec_positive := prec_positive)). lia.
  - rewrite <- exp2_Z. now apply exp2_le. }
assert (Acc : forall x, bpow radix2 low <= round radix2 fexp (round_mode md) (exp2 x) ->
  Rabs (round radix2 fexp (round_mode md) (exp2 x) - exp2 x)
    <= relative_of (unit_of prec md) * exp2 x).
{ intros x Hx. assert (P := exp2_pos x). apply relative_of_result; [lra|lra|].
  apply result_relative. apply Rle_trans with (2 := Hx). apply bpow_le. lia. }
split.
- intros x y H F Hx. destruct (R x y H F Hx) as [Fy V]. split; [exact Fy|]. rewrite V, Rmult_1_l.
  destruct (rounded_in_range md C (value x) HC' Hx) as [B1 B2].
  assert (Q := flushed_le low _ B1). lra.
- intros x y H F [Hx1 Hx2]. destruct (R x y H F Hx2) as [_ V]. rewrite V.
  assert (K := Kept _ Hx1). rewrite flushed_kept; [exact K|]. rewrite Rabs_pos_eq; lra.
- intros x y H F [Hx1 Hx2]. destruct (R x y H F Hx2) as [_ V]. rewrite V.
  assert (K := Kept _ Hx1). rewrite flushed_kept; [now apply Acc|]. rewrite Rabs_pos_eq; lra.
- intros x y H F Hx Hx2. destruct (R x y H F Hx) as [_ V]. rewrite V.
  destruct (rounded_in_range md C (value x) HC' Hx) as [B1 B2].
  unfold flushed. case Rlt_bool_spec; intros Q; [now left|right].
  rewrite Rabs_pos_eq in Q by exact B1. split; [|left; now apply Acc].
  destruct (Rle_or_lt (IZR (low - 1)) (value x)) as [G|G]; [exact G|exfalso].
  apply Rlt_not_le with (2 := Q). apply Rle_lt_trans with (bpow radix2 (low - 1)); [|apply bpow_lt; lia].
  apply round_le_generic; auto with typeclass_instances.
  + apply (bpow_format emin prec (prec_positive := prec_positive)). lia.
  + rewrite <- exp2_Z. apply exp2_le. lra.
Qed.

(** Gradual underflow: kept from the least subnormal exponent on, accurate in the normal range, and
    never more than twice the exact value to nearest. *)
Theorem gradual_unit md C : nearest md -> (2 <= prec)%Z -> (emin + prec - 1 <= C < emax)%Z ->
  exp2_unit (rounded_unit md None) C emin (emin + prec - 1) (emin - 1) emin 1 C
    (relative_of (unit_of prec md)) 2.
Proof.
intros Hmd Hp HC. assert (HC' : (emin <= C < emax)%Z) by lia. assert (Hu := unit_lt_1 md Hp).
assert (R : forall x y, rounded_unit md None x y -> is_finite x = true -> value x <= IZR C ->
  is_finite y = true /\ value y = round radix2 fexp (round_mode md) (exp2 (value x))).
{ intros x y H F Hx. destruct (rounded_in_range md C (value x) HC' Hx) as [B1 B2].
  apply (H F). rewrite Rabs_pos_eq by exact B1. apply Rle_lt_trans with (1 := B2).
  apply bpow_lt. lia. }
split.
- intros x y H F Hx. destruct (R x y H F Hx) as [Fy V]. split; [exact Fy|]. rewrite V, Rmult_1_l.
  now apply rounded_in_range.
- intros x y H F [Hx1 Hx2]. destruct (R x y H F Hx2) as [_ V]. rewrite V.
  apply round_ge_generic; auto with typeclass_instances.
  + apply (bpow_format emin prec (prec_positive := prec_positive)). lia.
  + rewrite <- exp2_Z. now apply exp2_le.
- intros x y H F [Hx1 Hx2]. destruct (R x y H F Hx2) as [_ V]. rewrite V.
  assert (P := exp2_pos (value x)). apply relative_of_result; [lra|lra|]. apply result_relative.
  apply round_ge_generic; auto with typeclass_instances.
  + apply (bpow_format emin prec (prec_positive := prec_positive)). lia.
  + rewrite <- exp2_Z. now apply exp2_le.
- intros x y H F Hx _. destruct (R x y H F Hx) as [_ V]. rewrite V.
  destruct (rounded_in_range md C (value x) HC' Hx) as [B1 _].
  assert (P := exp2_pos (value x)).
  destruct (Rle_or_lt (IZR (emin - 1)) (value x)) as [G|G].
  2: { (* less than half the least number rounds to 0 *)
    left. assert (Q : exp2 (value x) < bpow radix2 (emin - 1)) by (rewrite <- exp2_Z; now apply exp2_lt).
    assert (Z : forall choice, round radix2 fexp (Znearest choice) (exp2 (value x)) = 0).
    { intros choice. destruct (mag radix2 (exp2 (value x))) as [ex Hex].
      specialize (Hex ltac:(lra)). apply (round_N_small radix2 fexp choice _ ex Hex).
      assert (M : (ex - 1 < emin - 1)%Z).
      { apply (lt_bpow radix2). apply Rle_lt_trans with (1 := proj1 Hex). now rewrite Rabs_pos_eq by lra. }
      unfold FLT_exp. unfold Prec_gt_0 in *. lia. }
    destruct Hmd; subst md; apply Z. }
  right. split; [exact G|]. right. split; [exact B1|].
  (* the error of a rounding to nearest is at most the distance to 0 *)
  assert (N : forall choice, round radix2 fexp (Znearest choice) (exp2 (value x)) <= 2 * exp2 (value x)).
  { intros choice. destruct (round_N_pt radix2 fexp choice (exp2 (value x))) as [_ N].
    specialize (N 0 (generic_format_0 _ _)). rewrite Rminus_0_l, Rabs_Ropp, (Rabs_pos_eq (exp2 _)) in N by lra.
    apply Rabs_le_inv in N. lra. }
  destruct Hmd; subst md; apply N.
Qed.

(** ** Units that err, and flush

    What is promised of ex2.approx.ftz and of lowerings that are known to so many ulps: within eps,
    or flushed where the result may have fallen below 2^low. *)
Definition approximate_unit (eps : R) (low : Z) (x y : float) : Prop :=
  is_finite x = true -> (1 + eps) * exp2 (value x) < bpow radix2 emax ->
  is_finite y = true /\
  ((bpow radix2 low <= value y /\ Rabs (value y - exp2 (value x)) <= eps * exp2 (value x)) \/
   (value y = 0 /\ (1 - eps) * exp2 (value x) < bpow radix2 low)).

Theorem approximate_unit_promises eps C L low h : 0 <= eps < 1 -> eps <= bpow radix2 (- h) ->
  (0 <= h)%Z -> IZR (2 ^ h + 1) * bpow radix2 (C - h) < bpow radix2 emax ->
  bpow radix2 low <= (1 - eps) * bpow radix2 L ->
  exp2_unit (approximate_unit eps low) C L L (low - 1) low (2 ^ h + 1) (C - h) eps 0.
Proof.
intros He Hh h0 Ho HL.
assert (W0 : 0 <= IZR (2 ^ h + 1) * bpow radix2 (C - h)).
{ apply Rmult_le_pos; [|apply bpow_ge_0]. apply IZR_le. assert (0 <= 2 ^ h)%Z by now apply Z.pow_nonneg. lia. }
assert (low0 := bpow_gt_0 radix2 low).
assert (Range : forall x, x <= IZR C -> (1 + eps) * exp2 x <= IZR (2 ^ h + 1) * bpow radix2 (C - h)).
{ intros x Hx. assert (P := exp2_pos x). assert (Q := exp2_le _ _ Hx). rewrite exp2_Z in Q.
  assert (S : IZR (2 ^ h + 1) * bpow radix2 (C - h)
              = bpow radix2 C + bpow radix2 (- h) * bpow radix2 C).
  { rewrite plus_IZR, two_pow by exact h0. rewrite <- bpow_plus.
    replace (- h + C)%Z with (C - h)%Z by ring. rewrite Rmult_plus_distr_r, <- bpow_plus.
    replace (h + (C - h))%Z with C by ring. ring. }
  rewrite S. assert (E : eps * exp2 x <= bpow radix2 (- h) * bpow radix2 C).
  { apply Rmult_le_compat; lra. } lra. }
assert (R : forall x y, approximate_unit eps low x y -> is_finite x = true -> value x <= IZR C -> _)
  by (intros x y H F Hx; exact (H F (Rle_lt_trans _ _ _ (Range _ Hx) Ho))).
split.
- intros x y H F Hx. destruct (R x y H F Hx) as [Fy [[B A]|[Z _]]]; (split; [exact Fy|]).
  + split; [lra|]. apply Rle_trans with (2 := Range _ Hx). apply Rabs_le_inv in A. lra.
  + rewrite Z. split; [lra|exact W0].
- intros x y H F [Hx1 Hx2]. destruct (R x y H F Hx2) as [Fy [[B A]|[_ Q]]]; [exact B|exfalso].
  apply exp2_le in Hx1. rewrite exp2_Z in Hx1.
  assert ((1 - eps) * bpow radix2 L <= (1 - eps) * exp2 (value x)) by (apply Rmult_le_compat_l; lra). lra.
- intros x y H F [Hx1 Hx2]. destruct (R x y H F Hx2) as [Fy [[B A]|[_ Q]]]; [exact A|exfalso].
  apply exp2_le in Hx1. rewrite exp2_Z in Hx1.
  assert ((1 - eps) * bpow radix2 L <= (1 - eps) * exp2 (value x)) by (apply Rmult_le_compat_l; lra). lra.
- intros x y H F Hx _. destruct (R x y H F Hx) as [Fy [[B A]|[Z _]]]; [right|now left].
  split; [|left; exact A].
  apply exp2_le_inv. rewrite exp2_Z. apply Rabs_le_inv in A. assert (P := exp2_pos (value x)).
  assert (eps * exp2 (value x) <= 1 * exp2 (value x)) by (apply Rmult_le_compat_r; lra).
  replace low with (1 + (low - 1))%Z in B by ring. rewrite bpow_plus in B.
  change (bpow radix2 1) with 2 in B. lra.
Qed.
End Unit.

(** ** P as stored for P.V

    One rounding into P's format, with flushing or without. *)
Section Stored.
Variables prec emax : Z.
Context (prec_positive : Prec_gt_0 prec) (prec_below_emax : Prec_lt_emax prec emax).
Notation emin := (3 - emax - prec)%Z.
Notation float := (binary_float prec emax).
Notation value := (@B2R prec emax).
Variables (md : mode) (flush : option Z).
Notation stored := (rounds prec emax md flush).

(** Weights of up to w units stay within them as long as w has no more bits than P. *)
Theorem stored_range w l y (p : float) : stored y p -> (0 <= w <= 2 ^ prec)%Z -> (emin <= l)%Z ->
  IZR w * bpow radix2 l < bpow radix2 emax -> 0 <= y <= IZR w * bpow radix2 l ->
  is_finite p = true /\ 0 <= value p <= IZR w * bpow radix2 l.
Proof.
intros H Hw Hl Ho [Y0 Y1].
destruct (rounds_bounded prec emax prec_positive md flush y p w l H Hw Hl) as [F B]; auto.
{ now rewrite Rabs_pos_eq. }
split; [exact F|]. apply Rabs_le_inv in B. split; [|lra].
destruct H as [_ E].
{ apply Rle_lt_trans with (2 := Ho). apply (rd_le emin prec (round_mode md)); auto. now rewrite Rabs_pos_eq. }
rewrite E. assert (R0 : 0 <= round radix2 (FLT_exp emin prec) (round_mode md) y).
{ apply round_ge_generic; auto with typeclass_instances. apply generic_format_0. }
destruct flush as [low|]; unfold after; [apply flushed_le|]; exact R0.
Qed.

(** A weight from 2^low on is kept, if P's own threshold is not above. *)
Theorem stored_kept low y (p : float) : stored y p -> (low_of prec emax flush <= low)%Z ->
  Rabs (round radix2 (FLT_exp emin prec) (round_mode md) y) < bpow radix2 emax ->
  bpow radix2 low <= y -> bpow radix2 low <= value p.
Proof.
intros H Hlow Hr Hy. destruct (H Hr) as [_ E]. rewrite E.
assert (RL : bpow radix2 low <= round radix2 (FLT_exp emin prec) (round_mode md) y).
{ apply round_ge_generic; auto with typeclass_instances.
  apply (bpow_format emin prec (prec_positive := prec_positive)).
  destruct flush; unfold low_of in Hlow; lia. }
assert (P := bpow_gt_0 radix2 low).
destruct flush as [f|]; unfold after; [|exact RL].
rewrite flushed_kept; [exact RL|]. rewrite Rabs_pos_eq by lra.
apply Rle_trans with (2 := RL). apply bpow_le. unfold low_of in Hlow. lia.
Qed.

(** Error: u relatively; and absolutely, unless the weight is 0 or in P's normal range. *)
Theorem stored_close y (p : float) : stored y p -> flush_ok prec emax flush -> 0 <= y ->
  Rabs (round radix2 (FLT_exp emin prec) (round_mode md) y) < bpow radix2 emax ->
  Rabs (value p - y) <= unit_of prec md * y + floor_of prec emax flush.
Proof.
intros H Hf Y0 Hr. rewrite <- (Rabs_pos_eq y) at 2 by exact Y0.
now apply (rounds_close prec emax prec_positive md flush).
Qed.

Theorem stored_close_normal n y (p : float) : stored y p -> (emin + prec - 1 <= n)%Z ->
  (low_of prec emax flush <= n)%Z -> y = 0 \/ bpow radix2 n <= y ->
  Rabs (round radix2 (FLT_exp emin prec) (round_mode md) y) < bpow radix2 emax ->
  Rabs (value p - y) <= unit_of prec md * y.
Proof.
intros H Hn Hl [Z|B] Hr; destruct (H Hr) as [_ E]; rewrite E.
- subst y. rewrite round_0 by auto with typeclass_instances.
  assert (Z : after flush 0 = 0).
  { destruct flush as [f|]; unfold after; [|reflexivity].
    destruct (flushed_cases f 0) as [A|A]; exact A. }
  rewrite Z, Rminus_0_r, Rabs_R0. lra.
- assert (P := bpow_gt_0 radix2 n).
  assert (RL : bpow radix2 n <= round radix2 (FLT_exp emin prec) (round_mode md) y).
  { apply round_ge_generic; auto with typeclass_instances.
    apply (bpow_format emin prec (prec_positive := prec_positive)). unfold Prec_gt_0 in *; lia. }
  assert (A : after flush (round radix2 (FLT_exp emin prec) (round_mode md) y)
              = round radix2 (FLT_exp emin prec) (round_mode md) y).
  { destruct flush as [f|]; unfold after; [|reflexivity]. apply flushed_kept.
    rewrite Rabs_pos_eq by lra. apply Rle_trans with (2 := RL). apply bpow_le.
    unfold low_of in Hl. lia. }
  rewrite A.
  assert (B' : bpow radix2 (emin + prec - 1) <= Rabs y).
  { rewrite Rabs_pos_eq by lra. apply Rle_trans with (2 := B). apply bpow_le. lia. }
  assert (D := relative_error_FLT radix2 emin prec prec_positive (round_mode md) y B').
  replace (- prec + 1)%Z with (1 - prec)%Z in D by ring. rewrite Rabs_pos_eq with (x := y) in D by lra.
  assert (N : forall choice, Rabs (round radix2 (FLT_exp emin prec) (Znearest choice) y - y)
                <= bpow radix2 (- prec) * y).
  { intros choice. replace (bpow radix2 (- prec)) with (/ 2 * bpow radix2 (- prec + 1)).
    - rewrite <- (Rabs_pos_eq y) at 3 by lra. now apply relative_error_N_FLT.
    - rewrite bpow_plus. change (bpow radix2 1) with 2. field. }
  destruct md; unfold unit_of; try apply N; lra.
Qed.
End Stored.
