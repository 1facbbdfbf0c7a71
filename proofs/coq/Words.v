(** * Words: what the bits of a tensor stand for

    IEEE 754's interchange encoding, of which BF16 is the 16-bit form with 8 exponent bits: sign,
    biased exponent, fraction. [word_value] is the definition that a reader has to agree with;
    [decode] turns a word into a whole multiple of 2^e0, or refuses it: infinities, NaN, numbers
    that are no such multiple, and, where the machine may read them as zero, subnormal numbers. *)

From Coq Require Import ZArith Reals Lra Lia List Bool.
From Flocq Require Import Core.
From Headroom Require Import Formats.
Import ListNotations.
Open Scope R_scope.

Record word_format := { exponent_bits : Z; fraction_bits : Z }.
Definition bf16_words := {| exponent_bits := 8; fraction_bits := 7 |}.
Definition fp16_words := {| exponent_bits := 5; fraction_bits := 10 |}.
Definition fp32_words := {| exponent_bits := 8; fraction_bits := 23 |}.

Section Word.
Variable f : word_format.
Definition fraction w := (w mod 2 ^ fraction_bits f)%Z.
Definition biased w := ((w / 2 ^ fraction_bits f) mod 2 ^ exponent_bits f)%Z.
Definition negative w := (2 ^ (fraction_bits f + exponent_bits f) <=? w)%Z.
Definition finite_word w := negb (biased w =? 2 ^ exponent_bits f - 1)%Z.
Definition significand w := (if biased w =? 0 then fraction w else 2 ^ fraction_bits f + fraction w)%Z.
Definition exponent_of w :=
  ((if biased w =? 0 then 1 else biased w) - (2 ^ (exponent_bits f - 1) - 1) - fraction_bits f)%Z.

Definition word_value (w : Z) : R :=
  let m := IZR (significand w) * bpow radix2 (exponent_of w) in if negative w then - m else m.

Definition decode (keep_subnormals : bool) (e0 w : Z) : option Z :=
  let m := significand w in
  if negb (finite_word w) then None else
  if (m =? 0)%Z then Some 0%Z else
  if negb keep_subnormals && (biased w =? 0)%Z then None else
  if (exponent_of w <? e0)%Z then None else
  let x := Z.shiftl m (exponent_of w - e0) in Some (if negative w then (- x)%Z else x).

Theorem decode_value keep e0 w x : decode keep e0 w = Some x ->
  finite_word w = true /\ word_value w = IZR x * bpow radix2 e0.
Proof.
unfold decode, word_value. cbv zeta. destruct (finite_word w); [|discriminate]. cbn [negb].
destruct (Z.eqb_spec (significand w) 0) as [Z|NZ].
- intros H. injection H as <-. split; [reflexivity|]. rewrite Z. destruct (negative w); ring.
- destruct (negb keep && (biased w =? 0)%Z); [discriminate|].
  destruct (Z.ltb_spec (exponent_of w) e0) as [L|L]; [discriminate|]. intros H. injection H as <-.
  split; [reflexivity|].
  assert (E : IZR (significand w) * bpow radix2 (exponent_of w)
              = IZR (Z.shiftl (significand w) (exponent_of w - e0)) * bpow radix2 e0).
  { rewrite Z.shiftl_mul_pow2 by lia. rewrite mult_IZR, two_pow by lia.
    rewrite Rmult_assoc, <- bpow_plus. do 2 f_equal. ring. }
  destruct (negative w); [rewrite opp_IZR, E; ring|exact E].
Qed.

Fixpoint decode_row (keep : bool) (e0 : Z) (ws : list Z) : option (list Z) := match ws with
| [] => Some []
| w :: t => match decode keep e0 w with
  | None => None
  | Some x => match decode_row keep e0 t with None => None | Some l => Some (x :: l) end end end.

(** A row that is refused has no integers: the checker finds its length wrong. *)
Definition row_or_nothing keep e0 ws := match decode_row keep e0 ws with Some l => l | None => [] end.

Theorem decode_row_value keep e0 ws l : decode_row keep e0 ws = Some l ->
  length l = length ws /\ forall i, (i < length ws)%nat ->
  finite_word (nth i ws 0%Z) = true /\ word_value (nth i ws 0%Z) = IZR (nth i l 0%Z) * bpow radix2 e0.
Proof.
revert l. induction ws as [|w t IH]; intros l H; cbn [decode_row] in H.
- injection H as <-. split; [reflexivity|]. intros i Hi. simpl in Hi. lia.
- destruct (decode keep e0 w) as [x|] eqn:D; [|discriminate].
  destruct (decode_row keep e0 t) as [m|] eqn:D2; [|discriminate]. injection H as <-.
  destruct (IH m eq_refl) as [L V]. split; [simpl; now rewrite L|].
  intros [|i] Hi; cbn [nth]; [now apply (decode_value keep)|]. apply V. simpl in Hi. lia.
Qed.
End Word.
