(** * Certified: from the words of a head to every execution of its kernel

    The last step: the checker run on words, and its theorem in terms of the numbers that those words
    are. This is the statement that `headroom check` prints the name of. *)

From Coq Require Import ZArith QArith Qreals Reals Lra Lia List Bool FunctionalExtensionality.
From Flocq Require Import Core BinarySingleNaN.
From Headroom Require Import Formats Rows CauchySchwarz Exp2 LostMass Execution Row Kernel MainTheorem Bounds CheckRow CheckHead
  Checker Log2e Words.
Import ListNotations.
Open Scope R_scope.

Record tensors := {
  t_queries : nat; t_keys : nat; t_dims : nat; t_dims_v : nat;
  t_q_format : word_format; t_k_format : word_format; t_v_format : word_format;
  t_q : nat -> list Z; t_k : nat -> list Z; t_v : nat -> list Z;   (* rows of words *)
  t_seen : nat -> nat                                              (* row i sees the first so many keys *)
}.

(** Machines that flush may read numbers below 2^-126 as zero: there, no operand may be one. Those
    of FP16 are all larger. *)
Definition keeps_subnormals (k : kernel) (f : word_format) : bool :=
  (exponent_bits f <? 8)%Z || negb (k_flushes k) && match k_score k with Ieee b => negb b | MatrixUnit _ _ => true end
  && match k_O k with Ieee b => negb b | MatrixUnit _ _ => true end.

Definition head_of (k : kernel) (h : head_numbers) (t : tensors) : head := {|
  queries := t_queries t; keys_count := t_keys t; dims := t_dims t; dims_v := t_dims_v t;
  q_row := fun i => row_or_nothing (t_q_format t) (keeps_subnormals k (t_q_format t)) (c_qe (n_constants h)) (t_q t i);
  k_row := fun j => if Nat.ltb j (t_keys t)
    then row_or_nothing (t_k_format t) (keeps_subnormals k (t_k_format t)) (c_ke (n_constants h)) (t_k t j) else [];
  v_row := fun j => if Nat.ltb j (t_keys t)
    then row_or_nothing (t_v_format t) (keeps_subnormals k (t_v_format t)) (n_ve h) (t_v t j) else [];
  seen_by := t_seen t |}.

Definition check_words (k : kernel) (h : head_numbers) (s : scale) (t : tensors) : bool :=
  (0 <? Z.of_nat (t_dims_v t))%Z &&
  scale_encloses s (c_flo (n_constants h)) (c_fhi (n_constants h)) && check k h (head_of k h t).

(** The row as its words say it; there is nothing beyond the last key. *)
Definition row_of_words (s : scale) (t : tensors) (i channel : nat) : row := {|
  channels := t_dims t;
  query := fun a => word_value (t_q_format t) (nth a (t_q t i) 0%Z);
  key := fun j a => if Nat.ltb j (t_keys t) then word_value (t_k_format t) (nth a (t_k t j) 0%Z) else 0;
  values_of := fun j => if Nat.ltb j (t_keys t) then word_value (t_v_format t) (nth channel (t_v t j) 0%Z) else 0;
  visible := seq 0 (t_seen t i);
  factor := scale_value s |}.

(** The stabilizer that the certificate names: C, kappa, and the stored factor. *)
Record stabilizer_of (h : head_numbers) (st : stabilizer) : Prop := {
  so_constant : constant st = F (n_constant h);
  so_slope : B2R (slope st) = F (c_slope (n_constants h)) /\ is_finite (slope st) = true;
  so_cap : cap st = c_C (n_constants h)
}.

Section Sound.
Variables (k : kernel) (h : head_numbers) (s : scale) (t : tensors) (st : stabilizer).
Hypothesis checked : check_words k h s t = true.
Hypothesis named : stabilizer_of h st.
Notation hd := (head_of k h t).

Lemma check_parts : (0 < t_dims_v t)%nat /\ scale_encloses s (c_flo (n_constants h)) (c_fhi (n_constants h)) = true /\
  check k h hd = true.
Proof.
unfold check_words in checked. rewrite !andb_true_iff in checked. destruct checked as [[H1 H2] H3].
apply Z.ltb_lt in H1. repeat split; auto. lia.
Qed.

Lemma context : context_ok h (scale_value s) st.
Proof.
destruct check_parts as [_ [S _]]. destruct named. split; auto. now apply scale_enclosed.
Qed.

Lemma word_zero f : word_value f 0 = 0.
Proof.
unfold word_value, significand, biased, fraction. cbv zeta. rewrite !Zdiv.Zdiv_0_l, !Zdiv.Zmod_0_l.
cbn [Z.eqb]. rewrite Rmult_0_l. destruct (negative f 0); ring.
Qed.

