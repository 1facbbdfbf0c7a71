(** * Kernels: the arithmetic that the main theorem covers, as data

    FP32 accumulators and exponents; operands that are multiplied as stored (no centring, no factor
    folded into them); one factor at the score. What a kernel file leaves open (the order of a sum,
    the last bits of a unit that is known to so many ulps) stays open: an execution may do any of
    it. *)

From Coq Require Import ZArith Reals Lra Lia List Bool Permutation.
From Flocq Require Import Core BinarySingleNaN.
From Headroom Require Import Formats Rows Exp2 Execution Adders Weights Division Stabilizer Row.
Open Scope R_scope.

(** ** Adders and orders *)
Inductive adder :=
| Ieee (flushes : bool)          (* FP32, to nearest even; results below 2^-126 flushed or kept *)
| MatrixUnit (F k : Z).          (* k products and the accumulator, cut F bits below the largest *)

Inductive order :=
| Sequential | Tile (n : Z) | Pairwise | Lanes (n : Z) | Steps (k : Z) | AnyOrder.

Definition ceil_div a b := (- (- a / b))%Z.

(** How many additions a term passes at most, of [count] terms. *)
Definition additions (o : order) (count : Z) : Z := match o with
| Sequential | AnyOrder => count
| Tile n => Z.min count (n + ceil_div count n)
| Pairwise => Z.min count (Z.log2_up count + 1)
| Lanes n => Z.min count (ceil_div count n + n)
| Steps k => ceil_div count k end.

Definition flush_at (b : bool) : option Z := if b then Some (-126)%Z else None.

Definition adder_of (a : adder) : list R -> f32 -> Prop := match a with
| Ieee b => ieee_adder 24 128 mode_NE (flush_at b)
| MatrixUnit F k => fewer_than 24 128 (k + 1) (truncating_unit 24 128 F) end.

(** Relative and absolute error of one node. *)
Definition delta_of (a : adder) : R := match a with
| Ieee _ => bpow radix2 (-24)
| MatrixUnit F k => IZR (k + 1) * bpow radix2 (- F) + bpow radix2 (-23) end.
Definition eta_of (a : adder) : R := match a with
| Ieee true => bpow radix2 (-126) | _ => bpow radix2 (-149) end.

Definition adder_ok (a : adder) : Prop := match a with
| Ieee _ => True | MatrixUnit F k => (0 <= k)%Z end.

Lemma flush_at_ok b : flush_ok 24 128 (flush_at b).
Proof. destruct b; simpl; [|exact I]. lia. Qed.

Lemma floor_of_flush_at b : floor_of 24 128 (flush_at b) = if b then bpow radix2 (-126) else bpow radix2 (-149).
Proof. destruct b; reflexivity. Qed.

Lemma adder_bounded a : adder_ok a -> bounded (adder_of a).
Proof.
destruct a as [b|F k]; intros H; unfold adder_of.
- apply ieee_bounded; exact fp32_precision.
- intros vs r [_ T]. apply (truncating_bounded 24 128 fp32_precision F vs r T).
Qed.

Lemma adder_close a : adder_ok a -> close (adder_of a) (fun _ => True) (delta_of a) (eta_of a).
Proof.
destruct a as [b|F k]; intros H; unfold adder_of, delta_of, eta_of.
- assert (Q := ieee_close 24 128 fp32_precision mode_NE (flush_at b) (flush_at_ok b)).
  rewrite floor_of_flush_at in Q. exact Q.
- simpl in H. exact (truncating_close 24 128 fp32_precision F (k + 1) ltac:(lia)).
Qed.

Lemma delta_nonneg a : adder_ok a -> 0 <= delta_of a.
Proof.
destruct a as [b|F k]; intros H; unfold delta_of; [apply bpow_ge_0|]. simpl in H.
assert (0 <= IZR (k + 1)) by (apply IZR_le; lia).
assert (0 <= IZR (k + 1) * bpow radix2 (- F)) by (apply Rmult_le_pos; [assumption|apply bpow_ge_0]).
assert (0 <= bpow radix2 (-23)) by apply bpow_ge_0. lra.
Qed.

