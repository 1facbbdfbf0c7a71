(** * Machine integers: those of OCaml, 63 bits that wrap around

    The checker's inner loops use them. Each operation is defined for all arguments, as OCaml
    computes it; that nothing wraps is proved where they are used (FastSums), not assumed. *)

From Coq Require Import ZArith Lia Bool.
Open Scope Z_scope.

Inductive int := Int (z : Z).
Definition big (x : int) : Z := let (z) := x in z.

Definition wrap (z : Z) : Z := (z + 2 ^ 62) mod 2 ^ 63 - 2 ^ 62.
Definition of_big (z : Z) : int := Int (wrap z).
Definition plus (x y : int) : int := Int (wrap (big x + big y)).
Definition minus (x y : int) : int := Int (wrap (big x - big y)).
Definition times (x y : int) : int := Int (wrap (big x * big y)).
Definition bits_and (x y : int) : int := Int (Z.land (big x) (big y)).
Definition shift_left (x n : int) : int :=
  if (0 <=? big n) && (big n <? 63) then Int (wrap (Z.shiftl (big x) (big n))) else Int 0.
Definition shift_right (x n : int) : int :=
  if (0 <=? big n) && (big n <? 63) then Int (Z.shiftr (big x) (big n)) else Int 0.
Definition equal (x y : int) : bool := big x =? big y.
Definition less (x y : int) : bool := big x <? big y.
Definition at_most (x y : int) : bool := big x <=? big y.
Definition zero : int := Int 0.
Definition one : int := Int 1.

(** The two halves of an integer: 22 bits below, the rest above. *)
Definition upper (x : int) : int := Int (big x / 2 ^ 22).
Definition lower (x : int) : int := Int (big x mod 2 ^ 22).

Lemma wrap_small z : - 2 ^ 62 <= z < 2 ^ 62 -> wrap z = z.
Proof. intros H. unfold wrap. rewrite Z.mod_small; lia. Qed.

Lemma halves x : big x = big (upper x) * 2 ^ 22 + big (lower x) /\ 0 <= big (lower x) < 2 ^ 22.
Proof.
cbn [upper lower big]. assert (D := Z.div_mod (big x) (2 ^ 22) ltac:(lia)).
assert (M := Z.mod_pos_bound (big x) (2 ^ 22) ltac:(lia)). lia.
Qed.
