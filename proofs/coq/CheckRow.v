(** * Checking one row in integer arithmetic

    Numbers in units of 2^-64, every operation rounded outward: the inequalities of MainTheorem that
    depend on a row, decided from three integers, ||q||^2, <q, sum of visible keys> and the number of
    those keys. What is common to all rows of a head is in [constants]. *)

From Coq Require Import ZArith Reals Lra Lia List Bool.
From Flocq Require Import Core BinarySingleNaN.
From Headroom Require Import Formats Rows CauchySchwarz Exp2 Execution Adders Stabilizer Kernel MainTheorem.
Import ListNotations.
Open Scope R_scope.

Notation F a := (IZR a * bpow radix2 (-64)).

(** ** Directed shifts and roots *)
Definition shift_down (a s : Z) : Z := Z.shiftl a s.
Definition shift_up (a s : Z) : Z := (- Z.shiftl (- a) s)%Z.
Definition root_down (a : Z) : Z := Z.sqrt a.
Definition root_up (a : Z) : Z := (Z.sqrt a + 1)%Z.

Lemma shift_down_le a s : IZR (shift_down a s) <= IZR a * bpow radix2 s.
Proof.
unfold shift_down. destruct (Z.le_gt_cases 0 s) as [H|H].
- rewrite Z.shiftl_mul_pow2 by exact H. rewrite mult_IZR, two_pow by exact H. apply Rle_refl.
- rewrite Z.shiftl_div_pow2 by lia.
  assert (P : (0 < 2 ^ (- s))%Z) by (apply Z.pow_pos_nonneg; lia).
  assert (D := Z.mul_div_le a (2 ^ (- s)) P).
  apply IZR_le in D. rewrite mult_IZR, two_pow in D by lia.
  assert (B := bpow_gt_0 radix2 s).
  assert (E : bpow radix2 s * bpow radix2 (- s) = 1).
  { rewrite <- bpow_plus. replace (s + - s)%Z with 0%Z by ring. reflexivity. }
  apply Rmult_le_compat_r with (r := bpow radix2 s) in D; [|lra].
  replace (bpow radix2 (- s) * IZR (a / 2 ^ (- s)) * bpow radix2 s)
    with (IZR (a / 2 ^ (- s)) * (bpow radix2 s * bpow radix2 (- s))) in D by ring.
  rewrite E in D. lra.
Qed.

Lemma shift_up_ge a s : IZR a * bpow radix2 s <= IZR (shift_up a s).
Proof.
unfold shift_up. rewrite opp_IZR. assert (H := shift_down_le (- a) s). unfold shift_down in H.
rewrite opp_IZR in H. lra.
Qed.

Lemma shift_down_nonneg a s : (0 <= a)%Z -> (0 <= shift_down a s)%Z.
Proof. intros H. unfold shift_down. now apply Z.shiftl_nonneg. Qed.

Lemma shift_up_nonneg a s : (0 <= a)%Z -> (0 <= shift_up a s)%Z.
Proof.
intros H. apply le_IZR. apply Rle_trans with (2 := shift_up_ge a s).
apply Rmult_le_pos; [now apply IZR_le|apply bpow_ge_0].
Qed.

Lemma root_down_le a : (0 <= a)%Z -> IZR (root_down a) * IZR (root_down a) <= IZR a.
Proof.
intros H. unfold root_down. rewrite <- mult_IZR. apply IZR_le. apply Z.sqrt_spec. exact H.
Qed.

Lemma root_up_ge a : (0 <= a)%Z -> IZR a <= IZR (root_up a) * IZR (root_up a).
Proof.
intros H. unfold root_up. rewrite <- mult_IZR. apply IZR_le.
assert (S := Z.sqrt_spec a H). cbv zeta in S. rewrite <- Z.add_1_r in S. destruct S as [_ S]. now apply Z.lt_le_incl.
Qed.

Lemma root_nonneg a : (0 <= root_down a)%Z /\ (0 <= root_up a)%Z.
Proof. unfold root_down, root_up. assert (H := Z.sqrt_nonneg a). lia. Qed.

(** Products of two numbers in units. *)
Definition mul_up a b := shift_up (a * b) (-64).
Definition mul_down a b := shift_down (a * b) (-64).

Lemma F_product a b : F a * F b = (IZR (a * b) * bpow radix2 (-64)) * bpow radix2 (-64).
Proof. rewrite mult_IZR. ring. Qed.

Lemma F_nonneg a : (0 <= a)%Z -> 0 <= F a.
Proof. intros H. apply Rmult_le_pos; [now apply IZR_le|apply bpow_ge_0]. Qed.

Lemma F_le a b : (a <= b)%Z -> F a <= F b.
Proof. intros H. apply Rmult_le_compat_r; [apply bpow_ge_0|now apply IZR_le]. Qed.

