(** * A cubic exp2: its coefficients, those of FlashAttention-4

    2^x on [0, 1] is about 1 + c1 x + c2 x^2 + c3 x^3: numbers of FP32, the same as in
    reference/evaluate/simulate/fa4_polynomial.h. tests/proofs/constants.py compares the two. *)

From Coq Require Import Reals.
Open Scope R_scope.
Definition c1 := 11662617/16777216.
Definition c2 := 3817897/16777216.
Definition c3 := 10350749/134217728.
Definition P (x : R) := ((c3 * x + c2) * x + c1) * x + 1.
