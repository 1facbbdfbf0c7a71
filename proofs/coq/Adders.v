(** * Adders that keep the promises of Execution

    IEEE arithmetic in any rounding mode, with or without flushing of results; and matrix units that
    align their operands to the largest exponent and truncate. *)

From Coq Require Import ZArith Reals Lra Lia List.
From Flocq Require Import Core BinarySingleNaN Relative.
From Headroom Require Import Formats Rows Exp2 Execution.
Import ListNotations.
Open Scope R_scope.

Section Adders.
Variables prec emax : Z.
Context (prec_positive : Prec_gt_0 prec) (prec_below_emax : Prec_lt_emax prec emax).
Notation emin := (3 - emax - prec)%Z.
Notation float := (binary_float prec emax).
Notation fexp := (FLT_exp emin prec).
Notation format := (generic_format radix2 fexp).
Notation value_of := (@B2R prec emax).
Notation rd md := (round radix2 fexp (round_mode md)).

(** ** One rounding

    [rounds md flush x r]: r is x rounded, flushed below 2^low if [flush = Some low]; where the
    rounded value is too large, r is not specified here (IEEE gives infinity or the largest
    number). *)
Definition after (flush : option Z) (y : R) : R :=
  match flush with None => y | Some low => flushed low y end.

Definition rounds md flush (x : R) (r : float) : Prop :=
  Rabs (rd md x) < bpow radix2 emax -> is_finite r = true /\ value_of r = after flush (rd md x).

