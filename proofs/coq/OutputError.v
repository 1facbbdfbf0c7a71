(** * The output: how far from exact attention

    Real numbers only: exact weights w_j, weights P_j as the kernel has them, and the two sums. The
    summands are those of the composed bound: reweighting, flushed keys, rounding of P, accumulators,
    underflow, division. *)

From Coq Require Import Reals Lra Lia List Psatz.
From Headroom Require Import Rows.
Import ListNotations.
Open Scope R_scope.

Section Output.
Context {A : Type}.
Variable keys : list A.
Variable v : A -> R.
Variables vmin vmax : R.
Hypothesis values_within : forall j, In j keys -> vmin <= v j <= vmax.
Notation mean w l := (total (fun j => w%function j * v j) l / total w%function l).

Lemma weighted_hull w l : (forall j, In j l -> In j keys) -> (forall j, In j l -> 0 <= w j) ->
  total w l * vmin <= total (fun j => w j * v j) l <= total w l * vmax.
Proof.
intros S W. split.
- rewrite Rmult_comm, <- total_scale. apply total_le. intros j H. rewrite Rmult_comm.
  apply Rmult_le_compat_l; [now apply W|]. now apply values_within, S.
- rewrite (Rmult_comm _ vmax), <- total_scale. apply total_le. intros j H. rewrite (Rmult_comm vmax).
  apply Rmult_le_compat_l; [now apply W|]. now apply values_within, S.
Qed.

Lemma mean_hull w l : (forall j, In j l -> In j keys) -> (forall j, In j l -> 0 <= w j) ->
  0 < total w l -> vmin <= mean w l <= vmax.
Proof.
intros S W P. destruct (weighted_hull w l S W) as [H1 H2].
split; apply Rmult_le_reg_r with (total w l); auto; unfold Rdiv;
  rewrite Rmult_assoc, Rinv_l, Rmult_1_r by lra; lra.
Qed.

(** ** Reweighting

    Weights multiplied by factors within [m, M] move a mean of values in [vmin, vmax] by at most
    (vmax - vmin) (t - 1) / (t + 1), t = sqrt (M / m): a common factor is free. Here M = m t^2.

    One side of it; the other follows by negating the values. [x] is the value less the mean, [c] the
    claimed bound; the function max (m (x - c), M (x - c)) lies below its chord over [-p, q]. *)
Lemma chord m t p q c x r : 0 < m -> 1 <= t -> 0 <= p -> 0 <= q -> 0 < p + q ->
  c * (t + 1) = (p + q) * (t - 1) -> c <= q -> - p <= x <= q -> m <= r <= m * (t * t) ->
  (p + q) * (r * (x - c)) <= m * (t * t) * (q - c) * (x + p) - m * (p + c) * (q - x).
Proof.
intros Hm Ht Hp Hq Hpq Hc Hcq Hx Hr.
assert (c0 : 0 <= c).
{ apply Rmult_le_reg_r with (t + 1); [lra|]. rewrite Rmult_0_l, Hc.
  apply Rmult_le_pos; lra. }
assert (M0 : m <= m * (t * t)) by nra.
set (M := m * (t * t)) in *. destruct (Rle_or_lt 0 (x - c)) as [S|S].
- apply Rle_trans with ((p + q) * (M * (x - c))).
  + apply Rmult_le_compat_l; [lra|]. apply Rmult_le_compat_r; lra.
  + assert (0 <= (M - m) * ((p + c) * (q - x))) by (apply Rmult_le_pos; [lra|apply Rmult_le_pos; lra]).
    nra.
- apply Rle_trans with ((p + q) * (m * (x - c))).
  + apply Rmult_le_compat_l; [lra|]. nra.
  + assert (0 <= (M - m) * ((q - c) * (x + p))) by (apply Rmult_le_pos; [lra|apply Rmult_le_pos; lra]).
    nra.
Qed.

(** At the mean (x averages to 0) the chord is not positive: its height there is
    -(m / (t + 1)) (t - 1) (q - t p)^2 up to a positive factor. *)
