(** * The output bound in rational arithmetic

    Row.sums_bound has square roots, powers of two and the lost-mass function in it. Here it is
    bounded by an expression without them, the same for every row of a head: what the checker
    evaluates. Nothing is lost but second-order terms and the fraction of whole binades. *)

From Coq Require Import ZArith Reals Lra Lia List.
From Flocq Require Import Core.
From Headroom Require Import Formats Rows Exp2 LostMass Execution Adders Row.
Open Scope R_scope.

Lemma ln2_upper : ln 2 <= 7 / 10.
Proof.
apply Rnot_lt_le. intros H.
assert (E : exp (7 / 10) < 2).
{ rewrite <- (exp_ln 2) at 1 by lra. now apply exp_increasing. }
assert (S : 1 + 7 / 640 <= exp (7 / 640)) by (assert (Q := exp_ineq1_le (7 / 640)); lra).
assert (P : forall y, 0 <= y -> y <= exp (7 / 640) -> y ^ 64 <= exp (7 / 10)).
{ intros y Y0 Y. replace (7 / 10) with (INR 64 * (7 / 640)) by (simpl; lra).
  assert (X : forall n, exp (INR n * (7 / 640)) = exp (7 / 640) ^ n).
  { induction n; [simpl; rewrite Rmult_0_l; apply exp_0|].
    rewrite S_INR, Rmult_plus_distr_r, Rmult_1_l, exp_plus, IHn. simpl. ring. }
  rewrite X. apply pow_incr. lra. }
specialize (P (1 + 7 / 640) ltac:(lra) S). lra.
Qed.

Lemma ln2_lower : / 2 <= ln 2.
Proof.
apply Rnot_lt_le. intros H.
assert (E : 2 < exp (/ 2)).
{ rewrite <- (exp_ln 2) at 1 by lra. now apply exp_increasing. }
assert (S : 1 - / 2 <= exp (- / 2)) by (assert (Q := exp_ineq1_le (- / 2)); lra).
rewrite exp_Ropp in S. assert (P := exp_pos (/ 2)).
assert (1 / 2 * exp (/ 2) <= / exp (/ 2) * exp (/ 2)) by (apply Rmult_le_compat_r; lra).
rewrite Rinv_l in H0 by lra. lra.
Qed.

Lemma exp2_opp_lower a A : 0 <= A <= a -> 1 - 7 / 10 * a <= exp2 (- A).
Proof.
intros H. unfold exp2. assert (Q := exp_ineq1_le (- A * ln 2)). assert (L := ln2_upper).
assert (L0 := ln2_pos). assert (A * ln 2 <= a * (7 / 10)) by (apply Rmult_le_compat; lra). lra.
Qed.

Lemma exp2_upper a A : 0 <= A <= a -> 7 / 10 * a < 1 -> exp2 A <= / (1 - 7 / 10 * a).
Proof.
intros H Ha. assert (Q := exp2_opp_lower a A H).
replace (exp2 A) with (/ exp2 (- A)) by (rewrite exp2_opp, Rinv_inv; reflexivity).
apply Rinv_le_contravar; lra.
Qed.

(** The lost share is at most 2^-D as soon as D >= 1: e D ln 2 >= 1. *)
Lemma lost_bound_simple D : 1 <= D -> lost_bound D <= exp2 (- D).
Proof.
intros H. assert (P := lost_ratio_pos D ltac:(lra)).
apply Rle_trans with (lost_ratio D).
- unfold lost_bound. apply Rmult_le_reg_r with (1 + lost_ratio D); [lra|].
  unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra.
  assert (0 <= lost_ratio D * lost_ratio D) by (apply Rmult_le_pos; lra). lra.
- unfold lost_ratio. assert (E := exp2_pos (- D)). assert (L := ln2_lower).
  assert (E1 : 2 <= exp 1) by (assert (Q := exp_ineq1_le 1); lra).
  assert (D2 : 1 <= exp 1 * (D * ln 2)).
  { assert (D1 : 1 * / 2 <= D * ln 2) by (apply Rmult_le_compat; lra).
    assert (X : 2 * (1 * / 2) <= exp 1 * (D * ln 2)) by (apply Rmult_le_compat; lra). lra. }
  unfold Rdiv. rewrite <- (Rmult_1_r (exp2 (- D))) at 2. apply Rmult_le_compat_l; [lra|].
  apply Rle_trans with (/ 1); [apply Rinv_le_contravar; lra|rewrite Rinv_1; lra].
Qed.

