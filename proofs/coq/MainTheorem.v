(** * The main theorem: one row of one head, from its data to its output

    What Row, Score and Stabilizer say of their stages, put together for a kernel of Kernel under the
    policy `clis`. The hypotheses are of two kinds: inequalities between numbers, which the checker
    decides from the head's words (Checker), and that the execution is one which the kernel allows.
    The conclusion is of the execution alone. *)

From Coq Require Import ZArith Reals Lra Lia List Permutation Bool.
From Flocq Require Import Core BinarySingleNaN.
From Headroom Require Import Formats CauchySchwarz Rows Exp2 Jensen LostMass Execution Adders Weights
  Division Stabilizer Score Row Kernel.
Import ListNotations.
Open Scope R_scope.

(** ** A row of a head *)
Record row := {
  channels : nat;
  query : nat -> R;                 (* q~ as multiplied *)
  key : nat -> nat -> R;            (* k~_j *)
  values_of : nat -> R;             (* v_j, one output channel *)
  visible : list nat;
  factor : R                        (* z_j = factor <q~, k~_j>, log2 units *)
}.

Definition score (r : row) j := factor r * dot (channels r) (query r) (key r j).

(** Exact attention: what the output is compared with. *)
Definition attention (r : row) := exact_output (visible r) (score r) (values_of r).

(** ** What the certificate fixes: C, and the table value kappa that the kernel multiplies its own
    norm with; [constant] is the stored factor of the score. *)
Record stabilizer := { cap : Z; slope : f32; constant : R }.

(** How many results with nothing to add (padding, masked keys) a sum may have besides. *)
Definition padding := 1024%Z.
Definition nodes_allowed (count : Z) := Z.to_nat (4 * count + padding).

(** ** Executions of a kernel on a row *)
Section Executions.
Variable k : kernel.

Record row_execution := {
  norm_sum : sum 24 128;
  norm : f32;
  bound : f32;
  score_sum : nat -> sum 24 128;
  rest : execution 24 128 (k_p_prec k) (k_p_emax k);
  output : binary_float (k_out_prec k) (k_out_emax k)
}.

Definition out_flush_at : option Z :=
  if k_out_flushes k then Some (3 - k_out_emax k - k_out_prec k + k_out_prec k - 1)%Z else None.

(** The scaled score: exact where the factor is fused into the exponent or is 1, else rounded. *)
Definition scaled (c s zc : R) : Prop :=
  if k_fused k then zc = c * s
  else (c = 1 /\ zc = s) \/
       exists r : f32, rounds 24 128 mode_NE (flush_at (k_flushes k)) (c * s) r /\ zc = B2R r.

Definition score_depth (r : row) : Z :=
  (additions (k_score_order k) (Z.of_nat (channels r)) + (if k_score_rounded k then 1 else 0))%Z.
Definition O_depth (count : Z) : Z := (additions (k_O_order k) count + (if k_O_rounded k then 1 else 0))%Z.

Definition shaped (s : sum 24 128) (h count : Z) :=
  (Z.of_nat (depth s) <= h)%Z /\ (nodes s <= nodes_allowed count)%nat.

Definition kernel_allows (r : row) (st : stabilizer) (x : row_execution) : Prop :=
  let d := Z.of_nat (channels r) in
  let n := Z.of_nat (length (visible r)) in
  let fl := flush_at (k_flushes k) in
  (* the norm, in any order, and mu *)
  norm_allowed fl (channels r) (query r) (ieee_adder 24 128 mode_NE fl) (norm_sum x) (norm x) /\
  shaped (norm_sum x) (d + 1) d /\
  mu_allowed fl (norm x) (slope st) (bound x) (mu _ _ _ _ (rest x)) (cap st) /\
  (* scores *)
  (forall j, In j (visible r) ->
     run (adder_of (k_score k)) (score_sum x j) /\
     (exists zeros, Permutation (terms (score_sum x j))
        (products (channels r) (query r) (key r j) ++ repeat 0 zeros)) /\
     shaped (score_sum x j) (score_depth r) d /\
     scaled (constant st) (value (score_sum x j)) (computed _ _ _ _ (rest x) j)) /\
  (* exponents, weights, sums, quotient *)
  allowed 24 128 (k_p_prec k) (k_p_emax k) (machine_of k) (visible r) (values_of r) (rest x) /\
  shaped (l_sum _ _ _ _ (rest x)) (additions (k_l_order k) n) n /\
  shaped (O_sum _ _ _ _ (rest x)) (O_depth n) n /\
  rounds (k_out_prec k) (k_out_emax k) mode_NE out_flush_at (B2R (quotient _ _ _ _ (rest x))) (output x).
