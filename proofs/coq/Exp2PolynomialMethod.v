(** * A cubic exp2: the error of the polynomial itself on [0, 1] (interval tactic) *)

From Coq Require Import Reals Lra.
From Interval Require Import Tactic.
Open Scope R_scope.
Definition c1 := 2915531/4194304.
Definition c2 := 15276997/67108864.
Definition c3 := 10343763/134217728.

Theorem poly_method_error : forall x, 0 <= x <= 1 ->
  Rabs ((((c3 * x + c2) * x + c1) * x + 1) / exp (x * ln 2) - 1) <= 8.562 / 100000.
Proof. intros x Hx. unfold c1, c2, c3. interval with (i_bisect x, i_taylor x, i_prec 60). Qed.
