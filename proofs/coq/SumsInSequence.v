(** * Sequential sums to nearest even stall at 2^prec units

    Added one after another, any number of terms |x| <= 2^e stays within 2^(prec + e): a BF16
    accumulator stops growing at 256 equal terms. In this order min(ceil(log2 N), prec) may stand
    for ceil(log2 N), and the same stall is why such an accumulator absorbs (claim
    [sum.absorption]). *)

From Coq Require Import ZArith Reals List Lia Lra.
From Flocq Require Import Core.
From Headroom Require Import Formats.
Open Scope R_scope.

Section SumsInSequence.
Variables emin prec : Z.
Context {prec_positive : Prec_gt_0 prec}.
Hypothesis Hp2 : (2 <= prec)%Z.
Notation fexp := (FLT_exp emin prec).
Notation rne := (round radix2 fexp ZnearestE).
Variable e : Z.
Hypothesis He : (emin <= e)%Z.
Notation U k := (IZR k * bpow radix2 e).

(** The tie just above 2^prec units falls to even, which is down. *)
Lemma tie_down : rne (U (2 ^ prec + 1)) = U (2 ^ prec).
Proof.
set (m := (2 ^ (prec - 1))%Z).
assert (Hm : (2 ^ prec = 2 * m)%Z). { unfold m. replace prec with (1 + (prec - 1))%Z at 1 by ring. rewrite Z.pow_add_r by lia. reflexivity. }
assert (m2 : (2 <= m)%Z). { unfold m. apply (Z.pow_le_mono_r 2 1 (prec - 1)); lia. }
assert (Ev : Z.even m = true). { unfold m. replace (prec - 1)%Z with (Z.succ (prec - 2)) by ring. rewrite Z.pow_succ_r by lia. apply Z.even_mul. }
assert (E1 : U (2 ^ prec + 1) = (IZR m + / 2) * bpow radix2 (e + 1)).
{ rewrite Hm, plus_IZR, mult_IZR, bpow_plus. change (bpow radix2 1) with 2. field. }
assert (B := bpow_gt_0 radix2 (e + 1)).
assert (M : mag radix2 (U (2 ^ prec + 1)) = (prec + e + 1)%Z :> Z).
{ apply mag_unique. assert (0 <= U (2 ^ prec + 1)) by (apply Rmult_le_pos; [apply IZR_le; lia|apply bpow_ge_0]).
  rewrite Rabs_pos_eq by assumption. replace (prec + e + 1 - 1)%Z with (prec + e)%Z by ring.
  rewrite (bpow_plus radix2 prec e), <- two_pow by lia. replace (prec + e + 1)%Z with ((prec + 1) + e)%Z by ring.
  rewrite (bpow_plus radix2 (prec + 1) e), <- (two_pow (prec + 1)) by lia. split.
  - apply Rmult_le_compat_r; [apply bpow_ge_0|apply IZR_le; lia].
  - apply Rmult_lt_compat_r; [apply bpow_gt_0|]. apply IZR_lt. rewrite Z.pow_add_r by lia. lia. }
unfold round, F2R. simpl Fnum. simpl Fexp.
assert (Cx : cexp radix2 fexp (U (2 ^ prec + 1)) = (e + 1)%Z).
{ unfold cexp. rewrite M. unfold FLT_exp. lia. }
assert (Sm : scaled_mantissa radix2 fexp (U (2 ^ prec + 1)) = IZR m + / 2).
{ unfold scaled_mantissa. rewrite Cx, E1, Rmult_assoc, <- bpow_plus. replace (e + 1 + - (e + 1))%Z with 0%Z by ring. simpl. ring. }
rewrite Sm, Cx.
assert (F : Zfloor (IZR m + / 2) = m). { apply Zfloor_imp. rewrite plus_IZR. lra. }
assert (Zn : ZnearestE (IZR m + / 2) = m).
{ unfold Znearest. rewrite F. rewrite Rcompare_Eq by lra. now rewrite Ev. }
rewrite Zn, Hm, mult_IZR, bpow_plus. change (bpow radix2 1) with 2. ring.
Qed.

Fixpoint sequential_sum (s : R) (l : list R) : R := match l with nil => s | x :: t => sequential_sum (rne (s + x)) t end.

Theorem sequential_sum_stalls : forall l s, Rabs s <= U (2 ^ prec) -> (forall x, In x l -> Rabs x <= U 1) ->
  Rabs (sequential_sum s l) <= U (2 ^ prec).
Proof.
induction l as [|x t IH]; intros s Hs Hl; simpl; [exact Hs|].
apply IH; [|intros; apply Hl; now right].
assert (Hx : Rabs x <= U 1) by (apply Hl; now left).
assert (T : Rabs (s + x) <= U (2 ^ prec + 1)). { eapply Rle_trans; [apply Rabs_triang|]. rewrite plus_IZR, Rmult_plus_distr_r. lra. }
rewrite <- round_NE_abs by auto with typeclass_instances. rewrite <- tie_down.
apply round_le; auto with typeclass_instances.
Qed.
End SumsInSequence.