End Executions.

(** What the rounding of the scaled score costs, relatively and absolutely: nothing where the factor
    is fused into the exponent. *)
Definition u_scale (k : kernel) : R := if k_fused k then 0 else bpow radix2 (-24).
Definition eta_scale (k : kernel) : R := if k_fused k then 0 else eta_of (Ieee (k_flushes k)).

(** ** Numbers that the checker finds *)
Record row_numbers := {
  kap : R;              (* max ||k~_j|| *)
  X : R;                (* ||q~|| max ||k~_j|| *)
  err_row : R;          (* error of a score of this row, *)
  err : R;              (* and of any row *)
  n_lo : R; n_hi : R;   (* root of what the kernel's sum of squares can be *)
  norm_lo : R;          (* the kernel's norm, from below *)
  margin : R;           (* mean of z - mu, from below *)
  Vmax : R; Gv : Z;     (* |v| <= Vmax <= 2^Gv *)
  count_max : Z; q_exp : Z;
  l_depth : Z; sum_depth : Z   (* additions that a term of l, of O passes *)
}.

Section Theorem_.
Variable k : kernel.
Hypothesis ok : kernel_ok k.
Variables (r : row) (st : stabilizer) (n : row_numbers).
Notation d := (channels r).
Notation keys := (visible r).
Notation eta := (eta_of (Ieee (k_flushes k))).
Notation u := (bpow radix2 (-24)).
Notation pr := (promise_of (k_exp2 k) (cap st)).
Notation squares := (dot d (query r) (query r)).

Definition norm_error :=
  error_bound u eta (d + 1) (nodes_allowed (Z.of_nat d)) squares.
Definition sum_error_of_score :=
  error_bound (delta_of (k_score k)) (eta_of (k_score k)) (Z.to_nat (score_depth k r))
    (nodes_allowed (Z.of_nat d)) (X n).
Definition b_lo := (1 - u) * (norm_lo n * B2R (slope st)) - eta.
Definition b_hi := (1 + u) * (((1 + u) * n_hi n + eta) * B2R (slope st)) + eta.
Definition mu_hi := (b_hi - IZR (cap st)) + bpow radix2 (-23) * Rabs (b_hi - IZR (cap st)) + bpow radix2 (-149).

Definition numbers_of_row : numbers :=
  numbers_of k (cap st) (count_max n) (Gv n) (q_exp n) (err n) (margin n) (Vmax n)
    (Z.to_nat (l_depth n)) (nodes_allowed (Z.of_nat (length keys)))
    (Z.to_nat (sum_depth n)) (nodes_allowed (Z.of_nat (length keys))).

(** ** The inequalities *)
Record row_inequalities : Prop := {
  i_channels : (0 < Z.of_nat d <= 2 ^ 20)%Z;
  i_kappa : 0 <= B2R (slope st) <= bpow radix2 30 /\ is_finite (slope st) = true;
  i_cap : (64 <= cap st <= 127)%Z;
  i_keys : forall j, In j keys -> nrm d (key r j) <= kap n;
  i_X : nrm d (query r) * kap n <= X n <= bpow radix2 60;
  i_err : Rabs (constant st) * sum_error_of_score + Rabs (constant st - factor r) * X n
          + (u_scale k * (Rabs (constant st) * (X n + sum_error_of_score)) + eta_scale k) <= err_row n /\
          err_row n <= err n;
  i_depth : (additions (k_l_order k) (Z.of_nat (length keys)) <= l_depth n)%Z /\
            (O_depth k (Z.of_nat (length keys)) <= sum_depth n)%Z;
  i_constant : k_fused k = false -> Rabs (constant st) * (X n + sum_error_of_score) <= bpow radix2 62;
  i_n_lo : 0 <= n_lo n /\ (n_lo n = 0 \/ n_lo n * n_lo n <= squares - norm_error) /\
           0 <= norm_lo n /\ (norm_lo n = 0 \/ norm_lo n <= (1 - u) * n_lo n - eta);
  i_n_hi : 0 <= n_hi n /\ squares + norm_error <= n_hi n * n_hi n /\ n_hi n <= bpow radix2 29;
  i_exponent : Rabs (factor r) * X n + err_row n <= b_lo + bpow radix2 (-20) /\
               Rabs (factor r) * X n + err_row n <= bpow radix2 62;
  i_mean : INR (length keys) * (mu_hi + margin n) <= total (score r) keys;
  i_values : forall j, In j keys -> Rabs (values_of r j) <= Vmax n /\ Vmax n <= bpow radix2 (Gv n);
  i_ranges : ranges 24 128 (machine_of k) numbers_of_row keys;
  i_weights : IZR (pr_w pr) * bpow radix2 (pr_l pr) < bpow radix2 128 /\
              ((0 <= p_w k (cap st) <= 2 ^ k_p_prec k)%Z /\ (3 - 128 - k_p_prec k <= p_l k (cap st))%Z) /\
              IZR (p_w k (cap st)) * bpow radix2 (p_l k (cap st)) < bpow radix2 128;
  i_q_exp : (-149 <= q_exp n /\ q_exp n + 1 < 128)%Z;
  i_output : (1 < k_out_prec k)%Z /\ (q_exp n + 2 < k_out_emax k)%Z /\
             (3 - k_out_emax k - k_out_prec k <= q_exp n + 2)%Z /\
             Vmax n + quotient_bound 24 128 (machine_of k) numbers_of_row keys <= bpow radix2 (q_exp n + 2)
}.

(** The stated bound of the output's error. *)
Definition output_bound :=
  let B := quotient_bound 24 128 (machine_of k) numbers_of_row keys in
  let uo := bpow radix2 (- k_out_prec k) in
  B * (1 + uo) + uo * Vmax n + floor_of (k_out_prec k) (k_out_emax k) (out_flush_at k).

(** ** What follows of every execution *)
Record row_certified (x : row_execution k) : Prop := {
  (* SAFE: every intermediate is finite, masked scores and initial maxima exempt *)
  safe_norm : safe (norm_sum k x) /\ is_finite (norm k x) = true;
  safe_mu : is_finite (mu _ _ _ _ (rest k x)) = true;
  safe_scores : forall j, In j keys -> safe (score_sum k x j);
  safe_row : forall j, In j keys ->
    is_finite (exponent _ _ _ _ (rest k x) j) = true /\ is_finite (weight _ _ _ _ (rest k x) j) = true /\
    is_finite (stored _ _ _ _ (rest k x) j) = true;
  safe_exponents : forall j, In j keys -> B2R (exponent _ _ _ _ (rest k x) j) <= IZR (cap st);
  safe_sums : safe (l_sum _ _ _ _ (rest k x)) /\ safe (O_sum _ _ _ _ (rest k x));
  safe_denominator : bpow radix2 (pr_low pr) <= value (l_sum _ _ _ _ (rest k x)) <= bpow radix2 (k_l_max k);
  safe_output : is_finite (quotient _ _ _ _ (rest k x)) = true /\ is_finite (output k x) = true;
  (* ACCURATE *)
  lost_mass : total (fun j => exp2 (score r j)) (filter (lost_key _ _ _ _ (rest k x)) keys)
    <= lost_bound (margin n - IZR (pr_L pr) - err n) * total (fun j => exp2 (score r j)) keys;
  output_error : Rabs (B2R (output k x) - attention r) <= output_bound
}.

(** ** Proof *)
Hypothesis ineq : row_inequalities.
Variable x : row_execution k.
Hypothesis allows : kernel_allows k r st x.

Lemma u_facts : 0 < u < 1.
Proof. split; [apply bpow_gt_0|]. change 1 with (bpow radix2 0). apply bpow_lt. lia. Qed.

Lemma eta_facts : eta = floor_of 24 128 (flush_at (k_flushes k)) /\ 0 < eta <= 1.
Proof.
rewrite floor_of_flush_at. unfold eta_of. destruct (k_flushes k); (split; [reflexivity|]);
  (split; [apply bpow_gt_0|change 1 with (bpow radix2 0); apply bpow_le; lia]).
Qed.

(** A coordinate is at most the norm. *)
Lemma coordinate_norm y i : (i < d)%nat -> Rabs (y i) <= nrm d y.
Proof.
intros H. unfold nrm. rewrite <- sqrt_Rsqr_abs. apply sqrt_le_1_alt. unfold Rsqr, dot.
clear - H. induction d as [|c IH]; [lia|]. simpl.
assert (S := sq_nonneg c y).
destruct (Nat.eq_dec i c) as [E|E]; [subst; lra|]. specialize (IH ltac:(lia)).
assert (0 <= y c * y c) by apply Rle_0_sqr. lra.
Qed.

Lemma squares_norm : squares = nrm d (query r) * nrm d (query r).
Proof. unfold nrm. rewrite sqrt_sqrt; [reflexivity|apply sq_nonneg]. Qed.

Lemma stage_norm : safe (norm_sum k x) /\ is_finite (norm k x) = true /\
  is_finite (mu _ _ _ _ (rest k x)) = true /\ Rabs (B2R (mu _ _ _ _ (rest k x))) <= bpow radix2 63 /\
  b_lo - IZR (cap st) <= B2R (mu _ _ _ _ (rest k x)) <= mu_hi.
Proof.
destruct allows as [Hn [[Hd Hnodes] [Hmu _]]].
destruct eta_facts as [Ee [E0 E1]]. assert (U := u_facts).
destruct (i_channels ineq) as [D0 D1].
destruct (i_n_lo ineq) as [L0 [L1 [L2 L3]]]. destruct (i_n_hi ineq) as [H0 [H1 H2]].
assert (Err0 : 0 <= norm_error).
{ unfold norm_error, error_bound. assert (1 <= (1 + u) ^ (d + 1)) by (apply pow_R1_Rle; lra).
  assert (0 <= squares) by (apply sq_nonneg).
  assert (0 <= ((1 + u) ^ (d + 1) - 1) * squares) by (apply Rmult_le_pos; lra).
  assert (0 <= INR (nodes_allowed (Z.of_nat d)) * eta * (1 + u) ^ (d + 1)).
  { apply Rmult_le_pos; [apply Rmult_le_pos; [apply pos_INR|lra]|lra]. } lra. }
assert (Sq : squares <= bpow radix2 58).
{ apply Rle_trans with (n_hi n * n_hi n); [lra|]. change 58%Z with (29 + 29)%Z. rewrite bpow_plus.
  apply Rmult_le_compat; lra. }
assert (Coord : forall i, (i < d)%nat -> Rabs (query r i * query r i) <= bpow radix2 58).
{ intros i Hi. apply Rle_trans with (2 := Sq). rewrite squares_norm, Rabs_mult.
  assert (C := coordinate_norm (query r) i Hi).
  apply Rmult_le_compat; auto using Rabs_pos. }
assert (Room : IZR (Z.of_nat d) * bpow radix2 58 < bpow radix2 128).
{ apply Rle_lt_trans with (bpow radix2 20 * bpow radix2 58).
  - apply Rmult_le_compat_r; [apply bpow_ge_0|]. change (bpow radix2 20) with (IZR (2 ^ 20)). now apply IZR_le.
  - rewrite <- bpow_plus. apply bpow_lt. lia. }
destruct (norm_enclosed (flush_at (k_flushes k)) (flush_at_ok _) d (query r) (ieee_adder 24 128 mode_NE (flush_at (k_flushes k)))
  u eta ltac:(lra) ltac:(lra) (ieee_bounded 24 128 fp32_precision mode_NE _)
  ltac:(rewrite Ee; exact (ieee_close 24 128 fp32_precision mode_NE _ (flush_at_ok _)))
  (d + 1) (nodes_allowed (Z.of_nat d)) (n_lo n) (n_hi n) (conj L0 L1) (conj H0 H1)
  (norm_sum k x) (norm k x) 58 29 Hn ltac:(lia) Hnodes ltac:(lia) ltac:(lia) Room Coord ltac:(lia) H2)
  as [S [F [N0 [N1 N2]]]].
rewrite <- Ee in N1, N2.
split; [exact S|]. split; [exact F|].
destruct (i_kappa ineq) as [[K0 K1] _]. destruct (i_cap ineq) as [C0 C1].
assert (Hi30 : (1 + u) * n_hi n + eta <= bpow radix2 30).
{ replace (bpow radix2 30) with (2 * bpow radix2 29) by (simpl; lra).
  assert (u <= / 4). { replace (/ 4) with (bpow radix2 (-2)) by (simpl; lra). apply bpow_le. lia. }
  assert (X29 : 4 <= bpow radix2 29) by (replace 4 with (bpow radix2 2) by (simpl; lra); apply bpow_le; lia).
  assert (u * n_hi n <= / 4 * n_hi n) by (apply Rmult_le_compat_r; lra). lra. }
assert (N1' : norm_lo n <= B2R (norm k x)) by (destruct L3 as [L3|L3]; lra).
assert (E1' : floor_of 24 128 (flush_at (k_flushes k)) <= 1) by (rewrite <- Ee; exact E1).
destruct (mu_enclosed (flush_at (k_flushes k)) (flush_at_ok _) (norm k x) (slope st) (bound k x)
  (mu _ _ _ _ (rest k x)) (cap st) (norm_lo n) ((1 + u) * n_hi n + eta) Hmu
  (conj K0 K1) (conj L2 N1') (conj N2 Hi30) E1' ltac:(lia)) as [Fm [Bm Em]].
rewrite <- Ee in Em. split; [exact Fm|]. split; [exact Bm|exact Em].
Qed.

Lemma X_nonneg : 0 <= X n.
Proof.
destruct (i_X ineq) as [X1 _]. apply Rle_trans with (2 := X1).
destruct (r_keys _ _ _ _ _ (i_ranges ineq)) as [Hk _].
destruct keys as [|j t] eqn:E; [congruence|].
assert (K := i_keys ineq j). rewrite E in K. specialize (K (or_introl eq_refl)).
apply Rmult_le_pos; [apply nrm_nonneg|]. apply Rle_trans with (2 := K). apply nrm_nonneg.
Qed.

Lemma sum_error_nonneg : 0 <= sum_error_of_score.
Proof.
unfold sum_error_of_score, error_bound. assert (D := delta_nonneg _ (ok_score k ok)).
assert (1 <= (1 + delta_of (k_score k)) ^ Z.to_nat (score_depth k r)) by (apply pow_R1_Rle; lra).
assert (X0 := X_nonneg).
assert (0 <= ((1 + delta_of (k_score k)) ^ Z.to_nat (score_depth k r) - 1) * X n)
  by (apply Rmult_le_pos; lra).
assert (0 <= INR (nodes_allowed (Z.of_nat d)) * eta_of (k_score k)
             * (1 + delta_of (k_score k)) ^ Z.to_nat (score_depth k r)).
{ apply Rmult_le_pos; [apply Rmult_le_pos; [apply pos_INR|apply eta_nonneg]|lra]. } lra.
Qed.

Lemma stage_scores j : In j keys -> safe (score_sum k x j) /\
  Rabs (computed _ _ _ _ (rest k x) j - score r j) <= err_row n /\ Rabs (score r j) <= Rabs (factor r) * X n.
Proof.
intros Hj. destruct allows as [_ [_ [_ [Hs _]]]].
destruct (Hs j Hj) as [Run [[zeros Pm] [[Hdep Hnod] Hsc]]].
destruct (i_channels ineq) as [D0 D1]. destruct (i_X ineq) as [X1 X2].
assert (Kj := i_keys ineq j Hj). assert (Nq := nrm_nonneg d (query r)). assert (Nk := nrm_nonneg d (key r j)).
assert (QK : nrm d (query r) * nrm d (key r j) <= X n).
{ apply Rle_trans with (2 := X1). apply Rmult_le_compat_l; lra. }
assert (Coord : forall i, (i < d)%nat -> Rabs (query r i * key r j i) <= bpow radix2 60).
{ intros i Hi. apply Rle_trans with (2 := X2). apply Rle_trans with (2 := QK). rewrite Rabs_mult.
  apply Rmult_le_compat; auto using Rabs_pos; now apply coordinate_norm. }
assert (Room : IZR (Z.of_nat d) * bpow radix2 60 < bpow radix2 128).
{ apply Rle_lt_trans with (bpow radix2 20 * bpow radix2 60).
  - apply Rmult_le_compat_r; [apply bpow_ge_0|]. change (bpow radix2 20) with (IZR (2 ^ 20)). now apply IZR_le.
  - rewrite <- bpow_plus. apply bpow_lt. lia. }
assert (S : safe (score_sum k x j)).
{ apply (score_sum_safe 24 128 d (query r) (key r j) (adder_of (k_score k))
    (adder_bounded _ (ok_score k ok)) (score_sum k x j) zeros Run Pm 60); auto; lia. }
split; [exact S|].
assert (E := score_sum_error 24 128 d (query r) (key r j) (adder_of (k_score k)) _ _
  (delta_nonneg _ (ok_score k ok)) (eta_nonneg _) (adder_close _ (ok_score k ok))
  (score_sum k x j) zeros Run Pm (nrm d (key r j)) (Z.to_nat (score_depth k r))
  (nodes_allowed (Z.of_nat d)) S ltac:(lia) Hnod (Rle_refl _)).
assert (E' : Rabs (value (score_sum k x j) - dot d (query r) (key r j)) <= sum_error_of_score).
{ apply Rle_trans with (1 := E). unfold sum_error_of_score, error_bound. apply Rplus_le_compat_r.
  apply Rmult_le_compat_l; [|exact QK].
  assert (D := delta_nonneg _ (ok_score k ok)).
  assert (1 <= (1 + delta_of (k_score k)) ^ Z.to_nat (score_depth k r)) by (apply pow_R1_Rle; lra). lra. }
assert (Dx : Rabs (dot d (query r) (key r j)) <= X n).
{ apply Rle_trans with (1 := cauchy_schwarz d (query r) (key r j)). exact QK. }
split.
2: { unfold score. rewrite Rabs_mult. apply Rmult_le_compat_l; [apply Rabs_pos|exact Dx]. }
unfold score. assert (U := u_facts). destruct eta_facts as [Ee [E0 E1]].
assert (Se := sum_error_nonneg). assert (X0 := X_nonneg).
assert (C0 := Rabs_pos (constant st)).
assert (Vb : Rabs (value (score_sum k x j)) <= X n + sum_error_of_score).
{ replace (value (score_sum k x j)) with (dot d (query r) (key r j) + (value (score_sum k x j) - dot d (query r) (key r j))) by ring.
  eapply Rle_trans; [apply Rabs_triang|]. lra. }
apply (scaled_error (constant st) (factor r) (value (score_sum k x j)) (dot d (query r) (key r j)) (X n)
  sum_error_of_score (u_scale k) (eta_scale k)); auto; try lra; [| |apply (proj1 (i_err ineq))].
{ unfold u_scale. destruct (k_fused k); lra. }
assert (P0 : 0 <= u * Rabs (constant st * value (score_sum k x j)))
  by (apply Rmult_le_pos; [lra|apply Rabs_pos]).
assert (Ic := i_constant ineq).
unfold scaled in Hsc. unfold u_scale, eta_scale. destruct (k_fused k).
- rewrite Hsc, Rminus_diag_eq by reflexivity. rewrite Rabs_R0. lra.
- specialize (Ic eq_refl). destruct Hsc as [[C1 Z]|[rr [Hr Z]]].
  + rewrite Z, C1. replace (value (score_sum k x j) - 1 * value (score_sum k x j)) with 0 by ring.
    rewrite Rabs_R0. rewrite C1 in P0. lra.
  + rewrite Z. assert (B : Rabs (constant st * value (score_sum k x j)) <= bpow radix2 62).
    { rewrite Rabs_mult. apply Rle_trans with (2 := Ic).
      apply Rmult_le_compat_l; [exact C0|exact Vb]. }
    destruct (rounds_moderate (flush_at (k_flushes k)) (flush_at_ok _) _ rr 62 Hr B ltac:(lia)) as [_ Cl].
    rewrite <- Ee in Cl. exact Cl.
Qed.

Theorem facts_hold : row_facts 24 128 (k_p_prec k) (k_p_emax k) numbers_of_row keys (score r) (values_of r)
  (machine_of k) (rest k x).
Proof.
destruct stage_norm as [_ [_ [Fm [Bm [M1 M2]]]]].
destruct (i_exponent ineq) as [X1 X2]. destruct (i_cap ineq) as [C0 C1].
split; cbn [numbers_of_row numbers_of Row.e Row.C Row.zlow Row.V vmin vmax Row.G h_l n_l h_O n_O].
- intros j H. apply Rle_trans with (2 := proj2 (i_err ineq)). apply (stage_scores j H).
- intros j H. destruct (stage_scores j H) as [_ [E B]].
  replace (computed _ _ _ _ (rest k x) j - B2R (mu _ _ _ _ (rest k x)))
    with ((computed _ _ _ _ (rest k x) j - score r j) + score r j + - B2R (mu _ _ _ _ (rest k x))) by ring.
  eapply Rle_trans; [apply Rabs_triang|]. rewrite Rabs_Ropp.
  assert (T := Rabs_triang (computed _ _ _ _ (rest k x) j - score r j) (score r j)).
  apply Rle_trans with (bpow radix2 62 + bpow radix2 63); [lra|].
  apply Rle_trans with (bpow radix2 64); [simpl; lra|]. apply bpow_le. lia.
- intros j H. destruct (stage_scores j H) as [_ [E B]]. apply Rabs_le_inv in E. apply Rabs_le_inv in B.
  apply (exponent_at_most_cap (fun t => negb (Z.even t)) (cap st)); [lia|]. lra.
- apply Rle_trans with (2 := i_mean ineq). apply Rmult_le_compat_l; [apply pos_INR|lra].
- intros j H. destruct (i_values ineq j H) as [V1 V2]. assert (V1' := V1). apply Rabs_le_inv in V1'.
  repeat split; lra.
- destruct allows as [_ [_ [_ [_ [_ [[L1 L2] [[O1 O2] _]]]]]]].
  destruct (i_depth ineq). repeat split; auto; lia.
Qed.

Theorem row_is_certified : row_certified x.
Proof.
destruct stage_norm as [S1 [S2 [S3 _]]].
destruct (i_weights ineq) as [W1 [W2 W3]].
assert (Pr := kernel_promises k ok (cap st) (count_max n) (Gv n) (q_exp n) (err n) (margin n) (Vmax n)
  (Z.to_nat (l_depth n)) (nodes_allowed (Z.of_nat (length keys)))
  (Z.to_nat (sum_depth n)) (nodes_allowed (Z.of_nat (length keys)))
  ltac:(destruct (i_cap ineq); lia) W1 W2 W3 (i_q_exp ineq)).
assert (Al := allows). destruct Al as [_ [_ [_ [_ [Al [_ [_ Out]]]]]]].
destruct (row_theorem 24 128 (k_p_prec k) (k_p_emax k) fp32_precision fp32_range (p_precision k ok)
  (machine_of k) numbers_of_row keys (score r) (values_of r) (rest k x) Pr (i_ranges ineq) facts_hold Al)
  as [C1 C2 C3 C4 C5 C6 C7 C8].
assert (Att : Rabs (attention r) <= Vmax n).
{ exact (exact_bounded 24 128 (k_p_prec k) (k_p_emax k) (machine_of k) numbers_of_row keys (score r)
    (values_of r) (rest k x) (i_ranges ineq) facts_hold). }
destruct (i_output ineq) as [O1 [O2 [O3 O4]]].
fold (attention r) in C8.
set (B := quotient_bound 24 128 (machine_of k) numbers_of_row keys) in *.
assert (Qb : Rabs (B2R (quotient _ _ _ _ (rest k x))) <= bpow radix2 (q_exp n + 2)).
{ replace (B2R (quotient _ _ _ _ (rest k x)))
    with (attention r + (B2R (quotient _ _ _ _ (rest k x)) - attention r)) by ring.
  eapply Rle_trans; [apply Rabs_triang|]. lra. }
assert (op : Prec_gt_0 (k_out_prec k)) by (unfold Prec_gt_0; lia).
assert (Rg := rounds_in_range (k_out_prec k) (k_out_emax k) op mode_NE _ (q_exp n + 2) Qb ltac:(lia)).
destruct (Out Rg) as [Fo _].
split.
- now split.
- exact S3.
- intros j H. apply (stage_scores j H).
- intros j H. destruct (C1 j H). destruct (C2 j H). tauto.
- intros j H. apply (C1 j H).
- now split.
- exact C5.
- now split.
- exact C7.
- unfold output_bound. fold B.
  assert (Fl : flush_ok (k_out_prec k) (k_out_emax k) (out_flush_at k)).
  { unfold out_flush_at. destruct (k_out_flushes k); [|exact I]. unfold flush_ok. lia. }
  assert (Cl := rounds_close (k_out_prec k) (k_out_emax k) op mode_NE _ _ _ Out Fl Rg).
  apply (OutputError.rounded_error _ _ (B2R (quotient _ _ _ _ (rest k x)))); auto.
  apply bpow_ge_0.
Qed.
End Theorem_.
