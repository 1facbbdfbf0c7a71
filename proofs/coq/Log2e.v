(** * log2 e, enclosed without the interval tactic

    1 + x <= e^x, squared 64 times, gives e^y >= (1 + y / 2^64)^(2^64) and, with the other sign, an
    upper bound; both evaluated in integers that are rounded to the safe side. This pins ln 2, and
    with it log2 e, to far more digits than any FP32 constant needs, with no axiom beyond the reals. *)

From Coq Require Import ZArith Reals Lra Lia Bool.
From Flocq Require Import Core.
From Headroom Require Import Formats Exp2.
Open Scope R_scope.

(** Fixed point, units 2^-160: squares rounded down, [n] times. *)
Fixpoint square_down (n : nat) (a : Z) : Z :=
  match n with O => a | S m => square_down m (Z.shiftr (a * a) 160) end.

Lemma square_down_le n : forall a x, (0 <= a)%Z -> IZR a * bpow radix2 (-160) <= x ->
  IZR (square_down n a) * bpow radix2 (-160) <= x ^ (2 ^ n).
Proof.
induction n as [|n IH]; intros a x Ha Hx; cbn [square_down].
- replace (x ^ (2 ^ 0)) with x by (simpl; ring). exact Hx.
- replace (x ^ (2 ^ S n)) with ((x * x) ^ (2 ^ n)).
  + apply IH; [apply Z.shiftr_nonneg; nia|].
    assert (B := bpow_gt_0 radix2 (-160)).
    assert (A0 : 0 <= IZR a * bpow radix2 (-160)) by (apply Rmult_le_pos; [now apply IZR_le|lra]).
    rewrite Z.shiftr_div_pow2 by lia.
    assert (D := Z.mul_div_le (a * a) (2 ^ 160) ltac:(lia)). apply IZR_le in D.
    rewrite (mult_IZR (2 ^ 160)), two_pow in D by lia. rewrite mult_IZR in D.
    apply Rle_trans with ((IZR a * bpow radix2 (-160)) * (IZR a * bpow radix2 (-160)));
      [|apply Rmult_le_compat; lra].
    apply Rmult_le_compat_r with (r := bpow radix2 (-160) * bpow radix2 (-160)) in D;
      [|apply Rmult_le_pos; lra].
    replace (bpow radix2 160 * IZR (a * a / 2 ^ 160) * (bpow radix2 (-160) * bpow radix2 (-160)))
      with (IZR (a * a / 2 ^ 160) * bpow radix2 (-160) * (bpow radix2 160 * bpow radix2 (-160))) in D by ring.
    rewrite <- bpow_plus in D. simpl (bpow radix2 (160 + -160)) in D. lra.
  + change (2 ^ S n)%nat with (2 * 2 ^ n)%nat. rewrite pow_mult. f_equal. simpl. ring.
Qed.

Lemma exp_power y n : exp (y * INR n) = exp y ^ n.
Proof.
induction n; [simpl; rewrite Rmult_0_r; apply exp_0|].
rewrite S_INR, Rmult_plus_distr_l, Rmult_1_r, exp_plus, IHn. simpl. ring.
Qed.

Lemma half_power n : (/ 2) ^ n * INR (2 ^ n) = 1.
Proof.
rewrite pow_INR. rewrite <- Rpow_mult_distr. replace (/ 2 * INR 2) with 1 by (simpl; lra). apply pow1.
Qed.

Lemma exp_lower n a y : (0 <= a)%Z -> IZR a * bpow radix2 (-160) <= 1 + y * (/ 2) ^ n ->
  IZR (square_down n a) * bpow radix2 (-160) <= exp y.
Proof.
intros Ha H. replace (exp y) with (exp (y * (/ 2) ^ n) ^ (2 ^ n)).
- apply square_down_le; [exact Ha|]. apply Rle_trans with (1 := H). apply exp_ineq1_le.
- rewrite <- exp_power, Rmult_assoc, half_power. f_equal. ring.
Qed.

