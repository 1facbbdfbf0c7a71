(** * Division: O / l by a divider, or by a reciprocal

    With a reciprocal, 1 / l must neither overflow nor be flushed: l <= 2^126 where subnormal
    results are flushed, and that is exact. A divider only needs the quotient to be in range. *)

From Coq Require Import ZArith Reals Lra Lia List.
From Flocq Require Import Core BinarySingleNaN Relative.
From Headroom Require Import Formats Exp2 Adders Weights.
Open Scope R_scope.

Section Division.
Variables prec emax : Z.
Context (prec_positive : Prec_gt_0 prec) (prec_below_emax : Prec_lt_emax prec emax).
Notation emin := (3 - emax - prec)%Z.
Notation fexp := (FLT_exp emin prec).
Notation float := (binary_float prec emax).
Notation value := (@B2R prec emax).

(** ** The promise of a normalisation

    For l within [2^a, 2^b] and quotients of at most 2^q, the result is finite, and within eps
    relatively and h absolutely. *)
Definition normalises (divide : R -> R -> float -> Prop) (a b q : Z) (eps h : R) :=
  forall O l r, divide O l r -> bpow radix2 a <= l <= bpow radix2 b ->
  Rabs (O / l) <= bpow radix2 q ->
  is_finite r = true /\ Rabs (value r - O / l) <= eps * Rabs (O / l) + h.

Lemma bpow_as_weight q : bpow radix2 q = 1 * bpow radix2 q.
Proof. ring. Qed.

Lemma one_le_pow : (0 <= 1 <= 2 ^ prec)%Z.
Proof. unfold Prec_gt_0 in *. split; [lia|]. apply (Z.pow_le_mono_r 2 0 prec); lia. Qed.

Lemma rounds_in_range md x q : Rabs x <= bpow radix2 q -> (emin <= q < emax)%Z ->
  Rabs (round radix2 fexp (round_mode md) x) < bpow radix2 emax.
Proof.
intros Hx Hq. apply Rle_lt_trans with (bpow radix2 q); [|apply bpow_lt; lia].
rewrite bpow_as_weight in Hx |- *. apply (rd_le emin prec (round_mode md) 1); auto; [apply one_le_pow|lia].
Qed.

(** ** By a divider *)
Definition divider md flush (O l : R) (r : float) := rounds prec emax md flush (O / l) r.

Theorem divider_normalises md flush a b q : flush_ok prec emax flush -> (emin <= q < emax)%Z ->
  normalises (divider md flush) a b q (unit_of prec md) (floor_of prec emax flush).
Proof.
intros Hf Hq O l r H _ HO. assert (Rg := rounds_in_range md (O / l) q HO Hq).
split; [apply (H Rg)|]. now apply (rounds_close prec emax prec_positive md flush).
Qed.

(** ** By a reciprocal

    [eps_r] bounds its relative error on [2^a, 2^b]; u for one rounding. *)
Definition by_reciprocal (recip : R -> float -> Prop) md flush (O l : R) (r : float) :=
  exists c, recip l c /\ (is_finite c = true -> rounds prec emax md flush (O * value c) r).

Definition reciprocal_close (recip : R -> float -> Prop) a b eps_r :=
  forall l c, recip l c -> bpow radix2 a <= l <= bpow radix2 b ->
  is_finite c = true /\ Rabs (value c - / l) <= eps_r * / l.

Theorem reciprocal_normalises recip md flush a b q eps_r :
  reciprocal_close recip a b eps_r -> 0 <= eps_r <= 1 ->
  flush_ok prec emax flush -> (emin <= q + 1 < emax)%Z ->
  normalises (by_reciprocal recip md flush) a b q
    ((1 + eps_r) * (1 + unit_of prec md) - 1) (floor_of prec emax flush).
Proof.
intros HR He Hf Hq O l r [c [Hc H]] Hl HO. destruct (HR l c Hc Hl) as [Fc Ec].
assert (l0 : 0 < l) by (apply Rlt_le_trans with (2 := proj1 Hl); apply bpow_gt_0).
assert (i0 : 0 < / l) by now apply Rinv_0_lt_compat.
assert (D : Rabs (O * value c - O / l) <= eps_r * Rabs (O / l)).
{ replace (O * value c - O / l) with (O * (value c - / l)) by (field; lra).
  unfold Rdiv. rewrite !Rabs_mult, (Rabs_pos_eq (/ l)) by lra.
  assert (Q := Rmult_le_compat_l (Rabs O) _ _ (Rabs_pos O) Ec). lra. }
assert (M : Rabs (O * value c) <= (1 + eps_r) * Rabs (O / l)).
{ replace (O * value c) with (O / l + (O * value c - O / l)) by ring.
  eapply Rle_trans; [apply Rabs_triang|]. lra. }
assert (Q0 := Rabs_pos (O / l)).
assert (Rg : Rabs (round radix2 fexp (round_mode md) (O * value c)) < bpow radix2 emax).
{ apply (rounds_in_range md _ (q + 1)); [|exact Hq]. rewrite bpow_plus. change (bpow radix2 1) with 2.
  apply Rle_trans with (1 := M). rewrite Rmult_comm. apply Rmult_le_compat; lra. }
split; [apply (H Fc Rg)|].
assert (C := rounds_close prec emax prec_positive md flush _ _ (H Fc) Hf Rg).
assert (U := unit_pos prec md).
replace (value r - O / l) with ((value r - O * value c) + (O * value c - O / l)) by ring.
eapply Rle_trans; [apply Rabs_triang|].
assert (unit_of prec md * Rabs (O * value c) <= unit_of prec md * ((1 + eps_r) * Rabs (O / l)))
  by (apply Rmult_le_compat_l; lra).
lra.
Qed.

(** A correctly rounded reciprocal, flushed or not: normal, hence accurate, up to l = 2^b with
    -b the smallest normal exponent. *)
Theorem rounded_reciprocal_close md flush a b : (0 < emax + a)%Z -> (emin + prec - 1 <= - b)%Z ->
  (emin <= - a)%Z -> (low_of prec emax flush <= - b)%Z ->
  reciprocal_close (fun l c => rounds prec emax md flush (/ l) c) a b (unit_of prec md).
Proof.
intros Ha Hb Ha' Hlow l c H [L1 L2].
assert (a0 := bpow_gt_0 radix2 a). assert (l0 : 0 < l) by lra.
assert (i0 : 0 < / l) by now apply Rinv_0_lt_compat.
assert (B1 : / l <= bpow radix2 (- a)) by (rewrite bpow_opp; apply Rinv_le_contravar; lra).
assert (B2 : bpow radix2 (- b) <= / l) by (rewrite bpow_opp; apply Rinv_le_contravar; lra).
assert (Rg : Rabs (round radix2 fexp (round_mode md) (/ l)) < bpow radix2 emax).
{ apply (rounds_in_range md _ (- a)); [rewrite Rabs_pos_eq; lra|lia]. }
split; [apply (H Rg)|].
apply (stored_close_normal prec emax prec_positive md flush (- b)); auto.
Qed.
End Division.
