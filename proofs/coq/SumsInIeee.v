(** * Sums of IEEE numbers: no intermediate is infinite

    The bounds of Sums and SumsToNearest for Flocq's binary floating-point numbers, where a result
    can be infinite or NaN: if g(weight) 2^e is below 2^emax, every value of the sum is finite, and a
    sum of nonnegative terms is at least each of them. *)

From Coq Require Import ZArith Reals Lia Lra List.
From Flocq Require Import Core BinarySingleNaN.
From Headroom Require Import Formats SumsToNearest.
Open Scope R_scope.

Section SumsInIeee.
Variables prec emax : Z.
Context (prec_positive : Prec_gt_0 prec) (prec_below_emax : Prec_lt_emax prec emax).
Notation bf := (binary_float prec emax).
Notation emin := (3 - emax - prec)%Z.
Notation fexp := (FLT_exp emin prec).
Notation format := (generic_format radix2 fexp).
Notation B2R := (@B2R prec emax).
Notation fin := (@is_finite prec emax).
Notation rd md := (round radix2 fexp (round_mode md)).
Notation plus := (@Bplus prec emax prec_positive prec_below_emax).
Notation fma := (@Bfma prec emax prec_positive prec_below_emax).
Notation g := (SumsToNearest.g prec).

(** A sum as a machine makes it: any tree; a leaf is a computed value with its weight, an FMA node
    adds the exact product p v. Each operation has a rounding mode of its own. *)
Inductive prog :=
| Val (x : bf) (w : Z)
| Add (md : mode) (l r : prog)
| Fma (md : mode) (p v : bf) (w : Z) (c : prog).

Fixpoint run (t : prog) : bf := match t with
| Val x _ => x
| Add md l r => plus md (run l) (run r)
| Fma md p v _ c => fma md p v (run c) end.

Fixpoint weight (t : prog) : Z := match t with
| Val _ w => w
| Add _ l r => weight l + weight r
| Fma _ _ _ w c => weight c + w end.

(** Every value that is ever produced. *)
Fixpoint values (t : prog) : list bf := run t :: match t with
| Val _ _ => nil
| Add _ l r => values l ++ values r
| Fma _ _ _ _ c => values c end.

Definition nearest md := md = mode_NE \/ md = mode_NA.
Fixpoint all_nearest t : Prop := match t with
| Val _ _ => True
| Add md l r => nearest md /\ all_nearest l /\ all_nearest r
| Fma md _ _ _ c => nearest md /\ all_nearest c end.

Section Unit.
Variable e : Z.
Hypothesis He : (emin <= e)%Z.
Notation U k := (IZR k * bpow radix2 e).

(** Terms within their weights, in units of 2^e. *)
Fixpoint wf (t : prog) : Prop := match t with
| Val x w => (0 <= w)%Z /\ fin x = true /\ Rabs (B2R x) <= U w
| Add _ l r => wf l /\ wf r
| Fma _ p v w c => wf c /\ (0 <= w <= 2 ^ prec)%Z /\ fin p = true /\ fin v = true /\ Rabs (B2R p * B2R v) <= U w end.

(** When the bound is known: few enough terms, or rounding to nearest. *)
Definition order_ok t := (weight t <= 2 ^ prec)%Z \/ (all_nearest t /\ (weight t <= 2 ^ (2 * prec))%Z).

Lemma prec1 : (2 <= 2 ^ prec)%Z.
Proof. unfold Prec_gt_0 in *. apply (Z.pow_le_mono_r 2 1 prec); lia. Qed.
Lemma sq : (2 ^ prec <= 2 ^ (2 * prec))%Z.
Proof. unfold Prec_gt_0 in *. apply Z.pow_le_mono_r; lia. Qed.
Lemma sq1 : (2 ^ (2 * prec + 1) = 2 * 2 ^ (2 * prec))%Z.
Proof. unfold Prec_gt_0 in *. rewrite Z.pow_add_r by lia. lia. Qed.

Lemma weight_pos : forall t, wf t -> (0 <= weight t)%Z.
Proof. induction t; simpl; intros; intuition lia. Qed.