Lemma half_power_bpow n : (/ 2) ^ n = bpow radix2 (- Z.of_nat n).
Proof.
induction n; [reflexivity|]. simpl pow. rewrite IHn, Nat2Z.inj_succ, Z.opp_succ.
replace (Z.pred (- Z.of_nat n))%Z with (-1 + - Z.of_nat n)%Z by lia. rewrite bpow_plus. reflexivity.
Qed.

(** ln 2 in units 2^-70; y / 2^64 is then a multiple of 2^-134, exact in the fixed point. *)
Definition ln2_lo := (818323753292969962226 - 64)%Z.
Definition ln2_hi := (818323753292969962226 + 64)%Z.

Lemma start y : 1 + IZR y * bpow radix2 (-70) * (/ 2) ^ 64 = IZR (2 ^ 160 + y * 2 ^ 26) * bpow radix2 (-160).
Proof.
rewrite half_power_bpow. change (- Z.of_nat 64)%Z with (-64)%Z.
rewrite plus_IZR, mult_IZR, !two_pow by lia. rewrite Rmult_plus_distr_r, <- bpow_plus.
rewrite !Rmult_assoc, <- !bpow_plus. reflexivity.
Qed.

Theorem ln2_enclosed : IZR ln2_lo * bpow radix2 (-70) <= ln 2 <= IZR ln2_hi * bpow radix2 (-70).
Proof.
assert (B := bpow_gt_0 radix2 (-160)). split; apply Rnot_lt_le; intros H.
- (* e^-lo >= 1/2 *)
  assert (E := exp_lower 64 (2 ^ 160 + - ln2_lo * 2 ^ 26) (IZR (- ln2_lo) * bpow radix2 (-70))).
  rewrite start in E. specialize (E ltac:(unfold ln2_lo; lia) (Rle_refl _)).
  assert (K : (2 ^ 159 <= square_down 64 (2 ^ 160 + - ln2_lo * 2 ^ 26))%Z) by (apply Z.leb_le; vm_compute; reflexivity).
  apply IZR_le in K. rewrite two_pow in K by lia.
  apply Rmult_le_compat_r with (r := bpow radix2 (-160)) in K; [|lra].
  rewrite <- bpow_plus in K. change (bpow radix2 (159 + -160)) with (/ 2) in K.
  assert (L : exp (IZR (- ln2_lo) * bpow radix2 (-70)) < / 2).
  { rewrite <- (exp_ln (/ 2)) by lra. apply exp_increasing. rewrite ln_Rinv by lra. rewrite opp_IZR. lra. }
  lra.
- (* e^hi >= 2 *)
  assert (E := exp_lower 64 (2 ^ 160 + ln2_hi * 2 ^ 26) (IZR ln2_hi * bpow radix2 (-70))).
  rewrite start in E. specialize (E ltac:(unfold ln2_hi; lia) (Rle_refl _)).
  assert (K : (2 ^ 161 <= square_down 64 (2 ^ 160 + ln2_hi * 2 ^ 26))%Z) by (apply Z.leb_le; vm_compute; reflexivity).
  apply IZR_le in K. rewrite two_pow in K by lia.
  apply Rmult_le_compat_r with (r := bpow radix2 (-160)) in K; [|lra].
  rewrite <- bpow_plus in K. change (bpow radix2 (161 + -160)) with 2 in K.
  assert (L : exp (IZR ln2_hi * bpow radix2 (-70)) < 2).
  { rewrite <- (exp_ln 2) by lra. now apply exp_increasing. }
  lra.
Qed.

(** ** The factor of a score: s log2 e

    s is a rational number, or 1 / sqrt d; or the tensors hold log2 e already, and the factor is
    rational itself. *)
Inductive scale := InverseRoot (d : positive) | Natural (num : Z) (den : positive) | Binary (num : Z) (den : positive).

Definition scale_value (s : scale) : R := match s with
| InverseRoot d => / sqrt (IZR (Z.pos d)) / ln 2
| Natural a b => IZR a / IZR (Z.pos b) / ln 2
| Binary a b => IZR a / IZR (Z.pos b) end.

