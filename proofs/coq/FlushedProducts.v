(** * What flushed products and partial sums can take from the output

    Where the numerator's adder flushes, or rounds subnormal sums, each of its results may lose
    something that no relative error covers. Over the denominator this is the claim [product.flush],
    here in absolute terms: the claim divides by the largest value that the row sees. *)

From Coq Require Import ZArith Reals Lra Lia List Permutation Bool.
From Flocq Require Import Core BinarySingleNaN.
From Headroom Require Import Formats Rows Exp2 LostMass Execution Adders Row Bounds LogSumExp.
Import ListNotations.
Open Scope R_scope.

Section FlushedProducts.
Variables prec emax precP emaxP : Z.
Context (prec_positive : Prec_gt_0 prec) (prec_below_emax : Prec_lt_emax prec emax).
Variables (m : machine prec emax) (n : numbers) (keys : list nat) (z v : nat -> R).
Variable x : execution prec emax precP emaxP.
Hypothesis promises : machine_promises prec emax precP emaxP m n.
Hypothesis within : ranges prec emax m n keys.
Hypothesis facts : row_facts prec emax precP emaxP n keys z v m x.
Hypothesis execution_allowed : allowed prec emax precP emaxP m keys v x.
Notation l := (value (l_sum _ _ _ _ x)).
Notation products := (fun j => B2R (stored _ _ _ _ x j) * v j).

(** The denominator from below. *)
Lemma mass_below_l : 0 < mass prec emax m n keys * (1 - gl prec emax m n keys) <= l.
Proof.
destruct (gl_error _ _ _ _ prec_positive prec_below_emax m n keys z v x promises within facts execution_allowed) as [E G0].
destruct (mass_below _ _ _ _ prec_positive prec_below_emax m n keys z v x promises within facts execution_allowed) as [M0 M1].
assert (G1 := r_gl _ _ _ _ _ within). apply Rabs_le_inv in E.
split; [apply Rmult_lt_0_compat; lra|].
assert (mass prec emax m n keys * (1 - gl prec emax m n keys)
  <= total (summed prec emax precP emaxP m x) keys * (1 - gl prec emax m n keys)) by (apply Rmult_le_compat_r; lra).
lra.
Qed.

(** O is the exact sum of the products up to a relative part and to what is flushed, eO; and eO over l: *)
Theorem flushed_products :
  Rabs (value (O_sum _ _ _ _ x) - total products keys) <= gO n * total (fun j => Rabs (products j)) keys + eO n /\
  0 <= eO n / l <= eO n / (mass prec emax m n keys * (1 - gl prec emax m n keys)).
Proof.
split; [exact (O_error _ _ _ _ prec_positive prec_below_emax m n keys z v x promises within facts execution_allowed)|].
destruct mass_below_l as [L0 L1].
destruct (r_small _ _ _ _ _ within) as [_ [_ [_ [_ [_ [_ [_ [D1 [D2 _]]]]]]]]].
assert (E0 : 0 <= eO n).
{ unfold eO. assert (1 <= (1 + d_O n) ^ h_O n) by (apply pow_R1_Rle; lra).
  apply Rmult_le_pos; [apply Rmult_le_pos; [apply pos_INR|lra]|lra]. }
split.
- apply Rmult_le_pos; [exact E0|]. left. apply Rinv_0_lt_compat. lra.
- unfold Rdiv. apply Rmult_le_compat_l; [exact E0|]. apply Rinv_le_contravar; lra.
Qed.

(** ** Without powers and the lost-mass function *)
Section Rational.
Variables a s W g_l g_O rho : R.
Hypothesis a_ok : 0 <= A prec emax m n <= a.
Hypothesis a_small : 7 / 10 * a < 1.
Hypothesis small : 0 <= eps n < 1 /\ 0 <= beta n /\ 0 <= u_P n < 1 /\ 0 <= h_P n /\
  0 <= d_l n /\ 0 <= d_O n /\ 0 <= e_O n.
Hypothesis no_events : e_l n = 0.
Hypothesis s_ok : 0 <= share n <= s.
Hypothesis s_small : s < 1.
Hypothesis W_ok : 0 < W <= exp2 (zlow n).
Hypothesis gl_ok : (1 + d_l n) ^ h_l n - 1 <= g_l.
Hypothesis gl_small : g_l < 1.
Hypothesis gO_ok : gO n <= g_O.
Hypothesis count_ok : 1 <= count keys.
Hypothesis rho_ok : INR (n_O n) <= rho * count keys.

Definition flushed_upper := rho * e_O n * (1 + g_O) / (mass_low prec emax m n a s W * (1 - g_l)).

Theorem flushed_rational : eO n / (mass prec emax m n keys * (1 - gl prec emax m n keys)) <= flushed_upper.
Proof.
destruct (gl_at_most prec emax m n keys g_l small no_events gl_ok) as [G0 G1].
destruct (mass_ok prec emax m n keys a s W a_ok a_small small s_ok s_small W_ok count_ok) as [W0 W1].
destruct small as [_ [_ [_ [_ [_ [DO EO]]]]]].
assert (P1 : 1 <= (1 + d_O n) ^ h_O n) by (apply pow_R1_Rle; lra).
assert (Num : eO n <= count keys * (rho * e_O n * (1 + g_O))).
{ unfold eO. assert (X : (1 + d_O n) ^ h_O n <= 1 + g_O) by (unfold gO in gO_ok; lra).
  replace (count keys * (rho * e_O n * (1 + g_O))) with (rho * count keys * e_O n * (1 + g_O)) by ring.
  apply Rmult_le_compat; [|lra| |exact X].
  - apply Rmult_le_pos; [apply pos_INR|lra].
  - apply Rmult_le_compat_r; lra. }
assert (E0 : 0 <= eO n).
{ unfold eO. apply Rmult_le_pos; [apply Rmult_le_pos; [apply pos_INR|lra]|lra]. }
assert (Den : 0 < mass_low prec emax m n a s W * (1 - g_l)) by (apply Rmult_lt_0_compat; lra).
assert (Den2 : count keys * (mass_low prec emax m n a s W * (1 - g_l))
  <= mass prec emax m n keys * (1 - gl prec emax m n keys)).
{ replace (count keys * (mass_low prec emax m n a s W * (1 - g_l)))
    with (mass_low prec emax m n a s W * count keys * (1 - g_l)) by ring.
  apply Rmult_le_compat; try lra. apply Rmult_le_pos; lra. }
assert (DenP : 0 < count keys * (mass_low prec emax m n a s W * (1 - g_l))) by (apply Rmult_lt_0_compat; lra).
apply Rle_trans with (count keys * (rho * e_O n * (1 + g_O)) * / (count keys * (mass_low prec emax m n a s W * (1 - g_l)))).
- unfold Rdiv. apply Rmult_le_compat; [exact E0| |exact Num|apply Rinv_le_contravar; lra].
  left. apply Rinv_0_lt_compat. lra.
- right. unfold flushed_upper. field. split; lra.
Qed.
End Rational.
End FlushedProducts.
