(** * Executions: what a machine may do when it adds

    The main theorem speaks of every execution that the kernel's model allows. This file says what
    an execution of a sum is: a tree whose leaves are exact terms (weights, or products that enter
    unrounded) and whose nodes are floating-point results, each with operands of any number. A node
    has to respect the contract of its adder; the order, the association and the shape are free.
    Additions, fused multiply-adds, conversions (one operand), adders of many operands and matrix
    units are all nodes.

    Three promises of an adder matter, each a property of the relation [adds operands result]:
    it does not exceed representable bounds ([bounded]), it is close to the exact sum ([close]), and
    it keeps what is large enough ([keeps]). Closeness may depend on the operands: sums of normal
    nonnegative numbers never underflow, and [good] says of which numbers a sum is made. Adders proves them for IEEE arithmetic, with and without
    flushing, and for truncating matrix units. *)

From Coq Require Import ZArith Reals Lia Lra List Permutation.
From Flocq Require Import Core BinarySingleNaN.
From Headroom Require Import Rows.
Import ListNotations.
Open Scope R_scope.

Section Execution.
Variables prec emax : Z.
Context {prec_positive : Prec_gt_0 prec}.
Notation emin := (3 - emax - prec)%Z.
Notation float := (binary_float prec emax).
Notation value_of := (@B2R prec emax).

(** ** Trees *)
Inductive sum :=
| Term (t : R)
| Node (r : float) (operands : sums)
with sums :=
| Nil
| Cons (s : sum) (rest : sums).

Scheme sum_induction := Induction for sum Sort Prop
with sums_induction := Induction for sums Sort Prop.
Combined Scheme sum_sums_induction from sum_induction, sums_induction.

Definition value s := match s with Term t => t | Node r _ => value_of r end.
Fixpoint values l := match l with Nil => [] | Cons s t => value s :: values t end.

Fixpoint terms s := match s with Term t => [t] | Node _ l => terms_of l end
with terms_of l := match l with Nil => [] | Cons s t => terms s ++ terms_of t end.

(** The most roundings a term passes, and the number of roundings there are. *)
Fixpoint depth s := match s with Term _ => O | Node _ l => S (depth_of l) end
with depth_of l := match l with Nil => O | Cons s t => Nat.max (depth s) (depth_of t) end.
Fixpoint nodes s := match s with Term _ => O | Node _ l => S (nodes_of l) end
with nodes_of l := match l with Nil => O | Cons s t => (nodes s + nodes_of t)%nat end.

