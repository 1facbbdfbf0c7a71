(** * Dot products in any order: how far off, underflow included

    |computed - exact| <= ((1 + u)^h - 1) sum |x_i| + underflow, h the number of roundings a term
    passes. With Cauchy-Schwarz the sum of magnitudes is at most ||q|| ||k||, so the error of a
    score is known from norms alone. Execution has the same for adders of many operands and for
    flushing; this file is the plain statement for additions to nearest. *)

From Coq Require Import ZArith Reals Lia Lra.
From Flocq Require Import Core Relative Plus_error.
From Headroom Require Import Formats Sums CauchySchwarz.
Open Scope R_scope.

Section Dot.
Variables emin prec : Z.
Context {prec_positive : Prec_gt_0 prec}.
Notation fexp := (FLT_exp emin prec).
Notation format := (generic_format radix2 fexp).
Notation u := (bpow radix2 (- prec)).
Variable choice : Z -> bool.
Notation rn := (round radix2 fexp (Znearest choice)).
Notation ev := (eval emin prec (Znearest choice)).

Fixpoint exact (t : tree) : R := match t with Leaf x => x | Node l r => exact l + exact r end.
Fixpoint magnitude (t : tree) : R :=
  match t with Leaf x => Rabs x | Node l r => magnitude l + magnitude r end.

Lemma magnitude_pos t : 0 <= magnitude t.
Proof. induction t; simpl; [apply Rabs_pos|lra]. Qed.
Lemma exact_magnitude t : Rabs (exact t) <= magnitude t.
Proof. induction t; simpl; [lra|]. eapply Rle_trans; [apply Rabs_triang|lra]. Qed.

Lemma ev_format : forall t, leaves format t -> format (ev t).
Proof.
destruct t; simpl; [auto|]. intros _. apply generic_format_round; auto with typeclass_instances.
Qed.

(** ** The sum

    Terms of the format: no underflow at all. *)
Theorem sum_error : forall t, leaves format t ->
  Rabs (ev t - exact t) <= ((1 + u) ^ Z.to_nat (size t - 1) - 1) * magnitude t.
Proof.
assert (u0 : 0 < u) by apply bpow_gt_0.
induction t as [x|l IHl r IHr]; intros H.
- simpl. rewrite Rminus_diag_eq by reflexivity. rewrite Rabs_R0. lra.
- destruct H as [Hl Hr]. specialize (IHl Hl). specialize (IHr Hr).
  assert (Sl := size_pos l). assert (Sr := size_pos r).
  destruct (sum_relative_error emin prec choice _ _ (ev_format l Hl) (ev_format r Hr))
    as [eps [Eps E2]].
  cbn [eval exact magnitude size]. rewrite E2.
  set (K := Z.to_nat (size l + size r - 2)).
  assert (HK : Z.to_nat (size l + size r - 1) = S K) by (unfold K; lia). rewrite HK. simpl pow.
  assert (Pw : forall n, (n <= K)%nat -> (1+u)^n <= (1+u)^K) by (intros; apply Rle_pow; [lra|auto]).
  assert (Tl := magnitude_pos l). assert (Tr := magnitude_pos r).
  assert (El : Rabs (ev l - exact l) <= ((1+u)^K - 1) * magnitude l).
  { eapply Rle_trans; [exact IHl|]. apply Rmult_le_compat_r; [exact Tl|].
    assert (Q := Pw (Z.to_nat (size l - 1)) ltac:(unfold K; lia)). lra. }
  assert (Er : Rabs (ev r - exact r) <= ((1+u)^K - 1) * magnitude r).
  { eapply Rle_trans; [exact IHr|]. apply Rmult_le_compat_r; [exact Tr|].
    assert (Q := Pw (Z.to_nat (size r - 1)) ltac:(unfold K; lia)). lra. }
  set (a := ev l - exact l) in *. set (b := ev r - exact r) in *. set (W := (1+u)^K) in *.
  assert (W1 : 1 <= W) by (apply pow_R1_Rle; lra).
  replace ((ev l + ev r) * (1 + eps) - (exact l + exact r))
    with ((a + b) * (1 + eps) + eps * (exact l + exact r)) by (unfold a, b; ring).
  assert (X : Rabs (a + b) <= (W - 1) * (magnitude l + magnitude r)).
  { eapply Rle_trans; [apply Rabs_triang|]. lra. }
  assert (Y : Rabs (exact l + exact r) <= magnitude l + magnitude r)
    by (exact (exact_magnitude (Node l r))).
  assert (Z : Rabs (1 + eps) <= 1 + u).
  { eapply Rle_trans; [apply Rabs_triang|]. rewrite Rabs_R1. lra. }
  eapply Rle_trans; [apply Rabs_triang|]. rewrite !Rabs_mult.
  apply Rle_trans with ((W - 1) * (magnitude l + magnitude r) * (1 + u)
                        + u * (magnitude l + magnitude r)).
  + apply Rplus_le_compat; apply Rmult_le_compat; auto; apply Rabs_pos.
  + apply Req_le. ring.
Qed.

(** ** Rounded products

    A product a b rounded to nearest errs by u |a b| and, below the normal range, by half the least
    subnormal number: two BF16 numbers have an exact product in FP32 only above 2^-149. [eta] is
    that term; 0 where all products are exact. *)
Fixpoint rounded_leaves (eta : R) (t s : tree) : Prop := match t, s with
| Leaf x, Leaf y => Rabs (y - x) <= u * Rabs x + eta
| Node l r, Node l' r' => rounded_leaves eta l l' /\ rounded_leaves eta r r'
| _, _ => False end.

