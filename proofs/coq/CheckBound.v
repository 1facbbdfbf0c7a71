(** * The head's check gives every row the conditions of the main theorem *)

From Coq Require Import ZArith QArith Qreals Reals Lra Lia List Bool.
From Flocq Require Import Core BinarySingleNaN.
From Headroom Require Import Formats Rows CauchySchwarz Exp2 LostMass Execution Adders Weights Stabilizer Row
  Kernel MainTheorem Bounds CheckRow CheckHead.
Import ListNotations.
Open Scope R_scope.

Lemma nonzero y : Q2R y <> 0 -> ~ (y == 0)%Q.
Proof. intros H E. apply H. apply Qeq_eqR in E. rewrite E. unfold Q2R. simpl. field. Qed.

Lemma Q2R_const n d : Q2R (n # d) = IZR n / IZR (Z.pos d).
Proof. reflexivity. Qed.

Section Sound.
Variables (k : kernel) (h : head_numbers).
Hypothesis ok : kernel_ok k.
Hypothesis checked : head_okb k h = true.
Notation c := (n_constants h).
Variables (r : row) (st : stabilizer).
Hypothesis C_value : cap st = c_C c.
Hypothesis C_range : (64 <= c_C c <= 127)%Z.
Notation pr := (promise_of (k_exp2 k) (c_C c)).
Notation Vm := (IZR (n_V h) * bpow radix2 (n_ve h)).
Notation keys := (visible r).
Notation M := (machine_of k).
Hypothesis some_keys : keys <> [].
Hypothesis count_keys : (Z.of_nat (length keys) <= n_N h)%Z.
Variable Q2 : Z.
Notation nf := (numbers_found c Q2 Vm (n_G h) (n_N h) (n_q h) (head_l_depth k h) (O_depth k (n_N h))).
Notation RN := (numbers_of_row k r st nf).

Lemma facts : head_facts k h.
Proof. exact (head_facts_hold k h checked). Qed.

Lemma Vm_nonneg : 0 <= Vm.
Proof. apply Rmult_le_pos; [apply IZR_le; apply (hf_V k h facts)|apply bpow_ge_0]. Qed.

Lemma A_value : A 24 128 M RN = Q2R (q_a h).
Proof.
unfold A, q_a. cbn [numbers_of_row numbers_of Row.e Row.K machine_of exponent_mode numbers_found err].
rewrite Q2R_plus, Q2R_qF, Q2R_q2. f_equal. unfold unit_of. rewrite <- bpow_plus. reflexivity.
Qed.

Lemma err_nonneg : 0 <= F (c_err c).
Proof. apply F_nonneg. apply (hf_err k h facts). Qed.

Lemma a_nonneg : 0 <= Q2R (q_a h).
Proof.
unfold q_a. rewrite Q2R_plus, Q2R_qF, Q2R_q2. assert (E := err_nonneg).
assert (0 <= bpow radix2 (-16)) by apply bpow_ge_0. lra.
Qed.

Lemma eps_value : unit_eps (k_exp2 k) = Q2R (q_eps (k_exp2 k)).
Proof. symmetry. apply q_eps_value. Qed.

Lemma eps_range : 0 <= Q2R (q_eps (k_exp2 k)) < 1.
Proof.
split; [|apply (hf_eps k h facts)]. rewrite q_eps_value. destruct (k_exp2 k) as [[|]|a e hh] eqn:E; cbn [unit_eps].
3: { assert (U := ok_unit k ok). rewrite E in U. destruct U as [U _].
  apply Rmult_le_pos; [now apply IZR_le|apply bpow_ge_0]. }
all: unfold relative_of; assert (0 < bpow radix2 (-24) < 1) by
  (split; [apply bpow_gt_0|change 1 with (bpow radix2 0); apply bpow_lt; lia]);
  apply Rmult_le_pos; [lra|left; apply Rinv_0_lt_compat; lra].
Qed.

Lemma beta_nonneg : 0 <= unit_beta (k_exp2 k).
Proof. destruct (k_exp2 k) as [[|]|]; cbn [unit_beta]; lra. Qed.

Lemma u_P_range : 0 <= u_P_of k < 1.
Proof.
unfold u_P_of. destruct (ok_p k ok) as [Hp _]. split; [apply bpow_ge_0|].
change 1 with (bpow radix2 0). apply bpow_lt. lia.
Qed.
Lemma h_P_nonneg : 0 <= h_P_of k.
Proof. unfold h_P_of. destruct (unit_flushes (k_exp2 k)); [lra|apply bpow_ge_0]. Qed.

Lemma smallness : 0 <= eps RN < 1 /\ 0 <= beta RN /\ 0 <= u_P RN < 1 /\ 0 <= h_P RN /\
  0 <= d_l RN /\ 0 <= d_O RN /\ 0 <= e_O RN.
Proof.
cbn [numbers_of_row numbers_of eps beta u_P h_P d_l d_O e_O]. rewrite eps_value.
assert (E := eps_range). assert (B := beta_nonneg). assert (U := u_P_range). assert (P := h_P_nonneg).
assert (D := delta_nonneg _ (ok_O k ok)). assert (T := eta_nonneg (k_O k)).
assert (0 <= bpow radix2 (-24)) by apply bpow_ge_0. tauto.
Qed.

(** The margin above the threshold of accuracy, and what it says of the share. *)
Lemma margin_value : F (c_margin c) - IZR (pr_La pr) - F (c_err c)
  = F (c_margin c - pr_La pr * 2 ^ 64 - c_err c).
Proof.
rewrite !minus_IZR, mult_IZR, two_pow by lia.
replace ((IZR (c_margin c) - IZR (pr_La pr) * bpow radix2 64 - IZR (c_err c)) * bpow radix2 (-64))
  with (F (c_margin c) - IZR (pr_La pr) * (bpow radix2 64 * bpow radix2 (-64)) - F (c_err c)) by ring.
rewrite <- bpow_plus. simpl. ring.
Qed.

Lemma floor_F a : IZR (a / 2 ^ 64) <= F a.
Proof.
assert (D := Z.mul_div_le a (2 ^ 64) ltac:(lia)). apply IZR_le in D. rewrite mult_IZR, two_pow in D by lia.
assert (B := bpow_gt_0 radix2 (-64)). apply Rmult_le_compat_r with (r := bpow radix2 (-64)) in D; [|lra].
replace (bpow radix2 64 * IZR (a / 2 ^ 64) * bpow radix2 (-64))
  with (IZR (a / 2 ^ 64) * (bpow radix2 64 * bpow radix2 (-64))) in D by ring.
rewrite <- bpow_plus in D. simpl (bpow radix2 (64 + -64)) in D. lra.
Qed.

Lemma D_ge_1 : 1 <= zlow RN - IZR (La RN) - e RN.
Proof.
cbn [numbers_of_row numbers_of zlow La e numbers_found margin err]. rewrite C_value, margin_value.
apply Rle_trans with (F (2 ^ 64)); [rewrite F_pow by lia; simpl; lra|]. apply F_le. apply (hf_margin k h facts).
Qed.

Lemma share_value : 0 <= share RN <= Q2R (q_s k h).
Proof.
assert (D := D_ge_1). unfold share. destruct (lost_bound_lt_1 _ (Rlt_le_trans _ _ _ Rlt_0_1 D)) as [P _].
split; [lra|]. apply Rle_trans with (1 := lost_bound_simple _ D).
unfold q_s. rewrite Q2R_q2, <- (exp2_Z (- share_exponent k h)). apply exp2_le. rewrite opp_IZR. apply Ropp_le_contravar.
cbn [numbers_of_row numbers_of zlow La e numbers_found margin err]. rewrite C_value, margin_value.
unfold share_exponent. apply floor_F.
Qed.

Lemma W_value : 0 < Q2R (q_W h) <= exp2 (zlow RN).
Proof.
unfold q_W. rewrite Q2R_q2. split; [apply bpow_gt_0|]. rewrite <- (exp2_Z (c_margin c / 2 ^ 64)). apply exp2_le.
cbn [numbers_of_row numbers_of zlow numbers_found margin]. apply floor_F.
Qed.

Lemma count_one : 1 <= count keys.
Proof. destruct keys; [congruence|]. change 1 with (INR 1). apply le_INR. simpl. lia. Qed.

Lemma rho_value : INR (n_O RN) <= 1028 * count keys.
Proof.
cbn [numbers_of_row numbers_of n_O]. unfold nodes_allowed, padding. rewrite INR_IZR_INZ, Z2Nat.id by lia.
rewrite INR_IZR_INZ. rewrite <- mult_IZR. apply IZR_le.
assert (C1 := count_one). rewrite INR_IZR_INZ in C1. apply (le_IZR 1) in C1. lia.
Qed.

Theorem sums_checked : sums_bound 24 128 M RN keys <= Q2R (q_sums k h).
Proof.
assert (Fh := facts). assert (A0 := a_nonneg). assert (Ha := hf_a k h Fh). assert (Hs := hf_s k h Fh).
assert (Hg := hf_gl1 k h Fh). assert (U := u_P_range). assert (Eps := eps_range).
assert (T := sums_bound_upper 24 128 M RN keys (Q2R (q_a h)) (Q2R (q_s k h)) (Q2R (q_W h)) (Q2R (q_gl k h))
  (Q2R (q_gO k h)) 1028).
rewrite A_value in T.
specialize (T (conj A0 (Rle_refl _)) Ha smallness eq_refl share_value Hs W_value (hf_gl k h Fh) Hg
  (hf_gO k h Fh) count_one rho_value (conj Vm_nonneg (conj eq_refl eq_refl))).
apply Rle_trans with (1 := T). right. clear T.
unfold sums_upper, mass_low, m_low, m_high, e_A, uS, uN, hN.
cbn [numbers_of_row numbers_of machine_of sums_stored eps beta u_P h_P e_O Row.V numbers_found Vmax].
rewrite eps_value, <- (q_beta_value (k_exp2 k)).
assert (uSv : (if k_sums_stored k then u_P_of k else 0) = Q2R (q_uS k)).
{ unfold q_uS, q_u_P, u_P_of. destruct (k_sums_stored k); [now rewrite Q2R_q2|unfold Q2R; simpl; field]. }
assert (uNv : (if k_sums_stored k then 0 else u_P_of k) = Q2R (q_uN k)).
{ unfold q_uN, q_u_P, u_P_of. destruct (k_sums_stored k); [unfold Q2R; simpl; field|now rewrite Q2R_q2]. }
assert (hNv : (if k_sums_stored k then 0 else h_P_of k) = Q2R (q_hN k)).
{ unfold q_hN. rewrite <- q_h_P_value. destruct (k_sums_stored k); [unfold Q2R; simpl; field|reflexivity]. }
assert (uSr : 0 <= Q2R (q_uS k) < 1) by (rewrite <- uSv; destruct (k_sums_stored k); lra).
rewrite uSv, uNv, hNv, <- (q_eta_value (k_O k)).
assert (K7 : Q2R (7 # 10) = 7 / 10) by (unfold Q2R; simpl; field).
assert (K4 : Q2R 4 = 4) by (unfold Q2R; simpl; field).
assert (K2 : Q2R 2 = 2) by (unfold Q2R; simpl; field).
assert (Kr : Q2R q_rho = 1028) by (unfold q_rho, Q2R; simpl; field).
assert (D1 : Q2R (1 - (7 # 10) * q_a h) = 1 - 7 / 10 * Q2R (q_a h)) by (now rewrite Q2R_minus, Q2R_mult, Q2R_1, K7).
assert (Z1 : Q2R (1 - (7 # 10) * q_a h) <> 0) by (rewrite D1; lra).
assert (D2 : Q2R (q_m_low k h) = (1 - 7 / 10 * Q2R (q_a h)) * (1 - Q2R (q_eps (k_exp2 k))) * (1 - Q2R (q_uS k))).
{ unfold q_m_low. now rewrite !Q2R_mult, D1, !Q2R_minus, Q2R_1. }
assert (P2 : 0 < Q2R (q_m_low k h)).
{ rewrite D2. apply Rmult_lt_0_compat; [apply Rmult_lt_0_compat|]; lra. }
assert (D3 : Q2R (1 - q_s k h) = 1 - Q2R (q_s k h)) by (now rewrite Q2R_minus, Q2R_1).
assert (D4 : Q2R (1 - q_gl k h) = 1 - Q2R (q_gl k h)) by (now rewrite Q2R_minus, Q2R_1).
assert (D5 : Q2R (q_mass k h) = Q2R (q_m_low k h) * (1 - Q2R (q_s k h)) * Q2R (q_W h)).
{ unfold q_mass. now rewrite !Q2R_mult, D3. }
destruct W_value as [W0 _].
assert (D6 : Q2R (q_eA h) = / (1 - 7 / 10 * Q2R (q_a h))).
{ unfold q_eA. rewrite Q2R_inv by now apply nonzero. now rewrite D1. }
assert (D7 : Q2R (q_m_high k h) = Q2R (q_eA h) * (1 + Q2R (q_eps (k_exp2 k))) * (1 + Q2R (q_uS k))).
{ unfold q_m_high. now rewrite !Q2R_mult, !Q2R_plus, Q2R_1. }
assert (P3 : 0 < Q2R (q_m_low k h) * (1 - Q2R (q_s k h))) by (apply Rmult_lt_0_compat; lra).
assert (P5 : 0 < Q2R (q_mass k h) * (1 - Q2R (q_gl k h))).
{ rewrite D5. apply Rmult_lt_0_compat; [apply Rmult_lt_0_compat; lra|lra]. }
unfold q_sums. fold (q_m_low k h).
rewrite !Q2R_plus, !Q2R_mult, !Q2R_plus, !Q2R_minus.
rewrite (Q2R_div (q_m_high k h / q_m_low k h - 1) 4) by (apply nonzero; rewrite K4; lra).
rewrite (Q2R_div _ (q_m_low k h * (1 - q_s k h))) by (apply nonzero; rewrite Q2R_mult, D3; lra).
rewrite (Q2R_div _ (1 - q_gl k h)) by (apply nonzero; rewrite D4; lra).
rewrite (Q2R_div _ (q_mass k h * (1 - q_gl k h))) by (apply nonzero; rewrite Q2R_mult, D4; lra).
rewrite Q2R_minus, (Q2R_div (q_m_high k h)) by (apply nonzero; lra).
rewrite !Q2R_mult, !Q2R_plus, !Q2R_mult, !Q2R_plus, D3, D4, ?Q2R_inject, ?Q2R_q2, ?K4, ?K2, ?Kr, ?Q2R_1.
rewrite <- D6, <- D7, <- D2, <- D5. reflexivity.
Qed.
End Sound.

Section Part.
Variables (k : kernel) (h : head_numbers).
Hypothesis ok : kernel_ok k.
Hypothesis checked : head_okb k h = true.
Notation c := (n_constants h).
Variables (r : row) (st : stabilizer).
Hypothesis C_value : cap st = c_C c.
Hypothesis C_range : (64 <= c_C c <= 127)%Z.
Notation Vm := (IZR (n_V h) * bpow radix2 (n_ve h)).
Notation keys := (visible r).
Notation M := (machine_of k).
Hypothesis some_keys : keys <> [].
Hypothesis count_keys : (Z.of_nat (length keys) <= n_N h)%Z.
Hypothesis depths : depth_ok k h (Z.of_nat (length keys)) = true.
Hypothesis values : forall j, In j keys -> Rabs (values_of r j) <= Vm.
Variable Q2 : Z.
Notation nf := (numbers_found c Q2 Vm (n_G h) (n_N h) (n_q h) (head_l_depth k h) (O_depth k (n_N h))).
Notation RN := (numbers_of_row k r st nf).

Lemma quotient_checked : quotient_bound 24 128 M RN keys <= Q2R (q_quotient k h).
Proof.
assert (S := sums_checked k h ok checked r st C_value C_range some_keys count_keys Q2).
assert (U := hf_uD k h (head_facts_hold k h checked)).
unfold quotient_bound, q_quotient. rewrite !Q2R_plus, !Q2R_mult, Q2R_plus, Q2R_1, q_u_D_value, q_h_D_value, Q2R_inject, Q2R_q2.
cbn [numbers_of_row numbers_of u_D h_D Row.V numbers_found Vmax].
apply Rplus_le_compat_r, Rplus_le_compat_r. apply Rmult_le_compat_r; lra.
Qed.

Theorem head_part_holds : head_part c k r st Q2 Vm (n_G h) (n_N h) (n_q h) (head_l_depth k h) (O_depth k (n_N h)).
Proof.
assert (Fh := head_facts_hold k h checked).
assert (Sm := smallness k h ok checked r st C_range Q2).
assert (Sb := sums_checked k h ok checked r st C_value C_range some_keys count_keys Q2).
assert (D1 := D_ge_1 k h checked r st C_value Q2).
destruct (ok_p k ok) as [Hp Ep]. destruct (hf_w k h Fh) as [W1 W1']. destruct (hf_n k h Fh) as [W2 [W2' W3]]. destruct (hf_l k h Fh) as [L1 [L2 L3]].
unfold depth_ok in depths. apply andb_prop in depths. destruct depths as [Dl DO]. apply Z.leb_le in Dl, DO.
split.
- auto.
- intros j H. split; [now apply values|apply (hf_G k h Fh)].
- assert (PL : (pr_L (promise_of (k_exp2 k) (c_C c)) <= pr_La (promise_of (k_exp2 k) (c_C c)))%Z /\
    (-150 <= pr_Z0 (promise_of (k_exp2 k) (c_C c)) <= pr_La (promise_of (k_exp2 k) (c_C c)))%Z /\
    (-149 <= pr_L (promise_of (k_exp2 k) (c_C c)))%Z /\
    (pr_La (promise_of (k_exp2 k) (c_C c)) <= -125)%Z).
  { destruct (k_exp2 k) as [[|]|]; cbn [promise_of pr_L pr_La pr_Z0]; lia. }
  destruct PL as [PL1 [PL2 [PL3 PL4]]].
  split; unfold wS, lS; cbn [numbers_of_row numbers_of machine_of sums_stored Row.C L La Z0 low w l_ wP lP Row.N Row.G K b Row.qmax numbers_found Gv count_max q_exp];
    rewrite ?C_value.
  + auto.
  + change (2 ^ 24)%Z with 16777216%Z in *. lia.
  + lia.
  + apply (hf_w2 k h Fh).
  + apply (hf_w3 k h Fh).
  + apply (hf_b k h Fh).
  + change (2 ^ 24)%Z with 16777216%Z. lia.
  + change (2 ^ 8)%Z with 256%Z. lia.
  + split; [apply (hf_L k h Fh)|]. lia.
  + cbn [Row.e eps beta u_P h_P d_l e_l d_O e_O u_D] in *.
    cbn [numbers_of_row numbers_of Row.e eps beta u_P h_P d_l e_l d_O e_O u_D numbers_found err] in *.
    assert (E := err_nonneg k h checked). assert (U := hf_uD k h Fh). tauto || (repeat split; tauto || lra).
  + cbn [numbers_of_row numbers_of zlow La L e numbers_found margin err] in *. rewrite C_value in D1.
    assert (IZR (pr_L (promise_of (k_exp2 k) (c_C c))) <= IZR (pr_La (promise_of (k_exp2 k) (c_C c)))) by now apply IZR_le.
    lra.
  + apply Rle_lt_trans with (2 := hf_gl1 k h Fh).
    unfold gl. cbn [numbers_of_row numbers_of d_l h_l e_l numbers_found l_depth].
    unfold Rdiv. rewrite Rmult_0_r, !Rmult_0_l, Rplus_0_r. apply (hf_gl k h Fh).
  + cbn [numbers_of_row numbers_of Row.V numbers_found Vmax]. apply Rle_trans with (2 := hf_sums k h Fh).
    apply Rplus_le_compat_l. exact Sb.
- rewrite C_value. split; [apply (hf_w1 k h Fh)|]. split; [lia|]. apply (hf_wP k h Fh).
- destruct (hf_q k h Fh). lia.
- destruct (hf_out k h Fh) as [O1 [O2 O3]]. split; [exact O1|]. split; [exact O2|]. split; [exact O3|].
  apply Rle_trans with (2 := hf_quotient k h Fh). apply Rplus_le_compat_l. exact quotient_checked.
Qed.

Theorem output_checked : output_bound k r st nf <= Q2R (n_bound h).
Proof.
apply Rle_trans with (2 := hf_output k h (head_facts_hold k h checked)).
unfold output_bound, q_output, q_floor_out. cbv zeta.
rewrite !Q2R_plus, !Q2R_mult, Q2R_plus, Q2R_1, !Q2R_q2, Q2R_inject.
assert (B := bpow_ge_0 radix2 (- k_out_prec k)). assert (Q := quotient_checked).
cbn [numbers_found Vmax].
apply Rplus_le_compat; [apply Rplus_le_compat_r; apply Rmult_le_compat_r; lra|].
unfold out_flush_at, floor_of. destruct (k_out_flushes k); apply Rle_refl.
Qed.
End Part.
