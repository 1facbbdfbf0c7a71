(** * Formats: numbers with [prec] bits and least exponent [emin]

    Everything here is about Flocq's [FLT_exp emin prec]: gradual underflow, no largest number.
    FP32 is [emin = -149], [prec = 24]; BF16 [-133], [8]; FP16 [-24], [11]. Overflow is a matter of
    SumsInIeee and Execution; flushing to zero of Flush. *)

From Coq Require Import ZArith Reals Lia Lra.
From Flocq Require Import Core Relative Plus_error.
Open Scope R_scope.

Section Formats.
Variables emin prec : Z.
Context {prec_positive : Prec_gt_0 prec}.
Notation fexp := (FLT_exp emin prec).
Notation format := (generic_format radix2 fexp).
Notation rd rnd := (round radix2 fexp rnd).
Notation u := (bpow radix2 (- prec)).

(** The fact on which all bounds of sums rest: not only powers of two, but every whole multiple of
    2^e up to 2^prec, that bound included, is a number of the format. *)
Lemma format_scaled : forall k e, (0 <= k <= 2 ^ prec)%Z -> (emin <= e)%Z ->
  format (IZR k * bpow radix2 e).
Proof.
intros k e Hk He.
destruct (Z_le_lt_eq_dec k (2^prec)) as [Hlt|Heq]; [lia| |].
- apply generic_format_FLT. exists (Float radix2 k e).
  + unfold F2R; simpl; ring.
  + simpl. rewrite Z.abs_eq by lia. exact Hlt.
  + exact He.
- subst k. change 2%Z with (radix_val radix2).
  rewrite IZR_Zpower by (unfold Prec_gt_0 in *; lia). rewrite <- bpow_plus.
  apply generic_format_FLT_bpow. exact prec_positive. unfold Prec_gt_0 in *; lia.
Qed.

(** Rounding is monotone, so it cannot carry a value across such a multiple. *)
Lemma rd_le : forall rnd {V : Valid_rnd rnd} k e x, (0 <= k <= 2 ^ prec)%Z -> (emin <= e)%Z ->
  Rabs x <= IZR k * bpow radix2 e -> Rabs (rd rnd x) <= IZR k * bpow radix2 e.
Proof.
intros rnd V k e x Hk He Hx.
apply abs_round_le_generic; auto with typeclass_instances.
now apply format_scaled.
Qed.


Lemma bpow_format : forall k, (emin <= k)%Z -> format (bpow radix2 k).
Proof. intros k Hk. now apply generic_format_FLT_bpow. Qed.

Lemma two_pow : forall k, (0 <= k)%Z -> IZR (2 ^ k) = bpow radix2 k.
Proof. intros k Hk. change 2%Z with (radix_val radix2). now apply IZR_Zpower. Qed.

(** Whole numbers of at most [prec] bits, which C, L and every count are. *)
Lemma format_integer : forall z, (emin <= 0)%Z -> (Z.abs z <= 2 ^ prec)%Z -> format (IZR z).
Proof.
intros z H0 Hz. destruct (Z.le_gt_cases 0 z) as [H|H].
- replace (IZR z) with (IZR z * bpow radix2 0) by (simpl; ring). apply format_scaled; lia.
- replace (IZR z) with (- (IZR (- z) * bpow radix2 0)) by (rewrite opp_IZR; simpl; ring).
  apply generic_format_opp. apply format_scaled; lia.
Qed.

(** Truncation never increases a magnitude. *)
Lemma rd_ZR_le : forall x, Rabs (rd Ztrunc x) <= Rabs x.
Proof.
intros x. destruct (Rle_or_lt 0 x) as [Hx|Hx].
- rewrite round_ZR_DN by exact Hx.
  assert (0 <= rd Zfloor x). { apply round_ge_generic; auto with typeclass_instances. apply generic_format_0. }
  rewrite !Rabs_pos_eq by assumption. apply round_DN_pt; auto with typeclass_instances.
- rewrite round_ZR_UP by lra.
  assert (rd Zceil x <= 0). { apply round_le_generic; auto with typeclass_instances. apply generic_format_0. lra. }
  rewrite !Rabs_left1 by lra. apply Ropp_le_contravar. apply round_UP_pt; auto with typeclass_instances.
Qed.

(** The unit roundoff as Flocq writes it is 2^-prec. *)
Lemma unit_roundoff : u_ro radix2 prec = u.
Proof. unfold u_ro. rewrite bpow_plus. change (bpow radix2 1) with 2. lra. Qed.

(** A sum of two numbers of the format, rounded to nearest, has a relative error of at most u and
    no underflow term: below the normal range it is exact. *)
Lemma sum_relative_error : forall choice x y, format x -> format y ->
  exists d, Rabs d <= u /\ rd (Znearest choice) (x + y) = (x + y) * (1 + d).
Proof.
intros choice x y Fx Fy.
destruct (FLT_plus_error_N_ex radix2 emin prec choice x y Fx Fy) as [d [D1 D2]].
exists d. split; [|exact D2]. apply Rle_trans with (1 := D1). rewrite unit_roundoff.
assert (u0 : 0 < u) by apply bpow_gt_0. apply Rle_trans with (u / 1); [|lra].
unfold Rdiv. apply Rmult_le_compat_l; [lra|]. apply Rinv_le; lra.
Qed.

(** Any real, rounded to nearest: u relatively, and half the least subnormal number at the bottom. *)
Lemma nearest_error : forall choice x,
  Rabs (rd (Znearest choice) x - x) <= u * Rabs x + / 2 * bpow radix2 emin.
Proof.
intros choice x.
destruct (error_N_FLT radix2 emin prec prec_positive choice x) as [d [h [D [H [_ E]]]]].
rewrite E. replace (x * (1 + d) + h - x) with (x * d + h) by ring.
eapply Rle_trans; [apply Rabs_triang|]. apply Rplus_le_compat; [|exact H].
rewrite Rabs_mult, Rmult_comm. apply Rmult_le_compat_r; [apply Rabs_pos|].
apply Rle_trans with (1 := D). change (u_ro radix2 prec) with (/ 2 * bpow radix2 (- prec + 1)).
fold (u_ro radix2 prec). rewrite unit_roundoff. apply Rle_refl.
Qed.
End Formats.
