(** * Cauchy-Schwarz: scores from norms *)

From Coq Require Import Reals Lra Lia Psatz List.
Open Scope R_scope.

Section Vectors.
Fixpoint sum (n : nat) (f : nat -> R) : R := match n with O => 0 | S m => sum m f + f m end.
Lemma sum_ext n f h : (forall i, (i < n)%nat -> f i = h i) -> sum n f = sum n h.
Proof. induction n; simpl; intros H; [reflexivity|]. rewrite IHn, H by (intros; try apply H; lia). reflexivity. Qed.
Lemma sum_plus n f h : sum n (fun i => f i + h i) = sum n f + sum n h.
Proof. induction n; simpl; [lra|]. rewrite IHn; lra. Qed.
Lemma sum_scal n c f : sum n (fun i => c * f i) = c * sum n f.
Proof. induction n; simpl; [lra|]. rewrite IHn; lra. Qed.
Lemma sum_swap n m (f : nat -> nat -> R) : sum n (fun i => sum m (f i)) = sum m (fun j => sum n (fun i => f i j)).
Proof. induction n; simpl. - induction m; simpl; lra. - rewrite IHn, <- sum_plus. reflexivity. Qed.
Lemma sum_le n f h : (forall i, (i < n)%nat -> f i <= h i) -> sum n f <= sum n h.
Proof. induction n; simpl; intros H; [lra|]. apply Rplus_le_compat; [apply IHn; intros; apply H; lia|apply H; lia]. Qed.
Lemma sum_const n c : sum n (fun _ => c) = INR n * c.
Proof. induction n; [simpl; lra|]. rewrite S_INR. simpl sum. rewrite IHn. lra. Qed.

(** ** Dot product and norm over d channels *)
Variable d : nat.
Definition dot (x y : nat -> R) := sum d (fun i => x i * y i).
Definition nrm (x : nat -> R) := sqrt (dot x x).

Lemma sq_nonneg n x : 0 <= sum n (fun i => x i * x i).
Proof. induction n; simpl; [lra|]. nra. Qed.

Lemma CS_sq n x y : sum n (fun i => x i * y i) * sum n (fun i => x i * y i) <= sum n (fun i => x i * x i) * sum n (fun i => y i * y i).
Proof.
induction n; simpl; [lra|].
set (S := sum n (fun i => x i * y i)) in *. set (A := sum n (fun i => x i * x i)) in *. set (B := sum n (fun i => y i * y i)) in *.
assert (HA : 0 <= A) by apply sq_nonneg. assert (HB : 0 <= B) by apply sq_nonneg.
set (a := x n). set (b := y n).
assert (K : 2 * (S * (a * b)) <= A * (b * b) + B * (a * a)).
{ apply Rle_trans with (Rabs (2 * (S * (a * b)))); [apply Rle_abs|].
  assert (T0 : 0 <= A * (b*b) + B * (a*a)) by nra.
  rewrite <- (Rabs_pos_eq _ T0). apply Rsqr_le_abs_0. unfold Rsqr.
  assert (S * S * (a * a * (b * b)) <= A * B * (a * a * (b * b))) by (apply Rmult_le_compat_r; nra).
  assert (Q : 0 <= (A * (b*b) - B * (a*a)) * (A * (b*b) - B * (a*a))) by apply Rle_0_sqr.
  nra. }
nra.
Qed.

Theorem cauchy_schwarz x y : Rabs (dot x y) <= nrm x * nrm y.
Proof.
unfold nrm. rewrite <- sqrt_mult by apply sq_nonneg. rewrite <- sqrt_Rsqr_abs.
apply sqrt_le_1_alt. apply CS_sq.
Qed.


Lemma nrm_nonneg x : 0 <= nrm x.
Proof. apply sqrt_pos. Qed.

Lemma nrm_abs x : nrm (fun i => Rabs (x i)) = nrm x.
Proof.
unfold nrm, dot. f_equal. apply sum_ext. intros i _. rewrite <- Rabs_mult. apply Rabs_pos_eq.
apply Rle_0_sqr.
Qed.

(** The absolute values obey it too: what bounds the roundings of a dot product. *)
Corollary cauchy_schwarz_abs x y :
  dot (fun i => Rabs (x i)) (fun i => Rabs (y i)) <= nrm x * nrm y.
Proof.
eapply Rle_trans; [apply Rle_abs|]. eapply Rle_trans; [apply cauchy_schwarz|].
rewrite !nrm_abs. apply Rle_refl.
Qed.

(** ** Scores, upper

    <q, k> <= <q, a> + ||q|| kappa for every key within kappa of the centre a; the same a in both. *)
Theorem score_upper q k a kappa : nrm (fun i => k i - a i) <= kappa ->
  dot q k <= dot q a + nrm q * kappa.
Proof.
intros H. replace (dot q k) with (dot q a + dot q (fun i => k i - a i)).
- apply Rplus_le_compat_l. eapply Rle_trans; [apply Rle_abs|].
  eapply Rle_trans; [apply cauchy_schwarz|]. apply Rmult_le_compat_l; [apply nrm_nonneg|exact H].
- unfold dot. rewrite <- sum_plus. apply sum_ext. intros. ring.
Qed.
End Vectors.