Lemma chord_at_mean m t p q c : 0 < m -> 1 <= t ->
  c * (t + 1) = (p + q) * (t - 1) ->
  m * (t * t) * (q - c) * p - m * (p + c) * q <= 0.
Proof.
intros Hm Ht Hc.
apply Rmult_le_reg_r with (t + 1); [lra|]. rewrite Rmult_0_l.
replace ((m * (t * t) * (q - c) * p - m * (p + c) * q) * (t + 1))
  with (m * (t * t * p * (q * (t + 1) - c * (t + 1)) - q * (p * (t + 1) + c * (t + 1)))) by ring.
rewrite Hc.
replace (m * (t * t * p * (q * (t + 1) - (p + q) * (t - 1)) - q * (p * (t + 1) + (p + q) * (t - 1))))
  with (- (m * ((t - 1) * ((q - t * p) * (q - t * p))))) by ring.
assert (0 <= m * ((t - 1) * ((q - t * p) * (q - t * p)))).
{ apply Rmult_le_pos; [lra|]. apply Rmult_le_pos; [lra|]. apply Rle_0_sqr. }
lra.
Qed.

Lemma reweighted_above w r m t l : l <> [] -> (forall j, In j l -> In j keys) ->
  (forall j, In j l -> 0 < w j) -> 0 < m -> 1 <= t ->
  (forall j, In j l -> m <= r j <= m * (t * t)) ->
  mean (fun j => r j * w j) l - mean w l <= (vmax - vmin) * ((t - 1) / (t + 1)).
Proof.
intros Hl S W Hm Ht Hr.
assert (W0 : 0 < total w l) by now apply total_pos.
assert (RW0 : 0 < total (fun j => r j * w j) l).
{ apply total_pos; [exact Hl|]. intros j H. apply Rmult_lt_0_compat; [|now apply W].
  specialize (Hr j H). lra. }
destruct (mean_hull w l S (fun j H => Rlt_le _ _ (W j H)) W0) as [Y1 Y2].
assert (RWn : forall j, In j l -> 0 <= r j * w j).
{ intros j H. apply Rmult_le_pos; [|left; now apply W]. specialize (Hr j H). lra. }
destruct (mean_hull (fun j => r j * w j) l S RWn RW0) as [_ X2].
set (y := mean w l) in *. set (p := y - vmin). set (q := vmax - y).
set (c := (vmax - vmin) * ((t - 1) / (t + 1))).
assert (Hc : c * (t + 1) = (p + q) * (t - 1)) by (unfold c, p, q; field; lra).
destruct (Rle_or_lt q c) as [Q|Q]; [unfold q in Q; lra|].
assert (c0 : 0 <= c).
{ apply Rmult_le_reg_r with (t + 1); [lra|]. rewrite Rmult_0_l, Hc.
  apply Rmult_le_pos; [unfold p, q; lra|lra]. }
assert (pq : 0 < p + q) by (unfold p, q in *; lra).
(* it is enough that sum r w (v - y - c) <= 0 *)
assert (Main : total (fun j => r j * w j * (v j - y - c)) l <= 0).
{ apply Rmult_le_reg_l with (p + q); [exact pq|]. rewrite Rmult_0_r, <- total_scale.
  apply Rle_trans with (total (fun j => w j * (m * (t * t) * (q - c) * (v j - y + p)
                                               - m * (p + c) * (q - (v j - y)))) l).
  - apply total_le. intros j H. destruct (values_within j (S j H)) as [V1 V2].
    replace ((p + q) * (r j * w j * (v j - y - c))) with (w j * ((p + q) * (r j * (v j - y - c)))) by ring.
    apply Rmult_le_compat_l; [left; now apply W|].
    apply chord; auto; unfold p, q in *; lra.
  - replace (total _ l) with
      (total (fun j => (m * (t * t) * (q - c) + m * (p + c)) * (w j * v j)
                       + (m * (t * t) * (q - c) * (p - y) - m * (p + c) * (q + y)) * w j) l)
      by (apply total_ext; intros; ring).
    rewrite total_plus, !total_scale.
    replace (total (fun j => w j * v j) l) with (y * total w l) by (unfold y; field; lra).
    replace (_ + _) with (total w l * (m * (t * t) * (q - c) * p - m * (p + c) * q)) by ring.
    assert (E := chord_at_mean m t p q c Hm Ht Hc).
    rewrite <- (Rmult_0_r (total w l)). apply Rmult_le_compat_l; lra. }