Lemma rounded_leaves_error : forall eta t s, rounded_leaves eta t s ->
  size s = size t /\ Rabs (exact s - exact t) <= u * magnitude t + IZR (size t) * eta /\
  magnitude s <= (1 + u) * magnitude t + IZR (size t) * eta.
Proof.
intros eta. induction t as [x|l IHl r IHr]; destruct s as [y|l' r']; simpl; try tauto.
- intros H. split; [reflexivity|]. split; [lra|].
  replace y with (x + (y - x)) by ring. eapply Rle_trans; [apply Rabs_triang|]. lra.
- intros [Hl Hr]. destruct (IHl _ Hl) as [S1 [E1 M1]]. destruct (IHr _ Hr) as [S2 [E2 M2]].
  split; [lia|]. rewrite plus_IZR. split; [|lra].
  replace (exact l' + exact r' - (exact l + exact r))
    with ((exact l' - exact l) + (exact r' - exact r)) by ring.
  eapply Rle_trans; [apply Rabs_triang|]. lra.
Qed.

(** The whole dot product: one more rounding a term, and d events of underflow, each carried on by
    the later roundings. *)
Theorem dot_error : forall eta t s, 0 <= eta -> rounded_leaves eta t s -> leaves format s ->
  Rabs (ev s - exact t) <=
    ((1 + u) ^ Z.to_nat (size t) - 1) * magnitude t
    + (1 + u) ^ Z.to_nat (size t - 1) * (IZR (size t) * eta).
Proof.
intros eta t s He Hr Hf. assert (u0 : 0 < u) by apply bpow_gt_0.
destruct (rounded_leaves_error _ _ _ Hr) as [S1 [E1 M1]].
assert (E := sum_error s Hf). rewrite S1 in E.
assert (Sp := size_pos t). set (K := Z.to_nat (size t - 1)) in *.
replace (Z.to_nat (size t)) with (S K) by (unfold K; lia). simpl pow.
set (W := (1 + u) ^ K) in *. assert (W1 : 1 <= W) by (apply pow_R1_Rle; lra).
replace (ev s - exact t) with ((ev s - exact s) + (exact s - exact t)) by ring.
eapply Rle_trans; [apply Rabs_triang|].
assert (M := magnitude_pos t).
assert (X : (W - 1) * magnitude s <= (W - 1) * ((1 + u) * magnitude t + IZR (size t) * eta))
  by (apply Rmult_le_compat_l; lra).
eapply Rle_trans; [apply Rplus_le_compat; [exact E|exact E1]|].
eapply Rle_trans; [apply Rplus_le_compat_r; exact X|]. apply Req_le. ring.
Qed.

(** ** From norms

    The products of q and k over d channels, in any order. *)
Theorem score_error_from_norms : forall d q k kappa eta t s, 0 <= eta ->
  rounded_leaves eta t s -> leaves format s -> size t = Z.of_nat d ->
  exact t = dot d q k -> magnitude t = dot d (fun i => Rabs (q i)) (fun i => Rabs (k i)) ->
  nrm d k <= kappa ->
  Rabs (ev s - dot d q k) <=
    ((1 + u) ^ d - 1) * (nrm d q * kappa) + (1 + u) ^ d * (INR d * eta).
Proof.
intros d q k kappa eta t s He Hr Hf Hs Hx Ht Hk.
assert (E := dot_error eta t s He Hr Hf). rewrite Hs, Hx in E.
assert (u0 : 0 < u) by apply bpow_gt_0.
assert (W1 : 1 <= (1 + u) ^ d) by (apply pow_R1_Rle; lra).
assert (A : magnitude t <= nrm d q * kappa).
{ rewrite Ht. eapply Rle_trans; [apply cauchy_schwarz_abs|].
  apply Rmult_le_compat_l; [apply nrm_nonneg|exact Hk]. }
replace (Z.to_nat (Z.of_nat d)) with d in E by lia.
apply Rle_trans with (1 := E). rewrite <- INR_IZR_INZ.
assert (D0 : 0 <= INR d * eta) by (apply Rmult_le_pos; [apply pos_INR|exact He]).
apply Rplus_le_compat; [apply Rmult_le_compat_l; lra|].
apply Rmult_le_compat_r; [exact D0|]. apply Rle_pow; [lra|lia].
Qed.

(** ** The stored constant

    A score is scaled by a stored constant c^ in the place of the exact factor f; [p] is the
    computed product within [e] of the exact one, [s] its multiple, rounded to nearest. *)
Theorem scaled_score_error : forall f c x p e, Rabs (p - x) <= e ->
  Rabs (rn (c * p) - f * x) <=
    Rabs c * e + Rabs (c - f) * Rabs x + (u * (Rabs c * (Rabs x + e)) + / 2 * bpow radix2 emin).
Proof.
intros f c x p e H. assert (u0 : 0 < u) by apply bpow_gt_0.
replace (rn (c * p) - f * x)
  with (c * (p - x) + (c - f) * x + (rn (c * p) - c * p)) by ring.
eapply Rle_trans; [apply Rabs_triang|]. apply Rplus_le_compat.
- eapply Rle_trans; [apply Rabs_triang|]. rewrite !Rabs_mult.
  apply Rplus_le_compat_r. apply Rmult_le_compat_l; [apply Rabs_pos|exact H].
- eapply Rle_trans; [apply (nearest_error emin prec (prec_positive := prec_positive))|]. apply Rplus_le_compat_r.
  apply Rmult_le_compat_l; [lra|]. rewrite Rabs_mult. apply Rmult_le_compat_l; [apply Rabs_pos|].
  replace p with (x + (p - x)) by ring. eapply Rle_trans; [apply Rabs_triang|]. lra.
Qed.
End Dot.
