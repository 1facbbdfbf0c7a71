(** * The stored stabilizer of `clis`

    mu = RU(RN(n^ kappa) - C): n^ is the kernel's own norm of its query row, a rounded sum of squares
    and a rounded root, in any order; kappa a table value; the last rounding is upward. What the row
    theorem needs is an enclosure of mu over every execution. *)

From Coq Require Import ZArith Reals Lra Lia List Permutation.
From Flocq Require Import Core BinarySingleNaN.
From Headroom Require Import Formats Exp2 CauchySchwarz Rows Execution Adders Score Division.
Import ListNotations.
Open Scope R_scope.

#[global] Instance fp32_precision : Prec_gt_0 24 := eq_refl.
#[global] Instance fp32_range : Prec_lt_emax 24 128 := eq_refl.
Notation f32 := (binary_float 24 128).
Notation round32 md := (round radix2 (FLT_exp (3 - 128 - 24) 24) (round_mode md)).

Lemma unit_NE : unit_of 24 mode_NE = bpow radix2 (-24).
Proof. reflexivity. Qed.

Section Stabilizer.
(** [flush]: what arithmetic outside the matrix unit flushes. *)
Variable flush : option Z.
Hypothesis flush_fine : flush_ok 24 128 flush.
Notation eta := (floor_of 24 128 flush).
Notation u := (bpow radix2 (-24)).

Lemma eta_small : flush = None \/ (exists low, flush = Some low /\ (low <= 0)%Z) -> eta <= 1.
Proof.
intros [E|[low [E H]]]; subst flush; unfold floor_of; (change 1 with (bpow radix2 0); apply bpow_le; lia).
Qed.

(** ** One rounding of a number of moderate size *)
Lemma rounds_moderate x (r : f32) k : rounds 24 128 mode_NE flush x r -> Rabs x <= bpow radix2 k ->
  (-149 <= k < 128)%Z ->
  is_finite r = true /\ Rabs (B2R r - x) <= u * Rabs x + eta.
Proof.
intros H Hx Hk. assert (Rg := rounds_in_range 24 128 _ mode_NE x k Hx ltac:(lia)).
split; [apply (H Rg)|]. rewrite <- unit_NE. now apply (rounds_close 24 128 fp32_precision).
Qed.

(** ** The norm

    [s] sums the squares of q; [lo] and [hi] enclose the root of what it can be. *)
Section Norm.
Variable d : nat.
Variable q : nat -> R.
Variable adds : list R -> f32 -> Prop.
Variables delta eta_s : R.
Hypothesis delta_nonneg : 0 <= delta.
Hypothesis eta_s_nonneg : 0 <= eta_s.
Hypothesis adder_bounded : bounded adds.
Hypothesis adder_close : close adds (fun _ => True) delta eta_s.

Definition norm_allowed (s : sum 24 128) (norm : f32) :=
  run adds s /\ (exists zeros, Permutation (terms s) (products d q q ++ repeat 0 zeros)) /\
  rounds 24 128 mode_NE flush (sqrt (value s)) norm.

Variables (h n : nat) (lo hi : R).
Notation square := (dot d q q).
Notation err := (error_bound delta eta_s h n square).
Hypothesis lo_ok : 0 <= lo /\ (lo = 0 \/ lo * lo <= square - err).
Hypothesis hi_ok : 0 <= hi /\ square + err <= hi * hi.

Theorem norm_enclosed s norm e k : norm_allowed s norm -> (depth s <= h)%nat -> (nodes s <= n)%nat ->
  (-149 <= e)%Z -> (Z.of_nat d <= 2 ^ 24)%Z -> IZR (Z.of_nat d) * bpow radix2 e < bpow radix2 128 ->
  (forall i, (i < d)%nat -> Rabs (q i * q i) <= bpow radix2 e) ->
  (-149 <= k < 128)%Z -> hi <= bpow radix2 k ->
  safe s /\ is_finite norm = true /\ 0 <= B2R norm /\
  (1 - u) * lo - eta <= B2R norm <= (1 + u) * hi + eta.
