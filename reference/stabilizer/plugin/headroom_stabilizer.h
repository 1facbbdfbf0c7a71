/*
 * headroom_stabilizer.h: your softmax stabilizer, as a plug-in of Headroom.
 *
 * A plug-in is a shared library that exports one function, headroom_stabilizer_entry(), which
 * returns one table of callbacks. Headroom runs the attention kernel bit for bit (operands, score
 * accumulator, exp2 unit, P, accumulators, division: all as a kernel file says) and asks the
 * plug-in the one thing that a stabilizer decides: what is subtracted from each row's scores, and
 * by what the row's sums are multiplied first.
 *
 *     headroom simulate head.safetensors --kernel hopper --plugin ./mine.so
 *     headroom fuzz --plugin ./mine.so --kernel hopper --seconds 60
 *
 * Life of one head, all calls from one thread:
 *
 *     state_bytes   how much memory the plug-in needs, which Headroom owns
 *     init          the place for norms, block keys, tables
 *     gate          may this head run with the stabilizer at all?        (optional)
 *     for each block of query rows and each part of a split range of keys:
 *       before_loop these rows start: reset what belongs to them
 *       order       the order in which tiles of keys are visited         (optional)
 *       tile        for each tile: shift and correction of every row
 *     finish        the head is done: give back what init took           (optional)
 *
 * Several heads may be under way in several threads, each with its own state: callbacks must not
 * keep anything in global variables. They may write to the state and to the arrays of a decision,
 * nowhere else: what is written just past either end is reported. The floating-point environment is
 * round to nearest without flushing, and has to be that again at return: link without -ffast-math,
 * which turns flushing on for the whole process.
 *
 * The layout of every struct is fixed for one HEADROOM_STABILIZER_ABI. What a later minor version
 * adds comes at the end of a struct, and its `size` tells.
 */
#ifndef HEADROOM_STABILIZER_H
#define HEADROOM_STABILIZER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HEADROOM_STABILIZER_ABI 1u

#if defined(__GNUC__)
#define HEADROOM_STABILIZER_EXPORT __attribute__((visibility("default")))
#else
#define HEADROOM_STABILIZER_EXPORT
#endif

/* A floating-point format: the finite numbers are those of `precision` significant bits with
 * exponents emin to emax (of 1.xxx * 2^e), and below 2^emin the subnormals. */
typedef struct headroom_format {
  int32_t precision; /* significant bits with the leading one: FP32 24, BF16 8, FP16 11 */
  int32_t emin;      /* FP32 and BF16 -126, FP16 -14 */
  int32_t emax;      /* FP32 and BF16 127, FP16 15 */
  float largest;     /* largest finite number */
} headroom_format;

typedef struct headroom_kernel headroom_kernel;

/* The head and the kernel's arithmetic, valid from state_bytes to finish. Scores are in log2 units
 * if base is 2, in natural units if base is 0 (e). Sizes are counts of rows and channels. */
struct headroom_kernel {
  uint32_t size; /* sizeof(headroom_kernel) of the caller */
  int32_t base;  /* of the exponential: 2, or 0 for e */
  int64_t queries;
  int64_t keys;        /* without padding */
  int64_t padded_keys; /* with the keys that fill the last tile */
  int64_t channels;    /* of Q and K */
  int32_t key_block;   /* keys a tile */
  int32_t query_block; /* query rows a block: no call brings more rows */
  int32_t fused;       /* 1: the kernel computes x = fma(s, factor, -shift) */
  int32_t reserved;    /* 0 */
  float factor;        /* what stored scores are multiplied by in the exponent stage; 1 if nothing */
  float score_factor;  /* the constant at the score, before or after the store; 1 if none */
  float largest_weight; /* P's largest finite number */
  float largest_value;  /* max |v| over all keys and channels; NaN if any is NaN or infinite */
  float sink;           /* a scaled score where the loop starts with it; NaN: none */
  float softcap;        /* in the unit of scaled scores; NaN: none */
  headroom_format operand;  /* of Q and K as multiplied */
  headroom_format norm;     /* of norms and products of norms */
  headroom_format store;    /* of a mu that is stored before the loop */
  headroom_format exponent; /* of scaled scores, shifts and exponents */
  const void *context;      /* Headroom's own */

  /* Row `row` of Q and key `key` of K, as multiplied (folded constants, centred keys): `channels`
   * numbers. 0 <= row < queries, 0 <= key < keys. */
  const float *(*query)(const headroom_kernel *kernel, int64_t row);
  const float *(*key)(const headroom_kernel *kernel, int64_t key);
  /* Can the row see the key? 1 or 0. */
  int (*sees)(const headroom_kernel *kernel, int64_t row, int64_t key);
  /* The stored score of a row and any key vector, as the kernel computes it: no bias, no mask. */
  float (*score)(const headroom_kernel *kernel, int64_t row, const float *key);
  /* A stored score as the exponent stage scales it. */
  float (*scaled)(const headroom_kernel *kernel, float stored);
  /* y[i] = the exponential unit's answer for x[i], i < n; x and y may be the same array. */
  void (*exponentials)(const headroom_kernel *kernel, const float *x, float *y, size_t n);
  /* A number rounded to nearest into `exponent`, or into `store` as the kernel stores mu. */
  float (*round_exponent)(const headroom_kernel *kernel, double exact);
  float (*round_store)(const headroom_kernel *kernel, double exact);
};

