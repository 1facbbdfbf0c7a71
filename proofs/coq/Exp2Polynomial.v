(** * A cubic exp2 as a machine evaluates it, on [0, 1]

    FlashAttention-4's: the polynomial's own error and its roundings, added up. Its kernels promise
    1430 units of the last place, which is what FP32's arguments need, all of them tried
    (docs/exp2.md); the theorem is of every real argument, and a tenth of a unit above. *)

From Coq Require Import Reals Lra.
From Headroom Require Import Exp2Coefficients Exp2PolynomialRounding.
From Headroom Require Exp2PolynomialMethod.
Open Scope R_scope.

Theorem exp2_polynomial_ulps : forall x, 0 <= x <= 1 -> Rabs (h x - exp (x * ln 2)) <= 1430.1 / 8388608.
Proof.
intros x Hx. assert (A := poly_round_error x Hx). assert (B := Exp2PolynomialMethod.poly_method_ulps x Hx).
replace (h x - exp (x * ln 2)) with ((h x - P x) + (P x - exp (x * ln 2))) by ring.
eapply Rle_trans; [apply Rabs_triang|]. lra.
Qed.

Theorem exp2_polynomial_error : forall x, 0 <= x <= 1 ->
  1 <= h x <= 2 /\ Rabs (h x / exp (x * ln 2) - 1) <= 8.775 / 100000.
Proof.
intros x Hx. split; [now apply poly_range|].
assert (A := poly_round_error x Hx). assert (B := Exp2PolynomialMethod.poly_method_error x Hx).
set (e := exp (x * ln 2)) in *.
assert (e1 : 1 <= e). { unfold e. rewrite <- exp_0. assert (H : 0 <= x * ln 2). { apply Rmult_le_pos; [lra|]. left. rewrite <- ln_1. apply ln_increasing; lra. } destruct H as [H|H]; [left; now apply exp_increasing|rewrite <- H; lra]. }
assert (i1 : 0 < / e <= 1). { split; [apply Rinv_0_lt_compat; lra|]. rewrite <- Rinv_1. apply Rinv_le_contravar; lra. }
replace (h x / e - 1) with ((h x - P x) * / e + (P x / e - 1)) by (field; lra).
eapply Rle_trans; [apply Rabs_triang|]. rewrite Rabs_mult, (Rabs_pos_eq (/ e)) by lra.
assert (C : Rabs (h x - P x) * / e <= 7 / 67108864 * 1) by (apply Rmult_le_compat; try lra; apply Rabs_pos).
lra.
Qed.
