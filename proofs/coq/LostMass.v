(** * Lost mass: what flushing can take from a row

    Let the mean score of the visible keys lie D > 0 above the threshold below which weights may be
    flushed. Then the flushed keys hold at most rho / (1 + rho) of the row's mass,
    rho = 2^-D / (e D ln 2). The argument: with r the ratio of lost to kept keys, the kept keys' mean
    is at least D (1 + r) above the threshold, Jensen bounds their mass, and r 2^(-D (1 + r)) is
    largest at r = 1 / (D ln 2). *)

From Coq Require Import Reals Lra Lia List Bool.
From Headroom Require Import Rows Exp2 Jensen.
Import ListNotations.
Open Scope R_scope.

(** x e^-x <= 1/e. *)
Lemma x_exp_le x : x * exp (- x) <= / exp 1.
Proof.
assert (H : x <= exp (x - 1)).
{ destruct (Req_dec (x - 1) 0) as [E|E].
  - replace x with 1 by lra. replace (1 - 1) with 0 by ring. rewrite exp_0. lra.
  - assert (Q := exp_ineq1 _ E). lra. }
assert (E := exp_pos (- x)).
apply Rle_trans with (exp (x - 1) * exp (- x)); [apply Rmult_le_compat_r; lra|].
rewrite <- exp_plus, <- exp_Ropp. right. f_equal. ring.
Qed.

Definition lost_ratio D := exp2 (- D) / (exp 1 * (D * ln 2)).
Definition lost_bound D := lost_ratio D / (1 + lost_ratio D).

Lemma lost_ratio_pos D : 0 < D -> 0 < lost_ratio D.
Proof.
intros H. unfold lost_ratio. apply Rdiv_lt_0_compat; [apply exp2_pos|].
apply Rmult_lt_0_compat; [apply exp_pos|]. apply Rmult_lt_0_compat; [exact H|apply ln2_pos].
Qed.

Lemma ratio_le D r : 0 < D -> r * exp2 (- (D * (1 + r))) <= lost_ratio D.
Proof.
intros HD. assert (L := ln2_pos).
assert (X := x_exp_le (r * (D * ln 2))).
replace (- (D * (1 + r))) with (- D + - (r * D)) by ring. rewrite exp2_plus.
unfold exp2 at 2. replace (- (r * D) * ln 2) with (- (r * (D * ln 2))) by ring.
set (E := exp (- (r * (D * ln 2)))) in *. unfold lost_ratio.
assert (P : 0 < D * ln 2) by now apply Rmult_lt_0_compat.
assert (e0 := exp_pos 1). assert (Q := exp2_pos (- D)).
replace (r * (exp2 (- D) * E)) with (exp2 (- D) * (r * E)) by ring.
unfold Rdiv. apply Rmult_le_compat_l; [lra|]. rewrite Rinv_mult.
apply Rmult_le_reg_r with (1 := P).
replace (/ exp 1 * / (D * ln 2) * (D * ln 2)) with (/ exp 1) by (field; lra).
replace (r * E * (D * ln 2)) with (r * (D * ln 2) * E) by ring. exact X.
Qed.

Section Row.
Context {A : Type}.
Variable z : A -> R.
Variable keys : list A.
Hypothesis visible : keys <> [].
Notation mass l := (total (fun j => exp2 (z j)) l).

(** [lost]: any set of keys whose scores lie below the threshold [T]. *)
Variable lost : A -> bool.
Variables T D : R.
Hypothesis below : forall j, In j keys -> lost j = true -> z j <= T.
Hypothesis margin : count keys * (T + D) <= total z keys.

Notation lost_keys := (filter lost keys).
Notation kept_keys := (filter (fun j => negb (lost j)) keys).

Lemma lost_mass_count : mass lost_keys <= count lost_keys * exp2 T.
Proof.
rewrite <- total_const. apply total_le. intros j H. apply filter_In in H. destruct H as [H1 H2].
apply exp2_le. now apply below.
Qed.

Lemma lost_scores : total z lost_keys <= count lost_keys * T.
Proof.
rewrite <- total_const. apply total_le. intros j H. apply filter_In in H. destruct H as [H1 H2].
now apply below.
Qed.

(** ** The simple bound: 2^-D *)
Theorem lost_mass_simple : mass lost_keys <= exp2 (- D) * mass keys.
Proof.
assert (J := row_mass z keys (T + D) margin). rewrite exp2_plus in J.
assert (E := exp2_pos D). assert (F := exp2_pos T).
assert (C := count_split lost keys). assert (K0 := count_nonneg kept_keys).
apply Rle_trans with (1 := lost_mass_count). rewrite exp2_opp.
apply Rmult_le_reg_l with (1 := E).
replace (exp2 D * (/ exp2 D * mass keys)) with (mass keys) by (field; lra).
apply Rle_trans with (2 := J).
replace (exp2 D * (count lost_keys * exp2 T)) with (count lost_keys * (exp2 T * exp2 D)) by ring.
apply Rmult_le_compat_r; [apply Rmult_le_pos; lra|lra].
Qed.

(** By counting: N 2^T over any lower bound of the mass, for rows whose mean is useless. *)
Theorem lost_mass_by_count W : 0 < W -> W <= mass keys ->
  mass lost_keys <= count keys * exp2 T / W * mass keys.
