# Roundings of log2_parts_from and ln_parts, reference/evaluate/vector/log2.cpp: same names.
#
# t stands for (m - E) / E before any rounding: m - E is exact (Sterbenz), |t| is at most
# accepted_remainder (and 2^-93). head, rest and remainder are exact (TwoSum, fma).
# vector_log2.sollya adds these roundings to what is not a rounding: delta, ln(1 + t) - t, and the
# error of the constants.
@rnd = float<ieee_64, ne>;

log2_e_hi = 0x1.71547652b82fep0;
log2_e_lo = 0x1.777d0ffda0d24p-56;
ln_2_hi = 0x1.62e42fefa39efp-1;
ln_2_lo = 0x1.abc9e3b39803fp-56;

rest = rnd(rest_);
q = rnd(t);
correction = rnd(q * log2_e_hi);
tail rnd= rest + correction;
exact_correction = q * (log2_e_hi + log2_e_lo);
radius = rnd(radius_);
end rnd= tail - radius;

ln_head = rnd(ln_head_);
ln_remainder = rnd(ln_remainder_);
log2_tail = rnd(log2_tail_);
ln_inner rnd= ln_2_lo * ln_head + ln_remainder;
ln_tail rnd= ln_2_hi * log2_tail + ln_inner;

{ |t| <= 0x1.00001p-40 /\ |rest| <= 0x1p-33 /\ |radius| <= 0x1p-52
  /\ |ln_head| <= 0x1p21 /\ |ln_remainder| <= 0x1p-33 /\ |log2_tail| <= 0x1.01p-33
  -> |q - t| <= 0x1p-93
  /\ |correction - exact_correction| <= 0x1p-92
  /\ |tail - (rest + correction)| <= 0x1p-86
  /\ |end - (tail - radius)| <= 0x1p-86
  /\ |ln_tail - (ln_remainder + ln_2_lo * ln_head + ln_2_hi * log2_tail)| <= 0x1p-84 }

correction - exact_correction -> (correction - q * log2_e_hi) - q * log2_e_lo;
ln_tail - (ln_remainder + ln_2_lo * ln_head + ln_2_hi * log2_tail) ->
  (ln_tail - (ln_2_hi * log2_tail + ln_inner)) + (ln_inner - (ln_2_lo * ln_head + ln_remainder));
