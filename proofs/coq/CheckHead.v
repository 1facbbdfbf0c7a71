(** * Checking what the rows of a head share, in rational arithmetic

    Done once a head, exactly: the constants that CheckRow uses are upper bounds of what they stand
    for, C fits every format (the conditions `clis` chooses it by), and the stated bound of the
    output's error holds for every row. *)

From Coq Require Import ZArith QArith Qreals Reals Lra Lia List Bool.
From Flocq Require Import Core BinarySingleNaN.
From Headroom Require Import Formats Rows CauchySchwarz Exp2 LostMass Execution Adders Weights Stabilizer Row
  Kernel MainTheorem Bounds CheckRow.
Import ListNotations.
Open Scope R_scope.

(** ** Rational numbers for real ones *)
Definition q2 (k : Z) : Q := if (0 <=? k)%Z then inject_Z (2 ^ k) else 1 # Z.to_pos (2 ^ (- k)).
Definition qF (a : Z) : Q := (inject_Z a * q2 (-64))%Q.

Lemma Q2R_inject z : Q2R (inject_Z z) = IZR z.
Proof. unfold Q2R, inject_Z. simpl. field. Qed.

Lemma Q2R_q2 k : Q2R (q2 k) = bpow radix2 k.
Proof.
unfold q2. destruct (Z.leb_spec 0 k) as [H|H].
- rewrite Q2R_inject. now apply two_pow.
- unfold Q2R. cbn [Qnum Qden]. rewrite Z2Pos.id by (apply Z.pow_pos_nonneg; lia).
  rewrite two_pow by lia. rewrite <- bpow_opp. rewrite Z.opp_involutive. ring.
Qed.

Lemma Q2R_qF a : Q2R (qF a) = F a.
Proof. unfold qF. now rewrite Q2R_mult, Q2R_inject, Q2R_q2. Qed.

Lemma Q2R_1 : Q2R 1 = 1.
Proof. unfold Q2R. simpl. field. Qed.

Lemma Q_le_R a b : Qle_bool a b = true -> Q2R a <= Q2R b.
Proof. intros H. apply Qle_Rle. now apply Qle_bool_iff. Qed.

Definition Qlt_bool a b := negb (Qle_bool b a).
Lemma Q_lt_R a b : Qlt_bool a b = true -> Q2R a < Q2R b.
Proof.
intros H. apply Qlt_Rlt. unfold Qlt_bool in H. apply negb_true_iff in H.
apply Qnot_le_lt. intros L. apply Qle_bool_iff in L. congruence.
Qed.

Definition qmax (a b : Q) : Q := if Qle_bool a b then b else a.
Lemma qmax_ge a b : Q2R a <= Q2R (qmax a b) /\ Q2R b <= Q2R (qmax a b).
Proof.
unfold qmax. destruct (Qle_bool a b) eqn:E; [split; [now apply Q_le_R|lra]|].
split; [lra|]. left. apply Q_lt_R. unfold Qlt_bool. now rewrite E.
Qed.

(** (1 + x)^h - 1, from above *)
Definition q_growth (x : Q) (h : Z) : Q := (/ (1 - inject_Z h * x) - 1)%Q.
Definition q_growth_ok (x : Q) (h : Z) : bool :=
  (Qle_bool 0 x && Qle_bool x 1 && (0 <=? h)%Z && Qlt_bool (inject_Z h * x) 1).

Lemma q_growth_upper x h : q_growth_ok x h = true ->
  0 <= (1 + Q2R x) ^ Z.to_nat h - 1 <= Q2R (q_growth x h) /\ 0 <= Q2R x.
Proof.
unfold q_growth_ok. rewrite !andb_true_iff. intros [[[H1 H2] H3] H4].
apply Q_le_R in H1, H2. apply Q_lt_R in H4. apply Z.leb_le in H3.
rewrite Q2R_mult, Q2R_inject, Q2R_1 in *. replace (Q2R 0) with 0 in H1 by (unfold Q2R; simpl; field).
assert (N : INR (Z.to_nat h) = IZR h) by (rewrite INR_IZR_INZ, Z2Nat.id by exact H3; reflexivity).
assert (U := compound_upper (Q2R x) (Z.to_nat h) (conj H1 H2) ltac:(rewrite N; exact H4)).
rewrite N in U. split; [|exact H1]. split.
- assert (1 <= (1 + Q2R x) ^ Z.to_nat h); [apply pow_R1_Rle; lra|lra].
- unfold q_growth. rewrite Q2R_minus, Q2R_inv, Q2R_minus, Q2R_mult, Q2R_inject, Q2R_1; [lra|].
  intros Z. apply Qeq_eqR in Z. rewrite Q2R_minus, Q2R_mult, Q2R_inject, Q2R_1 in Z.
  replace (Q2R 0) with 0 in Z by (unfold Q2R; simpl; field). lra.
Qed.

(** ** Numbers of a kernel as rationals *)
Definition q_delta (a : adder) : Q := match a with
| Ieee _ => q2 (-24) | MatrixUnit F k => (inject_Z (k + 1) * q2 (- F) + q2 (-23))%Q end.
Definition q_eta (a : adder) : Q := match a with Ieee true => q2 (-126) | _ => q2 (-149) end.

Lemma q_delta_value a : Q2R (q_delta a) = delta_of a.
Proof.
destruct a; unfold q_delta, delta_of; [apply Q2R_q2|].
now rewrite Q2R_plus, Q2R_mult, Q2R_inject, !Q2R_q2.
Qed.
Lemma q_eta_value a : Q2R (q_eta a) = eta_of a.
Proof. destruct a as [[|]|]; unfold q_eta, eta_of; apply Q2R_q2. Qed.

Definition q_eps (u : unit_kind) : Q := match u with
| Rounded _ => (q2 (-24) / (1 - q2 (-24)))%Q
| Within a k _ => (inject_Z a * q2 (- k))%Q end.
Definition q_beta (u : unit_kind) : Q := match u with Rounded false => 2 | _ => 0 end.

Lemma q_eps_value u : Q2R (q_eps u) = unit_eps u.
Proof.
destruct u as [[|]|a k h]; unfold q_eps, unit_eps.
3: now rewrite Q2R_mult, Q2R_inject, Q2R_q2.
all: unfold relative_of; rewrite Q2R_div, Q2R_minus, Q2R_q2, Q2R_1; [reflexivity|].
all: intros H; vm_compute in H; discriminate.
Qed.
Lemma q_beta_value u : Q2R (q_beta u) = unit_beta u.
Proof. destruct u as [[|]|a k h]; unfold q_beta, unit_beta; unfold Q2R; simpl; field. Qed.

Definition q_u_P (k : kernel) : Q := q2 (- k_p_prec k).
Definition q_h_P (k : kernel) : Q := if unit_flushes (k_exp2 k) then 0 else q2 (3 - k_p_emax k - k_p_prec k).
Definition q_u_D (k : kernel) : Q := match k_division k with
| Divide => q2 (-24)
| Reciprocal a e => ((1 + inject_Z a * q2 (- e)) * (1 + q2 (-24)) - 1)%Q end.
Definition q_h_D (k : kernel) : Q := if k_flushes k then q2 (-126) else q2 (-149).

Lemma q_u_D_value k : Q2R (q_u_D k) = u_D_of k.
Proof.
unfold q_u_D, u_D_of. destruct (k_division k); [apply Q2R_q2|].
now rewrite Q2R_minus, Q2R_mult, !Q2R_plus, Q2R_mult, Q2R_inject, !Q2R_q2, Q2R_1.
Qed.
Lemma q_h_D_value k : Q2R (q_h_D k) = h_D_of k.
Proof. unfold q_h_D, h_D_of. destruct (k_flushes k); apply Q2R_q2. Qed.
Lemma q_h_P_value k : Q2R (q_h_P k) = h_P_of k.
Proof. unfold q_h_P, h_P_of. destruct (unit_flushes _); [unfold Q2R; simpl; field|apply Q2R_q2]. Qed.

(** ** A kernel that is covered *)
Definition adder_okb (a : adder) : bool := match a with Ieee _ => true | MatrixUnit _ k => (0 <=? k)%Z end.
Definition unit_okb (u : unit_kind) : bool := match u with
| Rounded _ => true
| Within a k h => ((0 <=? a) && (1 <=? h) && (h <=? k) && (a <=? 2 ^ (k - h)))%Z end.
Definition kernel_okb (k : kernel) : bool :=
  adder_okb (k_score k) && adder_okb (k_O k) && unit_okb (k_exp2 k) &&
  ((2 <=? k_p_prec k) && (k_p_prec k <=? 24) && (k_p_emax k =? 128))%Z &&
  (unit_flushes (k_exp2 k) ||
   (negb (k_p_flushes k) && (k_p_prec k =? 24)%Z && negb (k_l_flushes k) && negb (k_sums_stored k))) &&
  match k_division k with Divide => true
  | Reciprocal a e => ((0 <=? a) && (0 <=? e) && (a <=? 2 ^ e))%Z && unit_flushes (k_exp2 k) end.

Lemma scaled_le a k h : (0 <= a)%Z -> (h <= k)%Z -> (a <= 2 ^ (k - h))%Z -> IZR a * bpow radix2 (- k) <= bpow radix2 (- h).
Proof.
intros Ha Hk H. apply Rle_trans with (bpow radix2 (k - h) * bpow radix2 (- k)).
- apply Rmult_le_compat_r; [apply bpow_ge_0|]. rewrite <- two_pow by lia. now apply IZR_le.
- rewrite <- bpow_plus. apply bpow_le. lia.
Qed.

Theorem kernel_okb_ok k : kernel_okb k = true -> kernel_ok k.
Proof.
unfold kernel_okb. rewrite !andb_true_iff. intros [[[[[H1 H2] H3] [[H4 H5] H6]] H7] H8].
apply Z.leb_le in H4, H5. apply Z.eqb_eq in H6. split; auto.
- destruct (k_score k); simpl in *; [exact I|now apply Z.leb_le].
- destruct (k_O k); simpl in *; [exact I|now apply Z.leb_le].
- destruct (k_exp2 k) as [|a e h]; simpl in *; [exact I|].
  rewrite !andb_true_iff in H3. destruct H3 as [[[A1 A2] A3] A4]. apply Z.leb_le in A1, A2, A3, A4.
  repeat split; auto. now apply scaled_le.
- intros G. rewrite G in H7. simpl in H7. rewrite !andb_true_iff, !negb_true_iff in H7.
  destruct H7 as [[[A1 A2] A3] A4]. apply Z.eqb_eq in A2. auto.
- destruct (k_division k) as [|a e]; [exact I|]. rewrite !andb_true_iff in H8.
  destruct H8 as [[[A1 A2] A3] A4]. apply Z.leb_le in A1, A2, A3. repeat split; auto.
  apply Rle_trans with (bpow radix2 (- 0)); [|simpl; lra]. apply scaled_le; auto. now rewrite Z.sub_0_r.
Qed.

(** ** What a head is checked for *)
Record head_numbers := {
  n_constants : constants;       (* as CheckRow has them *)
  n_constant : Z;                (* the stored factor, exactly, units 2^-64 *)
  n_N : Z;                       (* the most visible keys *)
  n_V : Z; n_ve : Z;             (* |v| <= n_V 2^n_ve *)
  n_G : Z;                       (* <= 2^G *)
  n_q : Z;                       (* quotients are at most 2^n_q *)
  n_bound : Q                    (* the stated bound of the output's error *)
}.

Section Head.
Variables (k : kernel) (h : head_numbers).
Notation c := (n_constants h).
Notation pr := (promise_of (k_exp2 k) (c_C c)).
Definition q_nodes (count : Z) : Q := inject_Z (4 * count + padding).
Definition head_score_depth : Z :=
  (additions (k_score_order k) (c_d c) + (if k_score_rounded k then 1 else 0))%Z.
Definition q_abs (x : Q) : Q := qmax x (- x).

(** Constants of a row. *)
Definition constants_okb : bool :=
  let g := q_growth (q_delta (k_score k)) head_score_depth in
  let cc := q_abs (qF (n_constant h)) in
  let off := qmax (q_abs (qF (n_constant h) - qF (c_flo c))) (q_abs (qF (n_constant h) - qF (c_fhi c))) in
  let eta := q_eta (Ieee (k_flushes k)) in
  let gn := q_growth (q2 (-24)) (c_d c + 1) in
  let us := if k_fused k then 0%Q else q2 (-24) in
  let hs := if k_fused k then 0%Q else eta in
  ((0 <? c_d c) && (c_d c <=? 2 ^ 20) && (0 <=? c_K2 c) && (0 <=? c_flo c) && (c_flo c <=? c_fhi c) &&
   (0 <=? c_e1 c) && (0 <=? c_e0 c) && (c_err c <=? 2 ^ 100) && (0 <=? c_gn c) && (0 <=? c_nn c) &&
   (0 <=? c_slope c) && (c_slope c <=? 2 ^ 94) && (64 <=? c_C c) && (c_C c <=? 127))%Z &&
  q_growth_ok (q_delta (k_score k)) head_score_depth && q_growth_ok (q2 (-24)) (c_d c + 1) &&
  Qle_bool (cc * g + off + us * (cc * (1 + g)))%Q (qF (c_e1 c)) &&
  Qle_bool (cc * (q_nodes (c_d c) * q_eta (k_score k) * (1 + g)) * (1 + us) + hs)%Q (qF (c_e0 c)) &&
  Qle_bool gn (qF (c_gn c)) &&
  Qle_bool (q_nodes (c_d c) * eta * (1 + gn))%Q (inject_Z (c_nn c) * q2 (-128))%Q.

Lemma q_abs_ge x : Rabs (Q2R x) <= Q2R (q_abs x).
Proof.
unfold q_abs. destruct (qmax_ge x (- x)) as [H1 H2]. rewrite Q2R_opp in H2. apply Rabs_le. lra.
Qed.

Lemma nodes_value count : (0 <= count)%Z -> INR (nodes_allowed count) = Q2R (q_nodes count).
Proof.
intros H. unfold nodes_allowed, q_nodes, padding. rewrite Q2R_inject, INR_IZR_INZ, Z2Nat.id by lia. reflexivity.
Qed.

Theorem constants_okb_ok (r : row) (st : stabilizer) : kernel_ok k -> constants_okb = true ->
  c_d c = Z.of_nat (channels r) -> F (c_flo c) <= factor r <= F (c_fhi c) ->
  constant st = F (n_constant h) -> B2R (slope st) = F (c_slope c) -> is_finite (slope st) = true ->
  cap st = c_C c -> constants_ok c k r st.
Proof.
intros ok H Hd Hf Hc Hs Hfin HC. unfold constants_okb in H. cbv zeta in H.
rewrite !andb_true_iff in H.
destruct H as [[[[[[[[[[[[[[[[[[[Z1 Z2] Z3] Z4] Z5] Z6] Z7] Z8] Z9] Z10] Z11] Z12] Z13] Z14] G1] G2] E1] E0] N1] N2].
apply Z.ltb_lt in Z1. apply Z.leb_le in Z2, Z3, Z4, Z5, Z6, Z7, Z8, Z9, Z10, Z11, Z12, Z13, Z14.
destruct (q_growth_upper _ _ G1) as [[Gl Gu] Gd]. destruct (q_growth_upper _ _ G2) as [[Nl Nu] _].
rewrite q_delta_value in *. rewrite Q2R_q2 in Nl, Nu.
apply Q_le_R in E1, E0, N1, N2.
set (g := q_growth (q_delta (k_score k)) head_score_depth) in *.
set (cc := q_abs (qF (n_constant h))) in *.
assert (Sd : score_depth k r = head_score_depth) by (unfold score_depth, head_score_depth; now rewrite Hd).
assert (Cc : Rabs (constant st) <= Q2R cc).
{ rewrite Hc, <- Q2R_qF. apply q_abs_ge. }
assert (C0 := Rabs_pos (constant st)).
set (off := qmax (q_abs (qF (n_constant h) - qF (c_flo c))) (q_abs (qF (n_constant h) - qF (c_fhi c)))) in *.
assert (Of : Rabs (constant st - factor r) <= Q2R off).
{ destruct (qmax_ge (q_abs (qF (n_constant h) - qF (c_flo c))) (q_abs (qF (n_constant h) - qF (c_fhi c)))) as [O1 O2].
  fold off in O1, O2.
  assert (A1 := q_abs_ge (qF (n_constant h) - qF (c_flo c))). assert (A2 := q_abs_ge (qF (n_constant h) - qF (c_fhi c))).
  rewrite Q2R_minus, !Q2R_qF, <- Hc in A1, A2. apply Rabs_le_inv in A1. apply Rabs_le_inv in A2.
  apply Rabs_le. lra. }
assert (u0 : 0 < bpow radix2 (-24)) by apply bpow_gt_0.
assert (Us : Q2R (if k_fused k then 0%Q else q2 (-24)) = u_scale k).
{ unfold u_scale. destruct (k_fused k); [unfold Q2R; simpl; field|apply Q2R_q2]. }
assert (Hs' : Q2R (if k_fused k then 0%Q else q_eta (Ieee (k_flushes k))) = eta_scale k).
{ unfold eta_scale. destruct (k_fused k); [unfold Q2R; simpl; field|apply q_eta_value]. }
assert (us0 : 0 <= u_scale k) by (unfold u_scale; destruct (k_fused k); lra).
split.
- auto.
- exact Z3.
- auto.
- rewrite Sd. rewrite Q2R_plus, Q2R_plus, Q2R_mult, Q2R_mult, Q2R_mult, Q2R_plus, Us, Q2R_1, Q2R_qF in E1.
  apply Rle_trans with (2 := E1). apply Rplus_le_compat; [apply Rplus_le_compat; [|exact Of]|].
  + apply Rmult_le_compat; lra.
  + apply Rmult_le_compat_l; [lra|]. apply Rmult_le_compat; lra.
- rewrite Sd. rewrite nodes_value by lia. rewrite <- Hd.
  rewrite Q2R_plus, Hs', !Q2R_mult, !Q2R_plus, Us, Q2R_1, !q_eta_value, Q2R_qF in E0.
  apply Rle_trans with (2 := E0). apply Rplus_le_compat_r. apply Rmult_le_compat_r; [lra|].
  assert (NN : 0 <= Q2R (q_nodes (c_d c)) * eta_of (k_score k)).
  { apply Rmult_le_pos; [rewrite <- nodes_value by lia; apply pos_INR|apply eta_nonneg]. }
  apply Rmult_le_compat; [exact C0| |exact Cc|].
  + apply Rmult_le_pos; lra.
  + apply Rmult_le_compat_l; lra.
- auto.
- rewrite nodes_value by lia. rewrite <- Hd.
  rewrite Q2R_qF in N1. rewrite !Q2R_mult, Q2R_plus, Q2R_1, q_eta_value, Q2R_inject, Q2R_q2 in N2.
  assert (Dd : Z.to_nat (c_d c + 1) = (channels r + 1)%nat) by lia. rewrite Dd in Nl, Nu.
  split; [lra|]. split; [|auto]. apply Rle_trans with (2 := N2).
  apply Rmult_le_compat_l; [|lra].
  apply Rmult_le_pos; [rewrite <- nodes_value by lia; apply pos_INR|apply eta_nonneg].
- rewrite Hs. auto.
- rewrite HC. auto.
Qed.

(** ** C fits, and the bound of the output *)
Notation V_ := (inject_Z (n_V h) * q2 (n_ve h))%Q.
Definition head_l_depth : Z := additions (k_l_order k) (n_N h).
Definition depth_ok (count : Z) : bool :=
  ((additions (k_l_order k) count <=? head_l_depth) && (O_depth k count <=? O_depth k (n_N h)))%Z.

Definition q_a : Q := (qF (c_err c) + q2 (-16))%Q.
Definition share_exponent : Z := ((c_margin c - pr_La pr * 2 ^ 64 - c_err c) / 2 ^ 64)%Z.
Definition q_s : Q := q2 (- share_exponent).
Definition q_W : Q := q2 (c_margin c / 2 ^ 64).
Definition q_gl : Q := q_growth (q2 (-24)) head_l_depth.
Definition q_gO : Q := q_growth (q_delta (k_O k)) (O_depth k (n_N h)).
Definition q_uS : Q := if k_sums_stored k then q_u_P k else 0.
Definition q_uN : Q := if k_sums_stored k then 0 else q_u_P k.
Definition q_hN : Q := if k_sums_stored k then 0 else q_h_P k.
Definition q_eA : Q := (/ (1 - (7 # 10) * q_a))%Q.
Definition q_m_low : Q := ((1 - (7 # 10) * q_a) * (1 - q_eps (k_exp2 k)) * (1 - q_uS))%Q.
Definition q_m_high : Q := (q_eA * (1 + q_eps (k_exp2 k)) * (1 + q_uS))%Q.
Definition q_mass : Q := (q_m_low * (1 - q_s) * q_W)%Q.
(** 4 count + padding results are at most 1028 a key. *)
Definition q_rho : Q := 1028.
Definition q_sums : Q :=
  (2 * V_ * ((q_m_high / q_m_low - 1) / 4 + q_s
             + (q_beta (k_exp2 k) * (1 + q_uS)) * q_eA * q_s / (q_m_low * (1 - q_s)))
   + (V_ * ((1 + q_uN) * (1 + q_gO) / (1 - q_gl) - 1)
      + (V_ * q_hN * (1 + q_gO) + q_rho * q_eta (k_O k) * (1 + q_gO)) / (q_mass * (1 - q_gl))))%Q.
Definition q_quotient : Q := (q_sums * (1 + q_u_D k) + q_u_D k * V_ + q_h_D k)%Q.
Definition q_floor_out : Q :=
  q2 (if k_out_flushes k then Z.max (3 - k_out_emax k - k_out_prec k + k_out_prec k - 1) (3 - k_out_emax k - k_out_prec k)
      else 3 - k_out_emax k - k_out_prec k).
Definition q_output : Q :=
  (q_quotient * (1 + q2 (- k_out_prec k)) + q2 (- k_out_prec k) * V_ + q_floor_out)%Q.

(** a 2^l < 2^m, a 2^l <= 2^m for whole numbers *)
Definition below (a l m : Z) : bool := ((l <=? m) && (a <? 2 ^ (m - l)))%Z.
Definition at_most (a l m : Z) : bool := ((l <=? m) && (a <=? 2 ^ (m - l)))%Z.

Lemma below_lt a l m : below a l m = true -> IZR a * bpow radix2 l < bpow radix2 m.
Proof.
unfold below. rewrite andb_true_iff. intros [H1 H2]. apply Z.leb_le in H1. apply Z.ltb_lt in H2.
replace m with ((m - l) + l)%Z at 1 by ring. rewrite bpow_plus. apply Rmult_lt_compat_r; [apply bpow_gt_0|].
rewrite <- two_pow by lia. now apply IZR_lt.
Qed.
Lemma at_most_le a l m : at_most a l m = true -> IZR a * bpow radix2 l <= bpow radix2 m.
Proof.
unfold at_most. rewrite andb_true_iff. intros [H1 H2]. apply Z.leb_le in H1, H2.
replace m with ((m - l) + l)%Z at 1 by ring. rewrite bpow_plus. apply Rmult_le_compat_r; [apply bpow_ge_0|].
rewrite <- two_pow by lia. now apply IZR_le.
Qed.

Definition head_okb : bool :=
  let w := pr_w pr in let l := pr_l pr in let N := n_N h in
  let wP := p_w k (c_C c) in let lP := p_l k (c_C c) in
  let wS := if k_sums_stored k then wP else w in let lS := if k_sums_stored k then lP else l in
  ((0 <? N) && ((1 <=? w) && (1 <=? wP)) && ((N * wS <=? 2 ^ 24) && (N * wP <=? 2 ^ 24)) && (wP <=? 2 ^ k_p_prec k) &&
   (-149 <=? lS) && (-149 <=? lP + n_G h) && (3 - 128 - k_p_prec k <=? lP) &&
   (pr_L pr <=? c_C c) && (0 <=? n_V h) && (0 <=? c_err c) &&
   (2 ^ 64 <=? c_margin c - pr_La pr * 2 ^ 64 - c_err c) &&
   (-149 <=? n_q h) && (n_q h + 1 <? 128) &&
   (1 <? k_out_prec k) && (n_q h + 2 <? k_out_emax k) && (3 - k_out_emax k - k_out_prec k <=? n_q h + 2))%Z &&
  (below w l 128 && below wP lP 128) && below (N * wS) lS 128 && below (N * wP) (lP + n_G h) 128 &&
  at_most (N * wS) lS (k_l_max k) &&
  at_most (n_V h) (n_ve h) (n_G h) &&
  q_growth_ok (q2 (-24)) head_l_depth && q_growth_ok (q_delta (k_O k)) (O_depth k N) &&
  Qlt_bool ((7 # 10) * q_a) 1 && Qlt_bool q_s 1 && Qlt_bool q_gl 1 &&
  Qlt_bool (q_eps (k_exp2 k)) 1 && Qle_bool 0 (q_u_D k) &&
  Qle_bool (V_ + q_sums) (q2 (n_q h)) && Qle_bool (V_ + q_quotient) (q2 (n_q h + 2)) &&
  Qle_bool q_output (n_bound h).
End Head.

Section HeadSound.
Variables (k : kernel) (h : head_numbers).
Hypothesis ok : kernel_ok k.
Notation c := (n_constants h).
Notation pr := (promise_of (k_exp2 k) (c_C c)).
Notation Vm := (IZR (n_V h) * bpow radix2 (n_ve h)).
Hypothesis checked : head_okb k h = true.
Notation wS_ := (if k_sums_stored k then p_w k (c_C c) else pr_w pr).
Notation lS_ := (if k_sums_stored k then p_l k (c_C c) else pr_l pr).

Record head_facts : Prop := {
  hf_N : (0 < n_N h)%Z; hf_w : (1 <= pr_w pr)%Z /\ (1 <= p_w k (c_C c))%Z;
  hf_n : (n_N h * wS_ <= 2 ^ 24)%Z /\ (n_N h * p_w k (c_C c) <= 2 ^ 24)%Z /\ (p_w k (c_C c) <= 2 ^ k_p_prec k)%Z;
  hf_l : (-149 <= lS_)%Z /\ (-149 <= p_l k (c_C c) + n_G h)%Z /\ (3 - 128 - k_p_prec k <= p_l k (c_C c))%Z;
  hf_L : (pr_L pr <= c_C c)%Z; hf_V : (0 <= n_V h)%Z; hf_err : (0 <= c_err c)%Z;
  hf_margin : (2 ^ 64 <= c_margin c - pr_La pr * 2 ^ 64 - c_err c)%Z;
  hf_q : (-149 <= n_q h)%Z /\ (n_q h + 1 < 128)%Z;
  hf_out : (1 < k_out_prec k)%Z /\ (n_q h + 2 < k_out_emax k)%Z /\ (3 - k_out_emax k - k_out_prec k <= n_q h + 2)%Z;
  hf_w1 : IZR (pr_w pr) * bpow radix2 (pr_l pr) < bpow radix2 128;
  hf_wP : IZR (p_w k (c_C c)) * bpow radix2 (p_l k (c_C c)) < bpow radix2 128;
  hf_w2 : IZR (n_N h * wS_) * bpow radix2 lS_ < bpow radix2 128;
  hf_w3 : IZR (n_N h * p_w k (c_C c)) * bpow radix2 (p_l k (c_C c) + n_G h) < bpow radix2 128;
  hf_b : IZR (n_N h * wS_) * bpow radix2 lS_ <= bpow radix2 (k_l_max k);
  hf_G : Vm <= bpow radix2 (n_G h);
  hf_gl : (1 + bpow radix2 (-24)) ^ Z.to_nat (head_l_depth k h) - 1 <= Q2R (q_gl k h);
  hf_gO : (1 + delta_of (k_O k)) ^ Z.to_nat (O_depth k (n_N h)) - 1 <= Q2R (q_gO k h);
  hf_a : 7 / 10 * Q2R (q_a h) < 1; hf_s : Q2R (q_s k h) < 1; hf_gl1 : Q2R (q_gl k h) < 1;
  hf_eps : Q2R (q_eps (k_exp2 k)) < 1; hf_uD : 0 <= u_D_of k;
  hf_sums : Vm + Q2R (q_sums k h) <= bpow radix2 (n_q h);
  hf_quotient : Vm + Q2R (q_quotient k h) <= bpow radix2 (n_q h + 2);
  hf_output : Q2R (q_output k h) <= Q2R (n_bound h)
}.

Lemma V_value : Q2R (inject_Z (n_V h) * q2 (n_ve h)) = Vm.
Proof. now rewrite Q2R_mult, Q2R_inject, Q2R_q2. Qed.

Lemma head_facts_hold : head_facts.
Proof.
assert (H := checked). unfold head_okb in H. cbv zeta in H.
apply andb_prop in H; destruct H as [H Q3].
apply andb_prop in H; destruct H as [H Q2].
apply andb_prop in H; destruct H as [H Q1].
apply andb_prop in H; destruct H as [H A5].
apply andb_prop in H; destruct H as [H A4].
apply andb_prop in H; destruct H as [H A3].
apply andb_prop in H; destruct H as [H A2].
apply andb_prop in H; destruct H as [H A1].
apply andb_prop in H; destruct H as [H G2].
apply andb_prop in H; destruct H as [H G1].
apply andb_prop in H; destruct H as [H B5].
apply andb_prop in H; destruct H as [H B4].
apply andb_prop in H; destruct H as [H B3].
apply andb_prop in H; destruct H as [H B2].
apply andb_prop in H; destruct H as [H B1].
apply andb_prop in H; destruct H as [H Z16].
apply andb_prop in H; destruct H as [H Z15].
apply andb_prop in H; destruct H as [H Z14].
apply andb_prop in H; destruct H as [H Z13].
apply andb_prop in H; destruct H as [H Z12].
apply andb_prop in H; destruct H as [H Z11].
apply andb_prop in H; destruct H as [H Z10].
apply andb_prop in H; destruct H as [H Z9].
apply andb_prop in H; destruct H as [H Z8].
apply andb_prop in H; destruct H as [H Z7].
apply andb_prop in H; destruct H as [H Z6].
apply andb_prop in H; destruct H as [H Z5].
apply andb_prop in H; destruct H as [H Z4].
apply andb_prop in H; destruct H as [H Z3].
apply andb_prop in H; destruct H as [H Z2].
rename H into Z1.
apply andb_prop in Z2; destruct Z2 as [Z2 Z2'].
apply andb_prop in Z3; destruct Z3 as [Z3 Z3'].
apply andb_prop in B1; destruct B1 as [B1 B1'].
apply Z.ltb_lt in Z1, Z13, Z14, Z15. apply Z.leb_le in Z2, Z2', Z3, Z3', Z4, Z5, Z6, Z7, Z8, Z9, Z10, Z11, Z12, Z16.
apply q_growth_upper in G1. apply q_growth_upper in G2. rewrite Q2R_q2 in G1. rewrite q_delta_value in G2.
apply Q_lt_R in A1, A2, A3, A4. apply Q_le_R in A5, Q1, Q2, Q3.
rewrite Q2R_1 in A1, A2, A3, A4. rewrite Q2R_plus, V_value, Q2R_q2 in Q1, Q2.
rewrite Q2R_mult in A1. replace (Q2R (7 # 10)) with (7 / 10) in A1 by (unfold Q2R; simpl; field).
rewrite q_u_D_value in A5. replace (Q2R 0) with 0 in A5 by (unfold Q2R; simpl; field).
split.
- exact Z1.
- exact (conj Z2 Z2').
- exact (conj Z3 (conj Z3' Z4)).
- exact (conj Z5 (conj Z6 Z7)).
- exact Z8.
- exact Z9.
- exact Z10.
- exact Z11.
- exact (conj Z12 Z13).
- exact (conj Z14 (conj Z15 Z16)).
- exact (below_lt _ _ _ B1).
- exact (below_lt _ _ _ B1').
- exact (below_lt _ _ _ B2).
- exact (below_lt _ _ _ B3).
- exact (at_most_le _ _ _ B4).
- exact (at_most_le _ _ _ B5).
- exact (proj2 (proj1 G1)).
- exact (proj2 (proj1 G2)).
- exact A1.
- exact A2.
- exact A3.
- exact A4.
- exact A5.
- exact Q1.
- exact Q2.
- exact Q3.
Qed.
End HeadSound.