(** Bernoulli: (1 + x)^h - 1 <= h x / (1 - h x). *)
Lemma bernoulli_lower x h : 0 <= x <= 1 -> 1 - INR h * x <= (1 - x) ^ h.
Proof.
intros Hx. induction h as [|h IH]; [simpl; lra|]. rewrite S_INR. simpl pow.
destruct (Rle_or_lt (1 - INR h * x) 0) as [N|N].
- assert (0 <= (1 - x) * (1 - x) ^ h).
  { apply Rmult_le_pos; [lra|]. apply pow_le. lra. } lra.
- assert ((1 - x) * (1 - INR h * x) <= (1 - x) * (1 - x) ^ h) by (apply Rmult_le_compat_l; lra).
  assert (0 <= INR h) by apply pos_INR.
  assert (0 <= INR h * x * x) by (apply Rmult_le_pos; [apply Rmult_le_pos|]; lra). lra.
Qed.

Lemma compound_upper x h : 0 <= x <= 1 -> INR h * x < 1 -> (1 + x) ^ h <= / (1 - INR h * x).
Proof.
intros Hx H. assert (B := bernoulli_lower x h Hx).
assert (P : (1 + x) ^ h * (1 - x) ^ h <= 1).
{ rewrite <- Rpow_mult_distr. apply Rle_trans with (1 ^ h); [|rewrite pow1; lra]. apply pow_incr.
  assert (0 <= x * x) by (apply Rmult_le_pos; lra). split; [|lra].
  apply Rmult_le_pos; lra. }
assert (P0 : 0 <= (1 + x) ^ h) by (apply pow_le; lra).
apply Rmult_le_reg_r with (1 - INR h * x); [lra|]. rewrite Rinv_l by lra.
apply Rle_trans with (2 := P). now apply Rmult_le_compat_l.
Qed.

Section Bound.
Variables (prec emax : Z) (m : machine prec emax) (n : numbers) (keys : list nat).
Variables a s W g_l g_O rho : R.
Hypothesis a_ok : 0 <= A prec emax m n <= a.
Hypothesis a_small : 7 / 10 * a < 1.
Hypothesis small : 0 <= eps n < 1 /\ 0 <= beta n /\ 0 <= u_P n < 1 /\ 0 <= h_P n /\
  0 <= d_l n /\ 0 <= d_O n /\ 0 <= e_O n.
Hypothesis no_events : e_l n = 0.
Hypothesis s_ok : 0 <= share n <= s.
Hypothesis s_small : s < 1.
Hypothesis W_ok : 0 < W <= exp2 (zlow n).
Hypothesis gl_ok : (1 + d_l n) ^ h_l n - 1 <= g_l.
Hypothesis gl_small : g_l < 1.
Hypothesis gO_ok : gO n <= g_O.
Hypothesis count_ok : 1 <= count keys.
Hypothesis rho_ok : INR (n_O n) <= rho * count keys.
Hypothesis V_ok : 0 <= V n /\ vmin n = - V n /\ vmax n = V n.