Lemma eta_nonneg a : 0 <= eta_of a.
Proof. destruct a as [[|]|]; apply bpow_ge_0. Qed.

(** ** exp2 units *)
Inductive unit_kind :=
| Rounded (flushes : bool)       (* to nearest even; subnormal results flushed or kept *)
| Within (eps_num eps_exp h : Z)  (* within eps_num 2^-eps_exp <= 2^-h relatively; flushed below 2^-126 *).

Definition unit_of_kind (u : unit_kind) : f32 -> f32 -> Prop := match u with
| Rounded b => rounded_unit 24 128 mode_NE (flush_at b)
| Within a k _ => approximate_unit 24 128 (IZR a * bpow radix2 (- k)) (-126) end.

(** ** Division *)
Inductive division_kind :=
| Divide
| Reciprocal (eps_num eps_exp : Z).   (* 1 / l within that relatively, up to l = 2^b *)

Definition recip (a k b : Z) (l : R) (c : f32) : Prop :=
  bpow radix2 (-126) <= l <= bpow radix2 b ->
  is_finite c = true /\ Rabs (B2R c - / l) <= IZR a * bpow radix2 (- k) * / l.

Definition divide_of (dv : division_kind) (flushes : bool) (b : Z) : R -> R -> f32 -> Prop := match dv with
| Divide => divider 24 128 mode_NE (flush_at flushes)
| Reciprocal a k => by_reciprocal 24 128 (recip a k b) mode_NE (flush_at flushes) end.

(** ** A kernel *)
Record kernel := {
  k_flushes : bool;              (* arithmetic outside the matrix unit: norms, factor, quotient *)
  k_score : adder; k_score_order : order; k_score_rounded : bool;  (* products rounded by themselves *)
  k_fused : bool;                (* the factor is fused into the exponent *)
  k_exp2 : unit_kind;
  k_p_prec : Z; k_p_emax : Z; k_p_flushes : bool;
  k_sums_stored : bool;          (* the denominator adds P as stored *)
  k_l_flushes : bool; k_l_order : order;
  k_O : adder; k_O_order : order; k_O_rounded : bool;
  k_division : division_kind; k_l_max : Z;   (* l <= 2^k_l_max for the reciprocal *)
  k_out_prec : Z; k_out_emax : Z; k_out_flushes : bool
}.

Definition p_flush_at (k : kernel) : option Z :=
  if k_p_flushes k then Some (3 - k_p_emax k - k_p_prec k + k_p_prec k - 1)%Z else None.

Definition machine_of (k : kernel) : machine 24 128 := {|
  exponent_mode := mode_NE;
  unit := unit_of_kind (k_exp2 k);
  store_mode := mode_NE;
  store_flush := p_flush_at k;
  sums_stored := k_sums_stored k;
  l_adder := ieee_adder 24 128 mode_NE (flush_at (k_l_flushes k));
  O_adder := adder_of (k_O k);
  divide := divide_of (k_division k) (k_flushes k) (k_l_max k)
|}.

(** ** What the units promise, as numbers *)
Record promise := { pr_L : Z; pr_La : Z; pr_Z0 : Z; pr_low : Z; pr_w : Z; pr_l : Z }.

Definition promise_of (u : unit_kind) (C : Z) : promise := match u with
| Rounded true => {| pr_L := -126; pr_La := -126; pr_Z0 := -127; pr_low := -126; pr_w := 1; pr_l := C |}
| Rounded false => {| pr_L := -149; pr_La := -126; pr_Z0 := -150; pr_low := -149; pr_w := 1; pr_l := C |}
| Within a k h => {| pr_L := -125; pr_La := -125; pr_Z0 := -127; pr_low := -126; pr_w := 2 ^ h + 1;
                     pr_l := C - h |} end.

(** Relative error, and what is left below the accurate range. *)
Definition unit_eps (u : unit_kind) : R := match u with
| Rounded _ => relative_of (bpow radix2 (-24))
| Within a k _ => IZR a * bpow radix2 (- k) end.
Definition unit_beta (u : unit_kind) : R := match u with Rounded false => 2 | _ => 0 end.