(** Flocq's own operations are such roundings of the exact result. *)
Lemma plus_rounds md x y : is_finite x = true -> is_finite y = true ->
  rounds md None (value_of x + value_of y) (@Bplus prec emax _ _ md x y).
Proof.
intros Fx Fy H. generalize (Bplus_correct prec emax _ _ md x y Fx Fy).
unfold SpecFloat.fexp, SpecFloat.emin in *. fold (FLT_exp emin prec).
rewrite Rlt_bool_true by exact H. intros [E [F _]]. now split.
Qed.

Lemma fma_rounds md x y z : is_finite x = true -> is_finite y = true -> is_finite z = true ->
  rounds md None (value_of x * value_of y + value_of z) (@Bfma prec emax _ _ md x y z).
Proof.
intros Fx Fy Fz H. generalize (Bfma_correct prec emax _ _ md x y z Fx Fy Fz). cbv zeta.
unfold SpecFloat.fexp, SpecFloat.emin in *. fold (FLT_exp emin prec).
rewrite Rlt_bool_true by exact H. intros [E [F _]]. now split.
Qed.

Lemma mult_rounds md x y : is_finite x = true -> is_finite y = true ->
  rounds md None (value_of x * value_of y) (@Bmult prec emax _ _ md x y).
Proof.
intros Fx Fy H. generalize (Bmult_correct prec emax _ _ md x y).
unfold SpecFloat.fexp, SpecFloat.emin in *. fold (FLT_exp emin prec).
rewrite Rlt_bool_true by exact H. intros [E [F _]]. split; [|exact E].
rewrite F, Fx, Fy. reflexivity.
Qed.

Lemma minus_rounds md x y : is_finite x = true -> is_finite y = true ->
  rounds md None (value_of x - value_of y) (@Bminus prec emax _ _ md x y).
Proof.
intros Fx Fy H. generalize (Bminus_correct prec emax _ _ md x y Fx Fy).
unfold SpecFloat.fexp, SpecFloat.emin in *. fold (FLT_exp emin prec).
rewrite Rlt_bool_true by exact H. intros [E [F _]]. now split.
Qed.

Lemma div_rounds md x y : is_finite x = true -> value_of y <> 0 ->
  rounds md None (value_of x / value_of y) (@Bdiv prec emax _ _ md x y).
Proof.
intros Fx Fy H. generalize (Bdiv_correct prec emax _ _ md x y Fy).
unfold SpecFloat.fexp, SpecFloat.emin in *. fold (FLT_exp emin prec).
rewrite Rlt_bool_true by exact H. intros [E [F _]]. split; [|exact E]. now rewrite F.
Qed.

(** Flushing a floating-point number, as hardware does it to results. *)
Definition flush_float (low : Z) (r : float) : float :=
  if Rlt_bool (Rabs (value_of r)) (bpow radix2 low) then B754_zero false else r.

Lemma flush_rounds md low x r : rounds md None x r -> rounds md (Some low) x (flush_float low r).
Proof.
intros H B. destruct (H B) as [F E]. unfold flush_float, after, flushed. cbn [after] in E.
rewrite E. case Rlt_bool_spec; intros Q; [now split|]. now split.
Qed.

(** ** Facts of one rounding *)
Definition nearest md := md = mode_NE \/ md = mode_NA.

Lemma rounds_bounded md flush x r k e : rounds md flush x r -> (0 <= k <= 2 ^ prec)%Z ->
  (emin <= e)%Z -> Rabs x <= IZR k * bpow radix2 e -> IZR k * bpow radix2 e < bpow radix2 emax ->
  is_finite r = true /\ Rabs (value_of r) <= IZR k * bpow radix2 e.
Proof.
intros H Hk He Hx Ho. assert (B := rd_le emin prec (round_mode md) k e x Hk He Hx).
destruct H as [F E]; [lra|]. split; [exact F|]. rewrite E.
destruct flush as [low|]; unfold after; [|exact B].
destruct (flushed_cases low (rd md x)) as [Z|Z]; rewrite Z; [|exact B].
rewrite Rabs_R0. apply Rle_trans with (2 := B). apply Rabs_pos.
Qed.

(** A result is close: u = 2^-prec relatively to nearest, twice that in other modes; absolutely half
    (all) of the least subnormal number, or 2^low where it is flushed. *)
Definition unit_of md := match md with
| mode_NE | mode_NA => bpow radix2 (- prec) | _ => bpow radix2 (1 - prec) end.
Definition floor_of (flush : option Z) :=
  match flush with None => bpow radix2 emin | Some low => bpow radix2 (Z.max low emin) end.

Lemma unit_pos md : 0 < unit_of md.
Proof. destruct md; apply bpow_gt_0. Qed.
Lemma floor_pos flush : 0 < floor_of flush.
Proof. destruct flush; apply bpow_gt_0. Qed.

Lemma rounding_close md x : Rabs (rd md x - x) <= unit_of md * Rabs x + bpow radix2 emin.
Proof.
assert (E0 := bpow_gt_0 radix2 emin).
assert (N : forall choice, Rabs (round radix2 fexp (Znearest choice) x - x)
              <= bpow radix2 (- prec) * Rabs x + bpow radix2 emin).
{ intros choice. eapply Rle_trans; [apply (nearest_error emin prec (prec_positive := prec_positive))|].
  lra. }
assert (D : Rabs (rd md x - x) <= bpow radix2 (1 - prec) * Rabs x + bpow radix2 emin).
{ destruct (Rle_or_lt (bpow radix2 (emin + prec - 1)) (Rabs x)) as [B|B].
  - assert (Q := relative_error_FLT radix2 emin prec prec_positive (round_mode md) x B).
    replace (- prec + 1)%Z with (1 - prec)%Z in * by ring. lra.
  - destruct (Req_dec x 0) as [Z|NZ].
    + subst x. rewrite round_0 by auto with typeclass_instances.
      rewrite Rminus_0_r, Rabs_R0, Rmult_0_r. lra.
    + left. apply Rlt_le_trans with (ulp radix2 fexp x).
      * apply error_lt_ulp; auto with typeclass_instances.
      * rewrite ulp_FLT_small; auto.
        -- assert (0 <= bpow radix2 (1 - prec) * Rabs x).
           { apply Rmult_le_pos; [apply bpow_ge_0|apply Rabs_pos]. } lra.
        -- apply Rlt_le_trans with (1 := B). apply bpow_le. lia. }
destruct md; try exact D; apply N.
Qed.

Lemma rounds_close md flush x r : rounds md flush x r -> (match flush with None => True | Some low => (emin <= low)%Z end) ->
  Rabs (rd md x) < bpow radix2 emax ->
  Rabs (value_of r - x) <= unit_of md * Rabs x + floor_of flush.
Proof.
intros H Hlow B. destruct (H B) as [_ E]. rewrite E.
assert (C := rounding_close md x). assert (U := unit_pos md).
assert (U1 : 0 <= unit_of md * Rabs x) by (apply Rmult_le_pos; [lra|apply Rabs_pos]).
destruct flush as [low|]; unfold after, floor_of; [|exact C].
rewrite Z.max_l by exact Hlow.
unfold flushed. case Rlt_bool_spec; intros Q.
- replace (0 - x) with (- x) by ring. rewrite Rabs_Ropp.
  assert (Rabs x <= bpow radix2 low); [|lra].
  destruct (Rle_or_lt (Rabs x) (bpow radix2 low)) as [L|L]; [exact L|exfalso].
  apply Rlt_not_le with (1 := Q). apply abs_round_ge_generic; auto with typeclass_instances; [|lra].
  now apply bpow_format.
- eapply Rle_trans; [exact C|]. apply Rplus_le_compat_l. now apply bpow_le.
Qed.

(** ** The IEEE adder of any number of operands: one rounding of their exact sum *)
Definition ieee_adder md flush (vs : list R) (r : float) := rounds md flush (total id vs) r.

Lemma total_le_magnitudes vs : Rabs (total id vs) <= total Rabs vs.
Proof. apply (total_abs id). Qed.

Theorem ieee_bounded md flush : bounded (ieee_adder md flush).
Proof.
intros vs r H k e Hk He Hx Ho. apply (rounds_bounded md flush (total id vs) r k e); auto.
apply Rle_trans with (2 := Hx). apply total_le_magnitudes.
Qed.


(** Where flushing happens at or above the least subnormal number. *)
Definition flush_ok (flush : option Z) := match flush with None => True | Some low => (emin <= low)%Z end.
Definition low_of (flush : option Z) := match flush with None => emin | Some low => Z.max low emin end.

Lemma roomy_in_range md vs : @roomy prec emax vs ->
  Rabs (rd md (total id vs)) < bpow radix2 emax.
Proof.
intros [k [e [Hk [He [M B]]]]]. apply Rle_lt_trans with (2 := B).
apply (rd_le emin prec (round_mode md)); auto. apply Rle_trans with (2 := M).
apply total_le_magnitudes.
Qed.

Theorem ieee_close md flush : flush_ok flush ->
  close (ieee_adder md flush) (fun _ => True) (unit_of md) (floor_of flush).
Proof.
intros Hlow vs r H Rm _. split; [exact I|]. assert (B := roomy_in_range md vs Rm).
eapply Rle_trans; [apply (rounds_close md flush _ _ H Hlow B)|].
apply Rplus_le_compat_r. apply Rmult_le_compat_l; [left; apply unit_pos|apply total_le_magnitudes].
Qed.

Theorem ieee_keeps md flush : keeps (ieee_adder md flush) (low_of flush).
Proof.
intros vs r L H Rm N. assert (B := roomy_in_range md vs Rm). destruct (H B) as [_ E]. rewrite E.
assert (T0 : 0 <= total id vs) by (apply total_nonneg; exact N).
assert (R0 : 0 <= rd md (total id vs)).
{ apply round_ge_generic; auto with typeclass_instances. apply generic_format_0. }
split.
- destruct flush as [low|]; unfold after; [apply flushed_le|]; exact R0.
- intros HL [v [Hv Bv]].
  assert (V := total_ge_term id vs v N Hv). unfold id at 1 in V.
  assert (RL : bpow radix2 L <= rd md (total id vs)).
  { apply round_ge_generic; auto with typeclass_instances; [|lra]. apply (bpow_format emin prec (prec_positive := prec_positive)).
    destruct flush; unfold low_of in HL; lia. }
  destruct flush as [low|]; unfold after; [|exact RL].
  rewrite flushed_kept; [exact RL|]. rewrite Rabs_pos_eq by exact R0.
  apply Rle_trans with (2 := RL). apply bpow_le. unfold low_of in HL. lia.
Qed.

(** ** Sums that never underflow

    Numbers of the format that are 0, or at least 2^low, nonnegative: weights. Their sums are such
    numbers again, with no absolute error at all: below the normal range a sum is exact. *)
Definition weighty flush (v : R) :=
  format v /\ (v = 0 \/ bpow radix2 (low_of flush) <= v).

Lemma format_multiple v : format v -> exists k, v = IZR k * bpow radix2 emin.
Proof.
intros F. exists (Ztrunc (v * bpow radix2 (- emin))).
assert (G : generic_format radix2 (FIX_exp emin) v) by now apply generic_format_FIX_FLT with prec.
unfold generic_format, F2R, scaled_mantissa, cexp, FIX_exp in G. exact G.
Qed.

Lemma sum_of_formats_error md vs : (forall v, In v vs -> format v) ->
  Rabs (rd md (total id vs) - total id vs) <= unit_of md * Rabs (total id vs).
Proof.
intros F.
assert (M : exists k, total id vs = IZR k * bpow radix2 emin).
{ induction vs as [|v t IH]; [exists 0%Z; simpl; ring|].
  destruct IH as [k1 E1]; [intros; apply F; now right|].
  destruct (format_multiple v (F v (or_introl eq_refl))) as [k2 E2].
  exists (k2 + k1)%Z. simpl total. unfold id at 1. rewrite E1, E2 at 1. rewrite plus_IZR. ring. }
set (x := total id vs) in *. assert (U := unit_pos md).
destruct (Rle_or_lt (bpow radix2 (emin + prec - 1)) (Rabs x)) as [B|B].
- assert (D := relative_error_FLT radix2 emin prec prec_positive (round_mode md) x B).
  replace (- prec + 1)%Z with (1 - prec)%Z in D by ring.
  assert (N : forall choice, Rabs (round radix2 fexp (Znearest choice) x - x)
                <= bpow radix2 (- prec) * Rabs x).
  { intros choice. replace (bpow radix2 (- prec)) with (/ 2 * bpow radix2 (- prec + 1)).
    - now apply relative_error_N_FLT.
    - rewrite bpow_plus. change (bpow radix2 1) with 2. field. }
  destruct md; unfold unit_of; try apply N; lra.
- destruct M as [k E]. rewrite round_generic; auto with typeclass_instances.
  + rewrite Rminus_diag_eq by reflexivity. rewrite Rabs_R0. apply Rmult_le_pos; [lra|apply Rabs_pos].
  + apply generic_format_FLT_FIX.
    * exact prec_positive.
    * apply Rle_trans with (1 := Rlt_le _ _ B). apply bpow_le. lia.
    * apply generic_format_FIX. exists (Float radix2 k emin); [exact E|reflexivity].
Qed.

Theorem ieee_close_on_weights md flush : flush_ok flush ->
  close (ieee_adder md flush) (weighty flush) (unit_of md) 0.
Proof.
intros Hlow vs r H Rm Good. assert (B := roomy_in_range md vs Rm).
destruct (H B) as [_ E].
assert (Low0 := bpow_gt_0 radix2 (low_of flush)).
assert (N : forall v, In v vs -> 0 <= v).
{ intros v Hv. destruct (Good v Hv) as [_ [Z|Z]]; lra. }
assert (Er := sum_of_formats_error md vs (fun v Hv => proj1 (Good v Hv))).
assert (T := total_le_magnitudes vs). assert (U := unit_pos md).
set (x := total id vs) in *. assert (x0 : 0 <= x) by (apply total_nonneg; exact N).
assert (Cases : x = 0 \/ bpow radix2 (low_of flush) <= rd md x).
{ assert (D : x = 0 \/ exists v, In v vs /\ bpow radix2 (low_of flush) <= v).
  { unfold x. clear - Good N Low0. induction vs as [|v t IH]; [left; reflexivity|].
    destruct (Good v (or_introl eq_refl)) as [_ [Z|Z]].
    - destruct IH as [Z2|[w [W1 W2]]]; try (intros; (apply Good || apply N); now right).
      + left. simpl total. unfold id at 1. rewrite Z, Z2. ring.
      + right. exists w. split; [now right|exact W2].
    - right. exists v. split; [now left|exact Z]. }
  destruct D as [D|[v [V1 V2]]]; [now left|right].
  apply round_ge_generic; auto with typeclass_instances.
  - apply (bpow_format emin prec (prec_positive := prec_positive)).
    destruct flush; unfold low_of; lia.
  - apply Rle_trans with (1 := V2). apply (total_ge_term id vs v N V1). }
destruct Cases as [Z|Q].
- rewrite Z, round_0 in E by auto with typeclass_instances.
  assert (E0 : value_of r = 0).
  { rewrite E. destruct flush as [low|]; unfold after; [|reflexivity].
    destruct (flushed_cases low 0) as [A|A]; exact A. }
  split.
  + rewrite E0. split; [apply generic_format_0|now left].
  + rewrite E0, Z, Rminus_0_r, Rabs_R0. rewrite Rplus_0_r.
    apply Rmult_le_pos; [lra|]. apply total_nonneg. intros; apply Rabs_pos.
- assert (E' : value_of r = rd md x).
  { rewrite E. destruct flush as [low|]; unfold after; [|reflexivity].
    apply flushed_kept. rewrite Rabs_pos_eq by lra. unfold low_of in Q.
    rewrite Z.max_l in Q by exact Hlow. exact Q. }
  rewrite E'. split.
  + split; [apply generic_format_round; auto with typeclass_instances|now right].
  + rewrite Rplus_0_r. apply Rle_trans with (1 := Er). apply Rmult_le_compat_l; [lra|exact T].
Qed.

(** ** Matrix units that truncate

    Operands are aligned: each is cut toward zero to a multiple of 2^grid, the grid F bits below the
    largest of them; their exact sum is cut toward zero to the format. *)
Definition cut (grid : Z) (x : R) := IZR (Ztrunc (x * bpow radix2 (- grid))) * bpow radix2 grid.

Definition truncating_unit (F : Z) (vs : list R) (r : float) := exists grid,
  ((exists v, In v vs /\ bpow radix2 (grid + F) <= Rabs v) \/ (forall v, In v vs -> v = 0)) /\
  rounds mode_ZR None (total (cut grid) vs) r.

Lemma Ztrunc_magnitude x : Rabs (IZR (Ztrunc x)) <= Rabs x /\ Rabs (IZR (Ztrunc x) - x) <= 1.
Proof.
destruct (Rle_or_lt 0 x) as [H|H].
- rewrite Ztrunc_floor by exact H. assert (L := Zfloor_lb x). assert (U := Zfloor_ub x).
  assert (0 <= IZR (Zfloor x)) by (apply IZR_le, Zfloor_lub; exact H).
  rewrite (Rabs_pos_eq x), (Rabs_pos_eq (IZR _)) by lra. split; [exact L|]. apply Rabs_le. lra.
- rewrite Ztrunc_ceil by lra. assert (U := Zceil_ub x).
  assert (L : IZR (Zceil x) < x + 1).
  { assert (Q := Zfloor_ub (- x)). unfold Zceil. rewrite opp_IZR. lra. }
  assert (IZR (Zceil x) <= 0) by (apply IZR_le, Zceil_glb; lra).
  rewrite (Rabs_left1 x), (Rabs_left1 (IZR _)) by lra. split; [lra|]. apply Rabs_le. lra.
Qed.

Lemma cut_facts grid x : Rabs (cut grid x) <= Rabs x /\ Rabs (cut grid x - x) <= bpow radix2 grid.
Proof.
assert (B := bpow_gt_0 radix2 grid).
destruct (Ztrunc_magnitude (x * bpow radix2 (- grid))) as [M C].
assert (E : x = x * bpow radix2 (- grid) * bpow radix2 grid).
{ rewrite Rmult_assoc, <- bpow_plus. replace (- grid + grid)%Z with 0%Z by ring. simpl. ring. }
unfold cut. split.
- rewrite E at 2. rewrite !Rabs_mult, (Rabs_pos_eq (bpow radix2 grid)) by lra.
  rewrite Rabs_mult in M. apply Rmult_le_compat_r; lra.
- rewrite E at 2. rewrite <- Rmult_minus_distr_r, Rabs_mult, (Rabs_pos_eq (bpow radix2 grid)) by lra.
  apply Rle_trans with (1 * bpow radix2 grid); [apply Rmult_le_compat_r; lra|lra].
Qed.

Lemma cut_sum_magnitude grid vs : Rabs (total (cut grid) vs) <= total Rabs vs.
Proof.
eapply Rle_trans; [apply total_abs|]. apply total_le. intros v _. apply cut_facts.
Qed.

Theorem truncating_bounded F : bounded (truncating_unit F).
Proof.
intros vs r [grid [_ H]] k e Hk He Hx Ho. apply (rounds_bounded _ _ _ _ k e H); auto.
apply Rle_trans with (2 := Hx). apply cut_sum_magnitude.
Qed.

(** Errors: k operands lose at most 2^-F of the largest each, and the result 2^(1 - prec). *)
Definition fewer_than (k : Z) (adds : list R -> float -> Prop) vs r :=
  (Z.of_nat (length vs) <= k)%Z /\ adds vs r.

Theorem truncating_close F k : (0 <= k)%Z ->
  close (fewer_than k (truncating_unit F)) (fun _ => True)
    (IZR k * bpow radix2 (- F) + bpow radix2 (1 - prec)) (bpow radix2 emin).
Proof.
intros Hk vs r [Hn [grid [Top H]]] [c [e [Hc [He [M B]]]]] _. split; [exact I|].
assert (Mc := cut_sum_magnitude grid vs).
assert (In_range : Rabs (rd mode_ZR (total (cut grid) vs)) < bpow radix2 emax).
{ apply Rle_lt_trans with (2 := B). apply (rd_le emin prec (round_mode mode_ZR)); auto. lra. }
destruct (H In_range) as [_ E]. rewrite E. unfold after.
assert (C := rounding_close mode_ZR (total (cut grid) vs)). unfold unit_of in C.
assert (D : Rabs (total (cut grid) vs - total id vs) <= IZR k * bpow radix2 (- F) * total Rabs vs).
{ destruct Top as [[v [Hv Bv]]|Zero].
  2: { rewrite (total_ext _ (fun _ => 0)), (total_ext id (fun _ => 0)).
    - rewrite total_const, Rmult_0_r, Rminus_0_r, Rabs_R0.
      apply Rmult_le_pos; [apply Rmult_le_pos; [now apply IZR_le|apply bpow_ge_0]|].
      apply total_nonneg. intros. apply Rabs_pos.
    - exact Zero.
    - intros x X. rewrite (Zero x X). unfold cut. rewrite Rmult_0_l, Ztrunc_IZR. ring. }
  rewrite <- total_minus. eapply Rle_trans; [apply total_abs|].
  apply Rle_trans with (count vs * bpow radix2 grid).
  - rewrite <- total_const. apply total_le. intros x _. apply cut_facts.
  - assert (V := total_ge_term Rabs vs v (fun i _ => Rabs_pos i) Hv).
    assert (G : bpow radix2 grid <= bpow radix2 (- F) * total Rabs vs).
    { replace grid with (- F + (grid + F))%Z by ring. rewrite bpow_plus.
      apply Rmult_le_compat_l; [apply bpow_ge_0|lra]. }
    rewrite Rmult_assoc. apply Rmult_le_compat; [apply pos_INR|apply bpow_ge_0| |exact G].
    rewrite INR_IZR_INZ. now apply IZR_le. }
replace (rd mode_ZR (total (cut grid) vs) - total id vs) with
  ((rd mode_ZR (total (cut grid) vs) - total (cut grid) vs)
   + (total (cut grid) vs - total id vs)) by ring.
eapply Rle_trans; [apply Rabs_triang|].
assert (P := bpow_ge_0 radix2 (1 - prec)).
assert (bpow radix2 (1 - prec) * Rabs (total (cut grid) vs) <= bpow radix2 (1 - prec) * total Rabs vs)
  by now apply Rmult_le_compat_l.
lra.
Qed.
End Adders.
