(** * One row of a kernel, from computed scores to the output

    The model of the fixed path of `clis`: exponents x_j = RN(z^_j - mu), weights E(x_j), P as
    stored, the denominator from weights or from stored P, the numerator from stored P, each sum in
    any order that its adder allows, masked keys as zeros, and the quotient. [row_theorem] collects
    the files before it: under [conditions], numbers that a checker can decide, every execution is
    safe, loses little mass, and is close to exact attention. *)

From Coq Require Import ZArith Reals Lra Lia List Permutation Bool.
From Flocq Require Import Core BinarySingleNaN Relative.
From Headroom Require Import Formats Rows Exp2 Jensen LostMass Execution Adders Weights Division Score
  OutputError.
Import ListNotations.
Open Scope R_scope.

Section Row.
Variables prec emax precP emaxP : Z.
Context (prec_positive : Prec_gt_0 prec) (prec_below_emax : Prec_lt_emax prec emax).
Context (precP_positive : Prec_gt_0 precP) (precP_below_emaxP : Prec_lt_emax precP emaxP).
Notation emin := (3 - emax - prec)%Z.
Notation eminP := (3 - emaxP - precP)%Z.
Notation fexp := (FLT_exp emin prec).
Notation float := (binary_float prec emax).
Notation floatP := (binary_float precP emaxP).

