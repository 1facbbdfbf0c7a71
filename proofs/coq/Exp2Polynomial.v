(** * A cubic exp2 as a machine evaluates it: relative error at most 8.573e-5 on [0, 1] *)

From Coq Require Import Reals Lra.
From Headroom Require Import Exp2PolynomialRounding.
From Headroom Require Exp2PolynomialMethod.
Open Scope R_scope.
Theorem exp2_polynomial_error : forall x, 0 <= x <= 1 ->
  1 <= h x <= 2 /\ Rabs (h x / exp (x * ln 2) - 1) <= 8.573 / 100000.
Proof.
intros x Hx. split; [now apply poly_range|].
assert (A := poly_round_error x Hx). assert (B := Exp2PolynomialMethod.poly_method_error x Hx).
change (((Exp2PolynomialMethod.c3 * x + Exp2PolynomialMethod.c2) * x + Exp2PolynomialMethod.c1) * x + 1) with (P x) in B.
set (e := exp (x * ln 2)) in *.
assert (e1 : 1 <= e). { unfold e. rewrite <- exp_0. assert (H : 0 <= x * ln 2). { apply Rmult_le_pos; [lra|]. left. rewrite <- ln_1. apply ln_increasing; lra. } destruct H as [H|H]; [left; now apply exp_increasing|rewrite <- H; lra]. }
assert (i1 : 0 < / e <= 1). { split; [apply Rinv_0_lt_compat; lra|]. rewrite <- Rinv_1. apply Rinv_le_contravar; lra. }
replace (h x / e - 1) with ((h x - P x) * / e + (P x / e - 1)) by (field; lra).
eapply Rle_trans; [apply Rabs_triang|]. rewrite Rabs_mult, (Rabs_pos_eq (/ e)) by lra.
assert (C : Rabs (h x - P x) * / e <= 7 / 67108864 * 1) by (apply Rmult_le_compat; try lra; apply Rabs_pos).
lra.
Qed.
