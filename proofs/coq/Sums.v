(** * Sums in any order

    A sum of N terms |x| <= 2^e stays within N 2^e in every association, under every mix of rounding
    directions, fused or not, as long as N <= 2^prec: N 2^e is then a number of the format, and
    rounding is monotone. No slack, no relative error. Terms that are not bounded by a power of two
    enter with an integer weight a: |x| <= a 2^e, and N a takes the place of N. *)

From Coq Require Import ZArith Reals Lia Lra List.
From Flocq Require Import Core Relative Plus_error.
From Headroom Require Import Formats.
Open Scope R_scope.

Section Sums.
Variables emin prec : Z.
Context {prec_positive : Prec_gt_0 prec}.
Notation fexp := (FLT_exp emin prec).
Notation format := (generic_format radix2 fexp).
Notation rd rnd := (round radix2 fexp rnd).
Notation u := (bpow radix2 (- prec)).

Variable e : Z.
Hypothesis He : (emin <= e)%Z.
Notation U k := (IZR k * bpow radix2 e).

Lemma U_plus : forall k l, U (k + l) = U k + U l.
Proof. intros; rewrite plus_IZR; ring. Qed.

Definition sumw (l : list (Z * R)) := fold_right (fun a s => (fst a + s)%Z) 0%Z l.
Definition sumabs (l : list (Z * R)) := fold_right (fun a s => Rabs (snd a) + s) 0 l.

