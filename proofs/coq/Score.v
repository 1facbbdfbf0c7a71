(** * Scores as the kernel computes them

    s is any execution of sum q_i k_i; the score is c^ s, rounded or fused into the exponent, in the
    place of f <q, k>. Its error e is bounded from the norms of q and k alone, underflow included. *)

From Coq Require Import ZArith Reals Lra Lia List Permutation.
From Flocq Require Import Core BinarySingleNaN.
From Headroom Require Import Formats CauchySchwarz Rows Execution.
Import ListNotations.
Open Scope R_scope.

Lemma sum_total n f : CauchySchwarz.sum n f = total f (seq 0 n).
Proof.
assert (G : forall n a, total f (seq a n) = CauchySchwarz.sum n (fun i => f (a + i)%nat)).
{ clear n. induction n; intros a; [reflexivity|]. rewrite seq_S, total_app, IHn. simpl. lra. }
rewrite G. reflexivity.
Qed.

(** Zeros, which masked keys and padded channels are, count for nothing. *)
Lemma total_zeros (f : R -> R) n : f 0 = 0 -> total f (repeat 0 n) = 0.
Proof. intros H. induction n as [|n IH]; simpl; [reflexivity|]. rewrite H, IH. ring. Qed.

Lemma weights_zeros w n : weights w (repeat 0 n) = 0%Z.
Proof.
induction n as [|n IH]; [reflexivity|]. simpl. rewrite IH. unfold weight.
now rewrite Req_bool_true.
Qed.

Section Score.
Variables prec emax : Z.
Context (prec_positive : Prec_gt_0 prec) (prec_below_emax : Prec_lt_emax prec emax).
Notation emin := (3 - emax - prec)%Z.
Notation float := (binary_float prec emax).

Variable d : nat.
Variables q k : nat -> R.
Definition products := map (fun i => q i * k i) (seq 0 d).

Lemma products_total : total id products = dot d q k.
Proof. unfold products. rewrite total_map. unfold dot. rewrite sum_total. reflexivity. Qed.

Lemma products_magnitude kappa : nrm d k <= kappa -> total Rabs products <= nrm d q * kappa.
Proof.
intros H. unfold products. rewrite total_map. apply Rle_trans with (nrm d q * nrm d k).
- eapply Rle_trans; [|apply (cauchy_schwarz_abs d q k)]. unfold dot. rewrite sum_total.
  right. apply total_ext. intros. apply Rabs_mult.
- apply Rmult_le_compat_l; [apply nrm_nonneg|exact H].
Qed.

Variable adds : list R -> float -> Prop.
Variables delta eta : R.
Hypothesis delta_nonneg : 0 <= delta.
Hypothesis eta_nonneg : 0 <= eta.
Hypothesis adder_bounded : bounded adds.
Hypothesis adder_close : close adds (fun _ => True) delta eta.

(** [zeros]: channels that are padded. *)
Variable s : sum prec emax.
Variable zeros : nat.
Hypothesis s_runs : run adds s.
Hypothesis s_terms : Permutation (terms s) (products ++ repeat 0 zeros).

Theorem score_sum_safe e : (emin <= e)%Z -> (Z.of_nat d <= 2 ^ prec)%Z ->
  IZR (Z.of_nat d) * bpow radix2 e < bpow radix2 emax ->
  (forall i, (i < d)%nat -> Rabs (q i * k i) <= bpow radix2 e) -> safe s.
Proof.
intros He Hd Ho Hq. apply (sum_safe prec emax adds 1 e) with (N := Z.of_nat d); auto; try lia.
- intros t Ht. rewrite Rmult_1_l. apply (Permutation_in _ s_terms) in Ht.
  apply in_app_or in Ht. destruct Ht as [Ht|Ht].
  + apply in_map_iff in Ht. destruct Ht as [i [E Hi]]. subst t. apply in_seq in Hi. apply Hq. lia.
  + apply repeat_spec in Ht. subst t. rewrite Rabs_R0. apply bpow_ge_0.
- rewrite (weights_perm 1 _ _ s_terms), weights_app.
  rewrite weights_zeros. assert (L := weights_le 1 ltac:(lia) products). unfold products in L at 2.
  rewrite map_length, seq_length in L. lia.
- now rewrite Z.mul_1_r.
Qed.

Theorem score_sum_error kappa h n : safe s -> (depth s <= h)%nat -> (nodes s <= n)%nat ->
  nrm d k <= kappa ->
  Rabs (value s - dot d q k) <= error_bound delta eta h n (nrm d q * kappa).
Proof.
intros S Hh Hn Hk.
assert (E := sum_error prec emax adds (fun _ => True) delta eta delta_nonneg eta_nonneg adder_close
  s h n s_runs S (fun _ _ => I) Hh Hn).
rewrite (total_perm id _ _ s_terms), (total_perm Rabs _ _ s_terms) in E.
rewrite !total_app, products_total, !total_zeros, !Rplus_0_r in E by (try reflexivity; apply Rabs_R0).
apply Rle_trans with (1 := E). unfold error_bound. apply Rplus_le_compat_r.
apply Rmult_le_compat_l.
- assert (1 <= (1 + delta) ^ h) by (apply pow_R1_Rle; lra). lra.
- now apply products_magnitude.
Qed.
End Score.

(** ** The factor

    [c] is the stored constant, [f] the exact one; the scaled score [zc] is c s within u_m relatively
    and h_m absolutely (0, 0 where it is fused into the exponent or c is 1). *)
Theorem scaled_error c f s x X E u_m h_m zc e :
  Rabs (s - x) <= E -> Rabs x <= X -> 0 <= u_m ->
  Rabs (zc - c * s) <= u_m * Rabs (c * s) + h_m ->
  Rabs c * E + Rabs (c - f) * X + (u_m * (Rabs c * (X + E)) + h_m) <= e ->
  Rabs (zc - f * x) <= e.
Proof.
intros HE HX Hu HZ He. apply Rle_trans with (2 := He).
replace (zc - f * x) with (c * (s - x) + (c - f) * x + (zc - c * s)) by ring.
eapply Rle_trans; [apply Rabs_triang|]. apply Rplus_le_compat.
- eapply Rle_trans; [apply Rabs_triang|]. rewrite !Rabs_mult.
  apply Rplus_le_compat; (apply Rmult_le_compat_l; [apply Rabs_pos|assumption]).
- apply Rle_trans with (1 := HZ). apply Rplus_le_compat_r. apply Rmult_le_compat_l; [exact Hu|].
  rewrite Rabs_mult. apply Rmult_le_compat_l; [apply Rabs_pos|].
  replace s with (x + (s - x)) by ring. eapply Rle_trans; [apply Rabs_triang|]. lra.
Qed.
