/* Online softmax as FlashAttention-2 writes it, as a plug-in: a running maximum of stored scores,
 * scaled when it is subtracted. Gives the bits of the built-in `online-fa2`.
 *
 *     cc -std=c11 -O2 -ffp-contract=off -fPIC -shared -I INCLUDE online.c -o online.so
 */
#include <math.h>

#include "headroom_stabilizer.h"

/* The state: what is the block's, then one maximum a row. */
typedef struct {
  int64_t rows;
  float maximum[];
} state_t;

/* One rounding into the exponent's format, as the kernel's instruction does it. */
static float rounded(const headroom_kernel *kernel, double exact) {
  return kernel->exponent.precision == 24 ? (float)exact : kernel->round_exponent(kernel, exact);
}

static size_t state_bytes(const headroom_kernel *kernel, const double *parameters) {
  (void)parameters;
  return sizeof(state_t) + (size_t)kernel->queries * sizeof(float);
}

static int init(void *state, const headroom_kernel *kernel, const double *parameters,
                headroom_constants *constants) {
  (void)state, (void)kernel, (void)parameters, (void)constants;
  return 0;
}

static void before_loop(void *state, const headroom_kernel *kernel, const int64_t *rows,
                        int64_t n) {
  state_t *s = state;
  (void)kernel, (void)rows;
  s->rows = n;
  for (int64_t r = 0; r < n; ++r) s->maximum[r] = -INFINITY;
}

static void tile(void *state, const headroom_kernel *kernel, const headroom_tile *tile,
                 const headroom_decision *decision) {
  state_t *s = state;
  for (int64_t r = 0; r < s->rows; ++r) {
    const float old = s->maximum[r];
    const float now = headroom_row_max(tile, r, old);
    s->maximum[r] = now;
    if (now == -INFINITY) { /* no key seen yet: exp2(-inf - 0) = 0 */
      decision->shift[r] = 0;
      continue;
    }
    decision->shift[r] = rounded(kernel, (double)now * kernel->factor);
    if (tile->tile > 0) {
      const float change = rounded(kernel, (double)old - now);
      const float x = rounded(kernel, (double)change * kernel->factor);
      kernel->exponentials(kernel, &x, &decision->correction[r], 1);
    }
  }
}

static const headroom_stabilizer table = {
    .abi = HEADROOM_STABILIZER_ABI,
    .size = sizeof(headroom_stabilizer),
    .name = "online",
    .summary = "running maximum of stored scores, scaled when subtracted",
    .state_bytes = state_bytes,
    .init = init,
    .before_loop = before_loop,
    .tile = tile,
};

HEADROOM_STABILIZER_EXPORT const headroom_stabilizer *headroom_stabilizer_entry(void) {
  return &table;
}
