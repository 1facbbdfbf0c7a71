(** * What an accepted head promises besides: rational bounds

    Of the denominator against the exact mass, from which the log-sum-exp's error follows, and of what
    flushed products take. Nothing more is checked: the numbers are those of the output's bound. *)

From Coq Require Import ZArith QArith Qreals Reals Lra Lia List Bool.
From Flocq Require Import Core BinarySingleNaN.
From Headroom Require Import Formats Rows Exp2 Jensen LostMass Execution Adders Row Kernel MainTheorem Bounds CheckRow
  CheckHead CheckBound Log2e LogSumExp FlushedProducts.
Import ListNotations.
Open Scope R_scope.

Definition q_l_low (k : kernel) (h : head_numbers) : Q := (q_m_low k h * (1 - q_s k h) * (1 - q_gl k h))%Q.
Definition q_l_high (k : kernel) (h : head_numbers) : Q :=
  ((q_m_high k h + q_beta (k_exp2 k) * (1 + q_uS k) * q_eA h * q_s k h) * (1 + q_gl k h))%Q.
(** log2 (1 + y) <= y / ln 2, and -log2 y <= (1 / y - 1) / ln 2. *)
Definition q_lse (k : kernel) (h : head_numbers) : Q :=
  (qmax (q_l_high k h - 1) (/ q_l_low k h - 1) * (inject_Z (2 ^ 70) / inject_Z ln2_lo))%Q.
Definition q_flushed (k : kernel) (h : head_numbers) : Q :=
  (q_rho * q_eta (k_O k) * (1 + q_gO k h) / (q_mass k h * (1 - q_gl k h)))%Q.

Section Sound.
Variables (k : kernel) (h : head_numbers).
Hypothesis ok : kernel_ok k.
Hypothesis checked : head_okb k h = true.
Notation c := (n_constants h).
Variables (r : MainTheorem.row) (st : stabilizer).
Hypothesis C_value : cap st = c_C c.
Hypothesis C_range : (64 <= c_C c <= 127)%Z.
Notation Vm := (IZR (n_V h) * bpow radix2 (n_ve h)).
Notation keys := (visible r).
Notation M := (machine_of k).
Hypothesis some_keys : keys <> [].
Hypothesis count_keys : (Z.of_nat (length keys) <= n_N h)%Z.
Variable Q2 : Z.
Notation nf := (numbers_found c Q2 Vm (n_G h) (n_N h) (n_q h) (head_l_depth k h) (O_depth k (n_N h))).
Notation RN := (numbers_of_row k r st nf).
Hypothesis within : ranges 24 128 M RN keys.

Lemma a_small : 7 / 10 * Q2R (q_a h) < 1.
Proof. apply (hf_a k h (facts k h checked)). Qed.

Lemma A_small : 0 <= A 24 128 M RN <= Q2R (q_a h).
Proof. rewrite (A_value k h r st Q2). assert (A0 := a_nonneg k h checked). lra. Qed.

Lemma uS_value : uS 24 128 M RN = Q2R (q_uS k).
Proof.
unfold uS. cbn [numbers_of_row numbers_of machine_of sums_stored u_P].
unfold q_uS, q_u_P, u_P_of. destruct (k_sums_stored k); [now rewrite Q2R_q2|unfold Q2R; simpl; field].
Qed.

Lemma ten : Q2R (1 - (7 # 10) * q_a h) = 1 - 7 / 10 * Q2R (q_a h).
Proof. rewrite Q2R_minus, Q2R_mult, Q2R_1. unfold Q2R at 1. simpl. field. Qed.

Lemma eA_value : Q2R (q_eA h) = e_A (Q2R (q_a h)).
Proof.
unfold q_eA, e_A. rewrite Q2R_inv.
- now rewrite ten.
- apply nonzero. rewrite ten. assert (S := a_small). lra.
Qed.

Lemma m_low_value : Q2R (q_m_low k h) = m_low 24 128 M RN (Q2R (q_a h)).
Proof.
unfold q_m_low, m_low. rewrite uS_value, !Q2R_mult, ten, !Q2R_minus, Q2R_1.
cbn [numbers_of_row numbers_of eps]. now rewrite eps_value.
Qed.

Lemma m_high_value : Q2R (q_m_high k h) = m_high 24 128 M RN (Q2R (q_a h)).
Proof.
unfold q_m_high, m_high. rewrite uS_value, !Q2R_mult, !Q2R_plus, Q2R_1, eA_value.
cbn [numbers_of_row numbers_of eps]. now rewrite eps_value.
Qed.

Notation small := (smallness k h ok checked r st C_range Q2).
Notation gl_fact := (hf_gl k h (facts k h checked)).

Theorem l_ratio_checked : 0 < Q2R (q_l_low k h) <= l_low 24 128 M RN keys /\
  l_high 24 128 M RN keys <= Q2R (q_l_high k h).
Proof.
assert (Fh := facts k h checked).
destruct (ratio_rational 24 128 M RN keys within (Q2R (q_a h)) (Q2R (q_s k h)) (Q2R (q_gl k h)) A_small a_small
  small eq_refl (share_value k h checked r st C_value Q2) (hf_s k h Fh) gl_fact (hf_gl1 k h Fh)) as [T1 T2].
assert (L : Q2R (q_l_low k h) = l_lower 24 128 M RN (Q2R (q_a h)) (Q2R (q_s k h)) (Q2R (q_gl k h))).
{ unfold q_l_low, l_lower. now rewrite !Q2R_mult, !Q2R_minus, Q2R_1, m_low_value. }
assert (H : Q2R (q_l_high k h) = l_upper 24 128 M RN (Q2R (q_a h)) (Q2R (q_s k h)) (Q2R (q_gl k h))).
{ unfold q_l_high, l_upper. rewrite uS_value, !Q2R_mult, !Q2R_plus, !Q2R_mult, !Q2R_plus, Q2R_1, m_high_value, eA_value.
  cbn [numbers_of_row numbers_of beta]. now rewrite q_beta_value. }
rewrite L, H. exact (conj T1 T2).
Qed.

(** In log2 units. *)
Lemma log2_above y : 0 < y -> log2 y <= (y - 1) / ln 2.
Proof.
intros H. unfold log2, Rdiv. apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat, ln2_pos|].
assert (E := exp_ineq1_le (ln y)). rewrite exp_ln in E by exact H. lra.
Qed.

Theorem lse_checked y : log2 (l_low 24 128 M RN keys) <= y <= log2 (l_high 24 128 M RN keys) ->
  Rabs y <= Q2R (q_lse k h).
Proof.
intros [Y1 Y2]. destruct l_ratio_checked as [[L0 L1] L2].
assert (Order : l_low 24 128 M RN keys <= l_high 24 128 M RN keys \/ l_high 24 128 M RN keys < l_low 24 128 M RN keys) by lra.
assert (LN := ln2_pos). assert (E := ln2_enclosed).
set (yl := Q2R (q_l_low k h)) in *. set (yh := Q2R (q_l_high k h)) in *.
assert (Inv : 0 < / yl) by now apply Rinv_0_lt_compat.
assert (Lo : - y <= (/ yl - 1) / ln 2).
{ assert (Q1 := log2_le _ _ L0 L1). assert (Q2' := log2_above (/ yl) Inv).
  assert (Z : log2 (/ yl) = - log2 yl).
  { unfold log2. rewrite ln_Rinv by exact L0. field. lra. }
  lra. }
assert (Hi0 : 0 < l_high 24 128 M RN keys).
{ destruct Order as [O|O]; [lra|].
  unfold l_high. assert (B := beta_all_nonneg 24 128 M RN keys within). assert (Sh := share_range 24 128 M RN keys within).
  assert (F0 := factor_min_pos 24 128 M RN keys within). destruct (factors 24 128 M RN keys within) as [R1 R2].
  destruct (gl_at_most 24 128 M RN keys (Q2R (q_gl k h)) small eq_refl gl_fact) as [G0 _].
  apply Rmult_lt_0_compat; [|lra].
  assert (0 <= beta_all 24 128 M RN * share RN) by (apply Rmult_le_pos; lra).
  assert (0 < factor_max 24 128 M RN); [|lra]. rewrite <- R2. apply Rmult_lt_0_compat; [lra|]. apply Rmult_lt_0_compat; lra. }
assert (Hi : y <= (yh - 1) / ln 2).
{ assert (Q1 := log2_le _ _ Hi0 L2). assert (Q2' := log2_above yh ltac:(lra)). lra. }
(* the larger of the two is not negative, so that a smaller ln 2 makes it larger *)
set (g := Q2R (qmax (q_l_high k h - 1) (/ q_l_low k h - 1))).
destruct (qmax_ge (q_l_high k h - 1) (/ q_l_low k h - 1)) as [G1 G2]. fold g in G1, G2.
rewrite Q2R_minus, Q2R_1 in G1, G2. fold yh in G1. rewrite Q2R_inv in G2 by (apply nonzero; fold yl; lra). fold yl in G2.
assert (IL : 0 < / ln 2) by now apply Rinv_0_lt_compat.
assert (B1 : - y <= g / ln 2) by (apply Rle_trans with (1 := Lo); apply Rmult_le_compat_r; lra).
assert (B2 : y <= g / ln 2) by (apply Rle_trans with (1 := Hi); apply Rmult_le_compat_r; lra).
assert (g0 : 0 <= g).
{ apply Rmult_le_reg_r with (1 := IL). rewrite Rmult_0_l. change (g * / ln 2) with (g / ln 2). lra. }
assert (P70 := bpow_gt_0 radix2 70). assert (ll : 0 < IZR ln2_lo) by (apply IZR_lt; reflexivity).
assert (Value : Q2R (q_lse k h) = g * (bpow radix2 70 / IZR ln2_lo)).
{ unfold q_lse. rewrite Q2R_mult. fold g. rewrite Q2R_div.
  - rewrite !Q2R_inject, two_pow by lia. reflexivity.
  - apply nonzero. rewrite Q2R_inject. lra. }
rewrite Value.
assert (Up : / ln 2 <= bpow radix2 70 / IZR ln2_lo).
{ replace (bpow radix2 70 / IZR ln2_lo) with (/ (IZR ln2_lo * bpow radix2 (-70))).
  - apply Rinv_le_contravar; [|lra]. apply Rmult_lt_0_compat; [lra|apply bpow_gt_0].
  - replace (bpow radix2 (-70)) with (/ bpow radix2 70) by (symmetry; exact (bpow_opp radix2 70)).
    field. split; lra. }
apply Rabs_le. assert (g / ln 2 <= g * (bpow radix2 70 / IZR ln2_lo)) by (apply Rmult_le_compat_l; lra). lra.
Qed.

Theorem flushed_checked :
  eO RN / (mass 24 128 M RN keys * (1 - gl 24 128 M RN keys)) <= Q2R (q_flushed k h).
Proof.
assert (Fh := facts k h checked).
assert (T := flushed_rational 24 128 M RN keys (Q2R (q_a h)) (Q2R (q_s k h)) (Q2R (q_W h)) (Q2R (q_gl k h))
  (Q2R (q_gO k h)) 1028).
destruct (W_value k h r st Q2) as [W0 W1].
assert (C1 : 1 <= count keys) by (eapply count_one; eassumption).
assert (Rho : INR (n_O RN) <= 1028 * count keys) by (eapply rho_value; eassumption).
specialize (T A_small a_small small eq_refl (share_value k h checked r st C_value Q2) (hf_s k h Fh)
  (conj W0 W1) gl_fact (hf_gl1 k h Fh) (hf_gO k h Fh) C1 Rho).
apply Rle_trans with (1 := T). right. unfold flushed_upper, q_flushed, mass_low. cbn [numbers_of_row numbers_of e_O].
assert (S1 := hf_s k h Fh). assert (G1 := hf_gl1 k h Fh).
destruct (m_low_ok 24 128 M RN (Q2R (q_a h)) A_small a_small small) as [M0 _].
assert (Mass : Q2R (q_mass k h) = m_low 24 128 M RN (Q2R (q_a h)) * (1 - Q2R (q_s k h)) * Q2R (q_W h)).
{ unfold q_mass. now rewrite !Q2R_mult, Q2R_minus, Q2R_1, m_low_value. }
assert (Pos : 0 < m_low 24 128 M RN (Q2R (q_a h)) * (1 - Q2R (q_s k h)) * Q2R (q_W h)).
{ apply Rmult_lt_0_compat; [apply Rmult_lt_0_compat; lra|exact W0]. }
rewrite Q2R_div.
- rewrite !Q2R_mult, Q2R_plus, Q2R_minus, Q2R_1, Mass, q_eta_value.
  replace (Q2R q_rho) with 1028 by (unfold q_rho, Q2R; simpl; field). reflexivity.
- apply nonzero. rewrite Q2R_mult, Mass, Q2R_minus, Q2R_1. apply Rgt_not_eq. apply Rmult_lt_0_compat; lra.
Qed.
End Sound.
