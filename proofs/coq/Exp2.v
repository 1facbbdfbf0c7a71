(** * exp2: the function, and what is asked of a unit that computes it

    A unit is known by promises, not by its circuit. Three are used: which results are accurate
    ([accurate]), how large a result can be ([at_most]), and from which argument on it is kept
    ([kept_from]). A correctly rounded or faithful unit keeps all three with the best constants, a
    unit that errs by k ulps with slightly worse ones, and flushing costs nothing at an integer
    threshold. *)

From Coq Require Import ZArith Reals Lra Lia.
From Flocq Require Import Core Relative.
From Headroom Require Import Formats.
Open Scope R_scope.

Definition exp2 (x : R) := exp (x * ln 2).

Lemma ln2_pos : 0 < ln 2.
Proof. rewrite <- ln_1. apply ln_increasing; lra. Qed.
Lemma exp2_lt x y : x < y -> exp2 x < exp2 y.
Proof.
intros H. unfold exp2. apply exp_increasing. apply Rmult_lt_compat_r; [apply ln2_pos|exact H].
Qed.
Lemma exp2_le x y : x <= y -> exp2 x <= exp2 y.
Proof. intros [H|H]; [left; now apply exp2_lt|subst; lra]. Qed.
Lemma exp2_le_inv x y : exp2 x <= exp2 y -> x <= y.
Proof. intros H. destruct (Rle_or_lt x y) as [L|L]; [exact L|]. apply exp2_lt in L. lra. Qed.
Lemma exp2_pos x : 0 < exp2 x.
Proof. apply exp_pos. Qed.
Lemma exp2_Z n : exp2 (IZR n) = bpow radix2 n.
Proof. unfold exp2. rewrite bpow_exp. reflexivity. Qed.
Lemma exp2_0 : exp2 0 = 1.
Proof. unfold exp2. rewrite Rmult_0_l. apply exp_0. Qed.
Lemma exp2_plus x y : exp2 (x + y) = exp2 x * exp2 y.
Proof. unfold exp2. rewrite Rmult_plus_distr_r. apply exp_plus. Qed.
Lemma exp2_opp x : exp2 (- x) = / exp2 x.
Proof. unfold exp2. rewrite <- exp_Ropp. f_equal. ring. Qed.
Lemma exp2_minus x y : exp2 (x - y) = exp2 x / exp2 y.
Proof. unfold Rminus. rewrite exp2_plus, exp2_opp. reflexivity. Qed.

(** ** Flushing to zero

    A result below the smallest normal number, 2^low, becomes 0. *)
Definition flushed (low : Z) (y : R) : R := if Rlt_bool (Rabs y) (bpow radix2 low) then 0 else y.

Lemma flushed_cases low y : flushed low y = 0 \/ flushed low y = y.
Proof. unfold flushed. destruct (Rlt_bool _ _); auto. Qed.

Lemma flushed_kept low y : bpow radix2 low <= Rabs y -> flushed low y = y.
Proof. intros H. unfold flushed. now rewrite Rlt_bool_false. Qed.

Lemma flushed_le low y : 0 <= y -> 0 <= flushed low y <= y.
Proof. intros H. destruct (flushed_cases low y) as [E|E]; rewrite E; lra. Qed.

Section Contracts.
Variables emin prec : Z.
Context {prec_positive : Prec_gt_0 prec}.
Notation fexp := (FLT_exp emin prec).
Notation format := (generic_format radix2 fexp).

(** ** Correctly rounded and faithful units

    [y] is one of the two numbers of the format around 2^x; every correctly rounded result is. *)
Definition faithful (x y : R) := y = round radix2 fexp Zfloor x \/ y = round radix2 fexp Zceil x.

Lemma faithful_bounds a x y : format a -> faithful x y -> (x <= a -> y <= a) /\ (a <= x -> a <= y).
Proof.
intros F [E|E]; subst y; split; intros H;
  (apply round_le_generic || apply round_ge_generic); auto with typeclass_instances.
Qed.

(** Such a unit cannot cross 2^C or 2^L for integers C and L: rounding costs nothing there. *)
Theorem faithful_contract : forall C L x y, (emin <= C)%Z -> (emin <= L)%Z ->
  faithful (exp2 x) y ->
  (x <= IZR C -> 0 <= y <= bpow radix2 C) /\ (IZR L <= x -> bpow radix2 L <= y).
Proof.
intros C L x y HC HL F.
assert (P := exp2_pos x).
assert (B0 := faithful_bounds 0 _ _ (generic_format_0 radix2 fexp) F).
assert (BC := faithful_bounds _ _ _ (bpow_format emin prec C HC) F).
assert (BL := faithful_bounds _ _ _ (bpow_format emin prec L HL) F).
split; intros Hx; assert (Q := exp2_le _ _ Hx); rewrite exp2_Z in Q; [split|].
- apply B0. lra.
- apply BC. exact Q.
- apply BL. exact Q.
Qed.

(** Nor does flushing cost anything at or above the smallest normal exponent. *)
Theorem faithful_flushed_contract : forall C L low x y, (emin <= C)%Z -> (emin <= low <= L)%Z ->
  faithful (exp2 x) y ->
  (x <= IZR C -> 0 <= flushed low y <= bpow radix2 C) /\
  (IZR L <= x -> bpow radix2 L <= flushed low y).
