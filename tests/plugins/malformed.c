/* Libraries that are no plug-ins, chosen by WRONG. */
#include <stddef.h>

#include "headroom_stabilizer.h"

#define NO_ENTRY 1
#define NULL_TABLE 2
#define OTHER_ABI 3
#define SHORT_TABLE 4
#define BAD_NAME 5
#define NO_TILE 6
#define TWICE_A_PARAMETER 7
#define NO_SUCH_FALLBACK 8
#define UNKNOWN_FLAGS 9

static size_t state_bytes(const headroom_kernel *kernel, const double *parameters) {
  (void)kernel, (void)parameters;
  return 0;
}
static int init(void *state, const headroom_kernel *kernel, const double *parameters,
                headroom_constants *constants) {
  (void)state, (void)kernel, (void)parameters, (void)constants;
  return 0;
}
static void before_loop(void *state, const headroom_kernel *kernel, const int64_t *rows,
                        int64_t n) {
  (void)state, (void)kernel, (void)rows, (void)n;
}
static void tile(void *state, const headroom_kernel *kernel, const headroom_tile *given,
                 const headroom_decision *decision) {
  (void)state, (void)kernel, (void)given, (void)decision;
}

static const headroom_parameter parameters[] = {{"x", "", 0}, {"x", "", 0}};

static const headroom_stabilizer table = {
    .abi = WRONG == OTHER_ABI ? 1000 : HEADROOM_STABILIZER_ABI,
    .size = WRONG == SHORT_TABLE ? 16 : sizeof(headroom_stabilizer),
    .name = WRONG == BAD_NAME ? "a name\nof two lines" : "malformed",
    .summary = "",
    .parameters = parameters,
    .parameter_count = WRONG == TWICE_A_PARAMETER ? 2 : 0,
    .fallback = WRONG == NO_SUCH_FALLBACK ? "online-nothing" : NULL,
    .flags = WRONG == UNKNOWN_FLAGS ? 0x80 : 0,
    .state_bytes = state_bytes,
    .init = init,
    .before_loop = before_loop,
    .tile = WRONG == NO_TILE ? NULL : tile,
};

#if WRONG == NO_ENTRY
const void *something_else(void);
const void *something_else(void) { return &table; }
#else
HEADROOM_STABILIZER_EXPORT const headroom_stabilizer *headroom_stabilizer_entry(void) {
  return WRONG == NULL_TABLE ? NULL : &table;
}
#endif