Lemma decoded f keep e0 ws n : length (row_or_nothing f keep e0 ws) = n -> (0 < n)%nat ->
  forall a, word_value f (nth a ws 0%Z) = vec (row_or_nothing f keep e0 ws) e0 a.
Proof.
unfold row_or_nothing. destruct (decode_row f keep e0 ws) as [l|] eqn:D; [|simpl; lia].
intros L N a. destruct (decode_row_value f keep e0 ws l D) as [L2 V]. unfold vec.
destruct (Nat.lt_ge_cases a (length ws)) as [H|H]; [now apply V|].
rewrite !nth_overflow by lia. rewrite word_zero. ring.
Qed.

Lemma vec_nil e a : vec [] e a = 0.
Proof. unfold vec. destruct a; simpl; ring. Qed.

(** The checker's integers are the words' numbers. *)
Lemma rows_agree i channel : (i < t_queries t)%nat -> t_seen t i <> O ->
  row_of h hd (scale_value s) i channel = row_of_words s t i channel.
Proof.
intros Hi Hn. destruct check_parts as [Dv [_ Ck]].
destruct (parts k h hd Ck) as [Hd [_ [Cb [_ [_ Rb]]]]].
destruct (rows_facts k h hd (queries hd) 0 0 ltac:(lia) Rb i ltac:(cbn [head_of queries]; lia) Hn) as [_ [Lq _]].
assert (D0 : (0 < t_dims t)%nat).
{ unfold constants_okb in Cb. cbv zeta in Cb. rewrite !andb_true_iff in Cb. decompose [and] Cb.
  match goal with H : (0 <? c_d _)%Z = true |- _ => apply Z.ltb_lt in H end.
  cbn [head_of dims] in Hd. lia. }
unfold row_of, row_of_words. f_equal.
- apply functional_extensionality. intros a. cbn [head_of q_row dims] in *. symmetry.
  apply (decoded _ _ _ _ (t_dims t)); auto.
- apply functional_extensionality. intros j. apply functional_extensionality. intros a.
  destruct (Nat.ltb_spec j (t_keys t)) as [H|H].
  + destruct (key_facts k h hd Ck j H) as [Lk _]. cbn [head_of k_row dims] in *.
    rewrite (proj2 (Nat.ltb_lt _ _) H) in *. symmetry. apply (decoded _ _ _ _ (t_dims t)); auto.
  + cbn [head_of k_row]. rewrite (proj2 (Nat.ltb_ge _ _) H). apply vec_nil.
- apply functional_extensionality. intros j.
  destruct (Nat.ltb_spec j (t_keys t)) as [H|H].
  + destruct (key_facts k h hd Ck j H) as [_ [_ [_ Lv]]]. cbn [head_of v_row dims_v] in *.
    rewrite (proj2 (Nat.ltb_lt _ _) H) in *. symmetry. apply (decoded _ _ _ _ (t_dims_v t)); auto.
  + cbn [head_of v_row]. rewrite (proj2 (Nat.ltb_ge _ _) H). apply vec_nil.
Qed.

(** ** The theorem

    If the checker returns true on a head's words, a kernel's parameters and the numbers of a
    certificate, then for every row that sees a key, every channel of the output, and every execution
    that the kernel's model allows: every intermediate is finite, the denominator is at least 2^low,
    the mass that flushed keys hold is within its bound ([row_certified]), and the output is within
    the stated bound of exact attention over the words' numbers. Nothing is assumed of the numbers in
    [h]: they may come from anywhere. *)
Theorem certified : forall i channel (x : row_execution k),
  (i < t_queries t)%nat -> t_seen t i <> O ->
  kernel_allows k (row_of_words s t i channel) st x ->
  row_certified k (row_of_words s t i channel) st (numbers_of_head k h hd i) x /\
  Rabs (B2R (output k x) - attention (row_of_words s t i channel)) <= Q2R (n_bound h).
Proof.
intros i channel x Hi Hn Hx. destruct check_parts as [_ [_ Ck]].
rewrite <- (rows_agree i channel Hi Hn) in *.
exact (check_sound k h hd (scale_value s) st Ck context i channel x Hi Hn Hx).
Qed.
End Sound.

(** ** The limit of the lost mass

    The limit num / den of a certificate holds if the margin D of every row has
    2^-D / (e D ln 2) <= t / (1 - t), the sharp form: e^(1 + D ln 2) D ln 2 from below, with the
    enclosure of ln 2 and squarings rounded down (Log2e). *)
Definition head_margin (k : kernel) (h : head_numbers) : Z :=
  (c_margin (n_constants h) - pr_L (promise_of (k_exp2 k) (c_C (n_constants h))) * 2 ^ 64 - c_err (n_constants h))%Z.
