(** * The log-sum-exp: log2 l + mu against the exact one

    What a kernel saves for its backward pass and for merges is log2 of the denominator plus mu. Its
    error is that of the denominator, relatively: every weight that is accurate lies within
    [factor_min, factor_max] of 2^(z - mu), those that are not hold at most a share of the exact
    mass, and the sum errs by gl. mu itself is subtracted and added as it is. *)

From Coq Require Import ZArith Reals Lra Lia List Permutation Bool.
From Flocq Require Import Core BinarySingleNaN.
From Headroom Require Import Formats Rows Exp2 Jensen LostMass Execution Adders Row Bounds.
Import ListNotations.
Open Scope R_scope.

(** The exact one, over the visible keys. *)
Definition log_sum_exp (keys : list nat) (z : nat -> R) := log2 (total (fun j => exp2 (z j)) keys).

Lemma log2_le x y : 0 < x -> x <= y -> log2 x <= log2 y.
Proof.
intros H L. unfold log2, Rdiv. apply Rmult_le_compat_r.
- left. apply Rinv_0_lt_compat, ln2_pos.
- destruct L as [L|L]; [left; now apply ln_increasing|subst; lra].
Qed.

Lemma log2_product x y : 0 < x -> 0 < y -> log2 (x * y) = log2 x + log2 y.
Proof. intros Hx Hy. unfold log2. rewrite ln_mult by assumption. field. apply Rgt_not_eq, ln2_pos. Qed.

Lemma log2_exp2 x : log2 (exp2 x) = x.
Proof. unfold log2, exp2. rewrite ln_exp. field. apply Rgt_not_eq, ln2_pos. Qed.

Section LogSumExp.
Variables prec emax precP emaxP : Z.
Context (prec_positive : Prec_gt_0 prec) (prec_below_emax : Prec_lt_emax prec emax).
Context (precP_positive : Prec_gt_0 precP).
Variables (m : machine prec emax) (n : numbers) (keys : list nat) (z v : nat -> R).
Variable x : execution prec emax precP emaxP.
Hypothesis promises : machine_promises prec emax precP emaxP m n.
Hypothesis within : ranges prec emax m n keys.
Hypothesis facts : row_facts prec emax precP emaxP n keys z v m x.
Hypothesis execution_allowed : allowed prec emax precP emaxP m keys v x.
Notation M := (B2R (mu _ _ _ _ x)).
Notation S := (total (summed prec emax precP emaxP m x) keys).
Notation mass_of_weights := (total (fun j => exp2 (z j - M)) keys).
Notation l := (value (l_sum _ _ _ _ x)).
Notation rough_key := (rough prec emax precP emaxP n x).

Definition l_low := factor_min prec emax m n * (1 - share n) * (1 - gl prec emax m n keys).
Definition l_high := (factor_max prec emax m n + beta_all prec emax m n * share n) * (1 + gl prec emax m n keys).

(** ** The weights, summed without error *)
Lemma weights_nonneg (f : nat -> bool) : 0 <= total (fun j => exp2 (z j - M)) (filter f keys).
Proof. apply total_nonneg. intros j _. left. apply exp2_pos. Qed.

Lemma summed_below : factor_min prec emax m n * (1 - share n) * mass_of_weights <= S.
Proof. exact (proj1 (weights_part _ _ _ _ prec_positive prec_below_emax m n keys z v x promises within facts execution_allowed)). Qed.

Lemma summed_above : S <= (factor_max prec emax m n + beta_all prec emax m n * share n) * mass_of_weights.
Proof.
assert (Sh := rough_share _ _ _ _ prec_positive prec_below_emax m n keys z v x promises within facts execution_allowed).
assert (B := beta_all_nonneg prec emax m n keys within).
assert (Split := total_split rough_key (fun j => exp2 (z j - M)) keys).
rewrite (total_split rough_key (summed prec emax precP emaxP m x) keys).
assert (R1 : total (summed prec emax precP emaxP m x) (filter rough_key keys)
  <= beta_all prec emax m n * total (fun j => exp2 (z j - M)) (filter rough_key keys)).
{ rewrite <- total_scale. apply total_le. intros j H. apply filter_In in H. destruct H as [H1 H2].
  apply (rough_weight _ _ _ _ prec_positive prec_below_emax m n keys z v x promises within facts execution_allowed j H1 H2). }
