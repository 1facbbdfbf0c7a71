(** * A cubic exp2: the error of the polynomial itself on [0, 1] (interval tactic) *)

From Coq Require Import Reals Lra.
From Interval Require Import Tactic.
From Headroom Require Import Exp2Coefficients.
Open Scope R_scope.

(** Relatively, *)
Theorem poly_method_error : forall x, 0 <= x <= 1 ->
  Rabs (P x / exp (x * ln 2) - 1) <= 8.764 / 100000.
Proof. intros x Hx. unfold P, c1, c2, c3. interval with (i_bisect x, i_taylor x, i_prec 60). Qed.

(** and in units of the last place of results, 2^-23: most at 1. *)
Theorem poly_method_ulps : forall x, 0 <= x <= 1 ->
  Rabs (P x - exp (x * ln 2)) <= 1429.2 / 8388608.
Proof. intros x Hx. unfold P, c1, c2, c3. interval with (i_bisect x, i_taylor x, i_prec 60). Qed.
