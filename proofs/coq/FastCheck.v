(** * The check of a head in machine integers

    The same decisions as Checker's, key by key and row by row, with FastSums' integers; what does
    not fit them is refused here, and left to the check in integers of any size. *)

From Coq Require Import ZArith QArith Qreals Reals Lia List Bool.
From Flocq Require Import Core BinarySingleNaN.
From Headroom Require Import Formats Words Kernel MainTheorem CheckRow CheckHead Checker Log2e Certified
  MachineIntegers FastSums.
Import ListNotations.
Open Scope Z_scope.

(** A head's words, as machine integers. *)
Record fast_tensors := {
  f_queries : nat; f_keys : nat; f_dims : nat; f_dims_v : nat;
  f_q_format : word_format; f_k_format : word_format; f_v_format : word_format;
  f_q : nat -> list int; f_k : nat -> list int; f_v : nat -> list int;
  f_seen : nat -> nat
}.

Definition words_of (t : fast_tensors) : tensors := {|
  t_queries := f_queries t; t_keys := f_keys t; t_dims := f_dims t; t_dims_v := f_dims_v t;
  t_q_format := f_q_format t; t_k_format := f_k_format t; t_v_format := f_v_format t;
  t_q := fun i => bigs (f_q t i); t_k := fun j => bigs (f_k t j); t_v := fun j => bigs (f_v t j);
  t_seen := f_seen t |}.

Fixpoint all_within (v : int) (l : list int) : bool := match l with
| [] => true | x :: t => at_most x v && at_most (minus zero v) x && all_within v t end.

Section Fast.
Variables (k : kernel) (h : head_numbers) (t : fast_tensors) (dq dk dv : decoder) (vm : int).
Notation c := (n_constants h).
Notation keep_q := (keeps_subnormals k (f_q_format t)).
Notation keep_k := (keeps_subnormals k (f_k_format t)).
Notation keep_v := (keeps_subnormals k (f_v_format t)).

Definition key_fast (j : nat) : bool :=
  match decode_list dk keep_k (f_k t j) with None => false | Some l =>
  Nat.eqb (length l) (f_dims t) && (norm2 l <=? c_K2 c) &&
  match decode_list dv keep_v (f_v t j) with None => false | Some v =>
  Nat.eqb (length v) (f_dims_v t) && all_within vm v end end.

Fixpoint advance_fast (m from : nat) (sums : list int) : option (list int) := match m with
| O => Some sums
| S m' => match decode_list dk keep_k (f_k t from) with None => None | Some l =>
  advance_fast m' (S from) (add_fast sums l) end end.

Fixpoint rows_fast (m i seen : nat) (sums : list int) : bool := match m with
| O => true
| S m' =>
  let n := f_seen t i in
  if Nat.eqb n 0 then rows_fast m' (S i) seen sums else
  if negb (Nat.leb seen n && Nat.leb n (f_keys t) && (Z.of_nat n <=? n_N h) && depth_ok k h (Z.of_nat n)) then false else
  match advance_fast (n - seen) seen sums with None => false | Some sums' =>
  match decode_list dq keep_q (f_q t i) with None => false | Some q =>
  Nat.eqb (length q) (f_dims t) && row_ok c (Z.of_nat n) (norm2 q) (product q sums') &&
  rows_fast m' (S i) n sums' end end end.

Definition check_fast (s : scale) : bool :=
  decoder_okb (f_q_format t) (c_qe c) dq && decoder_okb (f_k_format t) (c_ke c) dk &&
  decoder_okb (f_v_format t) (n_ve h) dv && (big vm =? n_V h) && (0 <=? n_V h) && (n_V h <=? 2 ^ 43) &&
  (Z.of_nat (f_dims t) <=? 2 ^ 16) && (Z.of_nat (f_keys t) <=? 2 ^ 18) &&
  (0 <? Z.of_nat (f_dims_v t)) && scale_encloses s (c_flo c) (c_fhi c) &&
  (c_d c =? Z.of_nat (f_dims t)) && kernel_okb k && constants_okb k h && head_okb k h &&
  all_below (f_keys t) key_fast && rows_fast (f_queries t) 0 0 (repeat zero (f_dims t)).

(** ** It decides what the check of Certified decides *)
Notation hd := (head_of k h (words_of t)).
Hypothesis Oq : decoder_okb (f_q_format t) (c_qe c) dq = true.
Hypothesis Ok : decoder_okb (f_k_format t) (c_ke c) dk = true.
Hypothesis Ov : decoder_okb (f_v_format t) (n_ve h) dv = true.
Hypothesis Vm : big vm = n_V h.
Hypothesis Vb : 0 <= n_V h <= 2 ^ 43.
Hypothesis Db : Z.of_nat (f_dims t) <= 2 ^ 16.
Hypothesis Kb : Z.of_nat (f_keys t) <= 2 ^ 18.

Lemma all_within_value v : all_within vm v = true -> forallb (fun x => Z.abs x <=? n_V h) (bigs v) = true.
Proof.
induction v as [|x v IH]; [reflexivity|]. cbn [all_within map forallb]. rewrite !andb_true_iff.
intros [[H1 H2] H3]. split; [|now apply IH]. unfold at_most in H1, H2. apply Z.leb_le in H1, H2.
cbn [minus zero big] in H2. rewrite wrap_small in H2 by lia. apply Z.leb_le. lia.
Qed.

Lemma k_row_fast j l : (j < f_keys t)%nat -> decode_list dk keep_k (f_k t j) = Some l ->
  k_row hd j = bigs l /\ Forall (within (2 ^ 43)) l.
Proof.
intros H D. destruct (decode_list_value _ _ _ _ _ _ Ok D) as [E W]. split; [|exact W].
cbn [head_of k_row words_of t_keys t_k_format t_k]. apply Nat.ltb_lt in H. now rewrite H.
Qed.

Lemma key_fast_ok j : (j < f_keys t)%nat -> key_fast j = true -> key_ok h hd j = true.
Proof.
intros Hj H. unfold key_fast in H. destruct (decode_list dk keep_k (f_k t j)) as [l|] eqn:D; [|discriminate].
destruct (k_row_fast j l Hj D) as [E W]. rewrite !andb_true_iff in H. destruct H as [[H1 H2] H3].
destruct (decode_list dv keep_v (f_v t j)) as [v|] eqn:D2; [|discriminate].
destruct (decode_list_value _ _ _ _ _ _ Ov D2) as [E2 _]. rewrite !andb_true_iff in H3. destruct H3 as [H3 H4].
apply Nat.eqb_eq in H1, H3. rewrite norm2_value in H2 by (auto; rewrite H1; exact Db).
unfold key_ok. cbv zeta. rewrite E.
assert (Ev : v_row hd j = bigs v).
{ cbn [head_of v_row words_of t_keys t_v_format t_v]. apply Nat.ltb_lt in Hj. now rewrite Hj. }
rewrite Ev, !map_length, H1, H3, H2. cbn [head_of dims dims_v words_of t_dims t_dims_v].
rewrite !Nat.eqb_refl. cbn [andb]. now apply all_within_value.
Qed.

Lemma advance_fast_ok m from sums sums' : (from + m <= f_keys t)%nat ->
  Forall (within (Z.of_nat from * 2 ^ 43)) sums -> advance_fast m from sums = Some sums' ->
  bigs sums' = advance hd m from (bigs sums) /\ Forall (within (Z.of_nat (from + m) * 2 ^ 43)) sums'.
Proof.
revert from sums. induction m as [|m IH]; intros from sums Hm B H; cbn [advance_fast] in H.
- injection H as <-. rewrite Nat.add_0_r. now split.
- destruct (decode_list dk keep_k (f_k t from)) as [l|] eqn:D; [|discriminate].
  destruct (k_row_fast from l ltac:(lia) D) as [E W].
  destruct (add_fast_value (Z.of_nat from) sums l ltac:(lia) B W) as [V B2].
  replace (Z.of_nat from + 1) with (Z.of_nat (S from)) in B2 by lia.
  destruct (IH (S from) (add_fast sums l) ltac:(lia) B2 H) as [V2 B3].
  cbn [advance]. rewrite E, <- V. split; [exact V2|]. replace (from + S m)%nat with (S from + m)%nat by lia. exact B3.
Qed.

Lemma rows_fast_ok m i seen sums : (seen <= f_keys t)%nat -> Forall (within (Z.of_nat seen * 2 ^ 43)) sums ->
  rows_fast m i seen sums = true -> rows_ok k h hd m i seen (bigs sums) = true.
Proof.
revert i seen sums. induction m as [|m IH]; intros i seen sums Hs B H; [reflexivity|].
cbn [rows_fast] in H. cbv zeta in H. cbn [rows_ok]. cbv zeta.
change (seen_by hd i) with (f_seen t i). set (n := f_seen t i) in *.
destruct (Nat.eqb n 0); [now apply IH|].
destruct (Nat.leb seen n && Nat.leb n (f_keys t) && (Z.of_nat n <=? n_N h) && depth_ok k h (Z.of_nat n)) eqn:C;
  [cbn [negb] in H|discriminate].
rewrite !andb_true_iff in C. destruct C as [[[C1 C2] C3] C4]. assert (L1 := C1). assert (L2 := C2).
apply Nat.leb_le in L1, L2.
destruct (advance_fast (n - seen) seen sums) as [sums'|] eqn:A; [|discriminate].
destruct (advance_fast_ok (n - seen) seen sums sums' ltac:(lia) B A) as [V B2].
replace (seen + (n - seen))%nat with n in B2 by lia.
destruct (decode_list dq keep_q (f_q t i)) as [q|] eqn:D; [|discriminate].
destruct (decode_list_value _ _ _ _ _ _ Oq D) as [E W].
rewrite !andb_true_iff in H. destruct H as [[H1 H2] H3].
assert (Q : q_row hd i = bigs q) by exact E.
apply Nat.eqb_eq in H1.
rewrite norm2_value in H2 by (auto; rewrite H1; exact Db).
rewrite product_value in H2; [| exact W | |rewrite H1; exact Db].
2: { apply Forall_impl with (2 := B2). intros x Hx. unfold within in *. lia. }
rewrite <- V, Q, map_length, H1, C1, C3, C4, H2.
change (keys_count hd) with (f_keys t). change (dims hd) with (f_dims t). rewrite C2, Nat.eqb_refl.
cbn [andb]. now apply IH.
Qed.

Lemma bigs_zeros n : bigs (repeat zero n) = repeat 0 n.
Proof. induction n; [reflexivity|]. cbn [repeat map]. now rewrite IHn. Qed.
End Fast.

Lemma all_below_impl n f g : (forall i, (i < n)%nat -> f i = true -> g i = true) ->
  all_below n f = true -> all_below n g = true.
Proof.
induction n; intros H A; [reflexivity|]. cbn [all_below] in *. rewrite andb_true_iff in *.
destruct A as [A1 A2]. split; [apply H; [lia|exact A1]|]. apply IHn; [|exact A2]. intros i Hi. apply H. lia.
Qed.

Theorem check_fast_sound k h t dq dk dv vm s : check_fast k h t dq dk dv vm s = true ->
  check_words k h s (words_of t) = true.
Proof.
unfold check_fast. rewrite !andb_true_iff.
intros [[[[[[[[[[[[[[[O1 O2] O3] V1] V2] V3] D] K] Dv] S] Cd] Kk] Cc] Hh] Ks] Rs].
apply Z.eqb_eq in V1. apply Z.leb_le in V2, V3, D, K.
unfold check_words, check. change (t_dims_v (words_of t)) with (f_dims_v t).
change (dims (head_of k h (words_of t))) with (f_dims t).
change (keys_count (head_of k h (words_of t))) with (f_keys t).
change (queries (head_of k h (words_of t))) with (f_queries t).
rewrite Dv, S, Cd, Kk, Cc, Hh. cbn [andb].
rewrite (all_below_impl (f_keys t) _ _ (key_fast_ok k h t dk dv vm O2 O3 V1 (conj V2 V3) D) Ks). cbn [andb].
rewrite <- bigs_zeros. apply (rows_fast_ok k h t dq dk O1 O2 D K); [lia| |exact Rs].
clear. induction (f_dims t); constructor; auto. unfold within. cbn. lia.
Qed.

(** The theorem of Certified, for what this check accepts. *)
Theorem certified_fast k h t dq dk dv vm s st : check_fast k h t dq dk dv vm s = true -> stabilizer_of h st ->
  forall i channel (x : row_execution k), (i < f_queries t)%nat -> f_seen t i <> O ->
  kernel_allows k (row_of_words s (words_of t) i channel) st x ->
  row_certified k (row_of_words s (words_of t) i channel) st
    (numbers_of_head k h (head_of k h (words_of t)) i) x /\
  (Rabs (BinarySingleNaN.B2R (output k x) - attention (row_of_words s (words_of t) i channel)) <= Q2R (n_bound h))%R.
Proof.
intros H St i channel x Hi Hn. apply (certified k h s (words_of t) st); auto.
now apply (check_fast_sound k h t dq dk dv vm s).
Qed.