assert (R2 : total (summed prec emax precP emaxP m x) (filter (fun j => negb (rough_key j)) keys)
  <= factor_max prec emax m n * total (fun j => exp2 (z j - M)) (filter (fun j => negb (rough_key j)) keys)).
{ rewrite <- total_scale. apply total_le. intros j H. apply filter_In in H. destruct H as [H1 H2].
  apply negb_true_iff in H2.
  apply (accurate _ _ _ _ prec_positive prec_below_emax m n keys z v x promises within facts execution_allowed j H1 H2). }
assert (W1 := weights_nonneg rough_key). assert (W2 := weights_nonneg (fun j => negb (rough_key j))).
assert (F0 := factor_min_pos prec emax m n keys within).
assert (F : factor_min prec emax m n <= factor_max prec emax m n).
{ destruct (factors prec emax m n keys within) as [Q1 Q2]. rewrite <- Q2.
  rewrite <- (Rmult_1_r (factor_min prec emax m n)) at 1. apply Rmult_le_compat_l; [lra|].
  rewrite <- (Rmult_1_r 1). apply Rmult_le_compat; lra. }
assert (R3 : beta_all prec emax m n * total (fun j => exp2 (z j - M)) (filter rough_key keys)
  <= beta_all prec emax m n * (share n * mass_of_weights)) by now apply Rmult_le_compat_l.
assert (R4 : factor_max prec emax m n * total (fun j => exp2 (z j - M)) (filter (fun j => negb (rough_key j)) keys)
  <= factor_max prec emax m n * mass_of_weights) by (apply Rmult_le_compat_l; lra).
lra.
Qed.

(** ** The denominator, relatively *)
Lemma gl_error : Rabs (l - S) <= gl prec emax m n keys * S /\ 0 <= gl prec emax m n keys.
Proof.
assert (E := l_error _ _ _ _ prec_positive prec_below_emax m n keys z v x promises within facts execution_allowed).
destruct (mass_below _ _ _ _ prec_positive prec_below_emax m n keys z v x promises within facts execution_allowed) as [M0 M1].
destruct (r_small _ _ _ _ _ within) as [_ [_ [_ [_ [_ [D1 [D2 _]]]]]]].
assert (P1 : 1 <= (1 + d_l n) ^ h_l n) by (apply pow_R1_Rle; lra).
set (ev := INR (n_l n) * e_l n * (1 + d_l n) ^ h_l n) in *.
assert (Ev : 0 <= ev).
{ unfold ev. apply Rmult_le_pos; [apply Rmult_le_pos; [apply pos_INR|lra]|lra]. }
unfold gl. fold ev. set (ms := mass prec emax m n keys) in *.
assert (I : 0 < / ms) by now apply Rinv_0_lt_compat.
assert (Ev2 : ev <= ev / ms * S).
{ replace ev with (ev / ms * ms) at 1 by (field; lra). apply Rmult_le_compat_l; [|lra].
  apply Rmult_le_pos; lra. }
split; [lra|]. assert (0 <= ev / ms) by (apply Rmult_le_pos; lra). lra.
Qed.

Theorem denominator_enclosed : l_low * mass_of_weights <= l <= l_high * mass_of_weights.
Proof.
destruct gl_error as [E G0]. apply Rabs_le_inv in E. assert (G1 := r_gl _ _ _ _ _ within).
assert (B1 := summed_below). assert (B2 := summed_above). unfold l_low, l_high.
assert (Lo : factor_min prec emax m n * (1 - share n) * mass_of_weights * (1 - gl prec emax m n keys)
  <= S * (1 - gl prec emax m n keys)) by (apply Rmult_le_compat_r; lra).
assert (Hi : S * (1 + gl prec emax m n keys)
  <= (factor_max prec emax m n + beta_all prec emax m n * share n) * mass_of_weights * (1 + gl prec emax m n keys))
  by (apply Rmult_le_compat_r; lra).
lra.
Qed.

(** ** The log-sum-exp

    [lse.error]: log2 l + mu, before the logarithm and the sum are rounded, in log2 units. *)
Theorem lse_error : 0 < l_low /\
  log2 l_low <= log2 l + M - log_sum_exp keys z <= log2 l_high.
