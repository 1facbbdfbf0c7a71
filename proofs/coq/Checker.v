(** * The checker: a head's integers, its kernel and its numbers in, true or false out

    Everything is exact: the words of Q, K and V enter as whole multiples of a power of two (Words),
    norms and sums are integers, CheckRow rounds outward in units of 2^-64, CheckHead computes with
    rationals. [check_sound] is what acceptance means. *)

From Coq Require Import ZArith QArith Qreals Reals Lra Lia List Bool.
From Flocq Require Import Core BinarySingleNaN.
From Headroom Require Import Formats Rows CauchySchwarz Exp2 LostMass Execution Adders Weights Stabilizer Score
  Row Kernel MainTheorem Bounds CheckRow CheckHead CheckBound.
Import ListNotations.
Open Scope R_scope.

(** ** Integer vectors *)
Fixpoint dot_from (acc : Z) (a b : list Z) : Z := match a, b with
| x :: a', y :: b' => dot_from (acc + x * y) a' b' | _, _ => acc end.
Definition dotz := dot_from 0.
Fixpoint vadd (a b : list Z) : list Z := match a, b with
| x :: a', y :: b' => (x + y)%Z :: vadd a' b' | _, _ => [] end.
Definition vec (l : list Z) (e : Z) (i : nat) : R := IZR (nth i l 0%Z) * bpow radix2 e.

Lemma dot_from_acc a b acc : dot_from acc a b = (acc + dotz a b)%Z.
Proof.
unfold dotz. revert b acc. induction a as [|x a IH]; intros [|y b] acc; simpl; try ring.
rewrite IH, (IH b (x * y)%Z). ring.
Qed.

Lemma sum_shift n f : CauchySchwarz.sum (S n) f = f O + CauchySchwarz.sum n (fun i => f (S i)).
Proof. induction n; [simpl; lra|]. change (CauchySchwarz.sum (S (S n)) f) with (CauchySchwarz.sum (S n) f + f (S n)). rewrite IHn. simpl. lra. Qed.

Lemma dot_vec d a b ea eb : length a = d -> length b = d ->
  dot d (vec a ea) (vec b eb) = IZR (dotz a b) * bpow radix2 (ea + eb).
Proof.
intros <-. revert b. induction a as [|x a IH]; intros [|y b] H; try discriminate.
- unfold dot, dotz. simpl. ring.
- simpl length in *. injection H as H. unfold dot. rewrite sum_shift.
  change (CauchySchwarz.sum (length a) (fun i => vec (x :: a) ea (S i) * vec (y :: b) eb (S i)))
    with (dot (length a) (vec a ea) (vec b eb)).
  rewrite (IH b H). change (dotz (x :: a) (y :: b)) with (dot_from (0 + x * y) a b).
  rewrite (dot_from_acc a b (0 + x * y)), plus_IZR, Z.add_0_l, mult_IZR. unfold vec. simpl nth. rewrite (bpow_plus radix2 ea eb). ring.
Qed.

Lemma vadd_length a b : length a = length b -> length (vadd a b) = length a.
Proof. revert b. induction a; intros [|y b] H; try discriminate; [reflexivity|]. simpl in *. f_equal. apply IHa. lia. Qed.

Lemma dotz_vadd q a b : length a = length q -> length b = length q -> dotz q (vadd a b) = (dotz q a + dotz q b)%Z.
Proof.
unfold dotz. revert a b. induction q as [|x q IH]; intros [|y a] [|z b] Ha Hb; try discriminate; [reflexivity|].
simpl in *. rewrite !(dot_from_acc q). unfold dotz.
rewrite (IH a b) by lia. ring.
Qed.

Lemma dotz_zeros q n : dotz q (repeat 0%Z n) = 0%Z.
Proof.
unfold dotz. revert n. induction q as [|x q IH]; intros [|n]; simpl; auto. rewrite Z.mul_0_r. apply IH.
Qed.

(** ** A head *)
Record head := {
  queries : nat; keys_count : nat; dims : nat; dims_v : nat;
  q_row : nat -> list Z; k_row : nat -> list Z; v_row : nat -> list Z;
  seen_by : nat -> nat       (* how many keys row i sees: the first so many *)
}.

Fixpoint all_below (n : nat) (f : nat -> bool) : bool :=
  match n with O => true | S m => f m && all_below m f end.

Lemma all_below_spec n f : all_below n f = true -> forall i, (i < n)%nat -> f i = true.
Proof.
induction n; intros H i Hi; [lia|]. simpl in H. apply andb_prop in H. destruct H as [H1 H2].
destruct (Nat.eq_dec i n); [now subst|]. apply IHn; auto. lia.
Qed.