(** [acc k x]: x can be a partial result into which terms of total weight k have gone, in any order
    and association, each operation with a rounding of its own. [acc_fused] covers an adder of many
    operands; all that is asked of it is not to exceed a representable bound of the sum of its
    operands' magnitudes. *)
Inductive acc : Z -> R -> Prop :=
| acc_leaf k x : (0 <= k)%Z -> Rabs x <= U k -> acc k x
| acc_add rnd (V : Valid_rnd rnd) k l x y :
    acc k x -> acc l y -> acc (k + l) (rd rnd (x + y))
| acc_fma rnd (V : Valid_rnd rnd) k l x p v :
    acc k x -> (0 <= l)%Z -> Rabs (p * v) <= U l -> acc (k + l) (rd rnd (p * v + x))
| acc_cvt rnd (V : Valid_rnd rnd) k x : acc k x -> acc k (rd rnd x)
| acc_fused kx r :
    (forall a, In a kx -> acc (fst a) (snd a)) ->
    (forall k, (0 <= k <= 2^prec)%Z -> sumabs kx <= U k -> Rabs r <= U k) ->
    acc (sumw kx) r.

(** The bound: k terms, k units. *)
Theorem acc_bound : forall k x, acc k x ->
  (0 <= k)%Z /\ ((k <= 2^prec)%Z -> Rabs x <= U k).
Proof.
induction 1 as [k x Hk Hx | rnd V k l x y _ [Hk IHx] _ [Hl IHy]
  | rnd V k l x p v _ [Hk IHx] Hl prec_positivev | rnd V k x _ [Hk IHx] | kx r _ IH Hr].
- split; auto.
- split; [lia|]. intros H. apply rd_le; auto; [lia|].
  rewrite U_plus. eapply Rle_trans; [apply Rabs_triang|].
  apply Rplus_le_compat; [apply IHx|apply IHy]; lia.
- split; [lia|]. intros H. apply rd_le; auto; [lia|].
  rewrite U_plus, Rplus_comm. eapply Rle_trans; [apply Rabs_triang|].
  apply Rplus_le_compat; [apply IHx; lia|exact prec_positivev].
- split; [lia|]. intros H. apply rd_le; auto.
- assert (S : (0 <= sumw kx)%Z /\ ((sumw kx <= 2^prec)%Z -> sumabs kx <= U (sumw kx))).
  { clear Hr r. induction kx as [|[k x] t IHt]; simpl.
    - split; [lia|]. intros _. lra.
    - destruct (IH (k, x)) as [Hk Hx]; [now left|]. simpl in *.
      destruct IHt as [Ht1 Ht2]. { intros a Ha. apply IH. now right. }
      split; [lia|]. intros H. rewrite U_plus. apply Rplus_le_compat; [apply Hx|apply Ht2]; lia. }
  destruct S as [S1 S2]. split; [exact S1|]. intros H. apply Hr; [lia|]. now apply S2.
Qed.

(** A partial result of a sum of total weight N obeys the bound of the whole. *)
Corollary acc_bound_total : forall k x N, acc k x -> (k <= N <= 2^prec)%Z -> Rabs x <= U N.
Proof.
intros k x N H HN. destruct (acc_bound k x H) as [H0 H1].
apply Rle_trans with (U k); [apply H1; lia|].
apply Rmult_le_compat_r; [apply bpow_ge_0|]. apply IZR_le; lia.
Qed.

(** ** From below

    A sum of nonnegative terms does not fall below any number of the format that one of its terms
    reaches: the denominator is at least its largest weight. No limit on the number of terms.
    [nacc lo x]: x accumulates nonnegative terms, one of them >= lo. *)
Inductive nacc : R -> R -> Prop :=
| na_leaf lo x : lo <= x -> nacc lo x
| na_add rnd (V : Valid_rnd rnd) lo x y : nacc lo x -> 0 <= y -> nacc lo (rd rnd (x + y))
| na_add_r rnd (V : Valid_rnd rnd) lo x y : nacc lo x -> 0 <= y -> nacc lo (rd rnd (y + x))
| na_cvt rnd (V : Valid_rnd rnd) lo x : nacc lo x -> nacc lo (rd rnd x)
| na_fused lo x y r : nacc lo x -> 0 <= y -> (forall f, format f -> f <= x + y -> f <= r) -> nacc lo r.

Theorem nacc_lower : forall lo x, format lo -> nacc lo x -> lo <= x.
Proof.
intros lo x F H. induction H.
- exact H.
- apply round_ge_generic; auto with typeclass_instances. specialize (IHnacc F). lra.
- apply round_ge_generic; auto with typeclass_instances. specialize (IHnacc F). lra.
- apply round_ge_generic; auto with typeclass_instances.
- apply H1; auto. specialize (IHnacc F). lra.
Qed.

(** ** Sums as binary trees *)
Inductive tree := Leaf (x : R) | Node (l r : tree).
Fixpoint size t := match t with Leaf _ => 1%Z | Node l r => (size l + size r)%Z end.
Fixpoint leaves (P : R -> Prop) t := match t with Leaf x => P x | Node l r => leaves P l /\ leaves P r end.
Fixpoint eval (rnd : R -> Z) t := match t with Leaf x => x | Node l r => rd rnd (eval rnd l + eval rnd r) end.

Lemma size_pos : forall t, (1 <= size t)%Z.
Proof. induction t; simpl; lia. Qed.

(** Truncation needs no limit on the number of terms. *)
Theorem sum_truncated : forall M t, leaves (fun x => Rabs x <= M) t -> Rabs (eval Ztrunc t) <= IZR (size t) * M.
Proof.
intros M. induction t as [x|l IHl r IHr]; simpl; intros H; [lra|].
destruct H as [Hl Hr]. specialize (IHl Hl). specialize (IHr Hr).
eapply Rle_trans; [apply (rd_ZR_le emin prec (prec_positive := prec_positive))|].
eapply Rle_trans; [apply Rabs_triang|]. rewrite plus_IZR. lra.
Qed.

(** The rule above for one rounding direction and terms of weight a. *)
Theorem sum_any_order : forall rnd (V : Valid_rnd rnd) a t, (1 <= a)%Z ->
  leaves (fun x => Rabs x <= U a) t -> (size t * a <= 2^prec)%Z ->
  Rabs (eval rnd t) <= U (size t * a).
Proof.
intros rnd V a t Ha HL Hs.
assert (A : acc (size t * a) (eval rnd t)).
{ clear Hs. induction t as [x|l IHl r IHr]; simpl.
  - replace (match a with 0 => 0 | Z.pos y' => Z.pos y' | Z.neg y' => Z.neg y' end)%Z with a by (destruct a; reflexivity).
    apply acc_leaf; [lia|exact HL].
  - rewrite Z.mul_add_distr_r. destruct HL. apply acc_add; auto. }
now apply (acc_bound _ _ A).
Qed.

(** The generic bound, for any N to nearest: weaker than g(k) (SumsToNearest) where that applies. *)
Theorem sum_relative : forall choice M t, 0 <= M ->
  leaves (fun x => format x /\ Rabs x <= M) t ->
  Rabs (eval (Znearest choice) t) <= IZR (size t) * M * (1 + u) ^ Z.to_nat (size t - 1).
Proof.
intros choice M t HM.
assert (F : forall t, leaves (fun x => format x /\ Rabs x <= M) t -> format (eval (Znearest choice) t)).
{ destruct t0; simpl; [tauto|]. intros _. apply generic_format_round; auto with typeclass_instances. }
assert (u0 : 0 < u) by apply bpow_gt_0.
induction t as [x|l IHl r IHr]; intros H.
- simpl. destruct H. lra.
- destruct H as [Hl Hr]. specialize (IHl Hl). specialize (IHr Hr).
  assert (Fl := F l Hl). assert (Fr := F r Hr).
  assert (Sl := size_pos l). assert (Sr := size_pos r).
  destruct (sum_relative_error emin prec choice _ _ Fl Fr) as [eps [Eps E2]].
  cbn [eval size]. rewrite E2, Rabs_mult.
  assert (E3 : Rabs (1 + eps) <= 1 + u).
  { eapply Rle_trans; [apply Rabs_triang|]. rewrite Rabs_R1. lra. }
  set (K := Z.to_nat (size l + size r - 2)).
  assert (HK : Z.to_nat (size l + size r - 1) = S K) by (unfold K; lia).
  rewrite HK. simpl pow.
  assert (P1 : forall n, (n <= K)%nat -> (1+u)^n <= (1+u)^K) by (intros; apply Rle_pow; [lra|auto]).
  assert (Bl : Rabs (eval (Znearest choice) l) <= IZR (size l) * M * (1+u)^K).
  { eapply Rle_trans; [apply IHl|]. apply Rmult_le_compat_l; [apply Rmult_le_pos; [apply IZR_le; lia|lra]|]. apply P1. unfold K; lia. }
  assert (Br : Rabs (eval (Znearest choice) r) <= IZR (size r) * M * (1+u)^K).
  { eapply Rle_trans; [apply IHr|]. apply Rmult_le_compat_l; [apply Rmult_le_pos; [apply IZR_le; lia|lra]|]. apply P1. unfold K; lia. }
  rewrite plus_IZR.
  replace ((IZR (size l) + IZR (size r)) * M * ((1 + u) * (1 + u) ^ K)) with
    ((IZR (size l) * M * (1+u)^K + IZR (size r) * M * (1+u)^K) * (1 + u)) by ring.
  apply Rmult_le_compat; try apply Rabs_pos; auto.
  eapply Rle_trans; [apply Rabs_triang|]. lra.
Qed.

End Sums.
