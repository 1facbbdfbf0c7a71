/* Online softmax with one mistake in it, chosen by PLANT: what a hunt has to find. */
#include <math.h>

#include "headroom_stabilizer.h"

#define OFF_BY_ONE_TILE 1  /* the last key of every tile is not looked at */
#define STALE_MAXIMUM 2    /* the maximum that is subtracted is that of the tile before */
#define LOST_RESIDUAL 3    /* shifts are whole numbers, corrections are of the unrounded maxima */
#define NO_FLUSH 4         /* mu = bound - 40, and a gate that counts on subnormal weights */
#define DROPPED_NAN 5      /* no mistake of its own: the kernel swallows NaN, and the maximum, too */
#define WRONG_LAST_BLOCK 6 /* the last tile brings its own maximum, and no correction */
#define PAST_THE_END 7 /* writes one element more than there are rows */
#define BEFORE_THE_BEGINNING 8
#define PAST_THE_STATE 9
#define LEAVES_FLUSHING_ON 10
#define REFUSES 11     /* init fails for heads of more than 40 keys */
#define ANSWERS_TWO 12 /* a gate of 2 */

typedef struct {
  int64_t rows;
  float maximum[];
} state_t;

static size_t state_bytes(const headroom_kernel *kernel, const double *parameters) {
  (void)parameters;
  return sizeof(state_t) + (size_t)kernel->queries * sizeof(float);
}

static int init(void *state, const headroom_kernel *kernel, const double *parameters,
                headroom_constants *constants) {
  (void)state, (void)parameters, (void)constants;
  return PLANT == REFUSES && kernel->keys > 40;
}

static float norm(const headroom_kernel *kernel, const float *x) {
  float sum = 0;
  for (int64_t c = 0; c < kernel->channels; ++c) sum += x[c] * x[c];
  return sqrtf(sum);
}

/* |q| max|k|: what a fixed stabilizer would be. */
static double bound(const headroom_kernel *kernel, int64_t row) {
  double most = 0;
  for (int64_t j = 0; j < kernel->keys; ++j) {
    const double k = norm(kernel, kernel->key(kernel, j));
    if (k > most) most = k;
  }
  return most * norm(kernel, kernel->query(kernel, row)) * fabs(kernel->score_factor);
}

static void before_loop(void *state, const headroom_kernel *kernel, const int64_t *rows,
                        int64_t n) {
  state_t *s = state;
  s->rows = n;
  for (int64_t r = 0; r < n; ++r) {
    s->maximum[r] = PLANT == NO_FLUSH ? (float)(bound(kernel, rows[r]) - 40) : -INFINITY;
  }
  if (PLANT == PAST_THE_STATE) s->maximum[kernel->queries] = 1;
}

static void gate(void *state, const headroom_kernel *kernel, headroom_gate *outcome) {
  (void)state;
  outcome->accepts = 1;
  if (PLANT == ANSWERS_TWO) outcome->accepts = 2;
  if (PLANT != NO_FLUSH) return;
  outcome->limit = (40 + 148) / 2; /* weights of 2^-148 are subnormal, and flushed */
  outcome->value = 0;
  for (int64_t i = 0; i < kernel->queries; ++i) {
    const double b = bound(kernel, i);
    if (b > outcome->value) outcome->value = b;
  }
  outcome->accepts = outcome->value <= outcome->limit;
}

static void misbehave(state_t *s, const headroom_decision *decision) {
  if (PLANT == PAST_THE_END) decision->shift[s->rows] = 0;
  if (PLANT == BEFORE_THE_BEGINNING) decision->correction[-1] = 0;
  if (PLANT == LEAVES_FLUSHING_ON) {
    unsigned mxcsr = 0;
    __asm__ volatile("stmxcsr %0" : "=m"(mxcsr));
    mxcsr |= 0x8040;
    __asm__ volatile("ldmxcsr %0" : : "m"(mxcsr));
  }
}

static void tile(void *state, const headroom_kernel *kernel, const headroom_tile *given,
                 const headroom_decision *decision) {
  state_t *s = state;
  headroom_tile shown = *given;
  if (PLANT == OFF_BY_ONE_TILE && shown.keys > 1) --shown.keys;
  for (int64_t r = 0; r < s->rows; ++r) {
    if (PLANT == NO_FLUSH) {
      decision->shift[r] = kernel->round_store(kernel, s->maximum[r]);
      continue;
    }
    const float old = s->maximum[r];
    const int alone = PLANT == WRONG_LAST_BLOCK && given->last;
    float now = headroom_row_max(&shown, r, alone ? -INFINITY : old);
    s->maximum[r] = now;
    misbehave(s, decision);
    if (now == -INFINITY) {
      decision->shift[r] = 0;
      continue;
    }
    const float used = PLANT == STALE_MAXIMUM && given->tile > 0 ? old : now;
    float shift = kernel->round_exponent(kernel, (double)used * kernel->factor);
    if (PLANT == LOST_RESIDUAL) shift = ceilf(shift);
    decision->shift[r] = shift;
    if (given->tile > 0 && !alone && used == now) {
      const float x = kernel->round_exponent(kernel, ((double)old - now) * kernel->factor);
      kernel->exponentials(kernel, &x, &decision->correction[r], 1);
    }
  }
}

static const headroom_stabilizer table = {
    .abi = HEADROOM_STABILIZER_ABI,
    .size = sizeof(headroom_stabilizer),
    .name = "planted",
    .summary = "online softmax with a mistake",
    .state_bytes = state_bytes,
    .init = init,
    .gate = PLANT == NO_FLUSH || PLANT == ANSWERS_TWO ? gate : NULL,
    .before_loop = before_loop,
    .tile = tile,
};

HEADROOM_STABILIZER_EXPORT const headroom_stabilizer *headroom_stabilizer_entry(void) {
  return &table;
}
