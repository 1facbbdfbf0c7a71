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

(** Machines that flush may read subnormal operands as zero: there, no operand may be one. *)
Definition keeps_subnormals (k : kernel) : bool :=
  negb (k_flushes k) && match k_score k with Ieee b => negb b | MatrixUnit _ _ => true end
  && match k_O k with Ieee b => negb b | MatrixUnit _ _ => true end.

Definition head_of (k : kernel) (h : head_numbers) (t : tensors) : head := {|
  queries := t_queries t; keys_count := t_keys t; dims := t_dims t; dims_v := t_dims_v t;
  q_row := fun i => row_or_nothing (t_q_format t) (keeps_subnormals k) (c_qe (n_constants h)) (t_q t i);
  k_row := fun j => if Nat.ltb j (t_keys t)
    then row_or_nothing (t_k_format t) (keeps_subnormals k) (c_ke (n_constants h)) (t_k t j) else [];
  v_row := fun j => if Nat.ltb j (t_keys t)
    then row_or_nothing (t_v_format t) (keeps_subnormals k) (n_ve h) (t_v t j) else [];
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

    2^-t from a margin of t bits: the simple form of the bound, for the limit that a certificate
    states. *)
Definition lost_within (k : kernel) (h : head_numbers) (t : Z) : bool :=
  ((1 <=? t) && (t * 2 ^ 64 <=? c_margin (n_constants h)
     - pr_L (promise_of (k_exp2 k) (c_C (n_constants h))) * 2 ^ 64 - c_err (n_constants h)))%Z.

Theorem lost_mass_within k h s t st e : check_words k h s t = true -> stabilizer_of h st ->
  lost_within k h e = true -> forall i channel (x : row_execution k),
  (i < t_queries t)%nat -> t_seen t i <> O -> kernel_allows k (row_of_words s t i channel) st x ->
  let r := row_of_words s t i channel in
  total (fun j => exp2 (score r j)) (filter (lost_key _ _ _ _ (rest k x)) (visible r))
    <= bpow radix2 (- e) * total (fun j => exp2 (score r j)) (visible r).
Proof.
intros Ck St Lo i channel x Hi Hn Hx r.
destruct (certified k h s t st Ck St i channel x Hi Hn Hx) as [Rc _].
assert (Lm := lost_mass _ _ _ _ _ Rc). fold r in Lm.
assert (T0 : 0 <= total (fun j => exp2 (score r j)) (visible r)).
{ apply total_nonneg. intros. left. apply exp2_pos. }
apply Rle_trans with (1 := Lm). apply Rmult_le_compat_r; [exact T0|].
unfold lost_within in Lo. apply andb_prop in Lo. destruct Lo as [L1 L2]. apply Z.leb_le in L1, L2.
unfold numbers_of_head. cbn [numbers_found margin err]. rewrite (so_cap _ _ St).
set (D := F (c_margin (n_constants h)) - IZR (pr_L (promise_of (k_exp2 k) (c_C (n_constants h)))) - F (c_err (n_constants h))).
assert (HD : IZR e <= D).
{ unfold D. apply IZR_le in L2. rewrite !minus_IZR, !mult_IZR, two_pow in L2 by lia.
  assert (B := bpow_gt_0 radix2 (-64)). apply Rmult_le_compat_r with (r := bpow radix2 (-64)) in L2; [|lra].
  assert (E : bpow radix2 64 * bpow radix2 (-64) = 1) by (rewrite <- bpow_plus; reflexivity).
  replace (IZR e * bpow radix2 64 * bpow radix2 (-64)) with (IZR e) in L2 by (rewrite Rmult_assoc, E; ring).
  replace ((IZR (c_margin (n_constants h)) - IZR (pr_L (promise_of (k_exp2 k) (c_C (n_constants h)))) * bpow radix2 64
            - IZR (c_err (n_constants h))) * bpow radix2 (-64))
    with (F (c_margin (n_constants h)) - IZR (pr_L (promise_of (k_exp2 k) (c_C (n_constants h)))) * (bpow radix2 64 * bpow radix2 (-64))
          - F (c_err (n_constants h))) in L2 by ring.
  rewrite E in L2. lra. }
assert (H1 : 1 <= IZR e) by (apply (IZR_le 1); lia).
apply Rle_trans with (exp2 (- D)); [apply lost_bound_simple; lra|].
rewrite <- exp2_Z. apply exp2_le. rewrite opp_IZR. lra.
Qed.
