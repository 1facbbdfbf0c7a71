(** * Sums to nearest, beyond 2^prec terms

    |partial sum| <= g(k) 2^e with g(k) = max(k, 2k - 2^prec), in any association and with any tie
    rule, up to k = 2^(2 prec): 2^48 for FP32, 4,194,304 for FP16, 65,536 for BF16. So the spare bit
    in the published strict rule C + ceil(log2 N) + G < emax + 1 is what rounding to nearest needs.
    Beyond 2^(2 prec) the rule is false: CounterexampleAccumulator. *)

From Coq Require Import ZArith Reals Lia Lra List.
From Flocq Require Import Core.
From Headroom Require Import Formats.
Open Scope R_scope.

Section SumsToNearest.
Variables emin prec : Z.
Context {prec_positive : Prec_gt_0 prec}.
Notation fexp := (FLT_exp emin prec).
Notation format := (generic_format radix2 fexp).
Variable choice : Z -> bool.
Notation rn := (round radix2 fexp (Znearest choice)).
Variable e : Z.
Hypothesis He : (emin <= e)%Z.
Notation U k := (IZR k * bpow radix2 e).
(** theory.md's g(k): what k units can have become. *)
Definition g (k : Z) : Z := Z.max k (2 * k - 2 ^ prec).

(** Two ways to see the error of one addition: it is at most the smaller operand, since the larger
    one is a candidate, *)
Lemma err_le_r : forall x y, format x -> Rabs (rn (x + y) - (x + y)) <= Rabs y.
Proof.
intros x y Fx. replace (Rabs y) with (Rabs (x - (x + y))).
- apply round_N_pt; auto with typeclass_instances.
- rewrite <- Rabs_Ropp. f_equal. ring.
Qed.

Lemma abs_from_err : forall s E, Rabs (rn s - s) <= E -> Rabs (rn s) <= Rabs s + E.
Proof.
intros s E H. replace (rn s) with (s + (rn s - s)) by ring.
eapply Rle_trans; [apply Rabs_triang|]. lra.
Qed.

(** and at most half an ulp. *)
Lemma half_ulp_big : forall s, Rabs s < bpow radix2 (2 * prec + 1 + e) -> Rabs (rn s - s) <= bpow radix2 (prec + e).
Proof.
intros s Hs. destruct (Req_dec s 0) as [Z|NZ].
- subst s. rewrite round_0 by auto with typeclass_instances. rewrite Rminus_0_r, Rabs_R0. apply bpow_ge_0.
- eapply Rle_trans; [apply error_le_half_ulp; auto with typeclass_instances|].
  rewrite ulp_neq_0 by exact NZ.
  assert (M : (mag radix2 s <= 2 * prec + 1 + e)%Z) by (apply mag_le_bpow; auto).
  assert (C : (cexp radix2 fexp s <= prec + e + 1)%Z).
  { unfold cexp, FLT_exp. unfold Prec_gt_0 in *. lia. }
  apply Rle_trans with (/ 2 * bpow radix2 (prec + e + 1)).
  + apply Rmult_le_compat_l; [lra|]. now apply bpow_le.
  + rewrite (bpow_plus radix2 (prec + e) 1). change (bpow radix2 1) with 2. 
    assert (H := bpow_ge_0 radix2 (prec + e)). lra.
Qed.

(** One addition of partial results of k and of l units: four cases, by whether each is still exact
    (up to 2^prec) or not. [y] may be an exact product in a fused operation. *)
Theorem near_step : forall k l x y, (0 <= k)%Z -> (0 <= l)%Z -> (g (k + l) <= 2 ^ (2 * prec + 1))%Z ->
  format x -> (format y \/ (l <= 2 ^ prec)%Z) -> Rabs x <= U (g k) -> Rabs y <= U (g l) -> Rabs (rn (x + y)) <= U (g (k + l)).
Proof.
intros k l x y Hk Hl HK Fx Fy Hx Hy.
assert (P : (1 <= 2 ^ prec)%Z) by (unfold Prec_gt_0 in *; apply (Z.pow_le_mono_r 2 0 prec); lia).
assert (B0 := bpow_gt_0 radix2 e).
assert (T := Rabs_triang x y).
assert (Add : forall a b, U a + U b = U (a + b)) by (intros; rewrite plus_IZR; ring).
assert (Le : forall a b, (a <= b)%Z -> U a <= U b) by (intros; apply Rmult_le_compat_r; [lra|now apply IZR_le]).
destruct (Z.le_gt_cases k (2^prec)) as [K|K]; destruct (Z.le_gt_cases l (2^prec)) as [L|L].
- (* both exact *)
  assert (gk : g k = k) by (unfold g; lia). assert (gl : g l = l) by (unfold g; lia).
  rewrite gk in Hx. rewrite gl in Hy.
  destruct (Z.le_gt_cases (k + l) (2^prec)) as [S|S].
  + replace (g (k + l)) with (k + l)%Z by (unfold g; lia).
    apply rd_le; auto with typeclass_instances; [lia|]. rewrite <- Add. lra.
  + (* ulp is 2: round up to the even integer above *)
    set (h := ((k + l + 1) / 2)%Z).
    assert (D := Z.div_mod (k + l + 1) 2 ltac:(lia)). assert (D2 := Z.mod_pos_bound (k + l + 1) 2 ltac:(lia)). fold h in D.
    apply Rle_trans with (U (2 * h)).
    * assert (E : U (2 * h) = IZR h * bpow radix2 (e + 1)).
      { rewrite mult_IZR, bpow_plus. change (bpow radix2 1) with 2. ring. }
      rewrite E. apply rd_le; auto with typeclass_instances; [lia|lia|]. rewrite <- E.
      apply Rle_trans with (U (k + l)); [rewrite <- Add; lra|]. apply Le. lia.
    * apply Le. unfold g. lia.
- (* k small, l big: error <= |x| *)
  destruct Fy as [Fy|Fy]; [|lia].
  assert (gk : g k = k) by (unfold g; lia). rewrite gk in Hx.
  rewrite Rplus_comm. rewrite Rplus_comm in T.
  eapply Rle_trans; [apply abs_from_err, err_le_r; exact Fy|].
  apply Rle_trans with (U (g l) + U k + U k); [lra|]. rewrite !Add. apply Le. unfold g. lia.
- assert (gl : g l = l) by (unfold g; lia). rewrite gl in Hy.
  eapply Rle_trans; [apply abs_from_err, err_le_r; exact Fx|].
  apply Rle_trans with (U (g k) + U l + U l); [lra|]. rewrite !Add. apply Le. unfold g. lia.
- (* both big: error <= 2^prec units because |s| < 2^(2prec+1) units *)
  assert (E : Rabs (rn (x + y) - (x + y)) <= bpow radix2 (prec + e)).
  { apply half_ulp_big. apply Rle_lt_trans with (U (g k + g l)); [rewrite <- Add; lra|].
    apply Rlt_le_trans with (U (2 ^ (2 * prec + 1))).
    - apply Rmult_lt_compat_r; [lra|]. apply IZR_lt. unfold g in *. lia.
    - change 2%Z with (radix_val radix2) at 1. rewrite IZR_Zpower by (unfold Prec_gt_0 in *; lia).
      rewrite <- bpow_plus. apply Rle_refl. }
  eapply Rle_trans; [apply abs_from_err; exact E|].
  apply Rle_trans with (U (g k) + U (g l) + U (2 ^ prec)).
  + assert (Q : bpow radix2 (prec + e) = U (2 ^ prec)).
    { change 2%Z with (radix_val radix2) at 1. rewrite IZR_Zpower by (unfold Prec_gt_0 in *; lia). now rewrite bpow_plus. }
    lra.
  + rewrite !Add. apply Le. unfold g. lia.
Qed.
End SumsToNearest.