Proof.
intros [Run [[zeros Pm] Root]] Hh Hn He Hd Ho Hq Hk Hhi.
assert (S : safe s) by (apply (score_sum_safe 24 128 d q q adds adder_bounded s zeros Run Pm e); auto).
assert (Sq : square = nrm d q * nrm d q).
{ unfold nrm. rewrite sqrt_sqrt; [reflexivity|apply sq_nonneg]. }
assert (E := score_sum_error 24 128 d q q adds delta eta_s delta_nonneg eta_s_nonneg adder_close s zeros
  Run Pm (nrm d q) h n S Hh Hn (Rle_refl _)).
rewrite <- Sq in E. apply Rabs_le_inv in E.
assert (B : lo <= sqrt (value s) <= hi).
{ destruct lo_ok as [l0 l1]. destruct hi_ok as [h0 h1]. split.
  - destruct l1 as [l1|l1]; [rewrite l1; apply sqrt_pos|].
    rewrite <- (sqrt_square lo) by exact l0. apply sqrt_le_1_alt. lra.
  - rewrite <- (sqrt_square hi) by exact h0. apply sqrt_le_1_alt. lra. }
assert (P := sqrt_pos (value s)).
destruct (rounds_moderate (sqrt (value s)) norm k Root) as [F C]; [rewrite Rabs_pos_eq; lra|lia|].
split; [exact S|]. split; [exact F|]. rewrite (Rabs_pos_eq (sqrt _)) in C by exact P. apply Rabs_le_inv in C.
assert (u1 : 0 < u < 1).
{ split; [apply bpow_gt_0|]. change 1 with (bpow radix2 0). apply bpow_lt. lia. }
assert (L1 : (1 - u) * lo <= (1 - u) * sqrt (value s)) by (apply Rmult_le_compat_l; lra).
assert (L2 : (1 + u) * sqrt (value s) <= (1 + u) * hi) by (apply Rmult_le_compat_l; lra).
split; [|split; lra].
assert (Rg := rounds_in_range 24 128 fp32_precision mode_NE (sqrt (value s)) k
  ltac:(rewrite Rabs_pos_eq; lra) ltac:(lia)).
destruct (Root Rg) as [_ Ev]. rewrite Ev.
assert (R0 : 0 <= round32 mode_NE (sqrt (value s))).
{ apply round_ge_generic; auto with typeclass_instances. apply generic_format_0. }
destruct flush as [low|]; unfold after; [apply flushed_le|]; exact R0.
Qed.
End Norm.

(** ** mu *)
Definition mu_allowed (norm kappa bound mu : f32) (C : Z) :=
  rounds 24 128 mode_NE flush (B2R norm * B2R kappa) bound /\
  rounds 24 128 mode_UP None (B2R bound - IZR C) mu.

(** The upward rounding never puts mu below, so no exponent exceeds what b - C promises. *)
Theorem mu_enclosed norm kappa bound mu C lo hi : mu_allowed norm kappa bound mu C ->
  0 <= B2R kappa <= bpow radix2 30 -> 0 <= lo <= B2R norm -> B2R norm <= hi <= bpow radix2 30 ->
  eta <= 1 -> (Z.abs C <= 2 ^ 20)%Z ->
  let b_lo := (1 - u) * (lo * B2R kappa) - eta in
  let b_hi := (1 + u) * (hi * B2R kappa) + eta in
  is_finite mu = true /\ Rabs (B2R mu) <= bpow radix2 63 /\
  b_lo - IZR C <= B2R mu <= (b_hi - IZR C) + bpow radix2 (-23) * Rabs (b_hi - IZR C) + bpow radix2 (-149).
