(** * Rows: sums over a list of visible keys

    A row's visible keys are any list of indices: a prefix under a causal mask, a window, a segment.
    [total f keys] is the sum of f over them. *)

From Coq Require Import Reals Lra Lia List Permutation.
Import ListNotations.
Open Scope R_scope.

Section Total.
Context {A : Type}.

Fixpoint total (f : A -> R) (l : list A) : R :=
  match l with [] => 0 | j :: t => f j + total f t end.

Notation count l := (INR (length l)).

Lemma total_ext f h l : (forall j, In j l -> f j = h j) -> total f l = total h l.
Proof.
induction l as [|a t IH]; intros H; simpl; [reflexivity|].
rewrite H by now left. rewrite IH; [reflexivity|]. intros; apply H; now right.
Qed.
Lemma total_plus f h l : total (fun j => f j + h j) l = total f l + total h l.
Proof. induction l; simpl; lra. Qed.
Lemma total_minus f h l : total (fun j => f j - h j) l = total f l - total h l.
Proof. induction l; simpl; lra. Qed.
Lemma total_scale c f l : total (fun j => c * f j) l = c * total f l.
Proof. induction l; simpl; lra. Qed.
Lemma total_const c l : total (fun _ => c) l = count l * c.
Proof. induction l; [simpl; lra|]. simpl total. rewrite IHl. simpl length. rewrite S_INR. lra. Qed.
Lemma total_le f h l : (forall j, In j l -> f j <= h j) -> total f l <= total h l.
Proof.
induction l as [|a t IH]; intros H; simpl; [lra|].
apply Rplus_le_compat; [apply H; now left|apply IH; intros; apply H; now right].
Qed.
Lemma total_nonneg f l : (forall j, In j l -> 0 <= f j) -> 0 <= total f l.
Proof.
intros H. rewrite <- (Rmult_0_r (count l)). rewrite <- total_const. apply total_le. exact H.
Qed.
Lemma total_pos f l : l <> [] -> (forall j, In j l -> 0 < f j) -> 0 < total f l.
Proof.
destruct l as [|a t]; intros N H; [congruence|]. simpl.
assert (0 < f a) by (apply H; now left).
assert (0 <= total f t) by (apply total_nonneg; intros; left; apply H; now right). lra.
Qed.
Lemma total_ge_term f l j : (forall i, In i l -> 0 <= f i) -> In j l -> f j <= total f l.
Proof.
induction l as [|a t IH]; intros H Hj; [contradiction|]. simpl.
assert (0 <= f a) by (apply H; now left).
assert (0 <= total f t) by (apply total_nonneg; intros; apply H; now right).
destruct Hj as [E|Hj]; [subst; lra|]. specialize (IH ltac:(intros; apply H; now right) Hj). lra.
Qed.
Lemma total_abs f l : Rabs (total f l) <= total (fun j => Rabs (f j)) l.
Proof.
induction l; simpl; [rewrite Rabs_R0; lra|]. eapply Rle_trans; [apply Rabs_triang|]. lra.
Qed.
Lemma total_app f l1 l2 : total f (l1 ++ l2) = total f l1 + total f l2.
Proof. induction l1; simpl; lra. Qed.
Lemma total_perm f l1 l2 : Permutation l1 l2 -> total f l1 = total f l2.
Proof. induction 1; simpl; lra. Qed.

(** A row splits into the keys that a test picks and those it does not. *)
Lemma total_split (b : A -> bool) f l :
  total f l = total f (filter b l) + total f (filter (fun j => negb (b j)) l).
Proof. induction l as [|a t IH]; simpl; [lra|]. destruct (b a); simpl; rewrite IH; lra. Qed.
Lemma count_split (b : A -> bool) (l : list A) :
  count l = count (filter b l) + count (filter (fun j => negb (b j)) l).
Proof.
induction l as [|a t IH]; [simpl; lra|]. simpl filter.
destruct (b a); simpl negb; cbn [length]; rewrite !S_INR, IH; lra.
Qed.
Lemma total_filter (b : A -> bool) f l :
  total f (filter b l) = total (fun j => if b j then f j else 0) l.
Proof. induction l as [|a t IH]; simpl; [reflexivity|]. destruct (b a); simpl; rewrite IH; lra. Qed.
Lemma count_nonneg (l : list A) : 0 <= count l.
Proof. apply pos_INR. Qed.
Lemma count_pos (l : list A) : l <> [] -> 0 < count l.
Proof. destruct l; [congruence|]. intros _. apply lt_0_INR. simpl. lia. Qed.
End Total.

Lemma total_map {A B} (g : A -> B) (f : B -> R) l : total f (map g l) = total (fun j => f (g j)) l.
Proof. induction l; simpl; [reflexivity|]. now rewrite IHl. Qed.

Notation count l := (INR (length l)).