Lemma Ule : forall a b, (a <= b)%Z -> U a <= U b.
Proof. intros. apply Rmult_le_compat_r; [apply bpow_ge_0|now apply IZR_le]. Qed.

Lemma gmono : forall k l, (k <= l)%Z -> (g k <= g l)%Z.
Proof. intros. unfold SumsToNearest.g. lia. Qed.
Lemma gge : forall k, (k <= g k)%Z.
Proof. intros. unfold SumsToNearest.g. lia. Qed.
Lemma gsmall : forall k, (k <= 2^prec)%Z -> (g k = k)%Z.
Proof. intros. unfold SumsToNearest.g. lia. Qed.

Lemma step : forall md k l x y, (0 <= k)%Z -> (0 <= l)%Z ->
  ((k + l <= 2 ^ prec)%Z \/ (nearest md /\ (k + l <= 2 ^ (2 * prec))%Z)) ->
  format x -> (format y \/ (l <= 2 ^ prec)%Z) -> Rabs x <= U (g k) -> Rabs y <= U (g l) ->
  Rabs (rd md (x + y)) <= U (g (k + l)).
Proof.
intros md k l x y Hk Hl [S|[Hn S]] Fx Fy Hx Hy.
- rewrite gsmall in Hx, Hy |- * by lia. apply rd_le; auto with typeclass_instances; [lia|].
  eapply Rle_trans; [apply Rabs_triang|]. rewrite plus_IZR. lra.
- assert (Hg : (g (k + l) <= 2 ^ (2 * prec + 1))%Z).
  { rewrite sq1. assert (P := prec1). unfold SumsToNearest.g. lia. }
  destruct Hn; subst md; simpl; apply near_step; auto.
Qed.

Lemma run_bound : forall t, wf t -> order_ok t -> U (g (weight t)) < bpow radix2 emax ->
  fin (run t) = true /\ Rabs (B2R (run t)) <= U (g (weight t)).
Proof.
induction t as [x w|md l IHl r IHr|md p v w c IHc]; intros Hw Hk Ho.
- simpl in *. destruct Hw as [W0 [F B]]. split; auto. eapply Rle_trans; [exact B|]. apply Ule, gge.
- destruct Hw as [Hl Hr].
  assert (Pl := weight_pos l Hl). assert (Pr := weight_pos r Hr). unfold order_ok in *. cbn [weight all_nearest run] in *.
  assert (Ul := Ule _ _ (gmono (weight l) (weight l + weight r) ltac:(lia))).
  assert (Ur := Ule _ _ (gmono (weight r) (weight l + weight r) ltac:(lia))).
  destruct IHl as [Fl Bl]; auto; [destruct Hk as [Hk|[[? [? ?]] Hk]]; [left; lia|right; split; auto; lia]|lra|].
  destruct IHr as [Fr Br]; auto; [destruct Hk as [Hk|[[? [? ?]] Hk]]; [left; lia|right; split; auto; lia]|lra|].
  assert (B : Rabs (rd md (B2R (run l) + B2R (run r))) <= U (g (weight l + weight r))).
  { apply step; auto; try (left; apply generic_format_B2R); try apply generic_format_B2R. tauto. }
  generalize (Bplus_correct prec emax prec_positive prec_below_emax md _ _ Fl Fr).
  unfold SpecFloat.fexp, SpecFloat.emin in *. fold (FLT_exp emin prec).
  rewrite Rlt_bool_true. 2: { eapply Rle_lt_trans; [exact B|exact Ho]. }
  intros [E [F _]]. split; [exact F|]. rewrite E. exact B.