Proof.
intros [H1 H2] [K0 K1] [L0 L1] [Hh1 Hh2] He HC b_lo b_hi.
assert (u1 : 0 < u < 1).
{ split; [apply bpow_gt_0|]. change 1 with (bpow radix2 0). apply bpow_lt. lia. }
set (nn := B2R norm) in *. set (kk := B2R kappa) in *.
assert (P0 : 0 <= nn * kk) by (apply Rmult_le_pos; lra).
assert (P1 : nn * kk <= bpow radix2 60).
{ replace 60%Z with (30 + 30)%Z by reflexivity. rewrite bpow_plus. apply Rmult_le_compat; lra. }
destruct (rounds_moderate (nn * kk) bound 60 H1) as [Fb Cb]; [rewrite Rabs_pos_eq; lra|lia|].
rewrite (Rabs_pos_eq (nn * kk)) in Cb by exact P0. apply Rabs_le_inv in Cb.
assert (Q1 : lo * kk <= nn * kk) by (apply Rmult_le_compat_r; lra).
assert (Q2 : nn * kk <= hi * kk) by (apply Rmult_le_compat_r; lra).
assert (E0 := floor_pos 24 128 flush).
assert (B1 : b_lo <= B2R bound).
{ unfold b_lo. assert ((1 - u) * (lo * kk) <= (1 - u) * (nn * kk)) by (apply Rmult_le_compat_l; lra). lra. }
assert (B2 : B2R bound <= b_hi).
{ unfold b_hi. assert ((1 + u) * (nn * kk) <= (1 + u) * (hi * kk)) by (apply Rmult_le_compat_l; lra). lra. }
assert (Cz : Rabs (IZR C) <= bpow radix2 20).
{ rewrite <- abs_IZR. change (bpow radix2 20) with (IZR (2 ^ 20)). now apply IZR_le. }
assert (Bb : Rabs (B2R bound) <= bpow radix2 61).
{ apply Rabs_le. replace (bpow radix2 61) with (2 * bpow radix2 60) by (simpl; lra).
  assert (X1 : 1 <= bpow radix2 60) by (change 1 with (bpow radix2 0); apply bpow_le; lia).
  assert (u * (nn * kk) <= 1 * (nn * kk)) by (apply Rmult_le_compat_r; lra).
  assert (eta <= bpow radix2 60) by lra.
  assert (0 <= u * (nn * kk)) by (apply Rmult_le_pos; lra).
  assert (X2 : 4 <= bpow radix2 60) by (replace 4 with (bpow radix2 2) by (simpl; lra); apply bpow_le; lia).
  assert (u <= / 4). { replace (/ 4) with (bpow radix2 (-2)) by (simpl; lra). apply bpow_le. lia. }
  assert (u * (nn * kk) <= / 4 * (nn * kk)) by (apply Rmult_le_compat_r; lra).
  split; lra. }
assert (Bd : Rabs (B2R bound - IZR C) <= bpow radix2 62).
{ unfold Rminus. eapply Rle_trans; [apply Rabs_triang|]. rewrite Rabs_Ropp.
  replace (bpow radix2 62) with (2 * bpow radix2 61) by (simpl; lra).
  assert (bpow radix2 20 <= bpow radix2 61) by (apply bpow_le; lia). lra. }
assert (Rg := rounds_in_range 24 128 fp32_precision mode_UP _ 62 Bd ltac:(lia)).
destruct (H2 Rg) as [Fm Em]. unfold after in Em.
assert (Up : B2R bound - IZR C <= B2R mu).
{ rewrite Em. apply (round_UP_pt radix2 (FLT_exp (3 - 128 - 24) 24)). }
assert (Cl := rounds_close 24 128 fp32_precision mode_UP None _ _ H2 I Rg).
unfold unit_of, floor_of in Cl. change (1 - 24)%Z with (-23)%Z in Cl. change (3 - 128 - 24)%Z with (-149)%Z in Cl.
split; [exact Fm|]. split.
{ rewrite Em. replace (bpow radix2 63) with (1 * bpow radix2 63) by ring.
  apply (rd_le (3 - 128 - 24) 24); auto with typeclass_instances; try lia.
  rewrite Rmult_1_l. apply Rle_trans with (1 := Bd). apply bpow_le. lia. }
