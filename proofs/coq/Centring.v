(** * Centring of keys, and what its roundings do to scores *)

From Coq Require Import Reals Lra Lia.
From Headroom Require Import CauchySchwarz.
Open Scope R_scope.

Section Centring.
Variable d : nat.
Notation dot := (dot d).
Notation nrm := (nrm d).

Lemma max_ge_mean n f m : (0 < n)%nat -> m * INR n <= sum n f -> exists j, (j < n)%nat /\ m <= f j.
Proof.
induction n; intros Hn H; [lia|]. destruct n.
- exists 0%nat. simpl in H. split; [lia|lra].
- destruct (Rle_or_lt m (f (S n))) as [L|L]; [exists (S n); split; [lia|exact L]|].
  destruct IHn as [j [J1 J2]]; [lia| |exists j; split; [lia|exact J2]].
  change (sum (S (S n)) f) with (sum (S n) f + f (S n)) in H. rewrite S_INR in H. lra.
Qed.

Variable N : nat.
Hypothesis HN : (0 < N)%nat.
Variable q : nat -> R.
Variable k : nat -> nat -> R.          (* centred keys as stored *)
Definition kmean i := / INR N * sum N (fun j => k j i).

Lemma Npos : 0 < INR N. Proof. now apply lt_0_INR. Qed.

Lemma mean_dot : sum N (fun j => dot q (k j)) = INR N * dot q kmean.
Proof.
unfold dot. rewrite sum_swap. rewrite <- sum_scal. apply sum_ext. intros i _.
rewrite sum_scal. unfold kmean. assert (H := Npos). field. lra.
Qed.

(** Exactly centred keys: some score is at least 0. This is false once the mean is rounded, and for
    causal rows (CounterexampleCentring); the row mass of Jensen needs no centring at all. *)
Theorem centered_max_nonneg : (forall i, (i < d)%nat -> sum N (fun j => k j i) = 0) ->
  exists j, (j < N)%nat /\ 0 <= dot q (k j).
Proof.
intros H. apply max_ge_mean; auto. rewrite mean_dot, Rmult_0_l.
assert (Z : dot q kmean = 0).
{ unfold dot. rewrite (sum_ext d _ (fun _ => 0)); [rewrite sum_const; ring|]. intros i Hi. unfold kmean. rewrite H by exact Hi. ring. }
rewrite Z. lra.
Qed.

(** Keys centred by a rounded mean: some score is at least -||q|| ||residual mean||. *)
Theorem centered_max_lower : exists j, (j < N)%nat /\ - (nrm q * nrm kmean) <= dot q (k j).
Proof.
apply max_ge_mean; auto. rewrite mean_dot. rewrite Rmult_comm.
apply Rmult_le_compat_l; [apply pos_INR|].
assert (H := cauchy_schwarz d q kmean). assert (A := Rle_abs (- dot q kmean)). rewrite Rabs_Ropp in A. lra.
Qed.


(** Against the keys before centring, with any constant vector a in the place of their mean: a
    score moves by a constant of the row, <q, a>, and by the error of the stored difference. *)
Theorem centring_error k' a j delta : nrm (fun i => k j i - (k' j i - a i)) <= delta ->
  Rabs (dot q (k j) - (dot q (k' j) - dot q a)) <= nrm q * delta.
Proof.
intros H. replace (dot q (k j) - (dot q (k' j) - dot q a)) with
  (dot q (fun i => k j i - (k' j i - a i))).
- eapply Rle_trans; [apply cauchy_schwarz|]. apply Rmult_le_compat_l; [apply nrm_nonneg|exact H].
- unfold dot. replace (sum d (fun i => q i * (k j i - (k' j i - a i)))) with
    (sum d (fun i => (q i * k j i + (-1) * (q i * k' j i)) + q i * a i)).
  + rewrite sum_plus, sum_plus, sum_scal. ring.
  + apply sum_ext. intros. ring.
Qed.

(** A query rounded before the product (the scale folded into it): likewise. *)
Theorem prescale_error q' j delta : nrm (fun i => q i - q' i) <= delta ->
  Rabs (dot q (k j) - dot q' (k j)) <= delta * nrm (k j).
Proof.
intros H. replace (dot q (k j) - dot q' (k j)) with (dot (fun i => q i - q' i) (k j)).
- eapply Rle_trans; [apply cauchy_schwarz|]. apply Rmult_le_compat_r; [apply nrm_nonneg|exact H].
- unfold dot. replace (sum d (fun i => (q i - q' i) * k j i)) with
    (sum d (fun i => q i * k j i + (-1) * (q' i * k j i))).
  + rewrite sum_plus, sum_scal. ring.
  + apply sum_ext. intros. ring.
Qed.
End Centring.