replace (total (fun j => r j * w j * (v j - y - c)) l) with
  (total (fun j => r j * w j * v j) l - (y + c) * total (fun j => r j * w j) l) in Main.
- apply Rplus_le_reg_r with y. replace (mean (fun j => r j * w j) l - y + y)
    with (mean (fun j => r j * w j) l) by ring.
  apply Rmult_le_reg_r with (total (fun j => r j * w j) l); [exact RW0|].
  unfold Rdiv at 1. rewrite Rmult_assoc, Rinv_l, Rmult_1_r by lra. lra.
- rewrite <- total_scale, <- total_minus. apply total_ext. intros. ring.
Qed.
End Output.

(** Both sides. *)
Theorem reweighting_error {A} (keys : list A) v vmin vmax w r m t l :
  (forall j, In j keys -> vmin <= v j <= vmax) -> l <> [] -> (forall j, In j l -> In j keys) ->
  (forall j, In j l -> 0 < w j) -> 0 < m -> 1 <= t ->
  (forall j, In j l -> m <= r j <= m * (t * t)) ->
  Rabs (total (fun j => r j * w j * v j) l / total (fun j => r j * w j) l
        - total (fun j => w j * v j) l / total w l) <= (vmax - vmin) * ((t - 1) / (t + 1)).
Proof.
intros V Hl S W Hm Ht Hr. apply Rabs_le. split.
- assert (X := reweighted_above keys (fun j => - v j) (- vmax) (- vmin)
    (fun j H => conj (Ropp_le_contravar _ _ (proj2 (V j H))) (Ropp_le_contravar _ _ (proj1 (V j H))))
    w r m t l Hl S W Hm Ht Hr). cbv beta in X.
  assert (N : forall f, total (fun j => f j * - v j) l = - total (fun j => f j * v j) l).
  { intros f. rewrite (total_ext _ (fun j => -1 * (f j * v j))) by (intros; ring).
    rewrite total_scale. ring. }
  rewrite (N w), (N (fun j => r j * w j)) in X. unfold Rdiv in *.
  rewrite <- !Ropp_mult_distr_l in X. lra.
- exact (reweighted_above keys v vmin vmax V w r m t l Hl S W Hm Ht Hr).
Qed.

