(** * A cubic exp2: rounding error and range of its FP32 Horner scheme with fused operations

    By the gappa tactic, which must not share a file with the interval tactic. *)

From Coq Require Import Reals Lra.
From Flocq Require Import Core.
From Gappa Require Import Gappa_tactic.
From Headroom Require Import Exp2Coefficients.
Open Scope R_scope.
Definition rnd32 := round radix2 (FLT_exp (-149) 24) (Znearest (fun x => negb (Z.even x))).
Definition h (x : R) := rnd32 (rnd32 (rnd32 (c3 * x + c2) * x + c1) * x + 1).
Theorem poly_range : forall x, 0 <= x <= 1 -> 1 <= h x <= 2.
Proof. intros x Hx. unfold h, rnd32, c1, c2, c3. gappa. Qed.
Theorem poly_round_error : forall x, 0 <= x <= 1 -> Rabs (h x - P x) <= 7 / 67108864.
Proof. intros x Hx. unfold h, P, rnd32, c1, c2, c3. gappa. Qed.