(** lo and hi in units 2^-64 enclose it. *)
Definition scale_encloses (s : scale) (lo hi : Z) : bool := match s with
| InverseRoot d =>
    ((0 <=? lo) && (0 <=? hi) && (lo * lo * Z.pos d * (ln2_hi * ln2_hi) <=? 2 ^ 268) &&
     (2 ^ 268 <=? hi * hi * Z.pos d * (ln2_lo * ln2_lo)))%Z
| Natural a b =>
    ((0 <=? a) && (0 <=? lo) && (0 <=? hi) && (lo * Z.pos b * ln2_hi <=? a * 2 ^ 134) &&
     (a * 2 ^ 134 <=? hi * Z.pos b * ln2_lo))%Z
| Binary a b => ((lo * Z.pos b <=? a * 2 ^ 64) && (a * 2 ^ 64 <=? hi * Z.pos b))%Z end.

Notation F a := (IZR a * bpow radix2 (-64)).

Lemma IZR_F2 a : IZR a = F a * bpow radix2 64.
Proof. rewrite Rmult_assoc, <- bpow_plus. simpl. ring. Qed.

Theorem scale_enclosed s lo hi : scale_encloses s lo hi = true -> F lo <= scale_value s <= F hi.
Proof.
assert (L := ln2_enclosed). assert (L0 := ln2_pos).
assert (B64 := bpow_gt_0 radix2 (-64)). assert (B70 := bpow_gt_0 radix2 (-70)).
assert (ll : 0 < IZR ln2_lo) by (apply IZR_lt; reflexivity).
set (l := IZR ln2_lo * bpow radix2 (-70)) in *. set (u := IZR ln2_hi * bpow radix2 (-70)) in *.
assert (l0 : 0 < l) by (unfold l; apply Rmult_lt_0_compat; lra).
destruct s as [d|a b|a b]; unfold scale_encloses, scale_value; rewrite !andb_true_iff.
- intros [[[H1 H2] H3] H4]. apply Z.leb_le in H1, H2, H3, H4. apply IZR_le in H1, H2, H3, H4.
  rewrite !mult_IZR, two_pow in H3, H4 by lia.
  assert (d0 : 0 < IZR (Z.pos d)) by (apply IZR_lt; reflexivity).
  set (D := IZR (Z.pos d)) in *. assert (q0 := sqrt_lt_R0 D d0). assert (qq := sqrt_sqrt D (Rlt_le _ _ d0)).
  set (q := sqrt D) in *.
  assert (E3 : (F lo * q * u) * (F lo * q * u) <= 1).
  { replace ((F lo * q * u) * (F lo * q * u))
      with (IZR lo * IZR lo * (q * q) * (IZR ln2_hi * IZR ln2_hi)
            * ((bpow radix2 (-64) * bpow radix2 (-64)) * (bpow radix2 (-70) * bpow radix2 (-70)))) by (unfold u; ring).
    rewrite qq, <- !bpow_plus. apply Rle_trans with (bpow radix2 268 * bpow radix2 (-64 + -64 + (-70 + -70))).
    - apply Rmult_le_compat_r; [apply bpow_ge_0|]. lra.
    - rewrite <- bpow_plus. simpl. lra. }
  assert (E4 : 1 <= (F hi * q * l) * (F hi * q * l)).
  { replace ((F hi * q * l) * (F hi * q * l))
      with (IZR hi * IZR hi * (q * q) * (IZR ln2_lo * IZR ln2_lo)
            * ((bpow radix2 (-64) * bpow radix2 (-64)) * (bpow radix2 (-70) * bpow radix2 (-70)))) by (unfold l; ring).
    rewrite qq, <- !bpow_plus. apply Rle_trans with (bpow radix2 268 * bpow radix2 (-64 + -64 + (-70 + -70))).
    - rewrite <- bpow_plus. simpl. lra.
    - apply Rmult_le_compat_r; [apply bpow_ge_0|]. lra. }
  assert (Flo : 0 <= F lo) by (apply Rmult_le_pos; lra). assert (Fhi : 0 <= F hi) by (apply Rmult_le_pos; lra).
  assert (u0 : 0 < u) by lra.
  assert (X3 : F lo * q * u <= 1).
  { apply Rsqr_incr_0_var; [|lra]. unfold Rsqr. lra. }
  assert (X4 : 1 <= F hi * q * l).
  { apply Rsqr_incr_0_var; [|repeat apply Rmult_le_pos; lra]. unfold Rsqr. lra. }
  replace (/ q / ln 2) with (/ (q * ln 2)) by (field; lra).
  assert (P : 0 < q * ln 2) by now apply Rmult_lt_0_compat.
  split; apply Rmult_le_reg_r with (1 := P); rewrite Rinv_l by lra.
  + apply Rle_trans with (2 := X3). rewrite <- Rmult_assoc. apply Rmult_le_compat_l; [apply Rmult_le_pos|]; lra.
  + apply Rle_trans with (1 := X4). rewrite <- Rmult_assoc. apply Rmult_le_compat_l; [apply Rmult_le_pos|]; lra.
