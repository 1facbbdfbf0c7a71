(** * A one-sided gate without guard bits loses mass

    Query (1, 235), keys (1, 0) and (-1, 0), exactly centred; C = 110 and L = -126 as for FP32
    without large values. Cauchy-Schwarz bounds the scores by ||q|| = 235.002..., rounded up 236, and
    the published one-sided gate accepts: 236 <= C - L. The stabilizer mu = 236 - 110 puts the
    exponents at -125 and -127: one key of two is flushed, with a fifth of the row's mass. *)

From Coq Require Import ZArith Reals Lra Lia List.
From Flocq Require Import Core.
From Headroom Require Import Rows Exp2 CauchySchwarz.
Import ListNotations.
Open Scope R_scope.

Definition C := 110%Z.
Definition L := (-126)%Z.
Definition q (i : nat) : R := match i with O => 1 | _ => 235 end.
Definition k (j i : nat) : R := match i with O => (match j with O => 1 | _ => -1 end) | _ => 0 end.
Definition z j := dot 2 q (k j).
Definition U := 236%Z.
Definition mu := (U - C)%Z.
Definition flushed_key j := Rlt_bool (z j - IZR mu) (IZR L).
Definition keys := [0%nat; 1%nat].
Notation mass l := (total (fun j => exp2 (z j)) l).

Lemma z0 : z 0 = 1.
Proof. unfold z, dot, q, k. simpl. lra. Qed.
Lemma z1 : z 1 = -1.
Proof. unfold z, dot, q, k. simpl. lra. Qed.

Theorem gate_accepts : (forall j, In j keys -> z j <= nrm 2 q * 1) /\
  nrm 2 q * 1 <= IZR U /\ (U <= C - L)%Z.
Proof.
assert (N : 1 <= nrm 2 q <= 236).
{ unfold nrm, dot, q. simpl sum. split.
  - apply Rle_trans with (sqrt 1); [rewrite sqrt_1; lra|apply sqrt_le_1_alt; lra].
  - apply Rle_trans with (sqrt (236 * 236)); [apply sqrt_le_1_alt; lra|rewrite sqrt_square; lra]. }
split; [|split; [unfold U; lra|unfold U, C, L; lia]].
intros j [<-|[<-|[]]]; [rewrite z0|rewrite z1]; lra.
Qed.

Theorem a_fifth_is_lost : mass (filter flushed_key keys) = / 5 * mass keys.
Proof.
assert (F0 : flushed_key 0 = false).
{ unfold flushed_key. rewrite z0. apply Rlt_bool_false. unfold mu, U, C, L. simpl. lra. }
assert (F1 : flushed_key 1 = true).
{ unfold flushed_key. rewrite z1. apply Rlt_bool_true. unfold mu, U, C, L. simpl. lra. }
unfold keys. simpl filter. rewrite F0, F1. simpl total. rewrite z0, z1.
change (exp2 1) with (exp2 (IZR 1)). change (exp2 (-1)) with (exp2 (IZR (-1))).
rewrite !exp2_Z. simpl. lra.
Qed.