(** ** Keys that are flushed, or kept with no accuracy

    Against the mean over all keys, the mean over kept keys moves by at most the lost share of the
    spread. The same lemma serves for the weights that remain of such keys in the kernel's sums. *)
Lemma mean_of_part {A} (keys : list A) v vmin vmax w (lost : A -> bool) share :
  (forall j, In j keys -> vmin <= v j <= vmax) -> (forall j, In j keys -> 0 <= w j) ->
  0 < total w (filter (fun j => negb (lost j)) keys) ->
  total w (filter lost keys) <= share * total w keys ->
  Rabs (total (fun j => w j * v j) keys / total w keys
        - total (fun j => w j * v j) (filter (fun j => negb (lost j)) keys)
          / total w (filter (fun j => negb (lost j)) keys)) <= (vmax - vmin) * share.
Proof.
intros V W K H.
set (L := filter lost keys) in *. set (M := filter (fun j => negb (lost j)) keys) in *.
assert (SL : forall j, In j L -> In j keys) by (intros j X; apply filter_In in X; tauto).
assert (SM : forall j, In j M -> In j keys) by (intros j X; apply filter_In in X; tauto).
assert (E1 := total_split lost w keys). assert (E2 := total_split lost (fun j => w j * v j) keys).
fold L M in E1, E2.
assert (L0 : 0 <= total w L) by (apply total_nonneg; intros; apply W, SL; auto).
destruct (mean_hull keys v vmin vmax V w M SM (fun j X => W j (SM j X)) K) as [Y1 Y2].
destruct (weighted_hull keys v vmin vmax V w L SL (fun j X => W j (SL j X))) as [Z1 Z2].
set (yM := total (fun j => w j * v j) M / total w M) in *.
assert (EM : total (fun j => w j * v j) M = yM * total w M) by (unfold yM; field; lra).
set (T := total w keys) in *. assert (T0 : 0 < T) by lra.
set (sL := total (fun j => w j * v j) L) in *.
replace (total (fun j => w j * v j) keys / T - yM) with ((sL - yM * total w L) / T).
- unfold Rdiv. rewrite Rabs_mult, (Rabs_pos_eq (/ T)) by (left; now apply Rinv_0_lt_compat).
  apply Rmult_le_reg_r with T; [exact T0|]. rewrite Rmult_assoc, Rinv_l, Rmult_1_r by lra.
  apply Rle_trans with ((vmax - vmin) * total w L).
  + apply Rabs_le. split; nra.
  + rewrite Rmult_assoc. apply Rmult_le_compat_l; [|exact H]. lra.
- rewrite E2, EM, E1. field. lra.
Qed.

(** ** Both: the mean under the kernel's weights

    Kept keys have P_j = r_j w_j with r_j within [m, m t^2]; the others 0 <= P_j <= beta w_j
    (beta = 0 where they are flushed) and hold at most [share] of the exact mass. *)
Theorem weights_error {A} (keys : list A) v vmin vmax w P (lost : A -> bool) m t beta share :
  keys <> [] -> (forall j, In j keys -> vmin <= v j <= vmax) -> (forall j, In j keys -> 0 < w j) ->
  0 < m -> 1 <= t -> 0 <= beta -> 0 <= share < 1 ->
  (forall j, In j keys -> lost j = false -> m * w j <= P j <= m * (t * t) * w j) ->
  (forall j, In j keys -> lost j = true -> 0 <= P j <= beta * w j) ->
  total w (filter lost keys) <= share * total w keys ->
  m * (1 - share) * total w keys <= total P keys /\
  Rabs (total (fun j => P j * v j) keys / total P keys - total (fun j => w j * v j) keys / total w keys)
    <= (vmax - vmin) * ((t - 1) / (t + 1) + share + beta * share / (m * (1 - share))).
Proof.
intros Hk V W Hm Ht Hb Hs HK HL H.
set (L := filter lost keys) in *. set (M := filter (fun j => negb (lost j)) keys).
assert (SL : forall j, In j L -> In j keys) by (intros j X; apply filter_In in X; tauto).
assert (SM : forall j, In j M -> In j keys) by (intros j X; apply filter_In in X; tauto).
assert (KM : forall j, In j M -> lost j = false).
{ intros j X. apply filter_In in X. destruct (lost j); [destruct X as [_ X]; discriminate|reflexivity]. }
assert (KL : forall j, In j L -> lost j = true) by (intros j X; apply filter_In in X; tauto).
assert (T0 : 0 < total w keys) by now apply total_pos.
assert (E := total_split lost w keys). fold L M in E.
assert (M0 : 0 < total w M) by nra.
assert (HM : M <> []). { intros X. rewrite X in M0. simpl in M0. lra. }
assert (P0 : forall j, In j keys -> 0 <= P j).
{ intros j X. assert (Wj := W j X). destruct (lost j) eqn:B; [apply (HL j X B)|].
  destruct (HK j X B) as [B1 _]. assert (0 < m * w j) by now apply Rmult_lt_0_compat. lra. }
assert (PM : m * total w M <= total P M).
{ rewrite <- total_scale. apply total_le. intros j X. now apply HK; [apply SM|apply KM]. }
assert (PL : total P L <= beta * total w L).
{ rewrite <- total_scale. apply total_le. intros j X. now apply HL; [apply SL|apply KL]. }
assert (PL0 : 0 <= total P L) by (apply total_nonneg; intros; apply P0, SL; auto).
assert (EP := total_split lost P keys). fold L M in EP.
assert (MW : (1 - share) * total w keys <= total w M) by lra.
assert (Pm : m * (1 - share) * total w keys <= total P M).
{ apply Rle_trans with (2 := PM). rewrite Rmult_assoc. apply Rmult_le_compat_l; lra. }
assert (m1 : 0 < m * (1 - share)) by (apply Rmult_lt_0_compat; lra).
assert (PM0 : 0 < total P M).
{ apply Rlt_le_trans with (2 := Pm). now apply Rmult_lt_0_compat. }
split; [lra|].
(* exact mean -> exact mean of kept keys -> kernel's mean of kept keys -> kernel's mean *)
assert (S1 := mean_of_part keys v vmin vmax w lost share V (fun j X => Rlt_le _ _ (W j X)) M0 H).
fold M in S1.
assert (S2 : Rabs (total (fun j => P j * v j) M / total P M
    - total (fun j => w j * v j) M / total w M) <= (vmax - vmin) * ((t - 1) / (t + 1))).
{ assert (R := reweighting_error keys v vmin vmax w (fun j => P j / w j) m t M V HM SM
    (fun j X => W j (SM j X)) Hm Ht).
  assert (F : forall j, In j M -> P j / w j * w j = P j).
  { intros j X. assert (Wj := W j (SM j X)). field. lra. }
  rewrite (total_ext (fun j => P j / w j * w j * v j) (fun j => P j * v j)) in R
    by (intros j X; now rewrite F).
  rewrite (total_ext (fun j => P j / w j * w j) P) in R by exact F.
  apply R. intros j X. assert (Wj := W j (SM j X)). destruct (HK j (SM j X) (KM j X)) as [B1 B2].
  split; (apply Rmult_le_reg_r with (1 := Wj)); rewrite F by exact X; assumption. }
assert (S3 := mean_of_part keys v vmin vmax P lost (beta * share / (m * (1 - share))) V P0 PM0).
fold L M in S3.
assert (S3' : total P L <= beta * share / (m * (1 - share)) * total P keys).
{ apply Rle_trans with (beta * (share * total w keys)).
  - apply Rle_trans with (1 := PL). now apply Rmult_le_compat_l.
  - unfold Rdiv. rewrite (Rmult_assoc (beta * share)), (Rmult_assoc beta).
    apply Rmult_le_compat_l; [exact Hb|]. apply Rmult_le_compat_l; [lra|].
    apply Rmult_le_reg_l with (1 := m1). rewrite <- Rmult_assoc, Rinv_r, Rmult_1_l by lra. lra. }
specialize (S3 S3').
set (yP := total (fun j => P j * v j) keys / total P keys) in *.
set (yPM := total (fun j => P j * v j) M / total P M) in *.
set (y := total (fun j => w j * v j) keys / total w keys) in *.
set (yM := total (fun j => w j * v j) M / total w M) in *.
replace (yP - y) with ((yP - yPM) + (yPM - yM) + - (y - yM)) by ring.
eapply Rle_trans; [apply Rabs_triang|]. rewrite Rabs_Ropp.
apply Rle_trans with (Rabs (yP - yPM) + Rabs (yPM - yM) + Rabs (y - yM)).
- apply Rplus_le_compat_r. apply Rabs_triang.
- lra.
Qed.

(** ** The two sums, and the quotient

    l^ is within g_l and eps_l of sum P, O^ within g_O and eps_O of sum p v, where p is P as stored
    for the product: within u_P relatively and h_P absolutely. *)
Theorem quotient_error {A} (keys : list A) v V P p l O g_l eps_l g_O eps_O u_P h_P S :
  keys <> [] -> (forall j, In j keys -> Rabs (v j) <= V) -> (forall j, In j keys -> 0 <= P j) ->
  (forall j, In j keys -> Rabs (p j - P j) <= u_P * P j + h_P) ->
  0 <= V -> 0 <= u_P -> 0 <= h_P -> 0 <= g_O -> 0 <= g_l -> 0 <= eps_l -> 0 <= eps_O ->
  Rabs (l - total P keys) <= g_l * total P keys + eps_l ->
  Rabs (O - total (fun j => p j * v j) keys)
    <= g_O * total (fun j => Rabs (p j * v j)) keys + eps_O ->
  0 < S <= total P keys -> g_l + eps_l / S < 1 ->
  let g := g_l + eps_l / S in
  (1 - g) * S <= l /\
  Rabs (O / l - total (fun j => P j * v j) keys / total P keys)
    <= V * ((1 + u_P) * (1 + g_O) / (1 - g) - 1)
       + (V * count keys * h_P * (1 + g_O) + eps_O) / (S * (1 - g)).
Proof.
intros Hk HV HP Hp V0 u0 h0 gO0 gl0 el0 eO0 Hl HO HS Hg g.
set (T := total P keys) in *. assert (T0 : 0 < T) by lra.
assert (N0 := count_nonneg keys).
assert (Hlg : Rabs (l - T) <= g * T).
{ apply Rle_trans with (1 := Hl). unfold g. rewrite Rmult_plus_distr_r. apply Rplus_le_compat_l.
  unfold Rdiv. rewrite Rmult_assoc. rewrite <- (Rmult_1_r eps_l) at 1. apply Rmult_le_compat_l; [lra|].
  apply Rmult_le_reg_l with S; [lra|]. rewrite <- Rmult_assoc, Rinv_r, Rmult_1_l by lra. lra. }
assert (g0 : 0 <= g).
{ unfold g. assert (0 <= eps_l / S); [|lra]. apply Rmult_le_pos; [lra|].
  left. apply Rinv_0_lt_compat. lra. }
fold g in Hg.
assert (lT : (1 - g) * T <= l).
{ assert (Q := Rle_abs (- (l - T))). rewrite Rabs_Ropp in Q. lra. }
assert (lS : (1 - g) * S <= l).
{ apply Rle_trans with (2 := lT). apply Rmult_le_compat_l; lra. }
split; [exact lS|].
assert (l0 : 0 < l). { apply Rlt_le_trans with (2 := lS). apply Rmult_lt_0_compat; lra. }
set (Y := total (fun j => P j * v j) keys).
assert (Pp : forall j, In j keys -> Rabs (p j) <= (1 + u_P) * P j + h_P).
{ intros j H. replace (p j) with (P j + (p j - P j)) by ring. eapply Rle_trans; [apply Rabs_triang|].
  rewrite (Rabs_pos_eq (P j)) by now apply HP. specialize (Hp j H). lra. }
assert (A1 : total (fun j => Rabs (p j * v j)) keys <= V * ((1 + u_P) * T + count keys * h_P)).
{ apply Rle_trans with (total (fun j => V * ((1 + u_P) * P j + h_P)) keys).
  - apply total_le. intros j H. rewrite Rabs_mult, Rmult_comm.
    apply Rmult_le_compat; auto using Rabs_pos.
  - rewrite total_scale, total_plus, total_scale, total_const. fold T. lra. }
assert (A2 : Rabs (total (fun j => p j * v j) keys - Y) <= V * (u_P * T + count keys * h_P)).
{ unfold Y. rewrite <- total_minus. eapply Rle_trans; [apply total_abs|].
  apply Rle_trans with (total (fun j => V * (u_P * P j + h_P)) keys).
  - apply total_le. intros j H. replace (p j * v j - P j * v j) with (v j * (p j - P j)) by ring.
    rewrite Rabs_mult. apply Rmult_le_compat; auto using Rabs_pos.
  - rewrite total_scale, total_plus, total_scale, total_const. fold T. lra. }
assert (YV : Rabs Y <= V * T).
{ unfold Y. eapply Rle_trans; [apply total_abs|].
  apply Rle_trans with (total (fun j => V * P j) keys); [|rewrite total_scale; apply Rle_refl].
  apply total_le. intros j H. rewrite Rabs_mult, (Rabs_pos_eq (P j)), Rmult_comm by now apply HP.
  apply Rmult_le_compat_r; auto. }
assert (D : Rabs (O - Y) <= V * T * ((1 + u_P) * (1 + g_O) - 1)
                            + (V * count keys * h_P * (1 + g_O) + eps_O)).
{ replace (O - Y) with ((O - total (fun j => p j * v j) keys)
                        + (total (fun j => p j * v j) keys - Y)) by ring.
  eapply Rle_trans; [apply Rabs_triang|].
  apply Rmult_le_compat_l with (r := g_O) in A1; [|exact gO0].
  eapply Rle_trans; [apply Rplus_le_compat; [exact HO|exact A2]|].
  eapply Rle_trans; [apply Rplus_le_compat_r, Rplus_le_compat_r; exact A1|].
  right. ring. }
replace (O / l - Y / T) with ((O - Y - Y / T * (l - T)) / l) by (field; lra).
unfold Rdiv at 1. rewrite Rabs_mult, (Rabs_pos_eq (/ l)) by (left; now apply Rinv_0_lt_compat).
set (K := V * count keys * h_P * (1 + g_O) + eps_O) in *.
assert (K0 : 0 <= K).
{ unfold K. assert (0 <= V * count keys * h_P * (1 + g_O)); [|lra].
  repeat apply Rmult_le_pos; lra. }
assert (B : Rabs (O - Y - Y / T * (l - T)) <= V * T * ((1 + u_P) * (1 + g_O) - 1 + g) + K).
{ unfold Rminus at 1. eapply Rle_trans; [apply Rabs_triang|]. rewrite Rabs_Ropp, Rabs_mult.
  assert (Z : Rabs (Y / T) <= V).
  { unfold Rdiv. rewrite Rabs_mult, (Rabs_pos_eq (/ T)) by (left; now apply Rinv_0_lt_compat).
    apply Rmult_le_reg_r with (1 := T0). rewrite Rmult_assoc, Rinv_l by lra. lra. }
  assert (Z2 : Rabs (Y / T) * Rabs (l - T) <= V * (g * T))
    by (apply Rmult_le_compat; auto using Rabs_pos).
  lra. }
assert (g1 : 0 < 1 - g) by lra.
assert (X0 : 0 <= (1 + u_P) * (1 + g_O) - 1 + g).
{ assert (0 <= u_P * g_O) by now apply Rmult_le_pos. lra. }
apply Rle_trans with ((V * T * ((1 + u_P) * (1 + g_O) - 1 + g) + K) * / l).
{ apply Rmult_le_compat_r; [left; now apply Rinv_0_lt_compat|exact B]. }
rewrite Rmult_plus_distr_r. apply Rplus_le_compat.
- replace (V * ((1 + u_P) * (1 + g_O) / (1 - g) - 1))
    with (V * (((1 + u_P) * (1 + g_O) - 1 + g) * / (1 - g))) by (field; lra).
  rewrite !Rmult_assoc. apply Rmult_le_compat_l; [exact V0|].
  rewrite <- Rmult_assoc, (Rmult_comm T), Rmult_assoc. apply Rmult_le_compat_l; [exact X0|].
  apply Rmult_le_reg_r with l; [exact l0|]. rewrite Rmult_assoc, Rinv_l, Rmult_1_r by lra.
  apply Rmult_le_reg_l with (1 - g); [exact g1|]. rewrite <- Rmult_assoc, Rinv_r, Rmult_1_l by lra.
  exact lT.
- unfold Rdiv. apply Rmult_le_compat_l; [exact K0|]. rewrite (Rmult_comm S).
  apply Rinv_le_contravar; [apply Rmult_lt_0_compat; lra|exact lS].
Qed.

(** ** Division and output format: two more roundings

    A result [x] rounded with relative error [d] and absolute [h]. *)
Lemma rounded_error d h x y B V o : Rabs (x - y) <= B -> Rabs y <= V ->
  Rabs (o - x) <= d * Rabs x + h -> 0 <= d ->
  Rabs (o - y) <= B * (1 + d) + d * V + h.
Proof.
intros HB HV Ho d0.
assert (X : Rabs x <= V + B).
{ replace x with (y + (x - y)) by ring. eapply Rle_trans; [apply Rabs_triang|]. lra. }
replace (o - y) with ((o - x) + (x - y)) by ring. eapply Rle_trans; [apply Rabs_triang|].
assert (d * Rabs x <= d * (V + B)) by now apply Rmult_le_compat_l. lra.
Qed.