Section Check.
Variables (k : kernel) (h : head_numbers) (hd : head).
Notation c := (n_constants h).

Definition key_ok (j : nat) : bool :=
  let l := k_row hd j in
  Nat.eqb (length l) (dims hd) && (dotz l l <=? c_K2 c)%Z && Nat.eqb (length (v_row hd j)) (dims_v hd) &&
  forallb (fun x => Z.abs x <=? n_V h)%Z (v_row hd j).

(** The sum of the first keys, carried on from row to row. *)
Fixpoint advance (m from : nat) (sums : list Z) : list Z := match m with
| O => sums | S m' => advance m' (S from) (vadd sums (k_row hd from)) end.

Fixpoint rows_ok (m i seen : nat) (sums : list Z) : bool := match m with
| O => true
| S m' =>
  let n := seen_by hd i in
  if Nat.eqb n 0 then rows_ok m' (S i) seen sums else
  let sums' := advance (n - seen) seen sums in
  let q := q_row hd i in
  Nat.leb seen n && Nat.leb n (keys_count hd) && Nat.eqb (length q) (dims hd) &&
  (Z.of_nat n <=? n_N h)%Z && depth_ok k h (Z.of_nat n) &&
  row_ok c (Z.of_nat n) (dotz q q) (dotz q sums') && rows_ok m' (S i) n sums'
end.

Definition check : bool :=
  (c_d c =? Z.of_nat (dims hd))%Z && kernel_okb k && constants_okb k h && head_okb k h &&
  all_below (keys_count hd) key_ok && rows_ok (queries hd) 0 0 (repeat 0%Z (dims hd)).

(** ** What it means *)
Variables (f : R) (st : stabilizer).

Definition row_of (i channel : nat) : row := {|
  channels := dims hd; query := vec (q_row hd i) (c_qe c);
  key := fun j => vec (k_row hd j) (c_ke c);
  values_of := fun j => vec (v_row hd j) (n_ve h) channel;
  visible := seq 0 (seen_by hd i); factor := f |}.

(** The exact factor lies where the numbers say, and the stabilizer is that of the certificate. *)
Record context_ok : Prop := {
  ctx_f : F (c_flo c) <= f <= F (c_fhi c);
  ctx_constant : constant st = F (n_constant h);
  ctx_slope : B2R (slope st) = F (c_slope c) /\ is_finite (slope st) = true;
  ctx_cap : cap st = c_C c
}.

Fixpoint key_sum (n : nat) : list Z := match n with
| O => repeat 0%Z (dims hd) | S m => vadd (key_sum m) (k_row hd m) end.

Lemma advance_sum m from : advance m from (key_sum from) = key_sum (from + m).
Proof.
revert from. induction m as [|m IH]; intros from; simpl; [now rewrite Nat.add_0_r|].
change (vadd (key_sum from) (k_row hd from)) with (key_sum (S from)). rewrite IH. f_equal. lia.
Qed.

Hypothesis checked : check = true.
Hypothesis ctx : context_ok.

Lemma parts : c_d c = Z.of_nat (dims hd) /\ kernel_okb k = true /\ constants_okb k h = true /\ head_okb k h = true /\
  all_below (keys_count hd) key_ok = true /\ rows_ok (queries hd) 0 0 (repeat 0%Z (dims hd)) = true.
Proof. unfold check in checked. rewrite !andb_true_iff in checked. rewrite Z.eqb_eq in checked. tauto. Qed.

Lemma key_facts j : (j < keys_count hd)%nat -> length (k_row hd j) = dims hd /\
  (dotz (k_row hd j) (k_row hd j) <= c_K2 c)%Z /\ (forall x, In x (v_row hd j) -> (Z.abs x <= n_V h)%Z) /\
  length (v_row hd j) = dims_v hd.
Proof.
intros H. destruct parts as [_ [_ [_ [_ [A _]]]]]. assert (K := all_below_spec _ _ A j H).
unfold key_ok in K. cbv zeta in K. rewrite !andb_true_iff in K. destruct K as [[[K1 K2] K4] K3].
apply Nat.eqb_eq in K1, K4. apply Z.leb_le in K2. rewrite forallb_forall in K3.
repeat split; auto. intros x Hx. apply Z.leb_le. now apply K3.
Qed.

Lemma key_sum_length n : (n <= keys_count hd)%nat -> length (key_sum n) = dims hd.
Proof.
induction n; intros H; [apply repeat_length|]. simpl. rewrite vadd_length; [apply IHn; lia|].
rewrite IHn by lia. symmetry. now apply key_facts.
Qed.

(** Each row that sees a key has passed row_ok with its own sums. *)
Lemma rows_facts m i0 seen : (seen <= keys_count hd)%nat -> rows_ok m i0 seen (key_sum seen) = true ->
  forall i, (i0 <= i < i0 + m)%nat -> seen_by hd i <> O ->
  (seen_by hd i <= keys_count hd)%nat /\ length (q_row hd i) = dims hd /\
  (Z.of_nat (seen_by hd i) <= n_N h)%Z /\ depth_ok k h (Z.of_nat (seen_by hd i)) = true /\
  row_ok c (Z.of_nat (seen_by hd i)) (dotz (q_row hd i) (q_row hd i)) (dotz (q_row hd i) (key_sum (seen_by hd i))) = true.
Proof.
revert i0 seen. induction m as [|m IH]; intros i0 seen Hs H i Hi Hn; [lia|].
cbn [rows_ok] in H. cbv zeta in H. destruct (Nat.eqb_spec (seen_by hd i0) 0) as [E|E].
- apply (IH (S i0) seen Hs H); auto. destruct (Nat.eq_dec i i0); [subst; congruence|lia].
- rewrite !andb_true_iff in H. destruct H as [[[[[[H1 H2] H3] H4] H5] H6] H7].
  apply Nat.leb_le in H1, H2. apply Nat.eqb_eq in H3. apply Z.leb_le in H4.
  rewrite advance_sum in H6, H7. replace (seen + (seen_by hd i0 - seen))%nat with (seen_by hd i0) in H6, H7 by lia.
  destruct (Nat.eq_dec i i0) as [Q|Q]; [subst i0; tauto|].
  apply (IH (S i0) (seen_by hd i0) H2 H7); auto. lia.
Qed.

Lemma dot_plus_r d q x y : dot d q (fun i => x i + y i) = dot d q x + dot d q y.
Proof. unfold dot. rewrite <- sum_plus. apply sum_ext. intros. ring. Qed.

(** The scores of the visible keys, summed: one integer product. *)
Lemma scores_sum q n : length q = dims hd -> (n <= keys_count hd)%nat ->
  total (fun j => dot (dims hd) (vec q (c_qe c)) (vec (k_row hd j) (c_ke c))) (seq 0 n)
  = IZR (dotz q (key_sum n)) * bpow radix2 (c_qe c + c_ke c).
Proof.
intros Hq. induction n as [|n IH]; intros Hn.
- simpl. rewrite dotz_zeros. ring.
- rewrite seq_S, total_app, IH by lia. cbn [total Nat.add]. rewrite Rplus_0_r.
  rewrite (dot_vec (dims hd)) by (auto; now apply key_facts).
  change (key_sum (S n)) with (vadd (key_sum n) (k_row hd n)).
  rewrite dotz_vadd.
  + rewrite plus_IZR. ring.
  + rewrite key_sum_length by lia. now symmetry.
  + destruct (key_facts n ltac:(lia)) as [L _]. now rewrite L.
Qed.

Definition numbers_of_head (i : nat) : row_numbers :=
  numbers_found c (dotz (q_row hd i) (q_row hd i)) (IZR (n_V h) * bpow radix2 (n_ve h)) (n_G h) (n_N h) (n_q h)
    (head_l_depth k h) (O_depth k (n_N h)).

(** Each row satisfies the hypotheses of the main theorem. *)
Lemma row_checked i channel : (i < queries hd)%nat -> seen_by hd i <> O ->
  row_inequalities k (row_of i channel) st (numbers_of_head i) /\
  cap st = c_C c /\ (64 <= c_C c <= 127)%Z /\
  visible (row_of i channel) <> [] /\ (Z.of_nat (length (visible (row_of i channel))) <= n_N h)%Z.
Proof.
intros Hi Hn.
destruct parts as [Hd [Kb [Cb [Hb [_ Rb]]]]].
assert (ok := kernel_okb_ok k Kb).
destruct (rows_facts (queries hd) 0 0 ltac:(lia) Rb i ltac:(lia) Hn) as [N1 [Lq [N2 [Dp Ro]]]].
set (r := row_of i channel) in *.
assert (Len : length (visible r) = seen_by hd i) by (unfold r, row_of; cbn [visible]; apply seq_length).
assert (co : constants_ok c k r st).
{ apply (constants_okb_ok k h r st ok Cb); unfold r, row_of; cbn [channels factor].
  - exact Hd. - apply (ctx_f ctx). - apply (ctx_constant ctx). - apply (ctx_slope ctx).
  - apply (ctx_slope ctx). - apply (ctx_cap ctx). }
destruct (co_C _ _ _ _ co) as [Cv Cr].
assert (Vis : forall j, In j (visible r) -> (j < keys_count hd)%nat).
{ intros j H. unfold r, row_of in H. cbn [visible] in H. apply in_seq in H. lia. }
assert (HP : head_part c k r st (dotz (q_row hd i) (q_row hd i)) (IZR (n_V h) * bpow radix2 (n_ve h)) (n_G h) (n_N h) (n_q h)
   (head_l_depth k h) (O_depth k (n_N h))).
{ apply (head_part_holds k h ok Hb r st Cv Cr).
  - intros E. apply (f_equal (@length nat)) in E. rewrite Len in E. simpl in E. congruence.
  - now rewrite Len.
  - now rewrite Len.
  - intros j H. unfold r, row_of; cbn [values_of]. unfold vec. rewrite Rabs_mult, (Rabs_pos_eq (bpow _ _)) by apply bpow_ge_0.
    apply Rmult_le_compat_r; [apply bpow_ge_0|]. rewrite <- abs_IZR. apply IZR_le.
    destruct (key_facts j (Vis j H)) as [_ [_ [Kv _]]].
    destruct (Nat.lt_ge_cases channel (length (v_row hd j))) as [L|L].
    + apply Kv. now apply nth_In.
    + rewrite nth_overflow by exact L. simpl. apply (hf_V k h (head_facts_hold k h Hb)). }
assert (Sq : dot (channels r) (query r) (query r) = IZR (dotz (q_row hd i) (q_row hd i)) * bpow radix2 (2 * c_qe c)).
{ unfold r, row_of; cbn [channels query]. rewrite (dot_vec (dims hd)) by auto. do 2 f_equal. ring. }
assert (Ss : total (fun j => dot (channels r) (query r) (key r j)) (visible r)
             = IZR (dotz (q_row hd i) (key_sum (seen_by hd i))) * bpow radix2 (c_qe c + c_ke c)).
{ unfold r, row_of; cbn [channels query key visible]. now apply scores_sum. }
assert (Sn : Z.of_nat (seen_by hd i) = Z.of_nat (length (visible r))) by now rewrite Len.
assert (Sk : forall j, In j (visible r) ->
  dot (channels r) (key r j) (key r j) <= IZR (c_K2 c) * bpow radix2 (2 * c_ke c)).
{ intros j H. unfold r, row_of; cbn [channels key]. destruct (key_facts j (Vis j H)) as [Lk [K2 _]].
  rewrite (dot_vec (dims hd)) by auto. replace (c_ke c + c_ke c)%Z with (2 * c_ke c)%Z by ring.
  apply Rmult_le_compat_r; [apply bpow_ge_0|now apply IZR_le]. }
assert (Some_keys : visible r <> []).
{ intros E. apply (f_equal (@length nat)) in E. rewrite Len in E. simpl in E. congruence. }
split; [eapply row_inequalities_hold; eauto|]. rewrite Len. tauto.
Qed.

(** ** The theorem

    If the checker returns true, then for every row that sees a key, for every channel of V, and for
    every execution that the kernel's model allows, every intermediate is finite, the denominator is
    at least 2^low, the lost mass is within its bound, and the output is within the stated bound of
    exact attention. *)
Theorem check_sound : forall i channel (x : row_execution k), (i < queries hd)%nat -> seen_by hd i <> O ->
  kernel_allows k (row_of i channel) st x ->
  row_certified k (row_of i channel) st (numbers_of_head i) x /\
  Rabs (B2R (output k x) - attention (row_of i channel)) <= Q2R (n_bound h).
Proof.
intros i channel x Hi Hn Hx. destruct parts as [_ [Kb [_ [Hb _]]]].
assert (ok := kernel_okb_ok k Kb).
destruct (row_checked i channel Hi Hn) as [I [Cv [Cr [Some_keys N]]]].
assert (Rc := row_is_certified k ok _ st (numbers_of_head i) I x Hx).
split; [exact Rc|].
apply Rle_trans with (1 := output_error _ _ _ _ _ Rc).
now apply (output_checked k h ok Hb _ st Cv Cr).
Qed.
End Check.