Proof.
destruct denominator_enclosed as [D1 D2]. assert (G1 := r_gl _ _ _ _ _ within).
assert (F0 := factor_min_pos prec emax m n keys within).
assert (Sh := share_range prec emax m n keys within).
destruct (r_keys _ _ _ _ _ within) as [Hk _].
assert (L0 : 0 < l_low).
{ unfold l_low. apply Rmult_lt_0_compat; [apply Rmult_lt_0_compat; lra|lra]. }
assert (T := mass_pos (fun j => z j - M) keys Hk). cbv beta in T.
assert (Tz := mass_pos z keys Hk).
assert (Shift : log2 mass_of_weights = log_sum_exp keys z - M).
{ unfold log_sum_exp. rewrite (total_ext _ (fun j => exp2 (- M) * exp2 (z j))).
  - rewrite total_scale, log2_product, log2_exp2 by (assumption || apply exp2_pos). ring.
  - intros j _. rewrite <- exp2_plus. f_equal. ring. }
assert (LW : 0 < l_low * mass_of_weights) by now apply Rmult_lt_0_compat.
assert (H0 : 0 < l_high).
{ apply Rmult_lt_reg_r with (1 := T). rewrite Rmult_0_l. lra. }
split; [exact L0|].
assert (Q1 := log2_le _ _ LW D1). assert (Q2 := log2_le _ _ (Rlt_le_trans _ _ _ LW D1) D2).
rewrite log2_product in Q1, Q2 by assumption. rewrite Shift in Q1, Q2. lra.
Qed.

(** ** Without square roots, powers and the lost-mass function *)
Section Rational.
Variables a s W g_l : R.
Hypothesis a_ok : 0 <= A prec emax m n <= a.
Hypothesis a_small : 7 / 10 * a < 1.
Hypothesis small : 0 <= eps n < 1 /\ 0 <= beta n /\ 0 <= u_P n < 1 /\ 0 <= h_P n /\
  0 <= d_l n /\ 0 <= d_O n /\ 0 <= e_O n.
Hypothesis no_events : e_l n = 0.
Hypothesis s_ok : 0 <= share n <= s.
Hypothesis s_small : s < 1.
Hypothesis gl_ok : (1 + d_l n) ^ h_l n - 1 <= g_l.
Hypothesis gl_small : g_l < 1.
Notation uS' := (uS prec emax m n).

Definition l_lower := m_low prec emax m n a * (1 - s) * (1 - g_l).
Definition l_upper := (m_high prec emax m n a + beta n * (1 + uS') * e_A a * s) * (1 + g_l).

Lemma gl_at_most : 0 <= gl prec emax m n keys <= g_l.
Proof.
unfold gl. rewrite no_events. unfold Rdiv. rewrite Rmult_0_r, !Rmult_0_l, Rplus_0_r.
split; [|exact gl_ok]. assert (1 <= (1 + d_l n) ^ h_l n) by (apply pow_R1_Rle; lra). lra.
Qed.

Theorem ratio_rational : 0 < l_lower <= l_low /\ l_high <= l_upper.
Proof.
destruct gl_at_most as [G0 G1].
destruct (m_low_ok prec emax m n a a_ok a_small small) as [M0 M1].
assert (M2 := m_high_ok prec emax m n a a_ok a_small small).
assert (U := uS_ok prec emax m n small). assert (EA := e_A_pos a a_small).
assert (E2 := exp2_upper a _ a_ok a_small). fold (e_A a) in E2. assert (P := exp2_pos (A prec emax m n)).
assert (F0 := factor_min_pos prec emax m n keys within).
assert (F : factor_min prec emax m n <= factor_max prec emax m n).
{ destruct (factors prec emax m n keys within) as [Q1 Q2]. rewrite <- Q2.
  rewrite <- (Rmult_1_r (factor_min prec emax m n)) at 1. apply Rmult_le_compat_l; [lra|].
  rewrite <- (Rmult_1_r 1). apply Rmult_le_compat; lra. }
destruct small as [_ [B0 _]]. unfold l_low, l_high, l_lower, l_upper, beta_all. split; [split|].
- apply Rmult_lt_0_compat; [apply Rmult_lt_0_compat|]; lra.
- apply Rmult_le_compat; try lra; [apply Rmult_le_pos; lra|]. apply Rmult_le_compat; lra.
- assert (BU : 0 <= beta n * (1 + uS')) by (apply Rmult_le_pos; lra).
  apply Rmult_le_compat; try lra.
  + assert (0 <= beta n * (1 + uS') * exp2 (A prec emax m n) * share n); [|lra].
    apply Rmult_le_pos; [apply Rmult_le_pos|]; lra.
  + apply Rplus_le_compat; [exact M2|]. apply Rmult_le_compat; try lra.
    * apply Rmult_le_pos; lra.
    * apply Rmult_le_compat_l; lra.
Qed.
End Rational.
End LogSumExp.