Lemma F_plus a b : F (a + b) = F a + F b.
Proof. rewrite plus_IZR. ring. Qed.

Lemma mul_up_ge a b : F a * F b <= F (mul_up a b).
Proof.
rewrite F_product. unfold mul_up. apply Rmult_le_compat_r; [apply bpow_ge_0|]. apply shift_up_ge.
Qed.

Lemma mul_down_le a b : F (mul_down a b) <= F a * F b.
Proof.
rewrite F_product. unfold mul_down. apply Rmult_le_compat_r; [apply bpow_ge_0|]. apply shift_down_le.
Qed.

(** a 2^-k, from above. *)
Lemma part_up a k : bpow radix2 (- k) * F a <= F (shift_up a (- k)).
Proof.
assert (H := shift_up_ge a (- k)). replace (bpow radix2 (- k) * F a) with (IZR a * bpow radix2 (- k) * bpow radix2 (-64)) by ring.
apply Rmult_le_compat_r; [apply bpow_ge_0|exact H].
Qed.

Lemma tiny k : (k <= -64)%Z -> bpow radix2 k <= F 1.
Proof. intros H. rewrite Rmult_1_l. now apply bpow_le. Qed.

(** ** What is common to a head *)
Record constants := {
  c_d : Z;                       (* channels *)
  c_qe : Z; c_ke : Z;            (* units of the integers of Q, K: 2^c_qe, 2^c_ke *)
  c_K2 : Z;                      (* max ||k||^2 *)
  c_flo : Z; c_fhi : Z;          (* the exact factor *)
  c_e1 : Z; c_e0 : Z;            (* error of a score: e1 X + e0 *)
  c_err : Z;                     (* of any row *)
  c_gn : Z; c_nn : Z;            (* error of a sum of squares: relative; absolute, units 2^-128 *)
  c_slope : Z;                   (* kappa, exactly *)
  c_C : Z;
  c_margin : Z                   (* every row's mean of z - mu is at least this *)
}.

Section Row_.
Variable c : constants.

(** ** The decision *)
Definition row_x (Q2 : Z) := root_up (shift_up (Q2 * c_K2 c) (2 * (c_qe c + c_ke c) + 128)).
Definition row_err (Q2 : Z) := (mul_up (row_x Q2) (c_e1 c) + c_e0 c)%Z.
Definition square_down (Q2 : Z) := shift_down Q2 (2 * c_qe c + 128).
Definition square_up (Q2 : Z) := shift_up Q2 (2 * c_qe c + 128).
Definition square_error (Q2 : Z) := (shift_up (square_up Q2 * c_gn c) (-64) + c_nn c)%Z.
Definition row_n_lo (Q2 : Z) := root_down (square_down Q2 - square_error Q2).
Definition row_n_hi (Q2 : Z) := root_up (square_up Q2 + square_error Q2).
Definition row_norm_lo (Q2 : Z) :=
  Z.max 0 (row_n_lo Q2 - shift_up (row_n_lo Q2) (-24) - 1).
Definition row_b_lo (Q2 : Z) :=
  let t := mul_down (row_norm_lo Q2) (c_slope c) in (t - shift_up t (-24) - 1)%Z.
Definition row_b_hi (Q2 : Z) :=
  let n1 := (row_n_hi Q2 + shift_up (row_n_hi Q2) (-24) + 1)%Z in
  let t := mul_up n1 (c_slope c) in (t + shift_up t (-24) + 1)%Z.
Definition row_mu_hi (Q2 : Z) :=
  let y := (row_b_hi Q2 - c_C c * 2 ^ 64)%Z in (y + shift_up (Z.abs y) (-23) + 1)%Z.
Definition row_total (S : Z) := shift_down (S * (if (0 <=? S)%Z then c_flo c else c_fhi c)) (c_qe c + c_ke c).

Definition row_ok (n Q2 S : Z) : bool :=
  let x := row_x Q2 in
  let er := row_err Q2 in
  let top := (mul_up (c_fhi c) x + er)%Z in
  ((0 <? n) && (0 <=? Q2) && (x <=? 2 ^ 124) && (er <=? c_err c) &&
   (row_n_hi Q2 <=? 2 ^ 93) &&
   (top <=? row_b_lo Q2 + 2 ^ 44) && (top <=? 2 ^ 126) &&
   (n * (row_mu_hi Q2 + c_margin c) <=? row_total S))%Z.

(** The least margin of a row, for those who look for it: (total - n mu_hi) / n. *)
Definition row_margin (n Q2 S : Z) : Z := ((row_total S - n * row_mu_hi Q2) / n)%Z.

(** ** Why it is right *)
Variable k : kernel.
Hypothesis ok : kernel_ok k.
Variables (r : row) (st : stabilizer).
Notation d := (channels r).
Notation eta := (eta_of (Ieee (k_flushes k))).
Notation u := (bpow radix2 (-24)).
Notation relative_score := ((1 + delta_of (k_score k)) ^ Z.to_nat (score_depth k r) - 1).
Notation absolute_score := (INR (nodes_allowed (Z.of_nat d)) * eta_of (k_score k)
                            * (1 + delta_of (k_score k)) ^ Z.to_nat (score_depth k r)).

Record constants_ok : Prop := {
  co_d : c_d c = Z.of_nat d /\ (0 < c_d c <= 2 ^ 20)%Z;
  co_K2 : (0 <= c_K2 c)%Z;
  co_f : F (c_flo c) <= factor r <= F (c_fhi c) /\ (0 <= c_flo c)%Z;
  co_e1 : Rabs (constant st) * relative_score + Rabs (constant st - factor r)
          + u_scale k * (Rabs (constant st) * (1 + relative_score)) <= F (c_e1 c);
  co_e0 : Rabs (constant st) * absolute_score * (1 + u_scale k) + eta_scale k <= F (c_e0 c);
  co_err : (0 <= c_e1 c)%Z /\ (0 <= c_e0 c)%Z /\ (c_err c <= 2 ^ 100)%Z;
  co_norm : (1 + u) ^ (d + 1) - 1 <= F (c_gn c) /\
            INR (nodes_allowed (Z.of_nat d)) * eta * (1 + u) ^ (d + 1) <= IZR (c_nn c) * bpow radix2 (-128) /\
            (0 <= c_gn c)%Z /\ (0 <= c_nn c)%Z;
  co_slope : B2R (slope st) = F (c_slope c) /\ (0 <= c_slope c <= 2 ^ 94)%Z /\ is_finite (slope st) = true;
  co_C : cap st = c_C c /\ (64 <= c_C c <= 127)%Z
}.
Hypothesis co : constants_ok.

Variables (n Q2 S : Z).
Hypothesis checked : row_ok n Q2 S = true.
Hypothesis Q2_value : dot d (query r) (query r) = IZR Q2 * bpow radix2 (2 * c_qe c).
Hypothesis S_value : total (fun j => dot d (query r) (key r j)) (visible r) = IZR S * bpow radix2 (c_qe c + c_ke c).
Hypothesis n_value : n = Z.of_nat (length (visible r)).
Hypothesis keys_within : forall j, In j (visible r) ->
  dot d (key r j) (key r j) <= IZR (c_K2 c) * bpow radix2 (2 * c_ke c).

Lemma ok_parts : (0 < n)%Z /\ (0 <= Q2)%Z /\ (row_x Q2 <= 2 ^ 124)%Z /\ (row_err Q2 <= c_err c)%Z /\
  (row_n_hi Q2 <= 2 ^ 93)%Z /\ (mul_up (c_fhi c) (row_x Q2) + row_err Q2 <= row_b_lo Q2 + 2 ^ 44)%Z /\
  (mul_up (c_fhi c) (row_x Q2) + row_err Q2 <= 2 ^ 126)%Z /\
  (n * (row_mu_hi Q2 + c_margin c) <= row_total S)%Z.
Proof.
unfold row_ok in checked. cbv zeta in checked. rewrite !andb_true_iff in checked.
destruct checked as [[[[[[[H1 H2] H3] H4] H5] H6] H7] H8].
apply Z.ltb_lt in H1. apply Z.leb_le in H2, H3, H4, H5, H6, H7, H8. tauto.
Qed.

Lemma F_pow a : (0 <= a)%Z -> F (2 ^ a) = bpow radix2 (a - 64).
Proof.
intros H. rewrite two_pow by exact H. rewrite <- bpow_plus. f_equal.
Qed.

(** X: ||q|| max ||k|| *)
Lemma x_ok : nrm d (query r) * (sqrt (IZR (c_K2 c)) * bpow radix2 (c_ke c)) <= F (row_x Q2).
Proof.
destruct ok_parts as [_ [Q0 _]]. assert (K0 := co_K2 co).
destruct (root_nonneg (shift_up (Q2 * c_K2 c) (2 * (c_qe c + c_ke c) + 128))) as [_ R0].
assert (A0 : (0 <= shift_up (Q2 * c_K2 c) (2 * (c_qe c + c_ke c) + 128))%Z).
{ apply shift_up_nonneg. now apply Z.mul_nonneg_nonneg. }
apply Rsqr_incr_0_var; [|now apply F_nonneg]. unfold Rsqr.
assert (N : nrm d (query r) * nrm d (query r) = IZR Q2 * bpow radix2 (2 * c_qe c)).
{ unfold nrm. rewrite sqrt_sqrt; [exact Q2_value|apply sq_nonneg]. }
assert (K : sqrt (IZR (c_K2 c)) * sqrt (IZR (c_K2 c)) = IZR (c_K2 c)).
{ apply sqrt_sqrt. now apply IZR_le. }
replace (nrm d (query r) * (sqrt (IZR (c_K2 c)) * bpow radix2 (c_ke c)) *
         (nrm d (query r) * (sqrt (IZR (c_K2 c)) * bpow radix2 (c_ke c))))
  with ((nrm d (query r) * nrm d (query r)) * (sqrt (IZR (c_K2 c)) * sqrt (IZR (c_K2 c)))
        * (bpow radix2 (c_ke c) * bpow radix2 (c_ke c))) by ring.
rewrite N, K, <- bpow_plus.
replace (IZR Q2 * bpow radix2 (2 * c_qe c) * IZR (c_K2 c) * bpow radix2 (c_ke c + c_ke c))
  with (IZR (Q2 * c_K2 c) * bpow radix2 (2 * (c_qe c + c_ke c) + 128) * bpow radix2 (-128)).
- assert (U := shift_up_ge (Q2 * c_K2 c) (2 * (c_qe c + c_ke c) + 128)).
  assert (V := root_up_ge _ A0). unfold row_x.
  replace (F (root_up (shift_up (Q2 * c_K2 c) (2 * (c_qe c + c_ke c) + 128)))
           * F (root_up (shift_up (Q2 * c_K2 c) (2 * (c_qe c + c_ke c) + 128))))
    with (IZR (root_up (shift_up (Q2 * c_K2 c) (2 * (c_qe c + c_ke c) + 128)))
          * IZR (root_up (shift_up (Q2 * c_K2 c) (2 * (c_qe c + c_ke c) + 128)))
          * (bpow radix2 (-64) * bpow radix2 (-64))) by ring.
  rewrite <- bpow_plus. change (-64 + -64)%Z with (-128)%Z.
  apply Rmult_le_compat_r; [apply bpow_ge_0|]. lra.
- rewrite mult_IZR, Rmult_assoc, <- bpow_plus.
  replace (IZR Q2 * bpow radix2 (2 * c_qe c) * IZR (c_K2 c) * bpow radix2 (c_ke c + c_ke c))
    with (IZR Q2 * IZR (c_K2 c) * (bpow radix2 (2 * c_qe c) * bpow radix2 (c_ke c + c_ke c))) by ring.
  rewrite <- bpow_plus. do 2 f_equal. ring.
Qed.

Lemma x_nonneg : (0 <= row_x Q2)%Z.
Proof. apply root_nonneg. Qed.

(** The error of a score. *)
Lemma err_ok : let E := relative_score * F (row_x Q2) + absolute_score in
  Rabs (constant st) * E + Rabs (constant st - factor r) * F (row_x Q2)
  + (u_scale k * (Rabs (constant st) * (F (row_x Q2) + E)) + eta_scale k) <= F (row_err Q2) /\
  (k_fused k = false -> Rabs (constant st) * (F (row_x Q2) + E) <= bpow radix2 62).
Proof.
cbv zeta. destruct ok_parts as [_ [_ [_ [Er _]]]].
assert (X0 := F_nonneg _ x_nonneg). assert (E1 := co_e1 co). assert (E0 := co_e0 co).
set (X := F (row_x Q2)) in *.
assert (M := mul_up_ge (row_x Q2) (c_e1 c)). fold X in M.
assert (L : Rabs (constant st) * (relative_score * X + absolute_score) + Rabs (constant st - factor r) * X
  + (u_scale k * (Rabs (constant st) * (X + (relative_score * X + absolute_score))) + eta_scale k) <= F (row_err Q2)).
{ unfold row_err. rewrite F_plus.
  apply Rle_trans with (X * F (c_e1 c) + F (c_e0 c)); [|lra].
  apply Rle_trans with (X * (Rabs (constant st) * relative_score + Rabs (constant st - factor r)
          + u_scale k * (Rabs (constant st) * (1 + relative_score)))
          + (Rabs (constant st) * absolute_score * (1 + u_scale k) + eta_scale k)); [right; ring|].
  apply Rplus_le_compat; [now apply Rmult_le_compat_l|exact E0]. }
split; [exact L|]. intros Nf. unfold u_scale, eta_scale in L. rewrite Nf in L.
assert (D := delta_nonneg _ (ok_score k ok)).
assert (P1 : 1 <= (1 + delta_of (k_score k)) ^ Z.to_nat (score_depth k r)) by (apply pow_R1_Rle; lra).
assert (A0 : 0 <= absolute_score).
{ apply Rmult_le_pos; [apply Rmult_le_pos; [apply pos_INR|apply eta_nonneg]|lra]. }
assert (RX : 0 <= relative_score * X) by (apply Rmult_le_pos; lra).
assert (C0 := Rabs_pos (constant st)). assert (C1 := Rabs_pos (constant st - factor r)).
assert (T1 : 0 <= Rabs (constant st) * (relative_score * X + absolute_score)) by (apply Rmult_le_pos; lra).
assert (T2 : 0 <= Rabs (constant st - factor r) * X) by (apply Rmult_le_pos; lra).
assert (T3 := eta_nonneg (Ieee (k_flushes k))).
assert (Fe : F (row_err Q2) <= bpow radix2 36).
{ apply Rle_trans with (F (2 ^ 100)); [|rewrite F_pow by lia; apply bpow_le; lia].
  apply F_le. destruct (co_err co) as [_ [_ H]]. lia. }
set (T := Rabs (constant st) * (X + (relative_score * X + absolute_score))) in *.
assert (Tu : u * T <= bpow radix2 36) by lra.
replace 62%Z with (24 + 38)%Z by reflexivity. rewrite bpow_plus.
assert (B := bpow_gt_0 radix2 24).
replace T with (bpow radix2 24 * (u * T)).
- apply Rmult_le_compat_l; [lra|]. apply Rle_trans with (1 := Tu). apply bpow_le. lia.
- rewrite <- Rmult_assoc, <- bpow_plus. simpl. ring.
Qed.

(** The sum of squares. *)
Notation squares := (dot d (query r) (query r)).
Notation nerr := (error_bound u eta (d + 1) (nodes_allowed (Z.of_nat d)) squares).

Lemma squares_ok : IZR (square_down Q2) * bpow radix2 (-128) <= squares <= IZR (square_up Q2) * bpow radix2 (-128) /\
  nerr <= IZR (square_error Q2) * bpow radix2 (-128).
Proof.
rewrite Q2_value. destruct (co_norm co) as [G1 [G2 [G3 G4]]].
assert (B := bpow_gt_0 radix2 (-128)).
assert (E : IZR Q2 * bpow radix2 (2 * c_qe c) = IZR Q2 * bpow radix2 (2 * c_qe c + 128) * bpow radix2 (-128)).
{ rewrite Rmult_assoc, <- bpow_plus. do 2 f_equal. ring. }
assert (D1 := shift_down_le Q2 (2 * c_qe c + 128)). assert (D2 := shift_up_ge Q2 (2 * c_qe c + 128)).
assert (Up : IZR Q2 * bpow radix2 (2 * c_qe c) <= IZR (square_up Q2) * bpow radix2 (-128)).
{ rewrite E. apply Rmult_le_compat_r; [lra|exact D2]. }
split; [split; [rewrite E; apply Rmult_le_compat_r; [lra|exact D1]|exact Up]|].
unfold error_bound, square_error. rewrite plus_IZR, Rmult_plus_distr_r. apply Rplus_le_compat; [|exact G2].
destruct ok_parts as [_ [Q0 _]].
assert (S0 : 0 <= IZR Q2 * bpow radix2 (2 * c_qe c)).
{ apply Rmult_le_pos; [now apply IZR_le|apply bpow_ge_0]. }
apply Rle_trans with (F (c_gn c) * (IZR (square_up Q2) * bpow radix2 (-128))).
- apply Rmult_le_compat; auto.
  assert (1 <= (1 + u) ^ (d + 1)); [|lra]. apply pow_R1_Rle. assert (0 < u) by apply bpow_gt_0. lra.
- assert (H := shift_up_ge (square_up Q2 * c_gn c) (-64)). rewrite mult_IZR in H.
  replace (F (c_gn c) * (IZR (square_up Q2) * bpow radix2 (-128)))
    with (IZR (square_up Q2) * IZR (c_gn c) * bpow radix2 (-64) * bpow radix2 (-128)) by ring.
  apply Rmult_le_compat_r; [lra|exact H].
Qed.

Lemma F_square a : F a * F a = IZR a * IZR a * bpow radix2 (-128).
Proof.
replace (F a * F a) with (IZR a * IZR a * (bpow radix2 (-64) * bpow radix2 (-64))) by ring.
rewrite <- bpow_plus. reflexivity.
Qed.

Lemma n_lo_ok : 0 <= F (row_n_lo Q2) /\ (F (row_n_lo Q2) = 0 \/ F (row_n_lo Q2) * F (row_n_lo Q2) <= squares - nerr).
Proof.
destruct (root_nonneg (square_down Q2 - square_error Q2)) as [R0 _].
split; [now apply F_nonneg|].
destruct (Z.le_gt_cases 0 (square_down Q2 - square_error Q2)) as [H|H].
- right. destruct squares_ok as [[S1 _] S2]. unfold row_n_lo. rewrite F_square.
  assert (L := root_down_le _ H). rewrite minus_IZR in L. assert (B := bpow_gt_0 radix2 (-128)).
  apply Rmult_le_compat_r with (r := bpow radix2 (-128)) in L; [|lra]. lra.
- left. unfold row_n_lo, root_down. rewrite Z.sqrt_neg by exact H. ring.
Qed.

Lemma n_hi_ok : 0 <= F (row_n_hi Q2) /\ squares + nerr <= F (row_n_hi Q2) * F (row_n_hi Q2) /\
  F (row_n_hi Q2) <= bpow radix2 29.
Proof.
destruct (root_nonneg (square_up Q2 + square_error Q2)) as [_ R0].
destruct ok_parts as [_ [Q0 [_ [_ [H5 _]]]]].
split; [now apply F_nonneg|]. split.
- destruct squares_ok as [[_ S1] S2]. unfold row_n_hi. rewrite F_square.
  assert (G : (0 <= square_up Q2 + square_error Q2)%Z).
  { destruct (co_norm co) as [_ [_ [G3 G4]]]. unfold square_error.
    assert (A := shift_up_nonneg Q2 (2 * c_qe c + 128) Q0). fold (square_up Q2) in A.
    assert (A2 := shift_up_nonneg (square_up Q2 * c_gn c) (-64) ltac:(nia)). lia. }
  assert (L := root_up_ge _ G). rewrite plus_IZR in L. assert (B := bpow_gt_0 radix2 (-128)).
  apply Rmult_le_compat_r with (r := bpow radix2 (-128)) in L; [|lra]. lra.
- apply Rle_trans with (F (2 ^ 93)); [now apply F_le|]. rewrite F_pow by lia. apply bpow_le. lia.
Qed.

Lemma eta_tiny : eta <= F 1.
Proof. apply Rle_trans with (bpow radix2 (-126)); [|apply tiny; lia]. unfold eta_of.
destruct (k_flushes k); [apply Rle_refl|apply bpow_le; lia]. Qed.

Lemma norm_lo_ok : 0 <= F (row_norm_lo Q2) /\
  (F (row_norm_lo Q2) = 0 \/ F (row_norm_lo Q2) <= (1 - u) * F (row_n_lo Q2) - eta).
Proof.
unfold row_norm_lo. split; [apply F_nonneg; lia|].
destruct (Z.max_spec 0 (row_n_lo Q2 - shift_up (row_n_lo Q2) (-24) - 1)) as [[_ E]|[_ E]]; rewrite E.
- right. rewrite !minus_IZR, !Rmult_minus_distr_r. assert (P := part_up (row_n_lo Q2) 24).
  change (- (24))%Z with (-24)%Z in P. assert (T := eta_tiny). lra.
- left. ring.
Qed.

Lemma b_lo_ok : F (row_b_lo Q2) <= (1 - u) * (F (row_norm_lo Q2) * F (c_slope c)) - eta.
Proof.
unfold row_b_lo. cbv zeta. set (t := mul_down (row_norm_lo Q2) (c_slope c)).
assert (M := mul_down_le (row_norm_lo Q2) (c_slope c)). fold t in M.
rewrite !minus_IZR, !Rmult_minus_distr_r. assert (P := part_up t 24). change (- (24))%Z with (-24)%Z in P.
assert (T := eta_tiny). assert (U : 0 < u < 1).
{ split; [apply bpow_gt_0|]. change 1 with (bpow radix2 0). apply bpow_lt. lia. }
assert ((1 - u) * F t <= (1 - u) * (F (row_norm_lo Q2) * F (c_slope c))) by (apply Rmult_le_compat_l; lra).
lra.
Qed.

Lemma b_hi_ok : (1 + u) * (((1 + u) * F (row_n_hi Q2) + eta) * F (c_slope c)) + eta <= F (row_b_hi Q2).
Proof.
unfold row_b_hi. cbv zeta. set (n1 := (row_n_hi Q2 + shift_up (row_n_hi Q2) (-24) + 1)%Z).
set (t := mul_up n1 (c_slope c)).
assert (T := eta_tiny). assert (U : 0 < u) by apply bpow_gt_0.
destruct (co_slope co) as [_ [[S0 _] _]]. assert (S1 := F_nonneg _ S0).
assert (N : (1 + u) * F (row_n_hi Q2) + eta <= F n1).
{ unfold n1. rewrite !F_plus. assert (P := part_up (row_n_hi Q2) 24). change (- (24))%Z with (-24)%Z in P. lra. }
assert (M := mul_up_ge n1 (c_slope c)). fold t in M.
assert (N2 : ((1 + u) * F (row_n_hi Q2) + eta) * F (c_slope c) <= F t).
{ apply Rle_trans with (2 := M). now apply Rmult_le_compat_r. }
rewrite !F_plus. assert (P := part_up t 24). change (- (24))%Z with (-24)%Z in P.
assert ((1 + u) * (((1 + u) * F (row_n_hi Q2) + eta) * F (c_slope c)) <= (1 + u) * F t)
  by (apply Rmult_le_compat_l; lra).
lra.
Qed.

(** ** The inequalities of the row *)
Variables (Vm : R) (G cm qe hl hO : Z).

Definition numbers_found : row_numbers := {|
  kap := sqrt (IZR (c_K2 c)) * bpow radix2 (c_ke c); X := F (row_x Q2);
  err_row := F (row_err Q2); err := F (c_err c);
  n_lo := F (row_n_lo Q2); n_hi := F (row_n_hi Q2); norm_lo := F (row_norm_lo Q2);
  margin := F (c_margin c); Vmax := Vm; Gv := G; count_max := cm; q_exp := qe;
  l_depth := hl; sum_depth := hO |}.

Lemma mu_hi_ok : mu_hi k st numbers_found <= F (row_mu_hi Q2).
Proof.
unfold mu_hi. set (T := b_hi k st numbers_found - IZR (cap st)).
destruct (co_slope co) as [Sl _]. destruct (co_C co) as [Ce _].
assert (B : b_hi k st numbers_found <= F (row_b_hi Q2)).
{ unfold b_hi. cbn [numbers_found n_hi]. rewrite Sl. apply b_hi_ok. }
unfold row_mu_hi. cbv zeta. set (y := (row_b_hi Q2 - c_C c * 2 ^ 64)%Z).
assert (Y : F y = F (row_b_hi Q2) - IZR (cap st)).
{ unfold y. rewrite minus_IZR, mult_IZR, Ce, Rmult_minus_distr_r. f_equal.
  rewrite Rmult_assoc, two_pow by lia. rewrite <- bpow_plus. simpl. ring. }
assert (TY : T <= F y) by (unfold T; lra).
rewrite !F_plus. assert (P := part_up (Z.abs y) 23). change (- (23))%Z with (-23)%Z in P.
assert (Ay : F (Z.abs y) = Rabs (F y)).
{ rewrite abs_IZR, Rabs_mult, (Rabs_pos_eq (bpow radix2 (-64))) by apply bpow_ge_0. reflexivity. }
rewrite Ay in P. assert (Tn := tiny (-149) ltac:(lia)).
set (v := bpow radix2 (-23)) in *.
assert (v1 : 0 < v < 1).
{ unfold v. split; [apply bpow_gt_0|]. change 1 with (bpow radix2 0). apply bpow_lt. lia. }
assert (Rabs T <= Rabs (F y) + (F y - T)).
{ replace T with (F y + - (F y - T)) at 1 by ring. eapply Rle_trans; [apply Rabs_triang|].
  rewrite Rabs_Ropp, (Rabs_pos_eq (F y - T)) by lra. lra. }
assert (v * Rabs T <= v * (Rabs (F y) + (F y - T))) by (apply Rmult_le_compat_l; lra).
assert (v * (F y - T) <= 1 * (F y - T)) by (apply Rmult_le_compat_r; lra). lra.
Qed.

Lemma total_ok : F (row_total S) <= total (score r) (visible r).
Proof.
unfold score. rewrite (total_scale (factor r)). rewrite S_value.
destruct (co_f co) as [[F1 F2] F3].
unfold row_total. set (fs := if (0 <=? S)%Z then c_flo c else c_fhi c).
assert (D := shift_down_le (S * fs) (c_qe c + c_ke c)). rewrite mult_IZR in D.
apply Rle_trans with (IZR S * IZR fs * bpow radix2 (c_qe c + c_ke c) * bpow radix2 (-64)).
{ apply Rmult_le_compat_r; [apply bpow_ge_0|exact D]. }
replace (IZR S * IZR fs * bpow radix2 (c_qe c + c_ke c) * bpow radix2 (-64))
  with (IZR S * F fs * bpow radix2 (c_qe c + c_ke c)) by ring.
replace (factor r * (IZR S * bpow radix2 (c_qe c + c_ke c)))
  with (IZR S * factor r * bpow radix2 (c_qe c + c_ke c)) by ring.
apply Rmult_le_compat_r; [apply bpow_ge_0|]. unfold fs. destruct (Z.leb_spec 0 S) as [H|H].
- apply Rmult_le_compat_l; [now apply IZR_le|exact F1].
- assert (IZR S <= 0) by (apply IZR_le; lia).
  assert (0 <= - IZR S * (F (c_fhi c) - factor r)) by (apply Rmult_le_pos; lra). lra.
Qed.

(** What a head's check has to add: its values, and the conditions that no row changes. *)
Record head_part : Prop := {
  hp_depth : (additions (k_l_order k) (Z.of_nat (length (visible r))) <= hl)%Z /\
             (O_depth k (Z.of_nat (length (visible r))) <= hO)%Z;
  hp_values : forall j, In j (visible r) -> Rabs (values_of r j) <= Vm /\ Vm <= bpow radix2 G;
  hp_ranges : Row.ranges 24 128 (machine_of k) (numbers_of_row k r st numbers_found) (visible r);
  hp_weights : IZR (pr_w (promise_of (k_exp2 k) (cap st))) * bpow radix2 (pr_l (promise_of (k_exp2 k) (cap st))) < bpow radix2 128 /\
              ((0 <= p_w k (cap st) <= 2 ^ k_p_prec k)%Z /\ (3 - 128 - k_p_prec k <= p_l k (cap st))%Z) /\
              IZR (p_w k (cap st)) * bpow radix2 (p_l k (cap st)) < bpow radix2 128;
  hp_q_exp : (-149 <= qe /\ qe + 1 < 128)%Z;
  hp_output : (1 < k_out_prec k)%Z /\ (qe + 2 < k_out_emax k)%Z /\
             (3 - k_out_emax k - k_out_prec k <= qe + 2)%Z /\
             Vm + Row.quotient_bound 24 128 (machine_of k) (numbers_of_row k r st numbers_found) (visible r)
               <= bpow radix2 (qe + 2)
}.

Theorem row_inequalities_hold : head_part -> row_inequalities k r st numbers_found.
Proof.
intros HP. destruct ok_parts as [P1 [P2 [P3 [P4 [P5 [P6 [P7 P8]]]]]]].
destruct (co_d co) as [D0 D1]. destruct (co_slope co) as [Sl [Sr Sf]]. destruct (co_C co) as [Ce Cr].
destruct err_ok as [E1 E2]. destruct (co_f co) as [[F1 F2] F3].
assert (f0 : 0 <= factor r) by (assert (Q := F_nonneg _ F3); lra).
assert (X0 := F_nonneg _ x_nonneg).
assert (Top : Rabs (factor r) * F (row_x Q2) + F (row_err Q2)
              <= F (mul_up (c_fhi c) (row_x Q2) + row_err Q2)).
{ rewrite F_plus. apply Rplus_le_compat_r. rewrite Rabs_pos_eq by exact f0.
  apply Rle_trans with (2 := mul_up_ge _ _). now apply Rmult_le_compat_r. }
split; cbn [numbers_found kap X err_row err n_lo n_hi norm_lo margin Vmax Gv count_max q_exp l_depth sum_depth].
- rewrite <- D0. exact D1.
- split; [|exact Sf]. rewrite Sl. split; [apply F_nonneg; lia|].
  apply Rle_trans with (F (2 ^ 94)); [apply F_le; lia|]. rewrite F_pow by lia. apply bpow_le. lia.
- rewrite Ce. exact Cr.
- intros j H. assert (K := keys_within j H). unfold nrm.
  rewrite <- (sqrt_square (bpow radix2 (c_ke c))) by apply bpow_ge_0.
  rewrite <- sqrt_mult_alt by (apply IZR_le; apply (co_K2 co)). apply sqrt_le_1_alt.
  rewrite <- bpow_plus. replace (c_ke c + c_ke c)%Z with (2 * c_ke c)%Z by ring. exact K.
- split; [exact x_ok|]. apply Rle_trans with (F (2 ^ 124)); [now apply F_le|].
  rewrite F_pow by lia. apply bpow_le. lia.
- split; [exact E1|now apply F_le].
- apply (hp_depth HP).
- exact E2.
- destruct n_lo_ok as [N1 N2]. destruct norm_lo_ok as [N3 N4]. auto.
- exact n_hi_ok.
- split.
  + apply Rle_trans with (1 := Top). apply Rle_trans with (F (row_b_lo Q2 + 2 ^ 44)); [now apply F_le|].
    rewrite F_plus, (F_pow 44) by lia. apply Rplus_le_compat_r. unfold b_lo.
    cbn [numbers_found norm_lo]. rewrite Sl. exact b_lo_ok.
  + apply Rle_trans with (1 := Top). apply Rle_trans with (F (2 ^ 126)); [now apply F_le|].
    rewrite F_pow by lia. apply bpow_le. lia.
- apply Rle_trans with (2 := total_ok). apply Rle_trans with (F (n * (row_mu_hi Q2 + c_margin c))); [|now apply F_le].
  rewrite mult_IZR, Rmult_assoc, F_plus, n_value, <- INR_IZR_INZ.
  apply Rmult_le_compat_l; [apply pos_INR|]. apply Rplus_le_compat_r. exact mu_hi_ok.
- apply (hp_values HP).
- apply (hp_ranges HP).
- apply (hp_weights HP).
- apply (hp_q_exp HP).
- apply (hp_output HP).
Qed.
End Row_.