split; [lra|].
set (t := B2R bound - IZR C) in *. set (T := b_hi - IZR C).
assert (tT : t <= T) by (unfold t, T; lra).
assert (Mono : t + bpow radix2 (-23) * Rabs t <= T + bpow radix2 (-23) * Rabs T).
{ assert (v1 : 0 < bpow radix2 (-23) < 1).
  { split; [apply bpow_gt_0|]. change 1 with (bpow radix2 0). apply bpow_lt. lia. }
  set (v := bpow radix2 (-23)) in *.
  assert (Rabs t <= Rabs T + (T - t)).
  { replace t with (T + - (T - t)) at 1 by ring. eapply Rle_trans; [apply Rabs_triang|].
    rewrite Rabs_Ropp, (Rabs_pos_eq (T - t)) by lra. lra. }
  assert (v * Rabs t <= v * (Rabs T + (T - t))) by (apply Rmult_le_compat_l; lra).
  assert (v * (T - t) <= 1 * (T - t)) by (apply Rmult_le_compat_r; lra). lra. }
apply Rabs_le_inv in Cl. lra.
Qed.
End Stabilizer.

(** ** x <= C

    RN(z^ - mu) is at most C as soon as z^ - mu is at most C plus less than half a unit in the last
    place of C; C is an integer of the format, so errors of the certifier's own arithmetic of this
    size are absorbed. *)
Theorem exponent_at_most_cap choice C r : (64 <= C <= 127)%Z -> r <= IZR C + bpow radix2 (-20) ->
  round radix2 (FLT_exp (-149) 24) (Znearest choice) r <= IZR C.
Proof.
intros HC Hr. set (fx := FLT_exp (-149) 24).
assert (FC : generic_format radix2 fx (IZR C)).
{ apply (format_integer (-149) 24 (prec_positive := fp32_precision)); lia. }
set (y := IZR C + bpow radix2 (-20)) in *.
assert (s0 := bpow_gt_0 radix2 (-20)).
assert (C64 : 64 <= IZR C) by (apply (IZR_le 64); lia).
apply Rle_trans with (round radix2 fx (Znearest choice) y).
{ apply round_le; [now apply FLT_exp_valid|auto with typeclass_instances|exact Hr]. }
destruct (round_N_pt radix2 fx choice y) as [Fy N]. specialize (N (IZR C) FC).
set (w := round radix2 fx (Znearest choice) y) in *.
destruct (Rle_or_lt w (IZR C)) as [Q|Q]; [exact Q|exfalso].
assert (S := succ_le_lt radix2 fx (IZR C) w FC Fy Q).
rewrite succ_eq_pos in S by lra.
assert (U : ulp radix2 fx (IZR C) = bpow radix2 (-17)).
{ rewrite ulp_neq_0 by lra. unfold cexp.
  assert (M : (mag radix2 (IZR C) = 7 :> Z)%Z).
  { apply mag_unique. rewrite Rabs_pos_eq by lra. change (bpow radix2 (7 - 1)) with (IZR 64).
    change (bpow radix2 7) with (IZR 128). split; [apply IZR_le|apply IZR_lt]; lia. }
  rewrite M. reflexivity. }
rewrite U in S. unfold y in N. replace (IZR C - (IZR C + bpow radix2 (-20))) with (- bpow radix2 (-20)) in N by ring.
rewrite Rabs_Ropp, (Rabs_pos_eq (bpow radix2 (-20))) in N by lra. apply Rabs_le_inv in N.
replace (bpow radix2 (-17)) with (8 * bpow radix2 (-20)) in S by (simpl; lra). lra.
Qed.
