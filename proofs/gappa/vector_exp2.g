# Roundings of exp2_reduced and exp2_short, reference/evaluate/vector/exp2.h: same names and order.
#
# Proves, for one entry of the table, |y - exact| <= exp2_rounding_error exact and
# |short - exact| <= exp2_short_rounding_error exact, where
# exact = (table_head + table_tail) (1 + reduced P(reduced)) without any rounding after r.
# vector_exp2.py puts each of the sixteen entries of exp2_constants.h in the place of the line
# marked "entry" and runs Gappa on it; the one written here, j = 1, is the worst.
# Outside this script: exp2_argument_error (r = rnd(f + tail)), exp2_scaled_argument_error (the two
# roundings of exp2_short's r, which is any double in the same range), exp2_polynomial_error.
# exp2_short applies the power of two to the entry beforehand, which is exact.
@rnd = float<ieee_64, ne>;

f = rnd(f_);
tail = rnd(tail_);
c0 = 0x1.62e42fefa39efp-1;
c1 = 0x1.ebfbdff82c594p-3;
c2 = 0x1.c6b08d7050bb6p-5;
c3 = 0x1.3b2ab6fb03673p-7;
c4 = 0x1.5d87f7c8e088p-10;
c5 = 0x1.430a4de062debp-13;
c6 = 0x1.03b8b74c5307ep-16;

r rnd= f + tail;
p5 rnd= c6 * r + c5;
p4 rnd= p5 * r + c4;
p3 rnd= p4 * r + c3;
p2 rnd= p3 * r + c2;
p1 rnd= p2 * r + c1;
p0 rnd= p1 * r + c0;
z rnd= r * p0;
w rnd= table_head * z + table_tail;
unrounded_y = table_head + w;
y = rnd(unrounded_y);
# exp2_short: one operation, without the tail
unrounded_short = table_head * z + table_head;
short = rnd(unrounded_short);

# The same without roundings after r.
exact_p5 = c6 * r + c5;
exact_p4 = exact_p5 * r + c4;
exact_p3 = exact_p4 * r + c3;
exact_p2 = exact_p3 * r + c2;
exact_p1 = exact_p2 * r + c1;
exact_p0 = exact_p1 * r + c0;
exact_z = r * exact_p0;
exact = (table_head + table_tail) * (1 + exact_z);
lost_short = table_head * (z - exact_z) - table_tail * (1 + exact_z);
lost = (w - (table_head * z + table_tail)) + table_head * (z - exact_z) - table_tail * exact_z;

{ f in [-0x1p-5, 0x1p-5] /\ tail in [-0x1p-32, 0x1p-32]
  /\ table_head in [0x1.0b5586cf9890fp0, 0x1.0b5586cf9890fp0] /\ table_tail in [0x1.8a62e4adc610bp-54, 0x1.8a62e4adc610bp-54]  # entry
  -> |y -/ exact| <= 0x1.0fp-53 /\ |short -/ exact| <= 0x1.c9p-53
     /\ |r - (f + tail)| <= 0x1p-58 /\ y in [0x1.f4p-1, 0x1.01p1] }

# identities
unrounded_y - exact -> lost;
unrounded_short - exact -> lost_short;
