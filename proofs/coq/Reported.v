(** * Reported: the log-sum-exp and the flushed products of an accepted head

    Two numbers that no limit is set on. They need nothing more of a head than that it is accepted;
    the checker prints them as its own [lse.error] and [product.flush]. *)

From Coq Require Import ZArith QArith Qreals Reals Lra Lia List Bool.
From Flocq Require Import Core BinarySingleNaN.
From Headroom Require Import Formats Rows Exp2 Jensen LostMass Execution Adders Weights Division Stabilizer Score Row Kernel MainTheorem Bounds
  CheckRow CheckHead CheckBound Checker Log2e Words Certified LogSumExp FlushedProducts CheckReported.
Import ListNotations.
Open Scope R_scope.

Section Sound.
Variables (k : kernel) (h : head_numbers) (s : scale) (t : tensors) (st : stabilizer).
Hypothesis checked : check_words k h s t = true.
Hypothesis named : stabilizer_of h st.
Variables (i channel : nat) (x : row_execution k).
Hypothesis row_i : (i < t_queries t)%nat.
Hypothesis sees_a_key : t_seen t i <> O.
Notation r := (row_of_words s t i channel).
Hypothesis allows : kernel_allows k r st x.
Notation hd := (head_of k h t).
Notation n := (numbers_of_head k h hd i).
Notation RN := (numbers_of_row k r st n).
Notation l := (value (l_sum _ _ _ _ (rest k x))).
Notation M := (B2R (mu _ _ _ _ (rest k x))).

(** What the row's theorem rests on. *)
Lemma row_hypotheses :
  kernel_ok k /\ head_okb k h = true /\ cap st = c_C (n_constants h) /\ (64 <= c_C (n_constants h) <= 127)%Z /\
  visible r <> [] /\ (Z.of_nat (length (visible r)) <= n_N h)%Z /\
  machine_promises 24 128 (k_p_prec k) (k_p_emax k) (machine_of k) RN /\
  ranges 24 128 (machine_of k) RN (visible r) /\
  row_facts 24 128 (k_p_prec k) (k_p_emax k) RN (visible r) (score r) (values_of r) (machine_of k) (rest k x) /\
  allowed 24 128 (k_p_prec k) (k_p_emax k) (machine_of k) (visible r) (values_of r) (rest k x).
Proof.
destruct (check_parts k h s t checked) as [_ [_ Ck]].
destruct (parts k h hd Ck) as [_ [Kb [_ [Hb _]]]]. assert (ok := kernel_okb_ok k Kb).
assert (Hx := allows). rewrite <- (rows_agree k h s t checked i channel row_i sees_a_key) in *.
destruct (row_checked k h hd (scale_value s) st Ck (context k h s t st checked named) i channel row_i sees_a_key)
  as [I [Cv [Cr [Some_keys N]]]].
destruct (i_weights _ _ _ _ I) as [W1 [W2 W3]].
repeat (split; [assumption|]). split; [|split; [exact (i_ranges _ _ _ _ I)|split]].
- apply (kernel_promises k ok); auto; [destruct (i_cap _ _ _ _ I); lia|apply (i_q_exp _ _ _ _ I)].
- exact (facts_hold k ok _ st n I x Hx).
- apply Hx.
Qed.

(** [lse.error]: log2 l + mu against log2 of the exact sum, in log2 units, before the kernel rounds
    the logarithm and the sum. *)
Theorem lse_within :
  Rabs (log2 l + M - log_sum_exp (visible r) (score r)) <= Q2R (q_lse k h).
Proof.
destruct row_hypotheses as [ok [Hb [Cv [Cr [Sk [Nk [Pr [Rg [Fa Al]]]]]]]]].
destruct (lse_error 24 128 (k_p_prec k) (k_p_emax k) fp32_precision fp32_range (machine_of k) RN (visible r)
  (score r) (values_of r) (rest k x) Pr Rg Fa Al) as [_ E].
exact (lse_checked k h ok Hb r st Cv Cr _ Rg _ E).
Qed.

(** [product.flush]: O is the exact sum of the products up to a relative part and a part of l. *)
Theorem flushed_within :
  Rabs (value (O_sum _ _ _ _ (rest k x))
        - total (fun j => B2R (stored _ _ _ _ (rest k x) j) * values_of r j) (visible r))
  <= Q2R (q_gO k h) * total (fun j => Rabs (B2R (stored _ _ _ _ (rest k x) j) * values_of r j)) (visible r)
     + Q2R (q_flushed k h) * l.
Proof.
destruct row_hypotheses as [ok [Hb [Cv [Cr [Sk [Nk [Pr [Rg [Fa Al]]]]]]]]].
destruct (flushed_products 24 128 (k_p_prec k) (k_p_emax k) fp32_precision fp32_range (machine_of k) RN (visible r)
  (score r) (values_of r) (rest k x) Pr Rg Fa Al) as [E [F0 F1]].
assert (F2 : eO RN / (mass 24 128 (machine_of k) RN (visible r) * (1 - gl 24 128 (machine_of k) RN (visible r)))
  <= Q2R (q_flushed k h)) by (eapply flushed_checked; eassumption).
destruct (mass_below_l 24 128 (k_p_prec k) (k_p_emax k) fp32_precision fp32_range (machine_of k) RN (visible r)
  (score r) (values_of r) (rest k x) Pr Rg Fa Al) as [L0 L1].
apply Rle_trans with (1 := E). apply Rplus_le_compat.
- apply Rmult_le_compat_r; [apply total_nonneg; intros; apply Rabs_pos|].
  apply (hf_gO k h (head_facts_hold k h Hb)).
- set (eo := eO RN) in *. apply Rle_trans with (eo / l * l); [right; field; lra|].
  apply Rmult_le_compat_r; lra.
Qed.
End Sound.