(** [1 <= h]: errors below a half. *)
Definition unit_ok (u : unit_kind) : Prop := match u with
| Rounded _ => True
| Within a k h => (0 <= a)%Z /\ (1 <= h)%Z /\ IZR a * bpow radix2 (- k) <= bpow radix2 (- h) end.

Theorem unit_promises u C : unit_ok u -> (-126 <= C <= 127)%Z ->
  IZR (pr_w (promise_of u C)) * bpow radix2 (pr_l (promise_of u C)) < bpow radix2 128 ->
  exp2_unit 24 128 (unit_of_kind u) C (pr_L (promise_of u C)) (pr_La (promise_of u C))
    (pr_Z0 (promise_of u C)) (pr_low (promise_of u C)) (pr_w (promise_of u C)) (pr_l (promise_of u C))
    (unit_eps u) (unit_beta u).
Proof.
destruct u as [[|]|a k h]; intros Hu HC Ho.
- exact (flushing_unit 24 128 fp32_precision mode_NE C (-126) ltac:(lia) ltac:(lia) ltac:(lia)).
- exact (gradual_unit 24 128 fp32_precision mode_NE C (or_introl eq_refl) ltac:(lia) ltac:(lia)).
- simpl in Hu, Ho |- *. destruct Hu as [Ha [Hh He]].
  assert (H2 : bpow radix2 (- h) <= / 2).
  { change (/ 2) with (bpow radix2 (-1)). apply bpow_le. lia. }
  assert (P : 0 <= IZR a * bpow radix2 (- k)).
  { apply Rmult_le_pos; [now apply IZR_le|apply bpow_ge_0]. }
  apply (approximate_unit_promises 24 128); auto; try lia; [lra|].
  change (-125)%Z with (1 + -126)%Z. rewrite bpow_plus. change (bpow radix2 1) with 2.
  assert (B := bpow_gt_0 radix2 (-126)).
  replace ((1 - IZR a * bpow radix2 (- k)) * (2 * bpow radix2 (-126)))
    with (2 * (1 - IZR a * bpow radix2 (- k)) * bpow radix2 (-126)) by ring.
  rewrite <- (Rmult_1_l (bpow radix2 (-126))) at 1. apply Rmult_le_compat_r; lra.
Qed.

(** Results of units that flush are 0 or normal numbers. *)
Definition unit_flushes (u : unit_kind) := match u with Rounded b => b | Within _ _ _ => true end.

Lemma unit_normal u C x y : unit_ok u -> (-126 <= C <= 127)%Z ->
  IZR (pr_w (promise_of u C)) * bpow radix2 (pr_l (promise_of u C)) < bpow radix2 128 ->
  unit_flushes u = true -> unit_of_kind u x y -> is_finite x = true -> B2R x <= IZR C ->
  B2R y = 0 \/ bpow radix2 (-126) <= B2R y.
Proof.
intros Hu HC Ho Hf H F Hx. destruct u as [[|]|a k h]; simpl in *; [|discriminate|].
- destruct (rounded_in_range 24 128 fp32_precision mode_NE C (B2R x) ltac:(lia) Hx) as [B1 B2].
  assert (Rg : Rabs (round32 mode_NE (exp2 (B2R x))) < bpow radix2 128).
  { rewrite Rabs_pos_eq by exact B1. apply Rle_lt_trans with (1 := B2). apply bpow_lt. lia. }
  destruct (H F Rg) as [_ E]. rewrite E. unfold after, flushed.
  case Rlt_bool_spec; intros Q; [now left|right]. rewrite Rabs_pos_eq in Q by exact B1. exact Q.
- destruct Hu as [Ha [Hh He]].
  assert (Rg : (1 + IZR a * bpow radix2 (- k)) * exp2 (B2R x) < bpow radix2 128).
  { apply Rle_lt_trans with (2 := Ho). rewrite plus_IZR, two_pow by lia.
    assert (P := exp2_pos (B2R x)). assert (Q := exp2_le _ _ Hx). rewrite exp2_Z in Q.
    replace ((bpow radix2 h + 1) * bpow radix2 (C - h)) with (bpow radix2 C + bpow radix2 (- h) * bpow radix2 C).
    - assert (0 <= IZR a * bpow radix2 (- k)) by (apply Rmult_le_pos; [now apply IZR_le|apply bpow_ge_0]).
      assert (IZR a * bpow radix2 (- k) * exp2 (B2R x) <= bpow radix2 (- h) * bpow radix2 C)
        by (apply Rmult_le_compat; lra). lra.
    - rewrite Rmult_plus_distr_r, Rmult_1_l, <- !bpow_plus. f_equal; f_equal; lia. }
  destruct (H F Rg) as [_ [[B _]|[Z _]]]; [right; exact B|left; exact Z].