Proof.
intros C L low x y HC HL F.
destruct (faithful_contract C L x y HC ltac:(lia) F) as [H1 H2]. split; intros Hx.
- specialize (H1 Hx). assert (Q := flushed_le low y ltac:(lra)). lra.
- specialize (H2 Hx). rewrite flushed_kept; [exact H2|].
  assert (bpow radix2 low <= bpow radix2 L) by (apply bpow_le; lia).
  assert (0 < bpow radix2 L) by apply bpow_gt_0. rewrite Rabs_pos_eq; lra.
Qed.

(** To nearest, a normal result errs by u = 2^-prec relatively. *)
Theorem nearest_accurate : forall choice x, (emin + prec - 1 <= mag radix2 (exp2 x) - 1)%Z ->
  Rabs (round radix2 fexp (Znearest choice) (exp2 x) - exp2 x) <= bpow radix2 (- prec) * exp2 x.
Proof.
intros choice x H. assert (P := exp2_pos x).
rewrite <- (Rabs_pos_eq (exp2 x)) at 3 by lra.
replace (bpow radix2 (- prec)) with (/ 2 * bpow radix2 (- prec + 1)).
- apply relative_error_N_FLT; [exact prec_positive|]. eapply Rle_trans; [apply bpow_le, H|].
  assert (Q := bpow_mag_le radix2 (exp2 x) ltac:(lra)). exact Q.
- rewrite bpow_plus. change (bpow radix2 1) with 2. field.
Qed.

(** ** Units that err by k ulps

    k ulps of the *result* E are k 2^(1 - prec) E, which is k / (2^(prec - 1) - k) of 2^x. *)
Theorem ulp_accurate : forall k x y, 0 <= k < bpow radix2 (prec - 1) -> 0 <= y ->
  Rabs (y - exp2 x) <= k * bpow radix2 (1 - prec) * y ->
  Rabs (y - exp2 x) <= k / (bpow radix2 (prec - 1) - k) * exp2 x.
Proof.
intros k x y [K0 K1] Hy H. assert (P := exp2_pos x).
set (b := bpow radix2 (prec - 1)) in *.
assert (B : bpow radix2 (1 - prec) = / b).
{ unfold b. replace (1 - prec)%Z with (- (prec - 1))%Z by ring. apply bpow_opp. }
assert (b0 : 0 < b) by apply bpow_gt_0. rewrite B in H.
assert (Y : y * (b - k) <= b * exp2 x).
{ assert (A := Rle_abs (y - exp2 x)).
  assert (H' : (y - exp2 x) * b <= k * / b * y * b) by (apply Rmult_le_compat_r; lra).
  replace (k * / b * y * b) with (k * y) in H' by (field; lra). lra. }
apply Rle_trans with (1 := H).
apply Rmult_le_reg_r with (b * (b - k)); [apply Rmult_lt_0_compat; lra|].
replace (k * / b * y * (b * (b - k))) with (k * (y * (b - k))) by (field; lra).
replace (k / (b - k) * exp2 x * (b * (b - k))) with (k * (b * exp2 x)) by (field; lra).
now apply Rmult_le_compat_l.
Qed.

(** A relative error of at most 2^-h is a weight of 2^h + 1 units 2^(C - h): with this, sums of
    such results obey Sums, and need no slack of a whole binade. *)
Theorem approximate_weight : forall C x y h, (0 <= h)%Z ->
  Rabs (y - exp2 x) <= bpow radix2 (- h) * exp2 x -> x <= IZR C ->
  Rabs y <= IZR (2 ^ h + 1) * bpow radix2 (C - h).
Proof.
intros C x y h Hh H Hx. assert (Q := exp2_le _ _ Hx). rewrite exp2_Z in Q. assert (P := exp2_pos x).
replace y with ((y - exp2 x) + exp2 x) by ring. eapply Rle_trans; [apply Rabs_triang|].
rewrite (Rabs_pos_eq (exp2 x)) by lra.
rewrite plus_IZR, two_pow by exact Hh.
rewrite Rmult_plus_distr_r, <- bpow_plus. replace (h + (C - h))%Z with C by ring.
replace (C - h)%Z with (- h + C)%Z by ring. rewrite bpow_plus.
assert (B := bpow_ge_0 radix2 (-h)).
assert (bpow radix2 (- h) * exp2 x <= bpow radix2 (- h) * bpow radix2 C)
  by now apply Rmult_le_compat_l.
lra.
Qed.

(** And such a unit keeps every argument from L + log2(1 / (1 - eps)) on: what the gate adds. *)
Theorem approximate_kept : forall L x y eps, 0 <= eps < 1 ->
  Rabs (y - exp2 x) <= eps * exp2 x -> exp2 (IZR L) <= (1 - eps) * exp2 x -> bpow radix2 L <= y.
Proof.
intros L x y eps He H Hx. rewrite <- exp2_Z. apply Rle_trans with (1 := Hx).
assert (A := Rle_abs (- (y - exp2 x))). rewrite Rabs_Ropp in A. lra.
Qed.
End Contracts.
