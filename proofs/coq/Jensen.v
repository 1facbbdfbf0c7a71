(** * Row mass, from below: Jensen

    sum_j 2^(z_j) >= N 2^zbar over the row's *own* visible keys, zbar their mean score. It needs no
    centring of keys, holds for any visible set and any finite scores (bias included: it is part of
    z), and is what the sound gate rests on. *)

From Coq Require Import Reals Lra Lia List.
From Headroom Require Import Rows Exp2.
Import ListNotations.
Open Scope R_scope.

(** 2^x lies above each of its tangents. *)
Lemma exp2_tangent m x : exp2 m * (1 + ln 2 * (x - m)) <= exp2 x.
Proof.
replace (exp2 x) with (exp2 m * exp2 (x - m))
  by (rewrite <- exp2_plus; f_equal; ring).
apply Rmult_le_compat_l; [left; apply exp2_pos|]. unfold exp2.
rewrite (Rmult_comm (ln 2)). set (y := (x - m) * ln 2).
destruct (Req_dec y 0) as [E|E]; [rewrite E, exp_0; lra|]. left. now apply exp_ineq1.
Qed.

Section Row.
Context {A : Type}.
Variable z : A -> R.
Notation mass keys := (total (fun j => exp2 (z j)) keys).

Lemma mass_pos keys : keys <> [] -> 0 < mass keys.
Proof. intros H. apply total_pos; [exact H|]. intros; apply exp2_pos. Qed.

(** [m] is any number that the mean of the scores reaches. *)
Theorem row_mass keys m : count keys * m <= total z keys ->
  count keys * exp2 m <= mass keys.
Proof.
intros H. apply Rle_trans with (total (fun j => exp2 m * (1 + ln 2 * (z j - m))) keys).
- rewrite total_scale, total_plus, total_const, total_scale, total_minus, total_const.
  assert (E := exp2_pos m). assert (L := ln2_pos).
  replace (count keys * exp2 m) with (exp2 m * (count keys * 1)) by ring.
  apply Rmult_le_compat_l; [lra|].
  assert (0 <= ln 2 * (total z keys - count keys * m)) by (apply Rmult_le_pos; lra). lra.
- apply total_le. intros. apply exp2_tangent.
Qed.

(** On a subset S of the visible keys: |S| 2^(mean over S). Of use where a huge negative bias makes
    the mean over all keys useless. *)
Corollary row_mass_of_subset (b : A -> bool) keys m :
  count (filter b keys) * m <= total z (filter b keys) ->
  count (filter b keys) * exp2 m <= mass keys.
Proof.
intros H. apply Rle_trans with (mass (filter b keys)); [now apply row_mass|].
rewrite (total_split b _ keys).
assert (0 <= mass (filter (fun j => negb (b j)) keys))
  by (apply total_nonneg; intros; left; apply exp2_pos).
lra.
Qed.

(** On one key: its own weight. *)
Corollary row_mass_of_witness keys j : In j keys -> exp2 (z j) <= mass keys.
Proof.
intros H. apply (total_ge_term (fun j => exp2 (z j))); [intros; left; apply exp2_pos|exact H].
Qed.

(** ** The general form

    For any probability pi on the visible keys, log2 sum 2^(z_j) >= sum pi_j z_j + H2(pi), H2 the
    entropy in bits. Keys with pi_j = 0 are free (0 log 0 = 0). *)
Definition log2 x := ln x / ln 2.
Definition entropy2 (pi : A -> R) keys := total (fun j => - (pi j * log2 (pi j))) keys.

Lemma exp2_log2 x : 0 < x -> exp2 (log2 x) = x.
Proof.
intros H. unfold exp2, log2. assert (L := ln2_pos).
replace (ln x / ln 2 * ln 2) with (ln x) by (field; lra). now apply exp_ln.
Qed.

Lemma weighted_tangent p m x : 0 <= p ->
  exp2 m * (p + ln 2 * (p * x - p * log2 p - p * m)) <= exp2 x.
Proof.
intros [P|P].
- assert (T := exp2_tangent m (x - log2 p)). rewrite exp2_minus, (exp2_log2 p P) in T.
  apply Rmult_le_compat_l with (r := p) in T; [|lra].
  replace (p * (exp2 x / p)) with (exp2 x) in T by (field; lra).
  apply Rle_trans with (2 := T). apply Req_le. ring.
- subst p. assert (E := exp2_pos x). replace (_ * _) with 0 by ring. lra.
Qed.

Theorem row_mass_general keys pi : (forall j, In j keys -> 0 <= pi j) -> total pi keys = 1 ->
  exp2 (total (fun j => pi j * z j) keys + entropy2 pi keys) <= mass keys.
Proof.
intros P S. unfold entropy2. rewrite <- total_plus.
set (m := total (fun j => pi j * z j + - (pi j * log2 (pi j))) keys).
apply Rle_trans with (total (fun j => exp2 m * (pi j + ln 2 * (pi j * z j - pi j * log2 (pi j)
                                                             - pi j * m))) keys).
- rewrite total_scale, total_plus, total_scale, total_minus, S.
  replace (total (fun j => pi j * z j - pi j * log2 (pi j)) keys) with m.
  + replace (total (fun j => pi j * m) keys) with (m * total pi keys).
    * rewrite S. right. ring.
    * rewrite <- total_scale. apply total_ext. intros. ring.
  + unfold m. apply total_ext. intros. ring.
- apply total_le. intros j H. apply weighted_tangent. now apply P.
Qed.
End Row.