/* A number that the rule leaves open: `--set name=value`. */
typedef struct headroom_parameter {
  const char *name;    /* letters, digits and underscores */
  const char *summary; /* one line */
  double value;        /* the default */
} headroom_parameter;

/* What a gate said. */
typedef struct headroom_gate {
  int32_t accepts;  /* 1: the head runs with the stabilizer */
  int32_t reserved; /* 0 */
  double value;     /* what was compared, log2 units: for people; NaN if there is nothing to show */
  double limit;
} headroom_gate;

/* Set by init, at entry all 0. Offset: P is 2^offset (base 2) or e^offset times too large by
 * intent, as an FP8 kernel's is, and so is the log-sum-exp. */
typedef struct headroom_constants {
  float offset;
  float initial_denominator; /* l before the first tile */
} headroom_constants;

/* Stored scores of one tile: scores[j * stride + r] of key first_key + j and of the block's row r.
 * A hidden key has the score that the kernel's mask left there, minus infinity as a rule. */
typedef struct headroom_tile {
  const float *scores;
  int64_t rows, stride, keys;
  int64_t first_key;
  int64_t tile; /* how many tiles came before in this loop */
  int32_t last; /* 1: no tile follows */
  int32_t reserved;
} headroom_tile;

/* `rows` elements each. At entry: the shift of the tile before (0 at the first), corrections of 1,
 * recompute of 0. */
typedef struct headroom_decision {
  float *shift;       /* what is subtracted from scaled scores */
  float *correction;  /* l and O are multiplied by it before the tile's terms are added */
  uint8_t *recompute; /* 1: throw the row away, the fallback computes it anew */
} headroom_decision;

/* flags */
#define HEADROOM_COUPLES_ROWS 1u   /* a row's decision depends on other rows of its block */
#define HEADROOM_STARTS_AT_SINK 2u /* m starts at the kernel's sink, where there is one */

typedef struct headroom_stabilizer {
  uint32_t abi;  /* HEADROOM_STABILIZER_ABI */
  uint32_t size; /* sizeof(headroom_stabilizer) */
  const char *name;    /* letters, digits, '-' and '_', at most 64 */
  const char *summary; /* one line, with the source */
  const headroom_parameter *parameters;
  size_t parameter_count;
  const char *fallback; /* a built-in stabilizer that recomputes rows ("online-fa2"), or NULL */
  uint32_t flags;
  uint32_t reserved; /* 0 */

  /* `parameters` holds parameter_count values, in the order of the table. */
  size_t (*state_bytes)(const headroom_kernel *kernel, const double *parameters);
  /* The state is zeroed and aligned to 64 bytes. Returns 0, or anything else if the head cannot be
   * run with these parameters. */
  int (*init)(void *state, const headroom_kernel *kernel, const double *parameters,
              headroom_constants *constants);
  /* NULL: every head is accepted. Called once, after init. At entry: accepts 0, NaN and NaN. */
  void (*gate)(void *state, const headroom_kernel *kernel, headroom_gate *gate);
  /* rows[0..n-1], ascending, of one block; element r of tiles and decisions is of row rows[r]. */
  void (*before_loop)(void *state, const headroom_kernel *kernel, const int64_t *rows, int64_t n);
  /* NULL: ascending. `tiles` holds n indices in ascending order; to be permuted. */
  void (*order)(void *state, const headroom_kernel *kernel, int64_t *tiles, int64_t n);
  void (*tile)(void *state, const headroom_kernel *kernel, const headroom_tile *tile,
               const headroom_decision *decision);
  /* NULL: nothing to give back. Called once if init returned 0. */
  void (*finish)(void *state, const headroom_kernel *kernel);
} headroom_stabilizer;

/* The one function that a plug-in exports; what it returns lives as long as the library. */
HEADROOM_STABILIZER_EXPORT const headroom_stabilizer *headroom_stabilizer_entry(void);

/* Row r's largest score in a tile as a GPU's fmax takes it: NaN is dropped. */
static inline float headroom_row_max(const headroom_tile *tile, int64_t r, float start) {
  float m = start;
  for (int64_t j = 0; j < tile->keys; ++j) {
    const float s = tile->scores[j * tile->stride + r];
    if (s > m) m = s;
  }
  return m;
}

#ifdef __cplusplus
}
#endif

#endif
