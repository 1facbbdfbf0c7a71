# div_down and div_up without directed rounding, reference/evaluate/vector/quotient.h.
#
# Significands: a and b within [1, 2], which is no loss where nothing under- or overflows (|a| above
# 2^-900 there; elsewhere a step is taken that is not needed). q is a quotient rounded to nearest.
#   remainder   a - q b is a double, so that one fma gives it exactly and with its sign
#   step        the quotient lies within half an ulp of q, less than a step to its neighbour
#               (2^-53 is half the distance to the neighbours of q in [1/2, 1), and a quarter above)
# and likewise for a sum s with its error by TwoSum: the sum lies within half an ulp of s.
@rnd = float<ieee_64, ne>;

a = rnd(a_);
b = rnd(b_);
q = rnd(a / b);
remainder = a - q * b;

{ a in [1, 2] /\ b in [1, 2]
  -> rnd(remainder) - remainder in [0, 0]
  /\ |q - a / b| <= 0x1p-53
  /\ q -/ (a / b) in [-0x1p-53, 0x1p-53]
  /\ q in [0x1p-1, 2] }

remainder -> b * (a / b - q) { b <> 0 };