Definition lost_within (k : kernel) (h : head_numbers) (num den : Z) : bool :=
  let D := head_margin k h in
  let x := (D * ln2_lo)%Z in                                          (* units 2^-134 *)
  let e := square_down 40 (2 ^ 160 + Z.shiftr (2 ^ 134 + x) 14) in    (* units 2^-160 *)
  ((0 <? D) && (0 <? num) && (num <? den) && ((den - num) * 2 ^ 294 <=? e * x * num))%Z.

Lemma exp_from_below x : (0 <= x)%Z ->
  IZR (square_down 40 (2 ^ 160 + Z.shiftr (2 ^ 134 + x) 14)) * bpow radix2 (-160)
    <= exp (1 + IZR x * bpow radix2 (-134)).
Proof.
intros Hx. apply exp_lower.
- assert (0 <= Z.shiftr (2 ^ 134 + x) 14)%Z by (apply Z.shiftr_nonneg; lia). lia.
- rewrite plus_IZR, Rmult_plus_distr_r, two_pow by lia. rewrite <- bpow_plus.
  change (bpow radix2 (160 + -160)) with 1. apply Rplus_le_compat_l.
  rewrite Z.shiftr_div_pow2 by lia. assert (P : (0 < 2 ^ 14)%Z) by lia.
  assert (D := Z.mul_div_le (2 ^ 134 + x) (2 ^ 14) P). apply IZR_le in D.
  rewrite mult_IZR, plus_IZR, !two_pow in D by lia.
  replace ((/ 2) ^ 40) with (bpow radix2 (-40)) by (simpl; lra).
  assert (B := bpow_gt_0 radix2 (-174)). apply Rmult_le_compat_r with (r := bpow radix2 (-174)) in D; [|lra].
  replace (bpow radix2 14 * IZR ((2 ^ 134 + x) / 2 ^ 14) * bpow radix2 (-174))
    with (IZR ((2 ^ 134 + x) / 2 ^ 14) * (bpow radix2 14 * bpow radix2 (-174))) in D by ring.
  rewrite <- bpow_plus in D. change (14 + -174)%Z with (-160)%Z in D.
  replace ((1 + IZR x * bpow radix2 (-134)) * bpow radix2 (-40))
    with ((bpow radix2 134 + IZR x) * bpow radix2 (-174)); [exact D|].
  replace (-174)%Z with (-134 + -40)%Z by reflexivity. rewrite (bpow_plus radix2 (-134)).
  rewrite <- Rmult_assoc. f_equal. rewrite Rmult_plus_distr_r, <- bpow_plus. f_equal.
Qed.

Lemma margin_in_bits k h : F (head_margin k h) = F (c_margin (n_constants h))
  - IZR (pr_L (promise_of (k_exp2 k) (c_C (n_constants h)))) - F (c_err (n_constants h)).
Proof.
unfold head_margin. rewrite !minus_IZR, mult_IZR, two_pow by lia.
rewrite !Rmult_minus_distr_r, Rmult_assoc, <- bpow_plus. change (bpow radix2 (64 + -64)) with 1. ring.
Qed.

Lemma lost_within_bound k h num den : lost_within k h num den = true ->
  lost_bound (F (head_margin k h)) <= IZR num / IZR den.
Proof.
unfold lost_within. set (D := head_margin k h). rewrite !andb_true_iff. intros [[[H1 H2] H3] H4].
apply Z.ltb_lt in H1, H2, H3. apply Z.leb_le in H4.
assert (L := ln2_enclosed). assert (B := bpow_gt_0 radix2 (-70)). assert (B64 := bpow_gt_0 radix2 (-64)).
assert (ll : 0 < IZR ln2_lo) by (apply IZR_lt; reflexivity).
assert (D0 : 0 < F D) by (apply Rmult_lt_0_compat; [now apply IZR_lt|lra]).
assert (n0 : 0 < IZR num) by now apply IZR_lt. assert (d0 : 0 < IZR den) by (apply IZR_lt; lia).
assert (nd : IZR num < IZR den) by now apply IZR_lt.
assert (E := exp_from_below (D * ln2_lo) ltac:(apply Z.mul_nonneg_nonneg; [lia|discriminate])).
set (e := square_down 40 (2 ^ 160 + Z.shiftr (2 ^ 134 + D * ln2_lo) 14)) in *.
assert (X : IZR (D * ln2_lo) * bpow radix2 (-134) <= F D * ln 2).
{ rewrite mult_IZR. replace (-134)%Z with (-64 + -70)%Z by reflexivity. rewrite bpow_plus.
  replace (IZR D * IZR ln2_lo * (bpow radix2 (-64) * bpow radix2 (-70)))
    with (F D * (IZR ln2_lo * bpow radix2 (-70))) by ring. apply Rmult_le_compat_l; lra. }