Notation uS' := (uS prec emax m n).
Notation uN' := (uN prec emax m n).
Notation hN' := (hN prec emax m n).
Definition e_A := / (1 - 7 / 10 * a).
Definition m_low := (1 - 7 / 10 * a) * (1 - eps n) * (1 - uS').
Definition m_high := e_A * (1 + eps n) * (1 + uS').
Definition mass_low := m_low * (1 - s) * W.
Definition sums_upper :=
  2 * V n * ((m_high / m_low - 1) / 4 + s + (beta n * (1 + uS')) * e_A * s / (m_low * (1 - s)))
  + (V n * ((1 + uN') * (1 + g_O) / (1 - g_l) - 1)
     + (V n * hN' * (1 + g_O) + rho * e_O n * (1 + g_O)) / (mass_low * (1 - g_l))).

Lemma uS_ok : 0 <= uS' < 1.
Proof. unfold uS. destruct small as [_ [_ [H _]]]. destruct (sums_stored prec emax m); lra. Qed.
Lemma uN_ok : 0 <= uN'.
Proof. unfold uN. destruct small as [_ [_ [H _]]]. destruct (sums_stored prec emax m); lra. Qed.
Lemma hN_ok : 0 <= hN'.
Proof. unfold hN. destruct small as [_ [_ [_ [H _]]]]. destruct (sums_stored prec emax m); lra. Qed.

Lemma e_A_pos : 0 < e_A.
Proof. unfold e_A. apply Rinv_0_lt_compat. lra. Qed.

Lemma m_low_ok : 0 < m_low <= factor_min prec emax m n.
Proof.
assert (U := uS_ok). destruct small as [E _]. unfold m_low, factor_min.
assert (Q := exp2_opp_lower a _ a_ok).
split; [apply Rmult_lt_0_compat; [apply Rmult_lt_0_compat; lra|lra]|].
apply Rmult_le_compat_r; [lra|]. apply Rmult_le_compat_r; lra.
Qed.

Lemma m_high_ok : factor_max prec emax m n <= m_high.
Proof.
assert (U := uS_ok). destruct small as [E _]. unfold m_high, factor_max, e_A.
assert (Q := exp2_upper a _ a_ok a_small).
apply Rmult_le_compat_r; [lra|]. apply Rmult_le_compat_r; lra.
Qed.

Lemma order_ok : factor_min prec emax m n <= factor_max prec emax m n.
Proof.
assert (U := uS_ok). destruct small as [E _]. unfold factor_min, factor_max.
assert (X := exp2_le (- A prec emax m n) (A prec emax m n) ltac:(lra)).
assert (P := exp2_pos (- A prec emax m n)).
apply Rmult_le_compat; try lra; [apply Rmult_le_pos; lra|]. apply Rmult_le_compat; lra.
Qed.

Lemma root_ok : (root prec emax m n - 1) / (root prec emax m n + 1) <= (m_high / m_low - 1) / 4.
Proof.
destruct m_low_ok as [M0 M1]. assert (M2 := m_high_ok). assert (M3 := order_ok).
unfold root. set (q := factor_max prec emax m n / factor_min prec emax m n).
assert (Q1 : 1 <= q).
{ unfold q. apply Rmult_le_reg_r with (factor_min prec emax m n); [lra|].
  unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. lra. }
assert (Q2 : q <= m_high / m_low).
{ unfold q, Rdiv. apply Rmult_le_compat; try lra; [left; apply Rinv_0_lt_compat; lra|].
  apply Rinv_le_contravar; lra. }
assert (R1 : 1 <= sqrt q).
{ apply Rle_trans with (sqrt 1); [rewrite sqrt_1; lra|now apply sqrt_le_1_alt]. }
assert (R2 : 2 * sqrt q <= 1 + q).
{ assert (S := sqrt_sqrt q ltac:(lra)). assert (0 <= (sqrt q - 1) * (sqrt q - 1)) by apply Rle_0_sqr. lra. }
apply Rle_trans with ((sqrt q - 1) / 2); [|lra].
unfold Rdiv. apply Rmult_le_compat_l; [lra|]. apply Rinv_le_contravar; lra.
Qed.

Lemma mass_ok : 0 < mass_low /\ mass_low * count keys <= mass prec emax m n keys.
Proof.
destruct m_low_ok as [M0 M1]. unfold mass_low, mass. split.
- apply Rmult_lt_0_compat; [apply Rmult_lt_0_compat|]; lra.
- replace (m_low * (1 - s) * W * count keys) with (m_low * (1 - s) * (count keys * W)) by ring.
  assert (X1 : 0 <= m_low * (1 - s)) by (apply Rmult_le_pos; lra).
  apply Rmult_le_compat; [exact X1|apply Rmult_le_pos; lra| |apply Rmult_le_compat_l; lra].
  apply Rmult_le_compat; lra.
Qed.

Lemma gl_value : 0 <= gl prec emax m n keys <= g_l.
Proof.
unfold gl. rewrite no_events. unfold Rdiv. rewrite Rmult_0_r, !Rmult_0_l, Rplus_0_r.
split; [|exact gl_ok]. assert (1 <= (1 + d_l n) ^ h_l n) by (apply pow_R1_Rle; lra). lra.
Qed.

Theorem sums_bound_upper : sums_bound prec emax m n keys <= sums_upper.
Proof.
destruct V_ok as [V0 [V1 V2]]. destruct m_low_ok as [M0 M1]. assert (M2 := m_high_ok).
destruct mass_ok as [W0 W1]. destruct gl_value as [G0 G1]. assert (U := uS_ok).
assert (UN := uN_ok). assert (HN := hN_ok). assert (EA := e_A_pos).
destruct small as [E [B [_ [_ [_ [DO EO]]]]]].
assert (GO0 : 0 <= gO n).
{ unfold gO. assert (1 <= (1 + d_O n) ^ h_O n) by (apply pow_R1_Rle; lra). lra. }
unfold sums_bound, sums_upper. rewrite V1, V2. replace (V n - - V n) with (2 * V n) by ring.
apply Rplus_le_compat.
- apply Rmult_le_compat_l; [lra|]. apply Rplus_le_compat; [apply Rplus_le_compat; [apply root_ok|lra]|].
  assert (Ea := exp2_upper a _ a_ok a_small). fold e_A in Ea.
  assert (Pa := exp2_pos (A prec emax m n)).
  assert (F1 : 0 <= beta n * (1 + uS')) by (apply Rmult_le_pos; lra).
  assert (m1 : 0 < m_low * (1 - s)) by (apply Rmult_lt_0_compat; lra).
  assert (m2 : m_low * (1 - s) <= factor_min prec emax m n * (1 - share n)) by (apply Rmult_le_compat; lra).
  unfold Rdiv. apply Rmult_le_compat.
  + apply Rmult_le_pos; [apply Rmult_le_pos|]; lra.
  + left. apply Rinv_0_lt_compat. lra.
  + apply Rmult_le_compat; [apply Rmult_le_pos; lra|lra| |lra]. apply Rmult_le_compat_l; lra.
  + apply Rinv_le_contravar; lra.
- apply Rplus_le_compat.
  + apply Rmult_le_compat_l; [exact V0|]. apply Rplus_le_compat_r. unfold Rdiv.
    apply Rmult_le_compat.
    * apply Rmult_le_pos; lra.
    * left. apply Rinv_0_lt_compat. lra.
    * apply Rmult_le_compat_l; lra.
    * apply Rinv_le_contravar; lra.
  + assert (eO n <= rho * count keys * e_O n * (1 + g_O)).
    { unfold eO. assert (X : (1 + d_O n) ^ h_O n <= 1 + g_O) by (unfold gO in gO_ok; lra).
      assert (P1 : 1 <= (1 + d_O n) ^ h_O n) by (apply pow_R1_Rle; lra).
      apply Rmult_le_compat; [|lra| |exact X].
      - apply Rmult_le_pos; [apply pos_INR|lra].
      - apply Rmult_le_compat_r; lra. }
    assert (VN : 0 <= V n * hN' * (1 + g_O)) by (apply Rmult_le_pos; [apply Rmult_le_pos|]; lra).
    assert (RE : 0 <= rho * e_O n * (1 + g_O)).
    { assert (0 <= rho).
      { apply Rmult_le_reg_r with (count keys); [lra|]. rewrite Rmult_0_l.
        apply Rle_trans with (2 := rho_ok). apply pos_INR. }
      apply Rmult_le_pos; [apply Rmult_le_pos|]; lra. }
    assert (Num : V n * count keys * hN' * (1 + gO n) + eO n
                  <= count keys * (V n * hN' * (1 + g_O) + rho * e_O n * (1 + g_O))).
    { assert (V n * count keys * hN' * (1 + gO n) <= V n * count keys * hN' * (1 + g_O)).
      { apply Rmult_le_compat_l; [|lra]. repeat apply Rmult_le_pos; lra. }
      lra. }
    assert (Den : 0 < mass_low * (1 - g_l)) by (apply Rmult_lt_0_compat; lra).
    assert (Den2 : count keys * (mass_low * (1 - g_l)) <= mass prec emax m n keys * (1 - gl prec emax m n keys)).
    { replace (count keys * (mass_low * (1 - g_l))) with (mass_low * count keys * (1 - g_l)) by ring.
      apply Rmult_le_compat; try lra. apply Rmult_le_pos; lra. }
    assert (DenP : 0 < count keys * (mass_low * (1 - g_l))) by (apply Rmult_lt_0_compat; lra).
    set (num := V n * hN' * (1 + g_O) + rho * e_O n * (1 + g_O)) in *.
    apply Rle_trans with (count keys * num * / (count keys * (mass_low * (1 - g_l)))).
    * unfold Rdiv. apply Rmult_le_compat; [|left; apply Rinv_0_lt_compat; lra|exact Num|apply Rinv_le_contravar; lra].
      assert (0 <= V n * count keys * hN' * (1 + gO n)) by (repeat apply Rmult_le_pos; lra).
      assert (0 <= eO n); [|lra]. unfold eO. assert (1 <= (1 + d_O n) ^ h_O n) by (apply pow_R1_Rle; lra).
      apply Rmult_le_pos; [apply Rmult_le_pos; [apply pos_INR|lra]|lra].
    * right. unfold num. field. split; lra.
Qed.
End Bound.