(** ** The machine and an execution *)
Record machine := {
  exponent_mode : mode;                      (* rounding of z^ - mu *)
  unit : float -> float -> Prop;             (* exp2 *)
  store_mode : mode;                         (* rounding to P's format, *)
  store_flush : option Z;                    (* and what it flushes *)
  sums_stored : bool;                        (* the denominator adds stored P *)
  l_adder : list R -> float -> Prop;
  O_adder : list R -> float -> Prop;
  divide : R -> R -> float -> Prop
}.

Record execution := {
  computed : nat -> R;                       (* z^_j: a real, for it may be fused into the exponent *)
  mu : float;
  exponent : nat -> float;
  weight : nat -> float;
  stored : nat -> floatP;
  l_sum : sum prec emax;
  O_sum : sum prec emax;
  quotient : float
}.

(** What the denominator adds for a key. *)
Definition summed (m : machine) (x : execution) j :=
  if sums_stored m then B2R (stored x j) else B2R (weight x j).

Definition allowed (m : machine) (keys : list nat) (v : nat -> R) (x : execution) : Prop :=
  is_finite (mu x) = true /\
  (forall j, In j keys ->
     rounds prec emax (exponent_mode m) None (computed x j - B2R (mu x)) (exponent x j) /\
     unit m (exponent x j) (weight x j) /\
     rounds precP emaxP (store_mode m) (store_flush m) (B2R (weight x j)) (stored x j)) /\
  run (l_adder m) (l_sum x) /\
  (exists masked, Permutation (terms (l_sum x)) (map (summed m x) keys ++ repeat 0 masked)) /\
  run (O_adder m) (O_sum x) /\
  (exists masked, Permutation (terms (O_sum x))
                    (map (fun j => B2R (stored x j) * v j) keys ++ repeat 0 masked)) /\
  divide m (value (O_sum x)) (value (l_sum x)) (quotient x).

(** ** Numbers *)
Record numbers := {
  C : Z; L : Z; La : Z; Z0 : Z; low : Z;     (* exp2: cap; kept, accurate, 0 from; kept >= 2^low *)
  w : Z; l_ : Z;                             (* a weight is at most w 2^l_, *)
  wP : Z; lP : Z;                            (* stored at most wP 2^lP *)
  N : Z; G : Z; K : Z;                       (* keys; |v| <= 2^G; exponents within 2^K *)
  b : Z; qmax : Z;                           (* l <= 2^b; |O / l| <= 2^qmax *)
  e : R;                                     (* |z^ - z| *)
  zlow : R;                                  (* mean of z - mu, from below *)
  eps : R; beta : R;                         (* exp2 *)
  u_P : R; h_P : R;                          (* stored P *)
  good : R -> Prop; d_l : R; e_l : R; h_l : nat; n_l : nat;   (* denominator *)
  d_O : R; e_O : R; h_O : nat; n_O : nat;    (* numerator *)
  u_D : R; h_D : R;                          (* division *)
  V : R; vmin : R; vmax : R                  (* values *)
}.

(** What the bound is made of. *)
Section Bound.
Variables (m : machine) (n : numbers) (keys : list nat).
Definition A := e n + unit_of prec (exponent_mode m) * bpow radix2 (K n).
Definition uS := if sums_stored m then u_P n else 0.
Definition uN := if sums_stored m then 0 else u_P n.
Definition hN := if sums_stored m then 0 else h_P n.
Definition factor_min := exp2 (- A) * (1 - eps n) * (1 - uS).
Definition factor_max := exp2 A * (1 + eps n) * (1 + uS).
Definition root := sqrt (factor_max / factor_min).
Definition share := lost_bound (zlow n - IZR (La n) - e n).
Definition mass := factor_min * (1 - share) * (count keys * exp2 (zlow n)).
Definition gl := ((1 + d_l n) ^ h_l n - 1) + (INR (n_l n) * e_l n * (1 + d_l n) ^ h_l n) / mass.
Definition gO := (1 + d_O n) ^ h_O n - 1.
Definition eO := INR (n_O n) * e_O n * (1 + d_O n) ^ h_O n.
Definition sums_bound :=
  (vmax n - vmin n) * ((root - 1) / (root + 1) + share
                       + (beta n * (1 + uS)) * exp2 A * share / (factor_min * (1 - share)))
  + (V n * ((1 + uN) * (1 + gO) / (1 - gl) - 1)
     + (V n * count keys * hN * (1 + gO) + eO) / (mass * (1 - gl))).
Definition quotient_bound := sums_bound * (1 + u_D n) + u_D n * V n + h_D n.
End Bound.

(** The largest summand of the denominator, in units of its own. *)
Definition wS (m : machine) (n : numbers) := if sums_stored m then wP n else w n.
Definition lS (m : machine) (n : numbers) := if sums_stored m then lP n else l_ n.

(** ** Conditions *)
Record machine_promises (m : machine) (n : numbers) : Prop := {
  p_unit : exp2_unit prec emax (unit m) (C n) (L n) (La n) (Z0 n) (low n) (w n) (l_ n) (eps n) (beta n);
  p_store_flush : (low_of precP emaxP (store_flush m) <= low n)%Z;
  p_stored : forall x y p, unit m x y -> is_finite x = true -> B2R x <= IZR (C n) ->
    rounds precP emaxP (store_mode m) (store_flush m) (B2R y) p ->
    is_finite p = true /\ 0 <= B2R p <= IZR (wP n) * bpow radix2 (lP n) /\
    Rabs (round radix2 (FLT_exp eminP precP) (round_mode (store_mode m)) (B2R y)) < bpow radix2 emaxP;
  p_store : forall x y p, unit m x y -> is_finite x = true -> B2R x <= IZR (C n) ->
    rounds precP emaxP (store_mode m) (store_flush m) (B2R y) p ->
    Rabs (B2R p - B2R y) <= u_P n * B2R y + h_P n;
  p_stored_sum : sums_stored m = true -> h_P n = 0;
  p_l_bounded : bounded (l_adder m);
  p_l_keeps : keeps (l_adder m) (low n);
  p_l_close : close (l_adder m) (good n) (d_l n) (e_l n);
  p_l_good : good n 0 /\ forall x y p, unit m x y -> is_finite x = true -> B2R x <= IZR (C n) ->
    rounds precP emaxP (store_mode m) (store_flush m) (B2R y) p ->
    good n (if sums_stored m then B2R p else B2R y);
  p_O_bounded : bounded (O_adder m);
  p_O_close : close (O_adder m) (fun _ => True) (d_O n) (e_O n);
  p_divide : normalises prec emax (divide m) (low n) (b n) (qmax n) (u_D n) (h_D n)
}.

Record ranges (m : machine) (n : numbers) (keys : list nat) : Prop := {
  r_keys : keys <> [] /\ (Z.of_nat (length keys) <= N n)%Z;
  r_weight : (1 <= w n)%Z /\ (1 <= wP n)%Z /\ (N n * wS m n <= 2 ^ prec)%Z /\ (N n * wP n <= 2 ^ prec)%Z;
  r_units : (emin <= lS m n)%Z /\ (emin <= lP n + G n)%Z;
  r_l : IZR (N n * wS m n) * bpow radix2 (lS m n) < bpow radix2 emax;
  r_O : IZR (N n * wP n) * bpow radix2 (lP n + G n) < bpow radix2 emax;
  r_b : IZR (N n * wS m n) * bpow radix2 (lS m n) <= bpow radix2 (b n);
  r_C : (Z.abs (C n) <= 2 ^ prec)%Z /\ (Z.abs (L n) <= 2 ^ prec)%Z /\ (Z.abs (La n) <= 2 ^ prec)%Z;
  r_K : (0 <= K n)%Z /\ (C n <= 2 ^ K n)%Z /\ (- 2 ^ K n <= Z0 n <= La n)%Z /\ (emin + prec <= K n + 1)%Z;
  r_exponents : (L n <= C n)%Z /\ (La n <= C n)%Z /\ (emin <= 0)%Z;
  r_small : 0 <= e n /\ 0 <= eps n < 1 /\ 0 <= beta n /\ 0 <= u_P n < 1 /\ 0 <= h_P n /\
            0 <= d_l n /\ 0 <= e_l n /\ 0 <= d_O n /\ 0 <= e_O n /\ 0 <= u_D n;
  r_margin : 0 < zlow n - IZR (L n) - e n /\ 0 < zlow n - IZR (La n) - e n;
  r_gl : gl m n keys < 1;
  r_quotient : V n + sums_bound m n keys <= bpow radix2 (qmax n)
}.

(** What is known of the row's data and of its execution's scores and stabilizer. *)
Record row_facts (n : numbers) (keys : list nat) (z v : nat -> R) (m : machine) (x : execution) : Prop := {
  f_scores : forall j, In j keys -> Rabs (computed x j - z j) <= e n;
  f_range : forall j, In j keys -> Rabs (computed x j - B2R (mu x)) <= bpow radix2 (emax - 1);
  f_cap : forall j, In j keys ->
    round radix2 fexp (round_mode (exponent_mode m)) (computed x j - B2R (mu x)) <= IZR (C n);
  f_mean : count keys * (B2R (mu x) + zlow n) <= total z keys;
  f_values : forall j, In j keys -> vmin n <= v j <= vmax n /\ Rabs (v j) <= V n /\
                                    Rabs (v j) <= bpow radix2 (G n);
  f_shape : (depth (l_sum x) <= h_l n)%nat /\ (nodes (l_sum x) <= n_l n)%nat /\
            (depth (O_sum x) <= h_O n)%nat /\ (nodes (O_sum x) <= n_O n)%nat
}.

(** ** What follows *)
Definition exact_output keys (z v : nat -> R) :=
  total (fun j => exp2 (z j) * v j) keys / total (fun j => exp2 (z j)) keys.

(** A key is lost if exp2's result or stored P is 0. *)
Definition lost_key (x : execution) j := Req_bool (B2R (weight x j)) 0 || Req_bool (B2R (stored x j)) 0.

Record row_conclusions (m : machine) (n : numbers) keys (z v : nat -> R) (x : execution) : Prop := {
  c_exponents : forall j, In j keys -> is_finite (exponent x j) = true /\ B2R (exponent x j) <= IZR (C n);
  c_weights : forall j, In j keys -> is_finite (weight x j) = true /\ is_finite (stored x j) = true;
  c_l : safe (l_sum x);
  c_O : safe (O_sum x);
  c_l_value : bpow radix2 (low n) <= value (l_sum x) <= bpow radix2 (b n);
  c_quotient : is_finite (quotient x) = true;
  c_lost : total (fun j => exp2 (z j)) (filter (lost_key x) keys)
           <= lost_bound (zlow n - IZR (L n) - e n) * total (fun j => exp2 (z j)) keys;
  c_error : Rabs (B2R (quotient x) - exact_output keys z v) <= quotient_bound m n keys
}.

(** ** Proof *)

(** The rounding of an exponent within 2^K. *)
Lemma exponent_close md r k : (0 <= k)%Z -> (emin + prec <= k + 1)%Z ->
  Rabs (round radix2 fexp (round_mode md) r) <= bpow radix2 k ->
  Rabs (round radix2 fexp (round_mode md) r - r) <= unit_of prec md * bpow radix2 k.
Proof.
intros Hk0 Hk B. set (y := round radix2 fexp (round_mode md) r) in *.
assert (U : ulp radix2 fexp y <= bpow radix2 (k + 1 - prec)).
{ assert (Q : ulp radix2 fexp (bpow radix2 k) = bpow radix2 (k + 1 - prec)).
  { rewrite ulp_bpow. f_equal. unfold FLT_exp. lia. }
  rewrite <- Q. apply ulp_le; auto with typeclass_instances.
  rewrite (Rabs_pos_eq (bpow radix2 k)) by apply bpow_ge_0. exact B. }
assert (N1 : forall choice, y = round radix2 fexp (Znearest choice) r ->
         Rabs (y - r) <= bpow radix2 (- prec) * bpow radix2 k).
{ intros choice E. assert (Q := error_le_half_ulp_round radix2 fexp choice r). rewrite <- E in Q.
  apply Rle_trans with (1 := Q). rewrite <- bpow_plus.
  replace (k + 1 - prec)%Z with (1 + (- prec + k))%Z in U by ring. rewrite bpow_plus in U.
  change (bpow radix2 1) with 2 in U. lra. }
assert (D : Rabs (y - r) <= bpow radix2 (1 - prec) * bpow radix2 k).
{ rewrite <- bpow_plus. replace (1 - prec + k)%Z with (k + 1 - prec)%Z by ring.
  destruct (Req_dec r 0) as [Z|NZ].
  - unfold y. rewrite Z, round_0 by auto with typeclass_instances. rewrite Rminus_0_r, Rabs_R0.
    apply bpow_ge_0.
  - assert (Q := error_lt_ulp_round radix2 fexp (round_mode md) r NZ). fold y in Q. lra. }
destruct md; try exact D; now apply (N1 _ eq_refl).
Qed.

Section Proof.
Variables (m : machine) (n : numbers) (keys : list nat) (z v : nat -> R) (x : execution).
Hypothesis promises : machine_promises m n.
Hypothesis within : ranges m n keys.
Hypothesis facts : row_facts n keys z v m x.
Hypothesis execution_allowed : allowed m keys v x.

Notation M := (B2R (mu x)).
Notation X j := (B2R (exponent x j)).
Notation Y j := (B2R (weight x j)).
Notation P j := (B2R (stored x j)).

Lemma exponents j : In j keys -> is_finite (exponent x j) = true /\
  X j = round radix2 fexp (round_mode (exponent_mode m)) (computed x j - M) /\ X j <= IZR (C n).
Proof.
intros H. destruct execution_allowed as [_ [Al _]]. destruct (Al j H) as [R _].
assert (B := f_range _ _ _ _ _ _ facts j H).
assert (pe : (emin <= emax - 1 < emax)%Z) by (unfold Prec_gt_0, Prec_lt_emax in *; lia).
destruct (R (rounds_in_range prec emax prec_positive _ _ _ B pe)) as [F E].
split; [exact F|]. unfold after in E. split; [exact E|]. rewrite E.
now apply (f_cap _ _ _ _ _ _ facts).
Qed.

Lemma exponent_from k j : In j keys -> (Z.abs k <= 2 ^ prec)%Z -> IZR k <= computed x j - M ->
  IZR k <= X j.
Proof.
intros H Hk B. destruct (exponents j H) as [_ [E _]]. rewrite E.
apply round_ge_generic; auto with typeclass_instances.
apply (format_integer emin prec (prec_positive := prec_positive)); [|exact Hk].
apply (r_exponents _ _ _ within).
Qed.

Lemma wS_pos : (1 <= wS m n)%Z.
Proof. unfold wS. destruct (r_weight _ _ _ within) as [H1 [H2 _]]. now destruct (sums_stored m). Qed.

Lemma w_range : 0 <= IZR (wS m n) * bpow radix2 (lS m n).
Proof.
apply Rmult_le_pos; [|apply bpow_ge_0]. apply IZR_le. assert (H := wS_pos). lia.
Qed.

Lemma weight_facts j : In j keys -> is_finite (weight x j) = true /\
  0 <= Y j <= IZR (w n) * bpow radix2 (l_ n) /\
  is_finite (stored x j) = true /\ 0 <= P j <= IZR (wP n) * bpow radix2 (lP n) /\
  Rabs (round radix2 (FLT_exp eminP precP) (round_mode (store_mode m)) (Y j)) < bpow radix2 emaxP.
Proof.
intros H. destruct (exponents j H) as [F [_ B]].
destruct execution_allowed as [_ [Al _]]. destruct (Al j H) as [_ [HU HS]].
destruct (unit_finite _ _ _ _ _ _ _ _ _ _ _ _ (p_unit _ _ promises) _ _ HU F B) as [Fy Ry].
split; [exact Fy|]. split; [exact Ry|].
exact (p_stored _ _ promises _ _ _ HU F B HS).
Qed.

Lemma kept j : In j keys -> IZR (L n) <= X j -> bpow radix2 (low n) <= Y j /\ bpow radix2 (low n) <= P j.
Proof.
intros H HL. destruct (exponents j H) as [F [_ B]].
destruct execution_allowed as [_ [Al _]]. destruct (Al j H) as [_ [HU HS]].
assert (KY := unit_kept _ _ _ _ _ _ _ _ _ _ _ _ (p_unit _ _ promises) _ _ HU F (conj HL B)).
split; [exact KY|]. destruct (weight_facts j H) as [_ [_ [_ [_ R]]]].
exact (stored_kept precP emaxP precP_positive _ _ _ _ _ HS (p_store_flush _ _ promises) R KY).
Qed.

Lemma summed_range j : In j keys -> 0 <= summed m x j <= IZR (wS m n) * bpow radix2 (lS m n).
Proof.
intros H. destruct (weight_facts j H) as [_ [HY [_ [HP _]]]]. unfold summed, wS, lS.
now destruct (sums_stored m).
Qed.

(** Some key reaches the mean, which is above the threshold. *)
Lemma some_key_kept : exists j, In j keys /\ IZR (L n) <= X j.
Proof.
destruct (r_keys _ _ _ within) as [Hk _].
assert (Mean := f_mean _ _ _ _ _ _ facts).
destruct (r_margin _ _ _ within) as [D _].
assert (E : exists j, In j keys /\ M + zlow n <= z j).
{ clear - Hk Mean. set (c := M + zlow n) in *. clearbody c. induction keys as [|j t IH]; [congruence|].
  destruct (Rle_or_lt c (z j)) as [Q|Q]; [exists j; split; [now left|exact Q]|].
  destruct t as [|j' t'].
  - simpl in Mean. lra.
  - destruct IH as [i [I1 I2]]; [congruence| |exists i; split; [now right|exact I2]].
    change (total z (j :: j' :: t')) with (z j + total z (j' :: t')) in Mean.
    change (length (j :: j' :: t')) with (S (length (j' :: t'))) in Mean. rewrite S_INR in Mean. lra. }
destruct E as [j [J1 J2]]. exists j. split; [exact J1|].
apply exponent_from; [exact J1|apply (r_C _ _ _ within)|].
assert (S := f_scores _ _ _ _ _ _ facts j J1). apply Rabs_le_inv in S. lra.
Qed.

(** *** The denominator *)
Lemma l_terms : forall t, In t (terms (l_sum x)) ->
  0 <= t <= IZR (wS m n) * bpow radix2 (lS m n) /\ good n t.
Proof.
destruct execution_allowed as [_ [Al [_ [[k Pm] _]]]]. intros t Ht.
apply (Permutation_in _ Pm) in Ht. apply in_app_or in Ht. destruct Ht as [Ht|Ht].
- apply in_map_iff in Ht. destruct Ht as [j [E Hj]]. subst t. split; [now apply summed_range|].
  destruct (exponents j Hj) as [F [_ B]]. destruct (Al j Hj) as [_ [HU HS]].
  exact (proj2 (p_l_good _ _ promises) _ _ _ HU F B HS).
- apply repeat_spec in Ht. subst t. split; [split; [lra|apply w_range]|].
  apply (p_l_good _ _ promises).
Qed.

Lemma count_weights (f : nat -> R) k l a : (1 <= a)%Z -> Permutation l (map f keys ++ repeat 0 k) ->
  (weights a l <= N n * a)%Z.
Proof.
intros W1 Pm. rewrite (weights_perm a _ _ Pm), weights_app, weights_zeros.
destruct (r_keys _ _ _ within) as [_ Nk].
assert (Q := weights_le a ltac:(lia) (map f keys)). rewrite map_length in Q. nia.
Qed.

Lemma l_safe : safe (l_sum x) /\ Rabs (value (l_sum x)) <= IZR (N n * wS m n) * bpow radix2 (lS m n).
Proof.
destruct execution_allowed as [_ [_ [Run [[k Pm] _]]]].
destruct (r_weight _ _ _ within) as [_ [_ [W2 _]]]. destruct (r_units _ _ _ within) as [U1 _].
assert (W1 := wS_pos).
apply (sum_safe prec emax (l_adder m) (wS m n) (lS m n)); auto; try lia.
- apply (p_l_bounded _ _ promises).
- intros t Ht. destruct (l_terms t Ht) as [B _]. now rewrite Rabs_pos_eq.
- now apply count_weights with (2 := Pm).
- apply (r_l _ _ _ within).
Qed.

Lemma l_value : bpow radix2 (low n) <= value (l_sum x) <= bpow radix2 (b n).
Proof.
destruct execution_allowed as [_ [_ [Run [[k Pm] _]]]]. destruct l_safe as [S B]. split.
- destruct some_key_kept as [j [J1 J2]]. destruct (kept j J1 J2) as [KY KP].
  apply (sum_lower prec emax (l_adder m) (low n) (low n) (p_l_keeps _ _ promises) ltac:(lia) _ (summed m x j) Run S).
  + intros t Ht. now apply l_terms.
  + apply (Permutation_in _ (Permutation_sym Pm)). apply in_or_app. left. now apply in_map.
  + unfold summed. now destruct (sums_stored m).
- apply Rabs_le_inv in B. assert (Q := r_b _ _ _ within). lra.
Qed.

(** *** The numerator *)
Lemma O_safe : safe (O_sum x).
Proof.
destruct execution_allowed as [_ [_ [_ [_ [Run [[k Pm] _]]]]]].
destruct (r_weight _ _ _ within) as [_ [W1 [_ W2]]]. destruct (r_units _ _ _ within) as [_ U2].
apply (sum_safe prec emax (O_adder m) (wP n) (lP n + G n)) with (N := N n); auto; try lia.
- apply (p_O_bounded _ _ promises).
- intros t Ht. apply (Permutation_in _ Pm) in Ht. apply in_app_or in Ht. destruct Ht as [Ht|Ht].
  + apply in_map_iff in Ht. destruct Ht as [j [E Hj]]. subst t.
    destruct (weight_facts j Hj) as [_ [_ [_ [B _]]]].
    destruct (f_values _ _ _ _ _ _ facts j Hj) as [_ [_ Vg]].
    rewrite Rabs_mult, (Rabs_pos_eq (P j)), bpow_plus, <- Rmult_assoc by lra.
    apply Rmult_le_compat; [lra|apply Rabs_pos|lra|exact Vg].
  + apply repeat_spec in Ht. subst t. rewrite Rabs_R0. apply Rmult_le_pos; [apply IZR_le; lia|apply bpow_ge_0].
- now apply count_weights with (2 := Pm).
- apply (r_O _ _ _ within).
Qed.

(** *** Lost mass *)
Lemma lost : total (fun j => exp2 (z j)) (filter (lost_key x) keys)
  <= lost_bound (zlow n - IZR (L n) - e n) * total (fun j => exp2 (z j)) keys.
Proof.
apply (lost_mass z (computed x) keys (lost_key x) M (IZR (L n)) (e n)).
- apply (r_keys _ _ _ within).
- apply (f_scores _ _ _ _ _ _ facts).
- intros j H E. destruct (Rle_or_lt (IZR (L n)) (computed x j - M)) as [B|B]; [exfalso|lra].
  apply (exponent_from (L n) j H) in B; [|apply (r_C _ _ _ within)].
  destruct (kept j H B) as [KY KP]. assert (Q := bpow_gt_0 radix2 (low n)).
  unfold lost_key in E. apply orb_prop in E.
  destruct E as [E|E]; revert E; case Req_bool_spec; intros; try discriminate; lra.
- apply (r_margin _ _ _ within).
- replace (M + IZR (L n) + e n + (zlow n - IZR (L n) - e n)) with (M + zlow n) by ring.
  apply (f_mean _ _ _ _ _ _ facts).
Qed.

(** *** Weights against exact weights

    Exact weights are w_j = 2^(z_j - mu). [rough]: keys whose weight may be inaccurate. *)
Notation W j := (exp2 (z j - M)).
Definition rough j := negb (Rle_bool (Rabs (Y j - exp2 (X j))) (eps n * exp2 (X j)) &&
                            Rle_bool (IZR (Z0 n)) (X j)).

Lemma A_nonneg : 0 <= A m n.
Proof.
unfold A. destruct (r_small _ _ _ within) as [He _]. assert (U := unit_pos prec (exponent_mode m)).
assert (0 <= unit_of prec (exponent_mode m) * bpow radix2 (K n)); [|lra].
apply Rmult_le_pos; [lra|apply bpow_ge_0].
Qed.

Lemma uS_range : 0 <= uS m n < 1.
Proof. unfold uS. destruct (r_small _ _ _ within) as [_ [_ [_ [Hu _]]]]. destruct (sums_stored m); lra. Qed.

Lemma factor_min_pos : 0 < factor_min m n.
Proof.
unfold factor_min. assert (U := uS_range). destruct (r_small _ _ _ within) as [_ [He _]].
apply Rmult_lt_0_compat; [|lra]. apply Rmult_lt_0_compat; [apply exp2_pos|lra].
Qed.

Lemma stored_near j : In j keys -> (1 - uS m n) * Y j <= summed m x j <= (1 + uS m n) * Y j.
Proof.
intros H. unfold summed, uS. destruct (weight_facts j H) as [_ [RY _]].
destruct (sums_stored m) eqn:S; [|lra].
destruct (exponents j H) as [F [_ B]].
destruct execution_allowed as [_ [Al _]]. destruct (Al j H) as [_ [HU HS]].
assert (D := p_store _ _ promises _ _ _ HU F B HS). rewrite (p_stored_sum _ _ promises S) in D.
apply Rabs_le_inv in D. lra.
Qed.

Lemma accurate j : In j keys -> rough j = false ->
  factor_min m n * W j <= summed m x j <= factor_max m n * W j.
Proof.
intros H R. unfold rough in R. apply negb_false_iff, andb_prop in R. destruct R as [R1 R2].
revert R1; case Rle_bool_spec; [intros R1 _|discriminate].
revert R2; case Rle_bool_spec; [intros R2 _|discriminate].
destruct (exponents j H) as [F [E B]].
destruct (r_K _ _ _ within) as [K0 [K1 [K2 K3]]].
assert (XK : Rabs (X j) <= bpow radix2 (K n)).
{ rewrite <- two_pow by exact K0. apply Rabs_le. rewrite <- opp_IZR. split.
  - apply Rle_trans with (2 := R2). apply IZR_le. lia.
  - apply Rle_trans with (1 := B). apply IZR_le. lia. }
assert (Cl : Rabs (X j - (computed x j - M)) <= unit_of prec (exponent_mode m) * bpow radix2 (K n)).
{ rewrite E in XK |- *. apply exponent_close; auto. }
assert (S := f_scores _ _ _ _ _ _ facts j H).
apply Rabs_le_inv in Cl. apply Rabs_le_inv in S. apply Rabs_le_inv in R1.
assert (X1 : exp2 (- A m n) * W j <= exp2 (X j)).
{ rewrite <- exp2_plus. apply exp2_le. unfold A. lra. }
assert (X2 : exp2 (X j) <= exp2 (A m n) * W j).
{ rewrite <- exp2_plus. apply exp2_le. unfold A. lra. }
destruct (stored_near j H) as [N1 N2]. assert (U := uS_range).
destruct (r_small _ _ _ within) as [_ [He _]].
assert (P0 := exp2_pos (X j)).
split.
- apply Rle_trans with (2 := N1). unfold factor_min.
  replace (exp2 (- A m n) * (1 - eps n) * (1 - uS m n) * W j)
    with ((1 - uS m n) * ((1 - eps n) * (exp2 (- A m n) * W j))) by ring.
  apply Rmult_le_compat_l; [lra|]. apply Rle_trans with ((1 - eps n) * exp2 (X j)); [|lra].
  apply Rmult_le_compat_l; lra.
- apply Rle_trans with (1 := N2). unfold factor_max.
  replace (exp2 (A m n) * (1 + eps n) * (1 + uS m n) * W j)
    with ((1 + uS m n) * ((1 + eps n) * (exp2 (A m n) * W j))) by ring.
  apply Rmult_le_compat_l; [lra|]. apply Rle_trans with ((1 + eps n) * exp2 (X j)); [lra|].
  apply Rmult_le_compat_l; lra.
Qed.

(** A rough key has x < La, and a weight of at most beta 2^x, or none. *)
Lemma rough_below j : In j keys -> rough j = true -> X j < IZR (La n) /\
  (Y j = 0 \/ (IZR (Z0 n) <= X j /\ Y j <= beta n * exp2 (X j))).
Proof.
intros H R. unfold rough in R.
destruct (exponents j H) as [F [_ B]].
destruct execution_allowed as [_ [Al _]]. destruct (Al j H) as [_ [HU _]].
assert (Q : X j < IZR (La n)).
{ destruct (Rle_or_lt (IZR (La n)) (X j)) as [T|T]; [exfalso|exact T].
  assert (Ac := unit_accurate _ _ _ _ _ _ _ _ _ _ _ _ (p_unit _ _ promises) _ _ HU F (conj T B)).
  rewrite Rle_bool_true in R by exact Ac. rewrite Rle_bool_true in R; [discriminate|].
  apply Rle_trans with (2 := T). apply IZR_le. apply (r_K _ _ _ within). }
split; [exact Q|].
destruct (unit_below _ _ _ _ _ _ _ _ _ _ _ _ (p_unit _ _ promises) _ _ HU F B Q)
  as [T|[T0 [T|T]]]; [now left|exfalso|right; split; [exact T0|lra]].
rewrite !Rle_bool_true in R by assumption. discriminate.
Qed.

Lemma exponent_upper j : In j keys -> X j < IZR (La n) -> computed x j - M < IZR (La n).
Proof.
intros H Q. destruct (Rle_or_lt (IZR (La n)) (computed x j - M)) as [B|B]; [exfalso|exact B].
apply (exponent_from (La n) j H) in B; [lra|apply (r_C _ _ _ within)].
Qed.

Definition beta_all := beta n * (1 + uS m n) * exp2 (A m n).

Lemma beta_all_nonneg : 0 <= beta_all.
Proof.
unfold beta_all. assert (U := uS_range). destruct (r_small _ _ _ within) as [_ [_ [Hb _]]].
apply Rmult_le_pos; [apply Rmult_le_pos; lra|left; apply exp2_pos].
Qed.

Lemma rough_weight j : In j keys -> rough j = true -> 0 <= summed m x j <= beta_all * W j.
Proof.
intros H R. destruct (rough_below j H R) as [Q T]. destruct (summed_range j H) as [S0 _].
split; [exact S0|]. destruct (stored_near j H) as [_ N2]. assert (U := uS_range).
destruct (r_small _ _ _ within) as [_ [_ [Hb _]]]. assert (P0 := exp2_pos (z j - M)).
destruct T as [T|[T1 T2]].
- rewrite T, Rmult_0_r in N2. apply Rle_trans with (1 := N2).
  apply Rmult_le_pos; [apply beta_all_nonneg|lra].
- destruct (exponents j H) as [F [E B]]. destruct (r_K _ _ _ within) as [K0 [K1 [K2 K3]]].
  assert (XK : Rabs (X j) <= bpow radix2 (K n)).
  { rewrite <- two_pow by exact K0. apply Rabs_le. rewrite <- opp_IZR. split.
    - apply Rle_trans with (2 := T1). apply IZR_le. lia.
    - apply Rle_trans with (1 := B). apply IZR_le. lia. }
  assert (Cl : Rabs (X j - (computed x j - M)) <= unit_of prec (exponent_mode m) * bpow radix2 (K n)).
  { rewrite E in XK |- *. apply exponent_close; auto. }
  assert (Sc := f_scores _ _ _ _ _ _ facts j H).
  apply Rabs_le_inv in Cl. apply Rabs_le_inv in Sc.
  assert (X2 : exp2 (X j) <= exp2 (A m n) * W j).
  { rewrite <- exp2_plus. apply exp2_le. unfold A. lra. }
  apply Rle_trans with (1 := N2). unfold beta_all.
  replace (beta n * (1 + uS m n) * exp2 (A m n) * W j)
    with ((1 + uS m n) * (beta n * (exp2 (A m n) * W j))) by ring.
  apply Rmult_le_compat_l; [lra|]. apply Rle_trans with (1 := T2).
  now apply Rmult_le_compat_l.
Qed.

Notation zM := (fun j => z j - M).

Lemma mean_exponent : count keys * zlow n <= total zM keys.
Proof.
rewrite total_minus, total_const. assert (H := f_mean _ _ _ _ _ _ facts). lra.
Qed.

Lemma rough_share : total (fun j => W j) (filter rough keys) <= share n * total (fun j => W j) keys.
Proof.
unfold share. destruct (r_margin _ _ _ within) as [_ D].
apply (lost_mass_sharp zM keys (proj1 (r_keys _ _ _ within)) rough (IZR (La n) + e n)).
- intros j H R. destruct (rough_below j H R) as [Q _]. apply (exponent_upper j H) in Q.
  assert (Sc := f_scores _ _ _ _ _ _ facts j H). apply Rabs_le_inv in Sc. lra.
- replace (IZR (La n) + e n + (zlow n - IZR (La n) - e n)) with (zlow n) by ring.
  apply mean_exponent.
- exact D.
Qed.

Lemma factors : 1 <= root m n /\ factor_min m n * (root m n * root m n) = factor_max m n.
Proof.
assert (F := factor_min_pos). assert (U := uS_range).
destruct (r_small _ _ _ within) as [_ [He _]]. assert (A0 := A_nonneg).
assert (Le : factor_min m n <= factor_max m n).
{ unfold factor_min, factor_max. assert (E1 := exp2_le (- A m n) (A m n) ltac:(lra)).
  assert (P1 := exp2_pos (- A m n)). apply Rmult_le_compat; try lra.
  - apply Rmult_le_pos; lra.
  - apply Rmult_le_compat; lra. }
assert (Q : 1 <= factor_max m n / factor_min m n).
{ apply Rmult_le_reg_r with (1 := F). unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. lra. }
unfold root. split.
- rewrite <- sqrt_1 at 1. now apply sqrt_le_1_alt.
- rewrite sqrt_sqrt by lra. field. lra.
Qed.

Lemma share_range : 0 <= share n < 1.
Proof.
unfold share. destruct (r_margin _ _ _ within) as [_ D]. destruct (lost_bound_lt_1 _ D). lra.
Qed.

Lemma weights_part :
  factor_min m n * (1 - share n) * total (fun j => W j) keys <= total (summed m x) keys /\
  Rabs (total (fun j => summed m x j * v j) keys / total (summed m x) keys
        - total (fun j => W j * v j) keys / total (fun j => W j) keys)
    <= (vmax n - vmin n) * ((root m n - 1) / (root m n + 1) + share n
                            + beta_all * share n / (factor_min m n * (1 - share n))).
Proof.
destruct factors as [R1 R2].
apply (weights_error keys v (vmin n) (vmax n) (fun j => W j) (summed m x) rough).
- apply (r_keys _ _ _ within).
- intros j H. apply (f_values _ _ _ _ _ _ facts j H).
- intros j _. apply exp2_pos.
- apply factor_min_pos.
- exact R1.
- apply beta_all_nonneg.
- apply share_range.
- intros j H R. rewrite R2. now apply accurate.
- apply rough_weight.
- apply rough_share.
Qed.

Lemma mass_below : 0 < mass m n keys <= total (summed m x) keys.
Proof.
assert (F := factor_min_pos). assert (S := share_range).
destruct (r_keys _ _ _ within) as [Hk _]. assert (N0 := count_pos keys Hk).
assert (E := exp2_pos (zlow n)). destruct weights_part as [H _].
assert (J := row_mass zM keys (zlow n) mean_exponent).
assert (F1 : 0 < factor_min m n * (1 - share n)) by (apply Rmult_lt_0_compat; lra).
unfold mass. split.
- apply Rmult_lt_0_compat; [exact F1|]. now apply Rmult_lt_0_compat.
- apply Rle_trans with (2 := H). apply Rmult_le_compat_l; lra.
Qed.

(** A common factor of all weights cancels in the exact output. *)
Lemma exact_shifted : total (fun j => W j * v j) keys / total (fun j => W j) keys = exact_output keys z v.
Proof.
unfold exact_output. destruct (r_keys _ _ _ within) as [Hk _].
assert (T := mass_pos z keys Hk). assert (E := exp2_pos (- M)).
rewrite (total_ext (fun j => W j * v j) (fun j => exp2 (- M) * (exp2 (z j) * v j))).
- rewrite (total_ext (fun j => W j) (fun j => exp2 (- M) * exp2 (z j))).
  + rewrite !total_scale. field. lra.
  + intros j _. rewrite <- exp2_plus. f_equal. ring.
- intros j _. unfold Rminus. rewrite exp2_plus. ring.
Qed.

Lemma l_error : Rabs (value (l_sum x) - total (summed m x) keys)
  <= ((1 + d_l n) ^ h_l n - 1) * total (summed m x) keys
     + INR (n_l n) * e_l n * (1 + d_l n) ^ h_l n.
Proof.
destruct execution_allowed as [_ [_ [Run [[k Pm] _]]]]. destruct l_safe as [S _].
destruct (r_small _ _ _ within) as [_ [_ [_ [_ [_ [D1 [D2 _]]]]]]].
destruct (f_shape _ _ _ _ _ _ facts) as [Sh1 [Sh2 _]].
assert (Er := sum_error prec emax (l_adder m) (good n) (d_l n) (e_l n) D1 D2 (p_l_close _ _ promises)
  (l_sum x) (h_l n) (n_l n) Run S (fun t Ht => proj2 (l_terms t Ht)) Sh1 Sh2).
rewrite (total_perm id _ _ Pm), (total_perm Rabs _ _ Pm), !total_app, !total_map in Er.
rewrite !total_zeros in Er by (try reflexivity; apply Rabs_R0). rewrite !Rplus_0_r in Er.
replace (total (fun j => id (summed m x j)) keys) with (total (summed m x) keys) in Er by reflexivity.
rewrite (total_ext (fun j => Rabs (summed m x j)) (summed m x)) in Er; [exact Er|].
intros j H. apply Rabs_pos_eq. now apply summed_range.
Qed.

Lemma O_error : Rabs (value (O_sum x) - total (fun j => P j * v j) keys)
  <= gO n * total (fun j => Rabs (P j * v j)) keys + eO n.
Proof.
destruct execution_allowed as [_ [_ [_ [_ [Run [[k Pm] _]]]]]].
destruct (r_small _ _ _ within) as [_ [_ [_ [_ [_ [_ [_ [D1 [D2 _]]]]]]]]].
destruct (f_shape _ _ _ _ _ _ facts) as [_ [_ [Sh1 Sh2]]].
assert (Er := sum_error prec emax (O_adder m) (fun _ => True) (d_O n) (e_O n) D1 D2 (p_O_close _ _ promises)
  (O_sum x) (h_O n) (n_O n) Run O_safe (fun _ _ => I) Sh1 Sh2).
rewrite (total_perm id _ _ Pm), (total_perm Rabs _ _ Pm), !total_app, !total_map in Er.
rewrite !total_zeros in Er by (try reflexivity; apply Rabs_R0). rewrite !Rplus_0_r in Er.
exact Er.
Qed.

Lemma stored_against_summed j : In j keys -> Rabs (P j - summed m x j) <= uN m n * summed m x j + hN m n.
Proof.
intros H. unfold summed, uN, hN. destruct (sums_stored m) eqn:S.
- rewrite Rminus_diag_eq by reflexivity. rewrite Rabs_R0. lra.
- destruct (exponents j H) as [F [_ B]].
  destruct execution_allowed as [_ [Al _]]. destruct (Al j H) as [_ [HU HS]].
  exact (p_store _ _ promises _ _ _ HU F B HS).
Qed.

Lemma V_nonneg : 0 <= V n.
Proof.
destruct (r_keys _ _ _ within) as [Hk _]. destruct keys as [|j t] eqn:E; [congruence|].
destruct (f_values _ _ _ _ _ _ facts j (or_introl eq_refl)) as [_ [B _]].
apply Rle_trans with (2 := B). apply Rabs_pos.
Qed.

Lemma sums_error : Rabs (value (O_sum x) / value (l_sum x) - exact_output keys z v) <= sums_bound m n keys.
Proof.
destruct weights_part as [_ Wp]. rewrite exact_shifted in Wp.
destruct (r_small _ _ _ within) as [S1 [S2 [S3 [S4 [S5 [S6 [S7 [S8 [S9 S10]]]]]]]]].
assert (G0 : 0 <= gO n).
{ unfold gO. assert (1 <= (1 + d_O n) ^ h_O n) by (apply pow_R1_Rle; lra). lra. }
assert (Gl : 1 <= (1 + d_l n) ^ h_l n) by (apply pow_R1_Rle; lra).
assert (El : 0 <= INR (n_l n) * e_l n * (1 + d_l n) ^ h_l n).
{ apply Rmult_le_pos; [apply Rmult_le_pos; [apply pos_INR|lra]|lra]. }
assert (EO : 0 <= eO n).
{ unfold eO. assert (1 <= (1 + d_O n) ^ h_O n) by (apply pow_R1_Rle; lra).
  apply Rmult_le_pos; [apply Rmult_le_pos; [apply pos_INR|lra]|lra]. }
assert (UN : 0 <= uN m n) by (unfold uN; destruct (sums_stored m); lra).
assert (HN : 0 <= hN m n) by (unfold hN; destruct (sums_stored m); lra).
destruct (quotient_error keys v (V n) (summed m x) (fun j => P j) (value (l_sum x)) (value (O_sum x))
  ((1 + d_l n) ^ h_l n - 1) (INR (n_l n) * e_l n * (1 + d_l n) ^ h_l n) (gO n) (eO n)
  (uN m n) (hN m n) (mass m n keys)) as [_ Q]; auto; try lra.
- apply (r_keys _ _ _ within).
- intros j H. apply (f_values _ _ _ _ _ _ facts j H).
- intros j H. now apply summed_range.
- exact stored_against_summed.
- apply V_nonneg.
- exact l_error.
- exact O_error.
- exact mass_below.
- apply (r_gl _ _ _ within).
- fold (gl m n keys) in Q.
  set (y := total (fun j => summed m x j * v j) keys / total (summed m x) keys) in *.
  replace (value (O_sum x) / value (l_sum x) - exact_output keys z v)
    with ((value (O_sum x) / value (l_sum x) - y) + (y - exact_output keys z v)) by ring.
  eapply Rle_trans; [apply Rabs_triang|]. unfold sums_bound. unfold beta_all in Wp. lra.
Qed.

Lemma exact_bounded : Rabs (exact_output keys z v) <= V n.
Proof.
unfold exact_output. destruct (r_keys _ _ _ within) as [Hk _].
assert (T := mass_pos z keys Hk).
unfold Rdiv. rewrite Rabs_mult, (Rabs_pos_eq (/ _)) by (left; now apply Rinv_0_lt_compat).
apply Rmult_le_reg_r with (1 := T). rewrite Rmult_assoc, Rinv_l, Rmult_1_r by lra.
eapply Rle_trans; [apply total_abs|]. rewrite <- total_scale. apply total_le. intros j H.
rewrite Rabs_mult, (Rabs_pos_eq (exp2 _)), Rmult_comm by (left; apply exp2_pos).
apply Rmult_le_compat_r; [left; apply exp2_pos|]. apply (f_values _ _ _ _ _ _ facts j H).
Qed.

Theorem row_theorem : row_conclusions m n keys z v x.
Proof.
assert (Sq := sums_error). assert (Ev := exact_bounded).
assert (Q : Rabs (value (O_sum x) / value (l_sum x)) <= bpow radix2 (qmax n)).
{ apply Rle_trans with (2 := r_quotient _ _ _ within).
  replace (value (O_sum x) / value (l_sum x)) with
    (exact_output keys z v + (value (O_sum x) / value (l_sum x) - exact_output keys z v)) by ring.
  eapply Rle_trans; [apply Rabs_triang|]. lra. }
destruct execution_allowed as [_ [_ [_ [_ [_ [_ Dv]]]]]].
destruct (p_divide _ _ promises _ _ _ Dv l_value Q) as [Fq Eq].
split.
- intros j H. destruct (exponents j H) as [F [_ B]]. now split.
- intros j H. destruct (weight_facts j H) as [F1 [_ [F2 _]]]. now split.
- apply l_safe.
- exact O_safe.
- exact l_value.
- exact Fq.
- exact lost.
- unfold quotient_bound. apply (rounded_error _ _ (value (O_sum x) / value (l_sum x))); auto.
  apply (r_small _ _ _ within).
Qed.
End Proof.
End Row.
