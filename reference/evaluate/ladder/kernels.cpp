#include "reference/evaluate/ladder/kernels.h"

#include <mpfr.h>

#include "reference/evaluate/ladder/pair_kernels.h"

namespace headroom {

extern const LadderKernels ladder_kernels_portable;
extern const LadderKernels ladder_kernels_avx2;
extern const LadderKernels ladder_kernels_avx512;
extern const LadderKernels ladder_kernels_small_portable;
extern const LadderKernels ladder_kernels_small_avx2;
extern const LadderKernels ladder_kernels_small_avx512;
extern const LadderKernels ladder_kernels_single_avx512;
extern const PairKernels pair_kernels_portable;
extern const PairKernels pair_kernels_avx2;
extern const PairKernels pair_kernels_avx512;

const LadderKernels& ladder_kernels(InstructionSet set) {
  switch (set) {
    case InstructionSet::avx512:
      return ladder_kernels_avx512;
    case InstructionSet::avx2:
      return ladder_kernels_avx2;
    case InstructionSet::portable:
      break;
  }
  return ladder_kernels_portable;
}

const LadderKernels& small_ladder_kernels(InstructionSet set, std::int64_t rows) {
  if (set == InstructionSet::avx512 && rows <= most_single_rows)
    return ladder_kernels_single_avx512;
  switch (set) {
    case InstructionSet::avx512:
      return ladder_kernels_small_avx512;
    case InstructionSet::avx2:
      return ladder_kernels_small_avx2;
    case InstructionSet::portable:
      break;
  }
  return ladder_kernels_small_portable;
}

const PairKernels& pair_kernels(InstructionSet set) {
  switch (set) {
    case InstructionSet::avx512:
      return pair_kernels_avx512;
    case InstructionSet::avx2:
      return pair_kernels_avx2;
    case InstructionSet::portable:
      break;
  }
  return pair_kernels_portable;
}

const PairExp2Table& pair_exp2_table() {
  static const PairExp2Table table = [] {
    PairExp2Table t{};
    mpfr_t c, ln_2, rest;
    mpfr_inits2(300, c, ln_2, rest, nullptr);
    mpfr_const_log2(ln_2, MPFR_RNDN);
    mpfr_set_ui(c, 1, MPFR_RNDN);
    for (unsigned k = 0; k < 15; ++k) {
      if (k > 0) {
        mpfr_mul(c, c, ln_2, MPFR_RNDN);
        mpfr_div_ui(c, c, k, MPFR_RNDN);
      }
      t.hi[k] = mpfr_get_d(c, MPFR_RNDN);
      mpfr_sub_d(rest, c, t.hi[k], MPFR_RNDN);
      t.lo[k] = mpfr_get_d(rest, MPFR_RNDN);
    }
    mpfr_clears(c, ln_2, rest, nullptr);
    return t;
  }();
  return table;
}

}  // namespace headroom