(** Every intermediate result, and the result itself, is finite, and no node came near overflow: its
    operands' magnitudes have a representable bound ([roomy]). *)
Definition roomy vs := exists k e, (0 <= k <= 2 ^ prec)%Z /\ (emin <= e)%Z /\
  total Rabs vs <= IZR k * bpow radix2 e /\ IZR k * bpow radix2 e < bpow radix2 emax.

Fixpoint safe s := match s with
| Term _ => True | Node r l => is_finite r = true /\ roomy (values l) /\ safe_of l end
with safe_of l := match l with Nil => True | Cons s t => safe s /\ safe_of t end.

Fixpoint results s := match s with Term _ => [] | Node r l => r :: results_of l end
with results_of l := match l with Nil => [] | Cons s t => results s ++ results_of t end.

Lemma safe_finite :
  (forall s, safe s -> forall r, In r (results s) -> is_finite r = true) /\
  (forall l, safe_of l -> forall r, In r (results_of l) -> is_finite r = true).
Proof.
apply sum_sums_induction.
- intros t _ r [].
- intros r l IH [F [_ S]] r' [E|H]; [now subst|]. now apply IH.
- intros _ r [].
- intros s IHs l IHl [S1 S2] r H. cbn [results_of] in H.
  apply in_app_or in H. destruct H as [H|H]; [now apply IHs|now apply IHl].
Qed.

Variable adds : list R -> float -> Prop.

(** [run s]: a machine can have produced these results. Nothing is said of an adder with an operand
    that is not finite. *)
Fixpoint run s := match s with
| Term _ => True | Node r l => run_of l /\ (safe_of l -> adds (values l) r) end
with run_of l := match l with Nil => True | Cons s t => run s /\ run_of t end.

(** ** Promises of an adder *)
Definition bounded := forall vs r, adds vs r -> forall k e, (0 <= k <= 2 ^ prec)%Z -> (emin <= e)%Z ->
  total Rabs vs <= IZR k * bpow radix2 e -> IZR k * bpow radix2 e < bpow radix2 emax ->
  is_finite r = true /\ Rabs (value_of r) <= IZR k * bpow radix2 e.

Definition close (good : R -> Prop) (delta eta : R) := forall vs r, adds vs r -> roomy vs ->
  (forall v, In v vs -> good v) ->
  good (value_of r) /\ Rabs (value_of r - total id vs) <= delta * total Rabs vs + eta.

(** From 2^low on, sums of nonnegative operands do not fall below a power of two that one of them
    reaches. *)
Definition keeps (low : Z) := forall vs r L, adds vs r -> roomy vs ->
  (forall v, In v vs -> 0 <= v) ->
  0 <= value_of r /\
  ((low <= L)%Z -> (exists v, In v vs /\ bpow radix2 L <= v) -> bpow radix2 L <= value_of r).

(** ** Magnitudes: nothing overflows

    Terms of at most [w] units 2^e, zeros of none: masked keys cost nothing. *)
Variables (w e : Z).
Hypothesis w_pos : (0 <= w)%Z.
Hypothesis e_low : (emin <= e)%Z.
Notation U k := (IZR k * bpow radix2 e).

Definition weight (t : R) : Z := if Req_bool t 0 then 0%Z else w.
Fixpoint weights l : Z := match l with [] => 0%Z | t :: r => (weight t + weights r)%Z end.

Lemma weight_bounds t : (0 <= weight t <= w)%Z.
Proof. unfold weight. destruct (Req_bool t 0); lia. Qed.
Lemma weights_nonneg l : (0 <= weights l)%Z.
Proof. induction l; simpl; [lia|]. assert (H := weight_bounds a). lia. Qed.
Lemma weights_app l1 l2 : weights (l1 ++ l2) = (weights l1 + weights l2)%Z.
Proof. induction l1; simpl; lia. Qed.
Lemma weights_le l : (weights l <= Z.of_nat (length l) * w)%Z.
Proof. induction l; simpl length; simpl weights; [lia|]. assert (H := weight_bounds a). lia. Qed.
Lemma weights_perm l1 l2 : Permutation l1 l2 -> weights l1 = weights l2.
Proof. induction 1; simpl; lia. Qed.

Lemma U_le a b : (a <= b)%Z -> U a <= U b.
Proof. intros H. apply Rmult_le_compat_r; [apply bpow_ge_0|now apply IZR_le]. Qed.

Lemma weight_bound t : Rabs t <= U w -> Rabs t <= U (weight t).
Proof.
unfold weight. intros H. case Req_bool_spec; intros E; [|exact H].
subst t. rewrite Rabs_R0. simpl. lra.
Qed.

Hypothesis adder_bounded : bounded.

Lemma magnitudes :
  (forall s, run s -> (forall t, In t (terms s) -> Rabs t <= U w) ->
     (weights (terms s) <= 2 ^ prec)%Z -> U (weights (terms s)) < bpow radix2 emax ->
     safe s /\ Rabs (value s) <= U (weights (terms s))) /\
  (forall l, run_of l -> (forall t, In t (terms_of l) -> Rabs t <= U w) ->
     (weights (terms_of l) <= 2 ^ prec)%Z -> U (weights (terms_of l)) < bpow radix2 emax ->
     safe_of l /\ total Rabs (values l) <= U (weights (terms_of l))).
Proof.
apply sum_sums_induction.
- intros t _ Ht _ _. split; [exact I|]. cbn [terms weights] in *. rewrite Z.add_0_r. simpl value.
  apply weight_bound. apply Ht. now left.
- intros r l IH [R1 R2] Ht Hw Ho. cbn [terms safe value] in *.
  destruct (IH R1 Ht Hw Ho) as [F M].
  destruct (adder_bounded _ _ (R2 F) (weights (terms_of l)) e) as [Fr Br]; auto.
  + split; [apply weights_nonneg|exact Hw].
  + split; [|exact Br]. split; [exact Fr|]. split; [|exact F].
    exists (weights (terms_of l)), e. split; [split; [apply weights_nonneg|exact Hw]|]. auto.
- intros _ _ _ _. split; [exact I|]. simpl. lra.
- intros s IHs l IHl [R1 R2] Ht Hw Ho. cbn [terms_of safe_of values total] in *.
  rewrite weights_app in *.
  assert (Ws := weights_nonneg (terms s)). assert (Wl := weights_nonneg (terms_of l)).
  assert (U1 := U_le (weights (terms s)) (weights (terms s) + weights (terms_of l)) ltac:(lia)).
  assert (U2 := U_le (weights (terms_of l)) (weights (terms s) + weights (terms_of l)) ltac:(lia)).
  destruct IHs as [F1 B1]; auto; [intros; apply Ht, in_or_app; now left|lia|lra|].
  destruct IHl as [F2 B2]; auto; [intros; apply Ht, in_or_app; now right|lia|lra|].
  split; [now split|]. rewrite plus_IZR. lra.
Qed.

(** k nonzero terms, k w units: finite throughout, and bounded. *)
Theorem sum_safe s N : run s -> (forall t, In t (terms s) -> Rabs t <= U w) ->
  (weights (terms s) <= N * w)%Z -> (N * w <= 2 ^ prec)%Z -> U (N * w) < bpow radix2 emax ->
  safe s /\ Rabs (value s) <= U (N * w).
Proof.
intros Hr Ht HN Hp Ho. assert (L := U_le _ _ HN).
destruct (proj1 magnitudes s Hr Ht) as [F B]; [lia|lra|]. split; [exact F|lra].
Qed.
End Execution.

Arguments Term {prec emax} t.
Arguments Node {prec emax} r operands.
Arguments Nil {prec emax}.
Arguments Cons {prec emax} s rest.
Arguments value {prec emax} s.
Arguments values {prec emax} l.
Arguments terms {prec emax} s.
Arguments terms_of {prec emax} l.
Arguments depth {prec emax} s.
Arguments depth_of {prec emax} l.
Arguments nodes {prec emax} s.
Arguments nodes_of {prec emax} l.
Arguments safe {prec emax} s.
Arguments safe_of {prec emax} l.
Arguments roomy {prec emax} vs.
Arguments results {prec emax} s.
Arguments results_of {prec emax} l.
Arguments run {prec emax} adds s.
Arguments run_of {prec emax} adds l.
Arguments bounded {prec emax} adds.
Arguments close {prec emax} adds good delta eta.
Arguments keeps {prec emax} adds low.

(** ** Errors

    (1 + delta)^h - 1 of the terms' magnitudes, h the depth, and one eta a node, each carried on by
    the later roundings. *)
Section Errors.
Variables prec emax : Z.
Notation float := (binary_float prec emax).
Variable adds : list R -> float -> Prop.
Variable good : R -> Prop.
Variables delta eta : R.
Hypothesis delta_nonneg : 0 <= delta.
Hypothesis eta_nonneg : 0 <= eta.
Hypothesis adder_close : close adds good delta eta.
Notation G h := ((1 + delta) ^ h).

Lemma G_ge_1 h : 1 <= G h.
Proof. apply pow_R1_Rle. lra. Qed.
Lemma G_mono h1 h2 : (h1 <= h2)%nat -> G h1 <= G h2.
Proof. intros. apply Rle_pow; [lra|lia]. Qed.

Definition error_bound h n A := (G h - 1) * A + INR n * eta * G h.

Lemma error_bound_mono h1 h2 n1 n2 A : (h1 <= h2)%nat -> (n1 <= n2)%nat -> 0 <= A ->
  error_bound h1 n1 A <= error_bound h2 n2 A.
Proof.
intros H N A0. unfold error_bound. assert (P := G_mono _ _ H). assert (Q := G_ge_1 h1).
apply Rplus_le_compat; [apply Rmult_le_compat_r; lra|].
apply Rmult_le_compat; [apply Rmult_le_pos; [apply pos_INR|lra]|lra| |lra].
apply Rmult_le_compat_r; [lra|]. now apply le_INR.
Qed.

Lemma total_abs_nonneg l : 0 <= total Rabs l.
Proof. apply total_nonneg. intros; apply Rabs_pos. Qed.

Lemma errors :
  (forall s, run adds s -> safe s -> (forall t, In t (terms s) -> good t) -> good (value s) /\
     Rabs (value s - total id (terms s)) <= error_bound (depth s) (nodes s) (total Rabs (terms s))) /\
  (forall l, run_of adds l -> safe_of l -> (forall t, In t (terms_of l) -> good t) ->
     (forall v, In v (values l) -> good v) /\
     Rabs (total id (values l) - total id (terms_of l))
       <= error_bound (depth_of l) (nodes_of l) (total Rabs (terms_of l)) /\
     total Rabs (values l) <= total Rabs (terms_of l)
       + error_bound (depth_of l) (nodes_of l) (total Rabs (terms_of l))).
Proof.
apply sum_sums_induction.
- intros t _ _ Gt. split; [apply Gt; now left|]. unfold error_bound. simpl. unfold id. rewrite Rplus_0_r.
  rewrite Rminus_diag_eq by reflexivity. rewrite Rabs_R0. lra.
- intros r l IH [R1 R2] [Fr [Rm Fl]] Gt. destruct (IH R1 Fl Gt) as [Gv [E M]].
  destruct (adder_close _ _ (R2 Fl) Rm Gv) as [Gr C]. split; [exact Gr|].
  change (terms (Node r l)) with (terms_of l). change (depth (Node r l)) with (S (depth_of l)).
  change (nodes (Node r l)) with (S (nodes_of l)). change (value (Node r l)) with (B2R r).
  replace (B2R r - total id (terms_of l))
    with ((B2R r - total id (values l)) + (total id (values l) - total id (terms_of l))) by ring.
  eapply Rle_trans; [apply Rabs_triang|].
  set (A := total Rabs (terms_of l)) in *. set (B := error_bound (depth_of l) (nodes_of l) A) in *.
  apply Rle_trans with (delta * (A + B) + eta + B).
  + apply Rplus_le_compat; [|exact E]. apply Rle_trans with (1 := C).
    apply Rplus_le_compat_r. now apply Rmult_le_compat_l.
  + assert (G1 := G_ge_1 (depth_of l)).
    unfold B, error_bound. rewrite S_INR. simpl pow. set (g := G (depth_of l)) in *.
    set (n := INR (nodes_of l)). assert (n0 : 0 <= n) by apply pos_INR.
    replace (delta * (A + ((g - 1) * A + n * eta * g)) + eta + ((g - 1) * A + n * eta * g))
      with (((1 + delta) * g - 1) * A + n * eta * ((1 + delta) * g) + eta) by ring.
    assert (eta <= eta * ((1 + delta) * g)).
    { rewrite <- (Rmult_1_r eta) at 1. apply Rmult_le_compat_l; [lra|].
      assert (0 <= delta * g) by (apply Rmult_le_pos; lra). lra. }
    lra.
- intros _ _ _. split; [intros v []|]. unfold error_bound. simpl.
  rewrite Rminus_diag_eq by reflexivity. rewrite Rabs_R0. lra.
- intros s IHs l IHl [R1 R2] [F1 F2] Gt. cbn [terms_of] in Gt.
  destruct (IHs R1 F1 (fun t H => Gt t (in_or_app _ _ _ (or_introl H)))) as [Gs IHs'].
  destruct (IHl R2 F2 (fun t H => Gt t (in_or_app _ _ _ (or_intror H)))) as [Gl [E M]].
  clear IHs. rename IHs' into IHs.
  split; [intros v [V|V]; [now subst|now apply Gl]|].
  change (terms_of (Cons s l)) with (terms s ++ terms_of l).
  change (depth_of (Cons s l)) with (Nat.max (depth s) (depth_of l)).
  change (nodes_of (Cons s l)) with (nodes s + nodes_of l)%nat.
  change (values (Cons s l)) with (value s :: values l). cbn [total]. rewrite !total_app.
  set (a := total Rabs (terms s)) in *. set (b := total Rabs (terms_of l)) in *.
  assert (a0 : 0 <= a) by apply total_abs_nonneg. assert (b0 : 0 <= b) by apply total_abs_nonneg.
  set (h := Nat.max (depth s) (depth_of l)).
  assert (E1 := error_bound_mono (depth s) h (nodes s) (nodes s) a (Nat.le_max_l _ _) (le_n _) a0).
  assert (E2 := error_bound_mono (depth_of l) h (nodes_of l) (nodes_of l) b (Nat.le_max_r _ _) (le_n _) b0).
  assert (S : error_bound h (nodes s + nodes_of l) (a + b)
              = error_bound h (nodes s) a + error_bound h (nodes_of l) b).
  { unfold error_bound. rewrite plus_INR. ring. }
  rewrite S. split.
  + unfold id at 1.
    replace (value s + total id (values l) - (total id (terms s) + total id (terms_of l)))
      with ((value s - total id (terms s)) + (total id (values l) - total id (terms_of l))) by ring.
    eapply Rle_trans; [apply Rabs_triang|]. lra.
  + assert (V : Rabs (value s) <= a + error_bound (depth s) (nodes s) a).
    { replace (value s) with (total id (terms s) + (value s - total id (terms s))) by ring.
      eapply Rle_trans; [apply Rabs_triang|]. apply Rplus_le_compat; [|exact IHs].
      apply (total_abs id). }
    lra.
Qed.

Theorem sum_error s h n : run adds s -> safe s -> (forall t, In t (terms s) -> good t) ->
  (depth s <= h)%nat -> (nodes s <= n)%nat ->
  Rabs (value s - total id (terms s)) <= error_bound h n (total Rabs (terms s)).
Proof.
intros R F Gt H N. eapply Rle_trans; [apply (proj1 errors s R F Gt)|].
apply error_bound_mono; auto. apply total_abs_nonneg.
Qed.
End Errors.

(** ** From below *)
Section Lower.
Variables prec emax : Z.
Notation float := (binary_float prec emax).
Variable adds : list R -> float -> Prop.
Variables low L : Z.
Hypothesis adder_keeps : keeps adds low.
Hypothesis L_high : (low <= L)%Z.

Lemma lowers :
  (forall s, run adds s -> safe s -> (forall t, In t (terms s) -> 0 <= t) ->
     0 <= value s /\ ((exists t, In t (terms s) /\ bpow radix2 L <= t) -> bpow radix2 L <= value s)) /\
  (forall l, run_of adds l -> safe_of l -> (forall t, In t (terms_of l) -> 0 <= t) ->
     (forall v, In v (values l) -> 0 <= v) /\
     ((exists t, In t (terms_of l) /\ bpow radix2 L <= t) ->
       exists v, In v (values l) /\ bpow radix2 L <= v)).
Proof.
apply sum_sums_induction.
- intros t _ _ H. simpl in *. split; [apply H; now left|]. intros [t' [[E|[]] B]]. now subst.
- intros r l IH [R1 R2] [Fr [Rm Fl]] H. destruct (IH R1 Fl H) as [N E].
  destruct (adder_keeps _ _ L (R2 Fl) Rm N) as [P Q]. split; [exact P|].
  intros X. apply Q; auto.
- intros _ _ _. split; [intros v []|]. intros [t [[] _]].
- intros s IHs l IHl [R1 R2] [F1 F2] H. cbn [terms_of values] in *.
  destruct IHs as [N1 E1]; auto; [intros; apply H, in_or_app; now left|].
  destruct IHl as [N2 E2]; auto; [intros; apply H, in_or_app; now right|].
  split.
  + intros v [V|V]; [now subst|now apply N2].
  + intros [t [Ht B]]. apply in_app_or in Ht. destruct Ht as [Ht|Ht].
    * exists (value s). split; [now left|]. apply E1. now exists t.
    * destruct E2 as [v [V W]]; [now exists t|]. exists v. split; [now right|exact W].
Qed.

(** A denominator is at least 2^L as soon as one weight is. *)
Theorem sum_lower s t : run adds s -> safe s -> (forall t, In t (terms s) -> 0 <= t) ->
  In t (terms s) -> bpow radix2 L <= t -> bpow radix2 L <= value s.
Proof.
intros R F N H B. apply (proj1 lowers s R F N). now exists t.
Qed.
End Lower.
