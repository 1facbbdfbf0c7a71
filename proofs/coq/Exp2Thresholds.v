(** * Where exp2 overflows, to the tenth digit

    The table of "exp2 limits that hold exactly". These use the interval tactic, whose arithmetic
    brings primitive integers into the axioms: nothing that a verdict rests on imports this file. *)

From Coq Require Import ZArith Reals Lra Lia.
From Flocq Require Import Core.
From Interval Require Import Tactic.
From Headroom Require Import Exp2.
Open Scope R_scope.

(** FP32: the largest argument below 128 is 128 - 2^-17, and its result does not overflow; *)
Theorem exp2_fp32_argument : forall x, x <= 128 - / 2^17 -> exp2 x < bpow radix2 128 * (1 - / 2^25).
Proof.
intros x Hx. apply Rle_lt_trans with (exp2 (128 + - / 2^17)); [apply exp2_le; lra|].
rewrite exp2_plus, (exp2_Z 128). apply Rmult_lt_compat_l; [apply bpow_gt_0|]. unfold exp2. interval.
Qed.
(** for a real argument the threshold lies between 128 - 2^-24 and 128 - 2^-25. *)
Theorem exp2_fp32_threshold : exp2 (128 - / 2^24) < bpow radix2 128 * (1 - / 2^25) < exp2 (128 - / 2^25).
Proof.
unfold Rminus. rewrite !exp2_plus, (exp2_Z 128). split; apply Rmult_lt_compat_l; try apply bpow_gt_0; unfold exp2; interval with (i_prec 60).
Qed.
(** A result rounded to FP16 overflows at 65520. *)
Theorem exp2_fp16_threshold : exp2 15.99964 < 65520 < exp2 15.99965.
Proof. unfold exp2. split; interval with (i_prec 50). Qed.
Theorem exp2_fp16_argument : forall x, x <= 16 - / 2^7 -> exp2 x < 65504.
Proof. intros x Hx. apply Rle_lt_trans with (1 := exp2_le _ _ Hx). unfold exp2. interval. Qed.
(** A result rounded to BF16 overflows at 2^128 (1 - 2^-9): an argument below 128 is not enough. *)
Theorem exp2_bf16_threshold : exp2 127.9971 < bpow radix2 128 * (1 - / 2^9) < exp2 127.9972.
Proof.
replace 127.9971 with (128 + - 0.0029) by lra. replace 127.9972 with (128 + - 0.0028) by lra.
rewrite !exp2_plus, (exp2_Z 128). split; apply Rmult_lt_compat_l; try apply bpow_gt_0; unfold exp2; interval.
Qed.

