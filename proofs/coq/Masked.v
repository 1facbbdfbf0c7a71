(** * Masked keys

    A key that is masked by selection has the score -inf, and must end as the weight 0 exactly. That
    takes a finite mu: -inf - (-inf) is NaN, the failure of rows whose own maximum is -inf. Padding
    that is added as zero keys instead is not masked: its weights are ordinary terms (Execution
    counts them). *)

From Coq Require Import ZArith Reals Lra.
From Flocq Require Import Core BinarySingleNaN.
Open Scope R_scope.

Section Masked.
Variables prec emax : Z.
Context (prec_positive : Prec_gt_0 prec) (prec_below_emax : Prec_lt_emax prec emax).
Notation float := (binary_float prec emax).
Notation minus := (@Bminus prec emax _ _).
Notation minus_infinity := (@B754_infinity prec emax true).

Theorem masked_exponent : forall md mu, is_finite mu = true ->
  minus md minus_infinity mu = minus_infinity.
Proof. intros md [s|s| |s m e H] F; try discriminate; reflexivity. Qed.

(** Fused scaling of a masked score keeps it, for a finite positive factor. *)
Theorem masked_fused_exponent : forall md m e H mu, is_finite mu = true ->
  @Bfma prec emax _ _ md minus_infinity (@B754_finite prec emax false m e H) mu = minus_infinity.
Proof. intros md m e H [s|s| |s m' e' H'] F; try discriminate; reflexivity. Qed.

(** A unit with E(-inf) = 0, added to any finite partial sum to nearest, changes nothing. *)
Theorem masked_term : forall md x, is_finite x = true -> B2R x <> 0 ->
  @Bplus prec emax _ _ md x (B754_zero false) = x.
Proof. intros md [s|s| |s m e H] F N; try discriminate; [exfalso; apply N; reflexivity|reflexivity]. Qed.

(** What goes wrong: a stabilizer of -inf. *)
Theorem masked_row_nan : forall md, is_nan (minus md minus_infinity minus_infinity) = true.
Proof. reflexivity. Qed.
End Masked.