- destruct Hw as [Hc [Pw [Fp [Fv Hpv]]]].
  assert (Pc := weight_pos c Hc). unfold order_ok in *. cbn [weight all_nearest run] in *.
  assert (Uc := Ule _ _ (gmono (weight c) (weight c + w) ltac:(lia))).
  destruct IHc as [Fc Bc]; auto; [destruct Hk as [Hk|[[? ?] Hk]]; [left; lia|right; split; auto; lia]|lra|].
  assert (B : Rabs (rd md (B2R p * B2R v + B2R (run c))) <= U (g (weight c + w))).
  { rewrite Rplus_comm. apply step; [exact Pc|lia|tauto|apply generic_format_B2R|right; lia|exact Bc|].
    eapply Rle_trans; [exact Hpv|]. apply Ule, gge. }
  generalize (Bfma_correct prec emax prec_positive prec_below_emax md _ _ _ Fp Fv Fc). cbv zeta.
  unfold SpecFloat.fexp, SpecFloat.emin in *. fold (FLT_exp emin prec).
  rewrite Rlt_bool_true. 2: { eapply Rle_lt_trans; [exact B|exact Ho]. }
  intros [E [F _]]. split; [exact F|]. rewrite E. exact B.
Qed.

Lemma order_ok_sub : forall md l r, wf l -> wf r -> order_ok (Add md l r) -> order_ok l /\ order_ok r.
Proof.
intros md l r Hl Hr [H|[[_ [A B]] H]]; assert (Pl := weight_pos l Hl); assert (Pr := weight_pos r Hr); cbn [weight all_nearest] in H; unfold order_ok.
- split; left; lia.
- split; right; split; auto; lia.
Qed.

(** No intermediate overflows: in any order and association, fused or not. *)
Theorem no_overflow : forall t, wf t -> order_ok t -> U (g (weight t)) < bpow radix2 emax ->
  forall x, In x (values t) -> fin x = true /\ Rabs (B2R x) <= U (g (weight t)).
Proof.
intros t0 Hw0 Hk0 Ho0.
assert (G : forall s t, wf s -> order_ok s -> (weight s <= weight t)%Z -> U (g (weight t)) < bpow radix2 emax ->
   forall x, In x (values s) -> fin x = true /\ Rabs (B2R x) <= U (g (weight t))).
{ induction s as [y w|md l IHl r IHr|md p v w c IHc]; intros t Ws Os Hs Ho x Hin; destruct Hin as [Hx|Hin];
  try (subst x; assert (U0 := weight_pos _ Ws);
    match goal with |- context [run ?s] =>
      assert (Us := Ule _ _ (gmono (weight s) (weight t) Hs));
      destruct (run_bound s Ws Os) as [F B]; [lra|]; split; [exact F|lra] end).
  - contradiction.
  - destruct Ws as [Wl Wr]. assert (Pl := weight_pos l Wl). assert (Pr := weight_pos r Wr).
    destruct (order_ok_sub md l r Wl Wr Os). simpl in Hs.
    apply in_app_or in Hin. destruct Hin as [Hin|Hin]; [apply IHl|apply IHr]; auto; lia.
  - destruct Ws as [Wc [Pw _]]. assert (Pc := weight_pos c Wc). simpl in Hs. apply IHc; auto; [|lia].
    destruct Os as [O|[[_ O1] O2]]; cbn [weight all_nearest] in *; [left; lia|right; split; auto; lia]. }
intros x Hin. apply (G t0 t0); auto; lia.
Qed.

(** Sums of nonnegative terms, which the denominator is. *)
Fixpoint nonneg (t : prog) : Prop := match t with
| Val x _ => 0 <= B2R x
| Add _ l r => nonneg l /\ nonneg r
| Fma _ _ _ _ _ => False end.
Fixpoint has_leaf (lo : R) (t : prog) : Prop := match t with
| Val x _ => lo <= B2R x
| Add _ l r => has_leaf lo l \/ has_leaf lo r
| Fma _ _ _ _ _ => False end.

(** Such a sum dominates each of its terms: nothing cancels, nothing underflows. *)
Theorem row_sum_lower : forall t, wf t -> order_ok t -> U (g (weight t)) < bpow radix2 emax -> nonneg t ->
  0 <= B2R (run t) /\ forall lo, format lo -> has_leaf lo t -> lo <= B2R (run t).