- intros [[[[H0 H1] H2] H3] H4]. apply Z.leb_le in H0, H1, H2, H3, H4. apply IZR_le in H0, H1, H2, H3, H4.
  rewrite !mult_IZR, two_pow in H3, H4 by lia.
  assert (b0 : 0 < IZR (Z.pos b)) by (apply IZR_lt; reflexivity). set (b' := IZR (Z.pos b)) in *.
  assert (E : bpow radix2 134 * (bpow radix2 (-64) * bpow radix2 (-70)) = 1).
  { rewrite <- !bpow_plus. reflexivity. }
  assert (P0 : 0 <= bpow radix2 (-64) * bpow radix2 (-70)) by (apply Rmult_le_pos; lra).
  assert (X3 : F lo * b' * u <= IZR a).
  { apply Rmult_le_compat_r with (r := bpow radix2 (-64) * bpow radix2 (-70)) in H3; [|exact P0].
    replace (IZR a * bpow radix2 134 * (bpow radix2 (-64) * bpow radix2 (-70))) with (IZR a) in H3
      by (rewrite Rmult_assoc, E; ring). unfold u. lra. }
  assert (X4 : IZR a <= F hi * b' * l).
  { apply Rmult_le_compat_r with (r := bpow radix2 (-64) * bpow radix2 (-70)) in H4; [|exact P0].
    replace (IZR a * bpow radix2 134 * (bpow radix2 (-64) * bpow radix2 (-70))) with (IZR a) in H4
      by (rewrite Rmult_assoc, E; ring). unfold l. lra. }
  assert (Flo : 0 <= F lo * b') by (repeat apply Rmult_le_pos; lra).
  assert (Fhi : 0 <= F hi * b') by (repeat apply Rmult_le_pos; lra).
  assert (P : 0 < b' * ln 2) by now apply Rmult_lt_0_compat.
  split; apply Rmult_le_reg_r with (1 := P); replace (IZR a / b' / ln 2 * (b' * ln 2)) with (IZR a) by (field; lra).
  + apply Rle_trans with (2 := X3). rewrite <- Rmult_assoc. apply Rmult_le_compat_l; lra.
  + apply Rle_trans with (1 := X4). rewrite <- Rmult_assoc. apply Rmult_le_compat_l; lra.
- intros [H3 H4]. apply Z.leb_le in H3, H4. apply IZR_le in H3, H4.
  rewrite !mult_IZR, two_pow in H3, H4 by lia.
  assert (b0 : 0 < IZR (Z.pos b)) by (apply IZR_lt; reflexivity). set (b' := IZR (Z.pos b)) in *.
  assert (E : bpow radix2 64 * bpow radix2 (-64) = 1) by (rewrite <- bpow_plus; reflexivity).
  split; apply Rmult_le_reg_r with (1 := b0); replace (IZR a / b' * b') with (IZR a) by (field; lra).
  + apply Rmult_le_compat_r with (r := bpow radix2 (-64)) in H3; [|lra].
    replace (IZR a * bpow radix2 64 * bpow radix2 (-64)) with (IZR a) in H3 by (rewrite Rmult_assoc, E; ring). lra.
  + apply Rmult_le_compat_r with (r := bpow radix2 (-64)) in H4; [|lra].
    replace (IZR a * bpow radix2 64 * bpow radix2 (-64)) with (IZR a) in H4 by (rewrite Rmult_assoc, E; ring). lra.
Qed.
