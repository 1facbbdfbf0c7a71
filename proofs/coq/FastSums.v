(** * Words, norms and products in machine integers

    Numbers below 2^43, at most 2^16 channels and 2^18 keys: then squares and products of halves of
    22 bits add up below 2^62, and nothing wraps. *)

From Coq Require Import ZArith Lia List Bool.
From Flocq Require Import Core.
From Headroom Require Import Formats Words Checker MachineIntegers.
Import ListNotations.
Open Scope Z_scope.

Notation bigs := (map big).
Definition within (b : Z) (x : int) := - b <= big x <= b.

(** ** Words *)

(** What decoding needs of a format and a unit 2^e0, computed once a head. *)
Record decoder := {
  d_fraction : int;       (* bits of the fraction, *)
  d_low : int;            (* their mask, *)
  d_exponents : int;      (* and that of the exponent *)
  d_sign : int;           (* from here on, words are negative *)
  d_hidden : int;         (* 2^fraction bits *)
  d_offset : int;         (* biased exponent of the unit's last bit *)
  d_reach : int           (* largest shift that stays below 2^43 *)
}.

Definition decoder_okb (f : word_format) (e0 : Z) (dc : decoder) : bool :=
  let fb := fraction_bits f in let eb := exponent_bits f in
  (0 <? fb) && (fb <=? 30) && (0 <? eb) && (eb <=? 8) && (Z.abs e0 <=? 2 ^ 20) &&
  (big (d_fraction dc) =? fb) && (big (d_low dc) =? Z.ones fb) && (big (d_exponents dc) =? Z.ones eb) &&
  (big (d_sign dc) =? 2 ^ (fb + eb)) && (big (d_hidden dc) =? 2 ^ fb) &&
  (big (d_offset dc) =? 2 ^ (eb - 1) - 1 + fb + e0) && (big (d_reach dc) =? 42 - fb).

Definition place (dc : decoder) (w m e : int) : option int :=
  let s := minus e (d_offset dc) in
  if less s zero then None else
  if less (d_reach dc) s then None else
  let x := shift_left m s in Some (if at_most (d_sign dc) w then minus zero x else x).

Definition decode_fast (dc : decoder) (keep_subnormals : bool) (w : int) : option int :=
  let e := bits_and (shift_right w (d_fraction dc)) (d_exponents dc) in
  let m := bits_and w (d_low dc) in
  if equal e (d_exponents dc) then None else
  if equal e zero then
    if equal m zero then Some zero else if keep_subnormals then place dc w m one else None
  else place dc w (plus m (d_hidden dc)) e.

Lemma place_value f e0 dc w m e : decoder_okb f e0 dc = true -> 0 <= big m < 2 ^ (fraction_bits f + 1) ->
  0 <= big e <= 2 ^ 8 -> forall x, place dc w m e = Some x ->
  let shift := big e - (2 ^ (exponent_bits f - 1) - 1) - fraction_bits f - e0 in
  0 <= shift /\ within (2 ^ 43) x /\
  big x = (if negative f (big w) then - Z.shiftl (big m) shift else Z.shiftl (big m) shift).
Proof.
unfold decoder_okb. rewrite !andb_true_iff. intros H Hm He x. unfold place.
destruct H as [[[[[[[[[[[F1 F2] F3] F4] F5] D1] D2] D3] D4] D5] D6] D7].
apply Z.ltb_lt in F1, F3. apply Z.leb_le in F2, F4, F5. apply Z.eqb_eq in D1, D2, D3, D4, D5, D6, D7.
set (fb := fraction_bits f) in *. set (eb := exponent_bits f) in *.
assert (P1 : 0 < 2 ^ (eb - 1) <= 2 ^ 7).
{ split; [apply Z.pow_pos_nonneg; lia|apply Z.pow_le_mono_r; lia]. }
assert (S : big (minus e (d_offset dc)) = big e - (2 ^ (eb - 1) - 1) - fb - e0).
{ cbn [minus big]. rewrite D6. rewrite wrap_small; lia. }
set (s := minus e (d_offset dc)) in *. unfold less. cbn [zero big].
destruct (Z.ltb_spec (big s) 0) as [L|L]; [discriminate|].
destruct (Z.ltb_spec (big (d_reach dc)) (big s)) as [R|R]; [discriminate|].
intros X. injection X as <-. rewrite D7 in R. cbv zeta. rewrite <- S. split; [exact L|].
assert (B : 0 <= Z.shiftl (big m) (big s) < 2 ^ 43).
{ rewrite Z.shiftl_mul_pow2 by exact L. split; [apply Z.mul_nonneg_nonneg; [lia|apply Z.pow_nonneg; lia]|].
  apply Z.lt_le_trans with (2 ^ (fb + 1) * 2 ^ (big s)).
  - apply Z.mul_lt_mono_pos_r; [apply Z.pow_pos_nonneg; lia|lia].
  - rewrite <- Z.pow_add_r by lia. apply Z.pow_le_mono_r; lia. }
assert (V : big (shift_left m s) = Z.shiftl (big m) (big s)).
{ unfold shift_left. rewrite (proj2 (Z.leb_le _ _) L). rewrite (proj2 (Z.ltb_lt (big s) 63) ltac:(lia)).
  cbn [andb big]. apply wrap_small. lia. }
unfold at_most, negative. fold fb eb. rewrite D4.
destruct (2 ^ (fb + eb) <=? big w).
- assert (N : big (minus zero (shift_left m s)) = - Z.shiftl (big m) (big s)).
  { cbn [minus zero big]. rewrite V. rewrite wrap_small; lia. }
  split; [unfold within; rewrite N; lia|exact N].
- split; [unfold within; rewrite V; lia|exact V].
Qed.

Lemma decode_fast_value f e0 dc keep w x : decoder_okb f e0 dc = true -> decode_fast dc keep w = Some x ->
  decode f keep e0 (big w) = Some (big x) /\ within (2 ^ 43) x.
Proof.
intros O. assert (O' := O). unfold decoder_okb in O'. rewrite !andb_true_iff in O'.
destruct O' as [[[[[[[[[[[F1 F2] F3] F4] F5] D1] D2] D3] D4] D5] D6] D7].
apply Z.ltb_lt in F1, F3. apply Z.leb_le in F2, F4, F5. apply Z.eqb_eq in D1, D2, D3, D4, D5, D6, D7.
unfold decode_fast.
assert (E : big (bits_and (shift_right w (d_fraction dc)) (d_exponents dc)) = biased f (big w)).
{ cbn [bits_and big]. unfold shift_right. rewrite D1, D3.
  rewrite (proj2 (Z.leb_le 0 _)) by lia. rewrite (proj2 (Z.ltb_lt _ 63)) by lia. cbn [andb big].
  rewrite Z.shiftr_div_pow2 by lia. rewrite Z.land_ones by lia. reflexivity. }
assert (M : big (bits_and w (d_low dc)) = fraction f (big w)).
{ cbn [bits_and big]. rewrite D2. rewrite Z.land_ones by lia. reflexivity. }
assert (Eb : 0 <= biased f (big w) < 2 ^ exponent_bits f).
{ unfold biased. apply Z.mod_pos_bound. apply Z.pow_pos_nonneg; lia. }
assert (Mb : 0 <= fraction f (big w) < 2 ^ fraction_bits f).
{ unfold fraction. apply Z.mod_pos_bound. apply Z.pow_pos_nonneg; lia. }
assert (P8 : 2 ^ exponent_bits f <= 2 ^ 8) by (apply Z.pow_le_mono_r; lia).
assert (Pf : 2 ^ fraction_bits f <= 2 ^ 30) by (apply Z.pow_le_mono_r; lia).
assert (Pf1 : 2 ^ (fraction_bits f + 1) = 2 * 2 ^ fraction_bits f) by (rewrite Z.pow_add_r by lia; ring).
set (e := bits_and (shift_right w (d_fraction dc)) (d_exponents dc)) in *.
set (m := bits_and w (d_low dc)) in *.
unfold equal. rewrite D3, E, M. cbn [zero big].
assert (On : Z.ones (exponent_bits f) = 2 ^ exponent_bits f - 1) by (rewrite Z.ones_equiv; lia).
unfold decode, significand, finite_word, exponent_of. rewrite <- On.
destruct (Z.eqb_spec (biased f (big w)) (Z.ones (exponent_bits f))) as [I|I]; [discriminate|].
cbn [negb].
destruct (Z.eqb_spec (biased f (big w)) 0) as [S|S].
- destruct (Z.eqb_spec (fraction f (big w)) 0) as [Z|Z].
  + intros X. injection X as <-. split; [reflexivity|]. unfold within. cbn. lia.
  + destruct keep; [|discriminate]. cbn [negb andb]. intros X.
    destruct (place_value f e0 dc w m one O ltac:(rewrite M; lia) ltac:(cbn; lia) x X) as [Sh [W V]].
    cbn [one big] in Sh, V. rewrite (proj2 (Z.ltb_ge _ _)) by lia.
    split; [|exact W]. rewrite V, M. now destruct (negative f (big w)).
- rewrite (proj2 (Z.eqb_neq _ 0)) by lia. rewrite andb_false_r. intros X.
  assert (Mv : big (plus m (d_hidden dc)) = 2 ^ fraction_bits f + fraction f (big w)).
  { cbn [plus big]. rewrite M, D5. rewrite wrap_small; lia. }
  destruct (place_value f e0 dc w _ e O ltac:(rewrite Mv; lia) ltac:(rewrite E; lia) x X) as [Sh [W V]].
  rewrite E in Sh, V. rewrite (proj2 (Z.ltb_ge _ _)) by lia.
  split; [|exact W]. rewrite V, Mv. now destruct (negative f (big w)).
Qed.

Fixpoint decode_list (dc : decoder) (keep : bool) (ws : list int) : option (list int) := match ws with
| [] => Some []
| w :: t => match decode_fast dc keep w with
  | None => None
  | Some x => match decode_list dc keep t with None => None | Some l => Some (x :: l) end end end.

Lemma decode_list_value f e0 dc keep ws l : decoder_okb f e0 dc = true -> decode_list dc keep ws = Some l ->
  row_or_nothing f keep e0 (bigs ws) = bigs l /\ Forall (within (2 ^ 43)) l.
Proof.
intros O. unfold row_or_nothing.
assert (G : forall l, decode_list dc keep ws = Some l ->
  decode_row f keep e0 (bigs ws) = Some (bigs l) /\ Forall (within (2 ^ 43)) l).
{ clear l. induction ws as [|w t IH]; intros l H; cbn [decode_list] in H.
  - injection H as <-. split; [reflexivity|constructor].
  - destruct (decode_fast dc keep w) as [x|] eqn:D; [|discriminate].
    destruct (decode_list dc keep t) as [m|] eqn:D2; [|discriminate]. injection H as <-.
    destruct (decode_fast_value f e0 dc keep w x O D) as [V W]. destruct (IH m eq_refl) as [V2 W2].
    split; [|now constructor]. cbn [map decode_row]. now rewrite V, V2. }
intros H. destruct (G l H) as [V W]. rewrite V. now split.
Qed.

(** ** Squares *)
Fixpoint squares (l : list int) (a b c : int) : int * int * int := match l with
| [] => (a, b, c)
| x :: t => let h := upper x in let w := lower x in
  squares t (plus a (times h h)) (plus b (times h w)) (plus c (times w w)) end.
Definition norm2 (l : list int) : Z :=
  let '(a, b, c) := squares l zero zero zero in big a * 2 ^ 44 + big b * 2 ^ 23 + big c.

Definition half (x : int) := - 2 ^ 22 <= big x <= 2 ^ 22.

Lemma times_halves x y : half x -> half y ->
  big (times x y) = big x * big y /\ - 2 ^ 44 <= big x * big y <= 2 ^ 44.
Proof.
unfold half. intros Hx Hy. assert (B : - 2 ^ 44 <= big x * big y <= 2 ^ 44) by nia.
split; [|exact B]. cbn [times big]. apply wrap_small. lia.
Qed.

Lemma plus_within a b m n : within m a -> within n b -> m + n < 2 ^ 62 ->
  big (plus a b) = big a + big b /\ within (m + n) (plus a b).
Proof.
unfold within. intros Ha Hb H. assert (E : big (plus a b) = big a + big b).
{ cbn [plus big]. apply wrap_small. lia. }
split; [exact E|]. rewrite E. lia.
Qed.

Lemma plus_product a x y n : 0 <= n < 2 ^ 16 -> within (n * 2 ^ 45) a -> half x -> half y ->
  big (plus a (times x y)) = big a + big x * big y /\ within ((n + 1) * 2 ^ 45) (plus a (times x y)).
Proof.
intros Hn Ha Hx Hy. destruct (times_halves x y Hx Hy) as [E B].
destruct (plus_within a (times x y) (n * 2 ^ 45) (2 ^ 44) Ha) as [P W]; [unfold within; rewrite E; exact B|lia|].
rewrite E in P. split; [exact P|]. unfold within in *. lia.
Qed.

Lemma plus_products a x y z t n : 0 <= n < 2 ^ 16 -> within (n * 2 ^ 45) a -> half x -> half y -> half z -> half t ->
  big (plus a (plus (times x y) (times z t))) = big a + (big x * big y + big z * big t) /\
  within ((n + 1) * 2 ^ 45) (plus a (plus (times x y) (times z t))).
Proof.
intros Hn Ha Hx Hy Hz Ht. destruct (times_halves x y Hx Hy) as [E1 B1].
destruct (times_halves z t Hz Ht) as [E2 B2].
assert (W1 : within (2 ^ 44) (times x y)) by (unfold within; rewrite E1; exact B1).
assert (W2 : within (2 ^ 44) (times z t)) by (unfold within; rewrite E2; exact B2).
destruct (plus_within _ _ _ _ W1 W2) as [P1 V1]; [lia|].
destruct (plus_within a _ (n * 2 ^ 45) _ Ha V1) as [P2 V2]; [lia|].
rewrite P2, P1, E1, E2. split; [reflexivity|]. clear - V2. unfold within in *. lia.
Qed.

Lemma upper_half x n : within (2 ^ (22 + n)) x -> 0 <= n -> - 2 ^ n - 1 <= big (upper x) <= 2 ^ n.
Proof.
unfold within. intros H Hn. rewrite Z.pow_add_r in H by lia. cbn [upper big].
split; [apply Z.div_le_lower_bound|apply Z.div_le_upper_bound]; lia.
Qed.

Lemma lower_half x : half (lower x).
Proof. unfold half. destruct (halves x) as [_ H]. lia. Qed.

Lemma upper_is_half x : within (2 ^ 43) x -> half (upper x).
Proof. intros H. unfold half. assert (U := upper_half x 21 H ltac:(lia)). lia. Qed.

Lemma squares_value l : Forall (within (2 ^ 43)) l -> forall a b c n, 0 <= n -> n + Z.of_nat (length l) <= 2 ^ 16 ->
  within (n * 2 ^ 45) a -> within (n * 2 ^ 45) b -> within (n * 2 ^ 45) c ->
  let '(x, y, z) := squares l a b c in
  big x * 2 ^ 44 + big y * 2 ^ 23 + big z = big a * 2 ^ 44 + big b * 2 ^ 23 + big c + dotz (bigs l) (bigs l).
Proof.
induction 1 as [|v t Hv _ IH]; intros a b c n Hn Hl Ha Hb Hc; cbn [squares].
- cbn [map]. unfold dotz. cbn [dot_from]. ring.
- cbn [length] in Hl. rewrite Nat2Z.inj_succ in Hl.
  assert (E := proj1 (halves v)). assert (Hh := upper_is_half v Hv). assert (Hw := lower_half v).
  assert (Hn' : 0 <= n < 2 ^ 16) by lia.
  destruct (plus_product a _ _ n Hn' Ha Hh Hh) as [A1 W1].
  destruct (plus_product b _ _ n Hn' Hb Hh Hw) as [A2 W2].
  destruct (plus_product c _ _ n Hn' Hc Hw Hw) as [A3 W3].
  specialize (IH _ _ _ (n + 1) ltac:(lia) ltac:(lia) W1 W2 W3).
  destruct (squares t _ _ _) as [[x y] z]. rewrite IH, A1, A2, A3. cbn [map].
  change (dotz (big v :: bigs t) (big v :: bigs t)) with (dot_from (0 + big v * big v) (bigs t) (bigs t)).
  rewrite dot_from_acc, E. ring.
Qed.

Theorem norm2_value l : Forall (within (2 ^ 43)) l -> Z.of_nat (length l) <= 2 ^ 16 ->
  norm2 l = dotz (bigs l) (bigs l).
Proof.
intros B L. unfold norm2. assert (Z0 : within (0 * 2 ^ 45) zero) by (unfold within; cbn; lia).
assert (S := squares_value l B zero zero zero 0 ltac:(lia) ltac:(lia) Z0 Z0 Z0).
destruct (squares l zero zero zero) as [[x y] z]. rewrite S. cbn [zero big]. ring.
Qed.

(** ** Sums of keys *)
Fixpoint add_fast (a b : list int) : list int := match a, b with
| x :: a', y :: b' => plus x y :: add_fast a' b' | _, _ => [] end.

Lemma add_fast_value n a b : 0 <= n < 2 ^ 18 -> Forall (within (n * 2 ^ 43)) a -> Forall (within (2 ^ 43)) b ->
  bigs (add_fast a b) = vadd (bigs a) (bigs b) /\ Forall (within ((n + 1) * 2 ^ 43)) (add_fast a b).
Proof.
intros Hn A. revert b. induction A as [|x a Hx _ IH]; intros b B; [split; [reflexivity|constructor]|].
destruct B as [|y b Hy B]; [split; [reflexivity|constructor]|]. destruct (IH b B) as [I1 I2].
destruct (plus_within x y _ _ Hx Hy) as [E W]; [lia|].
replace (n * 2 ^ 43 + 2 ^ 43) with ((n + 1) * 2 ^ 43) in W by ring.
cbn [add_fast map vadd]. split; [now rewrite E, I1|now constructor].
Qed.

(** ** A query times such a sum *)
Fixpoint products (q s : list int) (a b c d : int) : int * int * int * int := match q, s with
| x :: q', y :: s' =>
  let h := upper x in let l := lower x in
  let s0 := lower y in let r := upper y in let s1 := lower r in let s2 := upper r in
  products q' s' (plus a (times h s2)) (plus b (plus (times h s1) (times l s2)))
    (plus c (plus (times h s0) (times l s1))) (plus d (times l s0))
| _, _ => (a, b, c, d) end.
Definition product (q s : list int) : Z :=
  let '(a, b, c, d) := products q s zero zero zero zero in
  big a * 2 ^ 66 + big b * 2 ^ 44 + big c * 2 ^ 22 + big d.

Lemma upper_upper_half y : within (2 ^ 61) y -> half (upper (upper y)).
Proof.
intros H. assert (U := upper_half y 39 H ltac:(lia)).
assert (V := upper_half (upper y) 18). unfold half. unfold within in V.
specialize (V ltac:(lia) ltac:(lia)). lia.
Qed.

Lemma products_value q : Forall (within (2 ^ 43)) q -> forall s a b c d n, Forall (within (2 ^ 61)) s ->
  0 <= n -> n + Z.of_nat (length q) <= 2 ^ 16 ->
  within (n * 2 ^ 45) a -> within (n * 2 ^ 45) b -> within (n * 2 ^ 45) c -> within (n * 2 ^ 45) d ->
  let '(x, y, z, t) := products q s a b c d in
  big x * 2 ^ 66 + big y * 2 ^ 44 + big z * 2 ^ 22 + big t
    = big a * 2 ^ 66 + big b * 2 ^ 44 + big c * 2 ^ 22 + big d + dotz (bigs q) (bigs s).
Proof.
induction 1 as [|v q Hv _ IH]; intros s a b c d n Hs Hn Hl Ha Hb Hc Hd.
- cbn [products map]. unfold dotz. cbn [dot_from]. ring.
- destruct Hs as [|y s Hy Hs]; [cbn [products map]; unfold dotz; cbn [dot_from]; ring|].
  cbn [length] in Hl. rewrite Nat2Z.inj_succ in Hl. cbn [products].
  assert (E := proj1 (halves v)). assert (Ey := proj1 (halves y)). assert (Er := proj1 (halves (upper y))).
  assert (Hh := upper_is_half v Hv). assert (Hw := lower_half v).
  assert (H0 := lower_half y). assert (H1 := lower_half (upper y)). assert (H2 := upper_upper_half y Hy).
  assert (Hn' : 0 <= n < 2 ^ 16) by lia.
  destruct (plus_product a _ _ n Hn' Ha Hh H2) as [A1 W1].
  destruct (plus_products b _ _ _ _ n Hn' Hb Hh H1 Hw H2) as [A2 W2].
  destruct (plus_products c _ _ _ _ n Hn' Hc Hh H0 Hw H1) as [A3 W3].
  destruct (plus_product d _ _ n Hn' Hd Hw H0) as [A4 W4].
  specialize (IH s _ _ _ _ (n + 1) Hs ltac:(lia) ltac:(lia) W1 W2 W3 W4).
  destruct (products q s _ _ _ _) as [[[x z] t] p]. rewrite IH, A1, A2, A3, A4. cbn [map].
  change (dotz (big v :: bigs q) (big y :: bigs s)) with (dot_from (0 + big v * big y) (bigs q) (bigs s)).
  rewrite dot_from_acc, E, Ey, Er. ring.
Qed.

Theorem product_value q s : Forall (within (2 ^ 43)) q -> Forall (within (2 ^ 61)) s ->
  Z.of_nat (length q) <= 2 ^ 16 -> product q s = dotz (bigs q) (bigs s).
Proof.
intros Q S L. unfold product. assert (Z0 : within (0 * 2 ^ 45) zero) by (unfold within; cbn; lia).
assert (P := products_value q Q s zero zero zero zero 0 S ltac:(lia) ltac:(lia) Z0 Z0 Z0 Z0).
destruct (products q s zero zero zero zero) as [[[x y] z] t]. rewrite P. cbn [zero big]. ring.
Qed.