Proof.
induction t as [x w|md l IHl r IHr|md p v w c IHc]; intros Hw Hk Ho Hn.
- simpl in *. split; auto.
- assert (RB := run_bound _ Hw Hk Ho). assert (Hw' := Hw). destruct Hw as [Hl Hr]. destruct Hn as [Nl Nr].
  destruct (order_ok_sub md l r Hl Hr Hk) as [Ol Or].
  assert (Pl := weight_pos l Hl). assert (Pr := weight_pos r Hr). simpl weight in *. simpl run in *.
  assert (Ul := Ule _ _ (gmono (weight l) (weight l + weight r) ltac:(lia))).
  assert (Ur := Ule _ _ (gmono (weight r) (weight l + weight r) ltac:(lia))).
  destruct (run_bound l) as [Fl Bl]; auto; [lra|].
  destruct (run_bound r) as [Fr Br]; auto; [lra|].
  destruct IHl as [Zl Ll]; auto; [lra|].
  destruct IHr as [Zr Lr]; auto; [lra|].
  assert (B : Rabs (rd md (B2R (run l) + B2R (run r))) <= U (g (weight l + weight r))).
  { apply step; auto; try (left; apply generic_format_B2R); try apply generic_format_B2R.
    destruct Hk as [K|[[K1 K2] K3]]; cbn [weight all_nearest] in *; tauto. }
  generalize (Bplus_correct prec emax prec_positive prec_below_emax md _ _ Fl Fr).
  unfold SpecFloat.fexp, SpecFloat.emin in *. fold (FLT_exp emin prec).
  rewrite Rlt_bool_true. 2: { eapply Rle_lt_trans; [exact B|exact Ho]. }
  intros [E _]. rewrite E. split.
  + apply round_ge_generic; auto with typeclass_instances. apply generic_format_0. lra.
  + intros lo Flo HL. apply round_ge_generic; auto with typeclass_instances.
    destruct HL as [HL|HL]; [specialize (Ll lo Flo HL)|specialize (Lr lo Flo HL)]; lra.
- contradiction.
Qed.

(** Once finiteness is known, the bound holds for any unit that the terms respect. *)
Lemma self_in : forall t, In (run t) (values t).
Proof. destruct t; simpl; now left. Qed.
Lemma run_bound_fin : forall t, wf t -> order_ok t -> (forall x, In x (values t) -> fin x = true) ->
  Rabs (B2R (run t)) <= U (g (weight t)).
Proof.
induction t as [x w|md l IHl r IHr|md p v w c IHc]; intros Hw Hk HF.
- simpl in *. destruct Hw as [W0 [F B]]. eapply Rle_trans; [exact B|]. apply Ule, gge.
- assert (Hw' := Hw). destruct Hw as [Hl Hr].
  destruct (order_ok_sub md l r Hl Hr Hk) as [Ol Or].
  assert (Pl := weight_pos l Hl). assert (Pr := weight_pos r Hr).
  assert (HFl : forall x, In x (values l) -> fin x = true) by (intros; apply HF; right; apply in_or_app; now left).
  assert (HFr : forall x, In x (values r) -> fin x = true) by (intros; apply HF; right; apply in_or_app; now right).
  specialize (IHl Hl Ol HFl). specialize (IHr Hr Or HFr).
  assert (B : Rabs (rd md (B2R (run l) + B2R (run r))) <= U (g (weight l + weight r))).
  { apply step; auto; try (left; apply generic_format_B2R); try apply generic_format_B2R.
    destruct Hk as [K|[[K1 K2] K3]]; cbn [weight all_nearest] in *; tauto. }
  generalize (Bplus_correct prec emax prec_positive prec_below_emax md _ _ (HFl _ (self_in l)) (HFr _ (self_in r))).
  unfold SpecFloat.fexp, SpecFloat.emin in *. fold (FLT_exp emin prec).
  case Rlt_bool_spec; intros Hb.
  + intros [E _]. cbn [run weight]. rewrite E. exact B.
  + intros _. cbn [weight]. apply Rle_trans with (2 := B). apply Rle_trans with (2 := Hb). apply Rlt_le, abs_B2R_lt_emax.
- destruct Hw as [Hc [Pw [Fp [Fv Hpv]]]].
  assert (Pc := weight_pos c Hc).
  assert (Oc : order_ok c). { destruct Hk as [O|[[_ O1] O2]]; cbn [weight all_nearest] in *; [left; lia|right; split; auto; lia]. }
  assert (HFc : forall x, In x (values c) -> fin x = true) by (intros; apply HF; now right).
  specialize (IHc Hc Oc HFc).
  assert (B : Rabs (rd md (B2R p * B2R v + B2R (run c))) <= U (g (weight c + w))).
  { rewrite Rplus_comm. apply step; [exact Pc|lia| |apply generic_format_B2R|right; lia|exact IHc|].
    destruct Hk as [K|[[K1 K2] K3]]; cbn [weight all_nearest] in *; tauto.
    eapply Rle_trans; [exact Hpv|]. apply Ule, gge. }
  generalize (Bfma_correct prec emax prec_positive prec_below_emax md _ _ _ Fp Fv (HFc _ (self_in c))). cbv zeta.
  unfold SpecFloat.fexp, SpecFloat.emin in *. fold (FLT_exp emin prec).
  case Rlt_bool_spec; intros Hb.
  + intros [E _]. cbn [run weight]. rewrite E. exact B.
  + intros _. cbn [weight]. apply Rle_trans with (2 := B). apply Rle_trans with (2 := Hb). apply Rlt_le, abs_B2R_lt_emax.
Qed.
End Unit.
(** ** The rules for C

    The published rule, C + ceil(log2 N) + G < emax + 1 (Flocq's emax is IEEE's plus one): with
    [run_bound], sound up to 2^prec terms in any rounding and up to 2^(2 prec) to nearest. *)
Lemma published_rule : forall N C G, (0 < N)%Z -> (C + Z.log2_up N + G < emax)%Z -> IZR (g N) * bpow radix2 (C + G) < bpow radix2 emax.
Proof.
intros N C G HN Hr.
assert (A0 := Z.log2_up_nonneg N).
assert (NA : (N <= 2 ^ Z.log2_up N)%Z).
{ destruct (Z.le_gt_cases N 1). replace N with 1%Z by lia. simpl. lia. apply Z.log2_up_spec; lia. }
assert (P : (1 <= 2 ^ prec)%Z) by (unfold Prec_gt_0 in *; apply (Z.pow_le_mono_r 2 0 prec); lia).
assert (Hg : (g N < 2 ^ (Z.log2_up N + 1))%Z).
{ rewrite Z.pow_add_r by lia. unfold SumsToNearest.g. lia. }
apply Rlt_le_trans with (IZR (2 ^ (Z.log2_up N + 1)) * bpow radix2 (C + G)).
- apply Rmult_lt_compat_r; [apply bpow_gt_0|now apply IZR_lt].
- change 2%Z with (radix_val radix2). rewrite IZR_Zpower by lia. rewrite <- bpow_plus. apply bpow_le. lia.
Qed.

(** One binade better up to 2^prec terms: floor for ceil. *)
Lemma floor_rule : forall N C G, (0 < N <= 2 ^ prec)%Z -> (C + Z.log2 N + G < emax)%Z -> IZR (g N) * bpow radix2 (C + G) < bpow radix2 emax.
Proof.
intros N C G [HN HN2] H. replace (g N) with N by (unfold SumsToNearest.g; lia).
destruct (Z.log2_spec N HN) as [_ NL]. assert (L0 := Z.log2_nonneg N).
apply Rlt_le_trans with (IZR (2 ^ Z.succ (Z.log2 N)) * bpow radix2 (C + G)).
- apply Rmult_lt_compat_r; [apply bpow_gt_0|now apply IZR_lt].
- change 2%Z with (radix_val radix2). rewrite IZR_Zpower by lia. rewrite <- bpow_plus. apply bpow_le. lia.
Qed.

End SumsInIeee.