Qed.

(** ** A kernel that the theorem covers *)
Record kernel_ok (k : kernel) : Prop := {
  ok_score : adder_ok (k_score k);
  ok_O : adder_ok (k_O k);
  ok_unit : unit_ok (k_exp2 k);
  (* P has FP32's exponent range and no more bits: BF16, TF32, FP32 *)
  ok_p : (2 <= k_p_prec k <= 24)%Z /\ k_p_emax k = 128%Z;
  (* where exp2 does not flush, nor do P, which is FP32, and the denominator *)
  ok_gradual : unit_flushes (k_exp2 k) = false ->
    k_p_flushes k = false /\ k_p_prec k = 24%Z /\ k_l_flushes k = false /\ k_sums_stored k = false;
  ok_division : match k_division k with Divide => True
    | Reciprocal a e => (0 <= a)%Z /\ IZR a * bpow radix2 (- e) <= 1 /\ unit_flushes (k_exp2 k) = true end
}.

(** ** What P stores of the largest weight

    A unit that errs by less than half a unit of P's last place exceeds 2^C by less than P rounds
    away: then no stored P exceeds 2^C. *)
Definition overshoot_rounded (k : kernel) : bool := match k_exp2 k with
| Rounded _ => false | Within a e _ => ((0 <=? e) && (a * 2 ^ k_p_prec k <? 2 ^ e))%Z end.
Definition p_w (k : kernel) (C : Z) : Z := if overshoot_rounded k then 1 else pr_w (promise_of (k_exp2 k) C).
Definition p_l (k : kernel) (C : Z) : Z := if overshoot_rounded k then C else pr_l (promise_of (k_exp2 k) C).

(** To nearest, what lies less than half a unit above a power of two rounds to it, or below. *)
Lemma rounded_down_to_power pp (positive : Prec_gt_0 pp) pe C y : (3 - pe - pp <= C)%Z ->
  y < bpow radix2 C + bpow radix2 (C - pp) ->
  round radix2 (FLT_exp (3 - pe - pp) pp) (round_mode mode_NE) y <= bpow radix2 C.
Proof.
intros HC Hy. assert (Va := FLT_exp_valid (3 - pe - pp) pp).
destruct (Z.le_gt_cases (3 - pe - pp) (C + 1 - pp)) as [Q|Q].
- apply (round_N_le_midp radix2 _ (fun t => negb (Z.even t))).
  + now apply (bpow_format (3 - pe - pp) pp (prec_positive := positive)).
  + rewrite succ_eq_pos by apply bpow_ge_0. rewrite ulp_bpow. unfold FLT_exp.
    rewrite Z.max_l by lia. replace (C + 1 - pp)%Z with (1 + (C - pp))%Z by ring.
    rewrite bpow_plus. change (bpow radix2 1) with 2. lra.
- apply (round_N_le_midp radix2 _ (fun t => negb (Z.even t))).
  + now apply (bpow_format (3 - pe - pp) pp (prec_positive := positive)).
  + rewrite succ_eq_pos by apply bpow_ge_0. rewrite ulp_bpow. unfold FLT_exp.
    rewrite Z.max_r by lia. assert (bpow radix2 (C - pp) < bpow radix2 (3 - pe - pp - 1)) by (apply bpow_lt; lia).
    replace (3 - pe - pp)%Z with (1 + (3 - pe - pp - 1))%Z by ring.
    rewrite bpow_plus. change (bpow radix2 1) with 2. lra.
Qed.

Definition u_P_of (k : kernel) : R := bpow radix2 (- k_p_prec k).
Definition h_P_of (k : kernel) : R :=
  if unit_flushes (k_exp2 k) then 0 else bpow radix2 (3 - k_p_emax k - k_p_prec k).
Definition u_D_of (k : kernel) : R := match k_division k with
| Divide => bpow radix2 (-24)
| Reciprocal a e => (1 + IZR a * bpow radix2 (- e)) * (1 + bpow radix2 (-24)) - 1 end.
Definition h_D_of (k : kernel) : R := if k_flushes k then bpow radix2 (-126) else bpow radix2 (-149).

Section Promises.
Variable k : kernel.
Hypothesis ok : kernel_ok k.
Notation pp := (k_p_prec k).
Notation pe := (k_p_emax k).

Lemma p_precision : Prec_gt_0 pp.
Proof. destruct (ok_p k ok) as [H _]. unfold Prec_gt_0. lia. Qed.

Lemma p_low : (low_of pp pe (p_flush_at k) <= -126)%Z /\
  (unit_flushes (k_exp2 k) = false -> (low_of pp pe (p_flush_at k) <= -149)%Z).
Proof.
destruct (ok_p k ok) as [H E]. unfold p_flush_at. rewrite E. split.
- destruct (k_p_flushes k); unfold low_of; lia.
- intros G. destruct (ok_gradual k ok G) as [G1 [G2 _]]. rewrite G1, G2. unfold low_of. lia.
Qed.

Lemma p_in_range (C : Z) y w l : (0 <= w <= 2 ^ pp)%Z -> (3 - pe - pp <= l)%Z ->
  IZR w * bpow radix2 l < bpow radix2 pe -> 0 <= y <= IZR w * bpow radix2 l ->
  Rabs (round radix2 (FLT_exp (3 - pe - pp) pp) (round_mode mode_NE) y) < bpow radix2 pe.
Proof.
intros Hw Hl Ho Hy. apply Rle_lt_trans with (2 := Ho).
apply (rd_le (3 - pe - pp) pp (prec_positive := p_precision)); auto with typeclass_instances.
now rewrite Rabs_pos_eq.
Qed.

(** BF16 and TF32 numbers are FP32 numbers. *)
Lemma p_format_fp32 (p : binary_float pp pe) :
  generic_format radix2 (FLT_exp (3 - 128 - 24) 24) (B2R p).
Proof.
destruct (ok_p k ok) as [H E].
assert (F := generic_format_B2R pp pe p). unfold SpecFloat.fexp, SpecFloat.emin in F.
apply generic_inclusion_mag with (fexp1 := FLT_exp (3 - pe - pp) pp); [|exact F].
intros _. unfold FLT_exp. lia.
Qed.

Variables (C N G qmax : Z) (e zlow V : R) (hl nl hO nO : nat).
Notation pr := (promise_of (k_exp2 k) C).

(** The numbers of the row theorem. *)
Definition numbers_of : numbers := {|
  Row.C := C; L := pr_L pr; La := pr_La pr; Z0 := pr_Z0 pr; low := pr_low pr;
  w := pr_w pr; l_ := pr_l pr; wP := p_w k C; lP := p_l k C; Row.N := N; Row.G := G; K := 8;
  b := k_l_max k; Row.qmax := qmax; Row.e := e; Row.zlow := zlow;
  eps := unit_eps (k_exp2 k); beta := unit_beta (k_exp2 k); u_P := u_P_of k; h_P := h_P_of k;
  good := weighty 24 128 (flush_at (k_l_flushes k)); d_l := bpow radix2 (-24); e_l := 0;
  h_l := hl; n_l := nl; d_O := delta_of (k_O k); e_O := eta_of (k_O k); h_O := hO; n_O := nO;
  u_D := u_D_of k; h_D := h_D_of k; Row.V := V; vmin := - V; vmax := V |}.

Hypothesis C_range : (-126 <= C <= 127)%Z.
Hypothesis weight_range : IZR (pr_w pr) * bpow radix2 (pr_l pr) < bpow radix2 128.
Hypothesis weight_bits : (0 <= p_w k C <= 2 ^ pp)%Z /\ (3 - 128 - pp <= p_l k C)%Z.
Hypothesis stored_fits : IZR (p_w k C) * bpow radix2 (p_l k C) < bpow radix2 128.
Hypothesis q_range : (-149 <= qmax /\ qmax + 1 < 128)%Z.

Lemma unit_p : exp2_unit 24 128 (unit_of_kind (k_exp2 k)) C (pr_L pr) (pr_La pr) (pr_Z0 pr) (pr_low pr)
  (pr_w pr) (pr_l pr) (unit_eps (k_exp2 k)) (unit_beta (k_exp2 k)).
Proof. apply unit_promises; auto. apply (ok_unit k ok). Qed.

Lemma low_cases : pr_low pr = if unit_flushes (k_exp2 k) then (-126)%Z else (-149)%Z.
Proof. destruct (k_exp2 k) as [[|]|]; reflexivity. Qed.

(** What is stored of a weight: its overshoot rounded away, or within the same units. *)
Lemma stored_promise x y p : unit_of_kind (k_exp2 k) x y -> is_finite x = true -> B2R x <= IZR C ->
  rounds pp pe mode_NE (p_flush_at k) (B2R y) p ->
  is_finite p = true /\ 0 <= B2R p <= IZR (p_w k C) * bpow radix2 (p_l k C) /\
  Rabs (round radix2 (FLT_exp (3 - pe - pp) pp) (round_mode mode_NE) (B2R y)) < bpow radix2 pe.
Proof.
intros H F B S. destruct (ok_p k ok) as [Hp Ep]. destruct weight_bits as [W1 W2].
destruct (unit_finite _ _ _ _ _ _ _ _ _ _ _ _ unit_p x y H F B) as [_ [Y0 Y1]].
unfold p_w, p_l in *. destruct (overshoot_rounded k) eqn:Sn.
- assert (Rd : 0 <= round radix2 (FLT_exp (3 - pe - pp) pp) (round_mode mode_NE) (B2R y) <= bpow radix2 C).
  { split.
    - assert (Va := FLT_exp_valid (3 - pe - pp) pp (prec_gt_0_ := p_precision)).
      apply round_ge_generic; auto with typeclass_instances. apply generic_format_0.
    - apply (rounded_down_to_power pp p_precision); [rewrite Ep; lia|].
      unfold overshoot_rounded in Sn. assert (U := ok_unit k ok).
      destruct (k_exp2 k) as [b|a ex h]; [discriminate|]. apply andb_prop in Sn. destruct Sn as [Sn0 Sn].
      apply Z.leb_le in Sn0. apply Z.ltb_lt in Sn. apply IZR_lt in Sn. rewrite mult_IZR, !two_pow in Sn by lia.
      destruct U as [Ha [Hh He]].
      assert (P := exp2_pos (B2R x)). assert (Q := exp2_le _ _ B). rewrite exp2_Z in Q.
      assert (E0 : 0 <= IZR a * bpow radix2 (- ex)) by (apply Rmult_le_pos; [now apply IZR_le|apply bpow_ge_0]).
      assert (Ee : IZR a * bpow radix2 (- ex) < bpow radix2 (- pp)).
      { apply Rmult_lt_reg_r with (bpow radix2 (ex + pp)); [apply bpow_gt_0|].
        rewrite Rmult_assoc, <- !bpow_plus. replace (- ex + (ex + pp))%Z with pp by ring.
        replace (- pp + (ex + pp))%Z with ex by ring. exact Sn. }
      assert (C0 := bpow_gt_0 radix2 C).
      assert (Ov : (1 + IZR a * bpow radix2 (- ex)) * exp2 (B2R x) < bpow radix2 C + bpow radix2 (C - pp)).
      { replace (C - pp)%Z with (C + - pp)%Z by ring. rewrite bpow_plus.
        apply Rle_lt_trans with ((1 + IZR a * bpow radix2 (- ex)) * bpow radix2 C).
        - apply Rmult_le_compat_l; lra.
        - replace ((1 + IZR a * bpow radix2 (- ex)) * bpow radix2 C)
            with (bpow radix2 C + bpow radix2 C * (IZR a * bpow radix2 (- ex))) by ring.
          apply Rplus_lt_compat_l. now apply Rmult_lt_compat_l. }
      destruct (H F) as [_ [[_ A]|[Z _]]].
      { apply Rlt_le_trans with (1 := Ov). apply Rle_trans with (2 * bpow radix2 C).
        - assert (bpow radix2 (C - pp) <= bpow radix2 C) by (apply bpow_le; lia). lra.
        - change 2 with (bpow radix2 1). rewrite <- bpow_plus. apply bpow_le. lia. }
      + apply Rabs_le_inv in A. lra.
      + rewrite Z. assert (D0 := bpow_gt_0 radix2 (C - pp)). lra. }
  assert (Rg : Rabs (round radix2 (FLT_exp (3 - pe - pp) pp) (round_mode mode_NE) (B2R y)) < bpow radix2 pe).
  { rewrite Rabs_pos_eq by apply Rd. apply Rle_lt_trans with (1 := proj2 Rd). apply bpow_lt. rewrite Ep. lia. }
  destruct (S Rg) as [Fp E]. split; [exact Fp|]. split; [|exact Rg]. rewrite E, Rmult_1_l.
  destruct (p_flush_at k) as [f|]; unfold after; [|exact Rd].
  destruct (flushed_cases f (round radix2 (FLT_exp (3 - pe - pp) pp) (round_mode mode_NE) (B2R y))) as [Z|Z];
    rewrite Z; [|exact Rd]. split; [lra|apply bpow_ge_0].
- assert (Hl : (3 - pe - pp <= pr_l pr)%Z) by (rewrite Ep; exact W2).
  assert (Ho : IZR (pr_w pr) * bpow radix2 (pr_l pr) < bpow radix2 pe) by (rewrite Ep; exact weight_range).
  destruct (stored_range pp pe p_precision mode_NE (p_flush_at k) (pr_w pr) (pr_l pr) _ _ S W1 Hl Ho (conj Y0 Y1)) as [Fp Rp].
  split; [exact Fp|]. split; [exact Rp|].
  exact (p_in_range C (B2R y) (pr_w pr) (pr_l pr) W1 Hl Ho (conj Y0 Y1)).
Qed.

Theorem kernel_promises : machine_promises 24 128 pp pe (machine_of k) numbers_of.
Proof.
destruct (ok_p k ok) as [Hp Ep]. destruct p_low as [PL1 PL2]. assert (PU := unit_p).
assert (Store_range : forall x y p, unit_of_kind (k_exp2 k) x y -> is_finite x = true -> B2R x <= IZR C ->
  rounds pp pe mode_NE (p_flush_at k) (B2R y) p -> 0 <= B2R y /\
  Rabs (round radix2 (FLT_exp (3 - pe - pp) pp) (round_mode mode_NE) (B2R y)) < bpow radix2 pe).
{ intros x y p H F B S. destruct (unit_finite _ _ _ _ _ _ _ _ _ _ _ _ PU x y H F B) as [_ R].
  split; [apply R|]. apply (stored_promise x y p H F B S). }
split; cbn [numbers_of Row.C L La Z0 low w l_ wP lP eps beta u_P h_P good d_l e_l d_O e_O u_D h_D b Row.qmax
            machine_of unit store_mode store_flush sums_stored l_adder O_adder divide].
- exact PU.
- rewrite low_cases. destruct (unit_flushes (k_exp2 k)) eqn:U; [exact PL1|now apply PL2].
- exact stored_promise.
- intros x y p H F B S. destruct (Store_range x y p H F B S) as [Y0 Rg].
  unfold u_P_of, h_P_of. destruct (unit_flushes (k_exp2 k)) eqn:U.
  + rewrite Rplus_0_r.
    assert (Y := unit_normal _ C x y (ok_unit k ok) C_range weight_range U H F B).
    apply (stored_close_normal pp pe p_precision mode_NE (p_flush_at k) (-126)); auto.
    rewrite Ep. lia.
  + destruct (ok_gradual k ok U) as [G1 _]. unfold p_flush_at in *. rewrite G1 in *.
    exact (stored_close pp pe p_precision mode_NE None (B2R y) p S I Y0 Rg).
- intros S. unfold h_P_of. destruct (unit_flushes (k_exp2 k)) eqn:U; [reflexivity|].
  destruct (ok_gradual k ok U) as [_ [_ [_ G3]]]. congruence.
- apply ieee_bounded. exact fp32_precision.
- intros vs r L0 H Rm Nn.
  destruct (ieee_keeps 24 128 fp32_precision mode_NE (flush_at (k_l_flushes k)) vs r L0 H Rm Nn) as [A1 A2].
  split; [exact A1|]. intros HL. apply A2. rewrite low_cases in HL.
  destruct (unit_flushes (k_exp2 k)) eqn:U.
  + destruct (k_l_flushes k); unfold low_of, flush_at; lia.
  + destruct (ok_gradual k ok U) as [_ [_ [G2 _]]]. rewrite G2. unfold low_of, flush_at. lia.
- exact (ieee_close_on_weights 24 128 fp32_precision mode_NE _ (flush_at_ok (k_l_flushes k))).
- split; [split; [apply generic_format_0|now left]|].
  intros x y p H F B S. destruct (Store_range x y p H F B S) as [Y0 Rg].
  destruct (unit_flushes (k_exp2 k)) eqn:U.
  + assert (Y := unit_normal _ C x y (ok_unit k ok) C_range weight_range U H F B).
    assert (Lw : (low_of 24 128 (flush_at (k_l_flushes k)) <= -126)%Z).
    { destruct (k_l_flushes k); unfold low_of, flush_at; lia. }
    destruct (k_sums_stored k).
    * split; [exact (p_format_fp32 p)|]. destruct Y as [Y|Y].
      -- left. destruct (S Rg) as [_ E]. rewrite E, Y, round_0 by auto with typeclass_instances.
         destruct (p_flush_at k) as [f|]; unfold after; [|reflexivity].
         destruct (flushed_cases f 0) as [Z|Z]; exact Z.
      -- right. apply Rle_trans with (bpow radix2 (-126)); [now apply bpow_le|].
         exact (stored_kept pp pe p_precision _ _ _ _ _ S PL1 Rg Y).
    * split; [apply generic_format_B2R|]. destruct Y as [Y|Y]; [now left|right].
      apply Rle_trans with (2 := Y). now apply bpow_le.
  + destruct (ok_gradual k ok U) as [_ [_ [G2 G3]]]. rewrite G2, G3. unfold flush_at.
    split; [apply generic_format_B2R|]. destruct (Req_dec (B2R y) 0) as [Z|NZ]; [now left|right].
    unfold low_of. destruct Y0 as [Y0|Y0]; [|congruence].
    assert (Fy := generic_format_B2R 24 128 y).
    destruct (format_multiple 24 128 (B2R y) Fy) as [c Ec]. rewrite Ec in Y0 |- *.
    assert (B0 := bpow_gt_0 radix2 (3 - 128 - 24)).
    assert (c0 : (1 <= c)%Z).
    { assert (0 < IZR c) by (apply Rmult_lt_reg_r with (1 := B0); lra).
      assert (0 < c)%Z by now apply lt_IZR. lia. }
    rewrite <- (Rmult_1_l (bpow radix2 (3 - 128 - 24))) at 1.
    apply Rmult_le_compat_r; [lra|]. now apply (IZR_le 1).
- apply adder_bounded. apply (ok_O k ok).
- apply adder_close. apply (ok_O k ok).
- unfold u_D_of, h_D_of, divide_of. rewrite <- floor_of_flush_at.
  assert (Dv := ok_division k ok). destruct (k_division k) as [|a ee].
  + apply (divider_normalises 24 128 fp32_precision mode_NE); [apply flush_at_ok|lia].
  + destruct Dv as [D1 [D2 D3]].
    apply (reciprocal_normalises 24 128 fp32_precision (recip a ee (k_l_max k)) mode_NE).
    * intros l c H Hl. apply H. split; [|apply Hl]. apply Rle_trans with (2 := proj1 Hl).
      apply bpow_le. rewrite low_cases, D3. lia.
    * split; [|exact D2]. apply Rmult_le_pos; [now apply IZR_le|apply bpow_ge_0].
    * apply flush_at_ok.
    * lia.
Qed.
End Promises.