Proof.
intros W0 HW. apply Rle_trans with (1 := lost_mass_count).
assert (E := exp2_pos T). assert (C := count_split lost keys). assert (K0 := count_nonneg kept_keys).
apply Rle_trans with (count keys * exp2 T); [apply Rmult_le_compat_r; lra|].
assert (N0 := count_nonneg keys). unfold Rdiv. rewrite Rmult_assoc.
rewrite <- (Rmult_1_r (count keys * exp2 T)) at 1.
apply Rmult_le_compat_l; [apply Rmult_le_pos; lra|].
apply Rmult_le_reg_l with (1 := W0).
replace (W * (/ W * mass keys)) with (mass keys) by (field; lra). lra.
Qed.

(** ** The sharp bound *)
Hypothesis positive : 0 < D.

(** Some key is kept: the mean is above the threshold. *)
Lemma kept_some : kept_keys <> [].
Proof.
intros E. assert (C := count_split lost keys). assert (S := total_split lost z keys).
rewrite E in C, S. simpl in C, S. assert (N0 := count_pos keys visible).
assert (L := lost_scores). assert (M := margin).
assert (0 < count keys * D) by now apply Rmult_lt_0_compat.
rewrite Rplus_0_r in C, S. rewrite <- C in L. lra.
Qed.

(** Lost over kept. *)
Lemma lost_to_kept : mass lost_keys <= lost_ratio D * mass kept_keys.
Proof.
assert (C := count_split lost keys). assert (S := total_split lost z keys).
assert (M0 := count_nonneg lost_keys). assert (K0 := count_pos _ kept_some).
set (m := count lost_keys) in *. set (k := count kept_keys) in *.
set (r := m / k).
assert (Kept : k * (T + D * (1 + r)) <= total z kept_keys).
{ assert (L := lost_scores). assert (G := margin). rewrite C, S in G. fold m in L.
  replace (k * (T + D * (1 + r))) with ((m + k) * (T + D) - m * T) by (unfold r; field; lra). lra. }
assert (J := row_mass z kept_keys _ Kept). fold k in J.
apply Rle_trans with (1 := lost_mass_count). fold m.
apply Rle_trans with (r * exp2 (- (D * (1 + r))) * (k * exp2 (T + D * (1 + r)))).
- replace (r * exp2 (- (D * (1 + r))) * (k * exp2 (T + D * (1 + r)))) with
    (r * k * (exp2 (- (D * (1 + r))) * exp2 (T + D * (1 + r)))) by ring.
  rewrite <- exp2_plus. replace (- (D * (1 + r)) + (T + D * (1 + r))) with T by ring.
  replace (r * k) with m by (unfold r; field; lra). lra.
- apply Rmult_le_compat.
  + apply Rmult_le_pos; [apply Rmult_le_pos; [exact M0|left; now apply Rinv_0_lt_compat]|].
    left. apply exp2_pos.
  + apply Rmult_le_pos; [lra|left; apply exp2_pos].
  + now apply ratio_le.
  + exact J.
Qed.

(** Lost over all. *)
Theorem lost_mass_sharp : mass lost_keys <= lost_bound D * mass keys.
Proof.
assert (R := lost_to_kept). assert (P := lost_ratio_pos D positive).
rewrite (total_split lost (fun j => exp2 (z j)) keys). unfold lost_bound.
set (a := mass lost_keys) in *. set (b := mass kept_keys) in *. set (rho := lost_ratio D) in *.
apply Rmult_le_reg_l with (1 + rho); [lra|].
replace ((1 + rho) * (rho / (1 + rho) * (a + b))) with (rho * (a + b)) by (field; lra). lra.
Qed.
End Row.

(** ** Guard bits

    A limit t on the lost mass follows from any D with lost_ratio D <= t / (1 - t). *)
Lemma lost_bound_le D t : 0 < D -> t < 1 -> lost_ratio D <= t / (1 - t) -> lost_bound D <= t.
Proof.
intros HD Ht H. assert (P := lost_ratio_pos D HD). unfold lost_bound.
set (rho := lost_ratio D) in *. apply Rmult_le_reg_r with (1 + rho); [lra|].
replace (rho / (1 + rho) * (1 + rho)) with rho by (field; lra).
apply Rmult_le_compat_r with (r := 1 - t) in H; [|lra].
replace (t / (1 - t) * (1 - t)) with t in H by (field; lra). lra.
Qed.

Lemma lost_bound_lt_1 D : 0 < D -> 0 < lost_bound D < 1.
Proof.
intros H. assert (P := lost_ratio_pos D H). unfold lost_bound. split.
- apply Rdiv_lt_0_compat; lra.
- apply Rmult_lt_reg_r with (1 + lost_ratio D); [lra|]. unfold Rdiv.
  rewrite Rmult_assoc, Rinv_l by lra. lra.
Qed.

(** ** With errors of scores

    What is known of a flushed key is its *computed* score: zc - mu < L, |zc - z| <= e. The
    threshold for exact scores is then mu + L + e, and the margin zbar - mu - L - e. *)
Section Computed.
Context {A : Type}.
Variables (z zc : A -> R) (keys : list A) (lost : A -> bool) (mu L e D : R).
Hypothesis visible : keys <> [].
Hypothesis close : forall j, In j keys -> Rabs (zc j - z j) <= e.
Hypothesis flushed_below : forall j, In j keys -> lost j = true -> zc j - mu <= L.
Hypothesis positive : 0 < D.
Hypothesis margin : count keys * (mu + L + e + D) <= total z keys.

Theorem lost_mass : total (fun j => exp2 (z j)) (filter lost keys)
  <= lost_bound D * total (fun j => exp2 (z j)) keys.
Proof.
apply lost_mass_sharp with (T := mu + L + e); auto.
intros j H1 H2. assert (B := flushed_below j H1 H2). assert (C := close j H1).
assert (Q := Rle_abs (- (zc j - z j))). rewrite Rabs_Ropp in Q. lra.
Qed.
End Computed.