assert (x0 : 0 < IZR (D * ln2_lo) * bpow radix2 (-134)).
{ apply Rmult_lt_0_compat; [|apply bpow_gt_0]. rewrite mult_IZR. apply Rmult_lt_0_compat; [now apply IZR_lt|exact ll]. }
set (x := IZR (D * ln2_lo) * bpow radix2 (-134)) in *.
apply IZR_le in H4. rewrite !mult_IZR, minus_IZR, two_pow in H4 by lia.
apply Rmult_le_compat_r with (r := bpow radix2 (-294)) in H4; [|apply bpow_ge_0].
assert (H5 : IZR den - IZR num <= (IZR e * bpow radix2 (-160)) * x * IZR num).
{ unfold x. rewrite mult_IZR.
  assert (Rg : forall e' a D' l b n, e' * a * (D' * l * b) * n = e' * (D' * l) * n * (a * b)) by (intros; ring).
  rewrite Rg.
  rewrite <- bpow_plus. change (-160 + -134)%Z with (-294)%Z. apply Rle_trans with (2 := H4).
  rewrite Rmult_assoc, <- bpow_plus. change (bpow radix2 (294 + -294)) with 1. lra. }
assert (Ex : IZR e * bpow radix2 (-160) <= exp (1 + F D * ln 2)).
{ apply Rle_trans with (1 := E). destruct X as [X|X]; [left; apply exp_increasing; lra|rewrite X; right; reflexivity]. }
assert (P := exp_pos (1 + F D * ln 2)).
assert (H6 : IZR den - IZR num <= exp (1 + F D * ln 2) * (F D * ln 2) * IZR num).
{ apply Rle_trans with (1 := H5). apply Rmult_le_compat_r; [lra|].
  apply Rle_trans with (exp (1 + F D * ln 2) * x); [apply Rmult_le_compat_r; lra|apply Rmult_le_compat_l; lra]. }
apply lost_bound_le; [exact D0| |].
- apply Rmult_lt_reg_r with (1 := d0). unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. lra.
- unfold lost_ratio. unfold exp2. replace (- F D * ln 2) with (- (F D * ln 2)) by ring. rewrite exp_Ropp.
  rewrite exp_plus in H6, P. set (y := F D * ln 2) in *. assert (y0 : 0 < y) by lra.
  assert (E1 := exp_pos 1). assert (Ey := exp_pos y).
  replace (/ exp y / (exp 1 * y)) with (/ (exp 1 * exp y * y)) by (field; lra).
  replace (IZR num / IZR den / (1 - IZR num / IZR den)) with (IZR num * / (IZR den - IZR num)) by (field; lra).
  assert (Q : 0 < exp 1 * exp y * y) by (apply Rmult_lt_0_compat; [apply Rmult_lt_0_compat; assumption|assumption]).
  apply Rmult_le_reg_r with (1 := Q). rewrite Rinv_l by lra.
  apply Rmult_le_reg_r with (IZR den - IZR num); [lra|].
  replace (IZR num * / (IZR den - IZR num) * (exp 1 * exp y * y) * (IZR den - IZR num))
    with (exp 1 * exp y * y * IZR num) by (field; lra). lra.
Qed.

Theorem lost_mass_within k h s t st num den : check_words k h s t = true -> stabilizer_of h st ->
  lost_within k h num den = true -> forall i channel (x : row_execution k),
  (i < t_queries t)%nat -> t_seen t i <> O -> kernel_allows k (row_of_words s t i channel) st x ->
  let r := row_of_words s t i channel in
  total (fun j => exp2 (score r j)) (filter (lost_key _ _ _ _ (rest k x)) (visible r))
    <= IZR num / IZR den * total (fun j => exp2 (score r j)) (visible r).
Proof.
intros Ck St Lo i channel x Hi Hn Hx r.
destruct (certified k h s t st Ck St i channel x Hi Hn Hx) as [Rc _].
assert (Lm := lost_mass _ _ _ _ _ Rc). fold r in Lm.
assert (T0 : 0 <= total (fun j => exp2 (score r j)) (visible r)).
{ apply total_nonneg. intros. left. apply exp2_pos. }
apply Rle_trans with (1 := Lm). apply Rmult_le_compat_r; [exact T0|].
unfold numbers_of_head. cbn [numbers_found margin err]. rewrite (so_cap _ _ St).
rewrite <- margin_in_bits. now apply lost_within_bound.
Qed.
