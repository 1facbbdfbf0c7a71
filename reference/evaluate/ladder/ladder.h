// Exact attention, correctly rounded: the ladder of rungs over whole heads.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "reference/evaluate/ladder/decision.h"
#include "reference/evaluate/ladder/problem.h"
#include "reference/evaluate/ladder/wide_row.h"
#include "reference/evaluate/vector/kernels.h"

namespace headroom {

struct LadderOptions {
  Target output;
  Target lse;
  LseBase lse_base = LseBase::natural;
  InstructionSet instruction_set = best_instruction_set();
  /// The first rung may be left out (tests of the others).
  bool use_vector_rung = true, use_pair_rung = true;
  /// Called from any thread with the number of rows done.
  std::function<void(std::int64_t)> rows_done;
};

/// Elements by what decided them, and what it took.
struct RungCounts {
  static constexpr std::size_t rungs = 7;
  std::int64_t output[rungs] = {};  ///< by Rung
  std::int64_t lse[rungs] = {};
  /// Thread seconds in the first, second and third rung.
  double seconds[3] = {};
  std::int64_t cascaded_keys = 0;  ///< scores that the second rung could not certify as exact
  std::int64_t widest_bits = 0;    ///< largest precision of the third rung

  std::int64_t of(Rung rung) const {
    const auto i = static_cast<std::size_t>(rung);
    return output[i] + lse[i];
  }
  RungCounts& operator+=(const RungCounts& other);
};
/// "vector", "double-double", "wide", "tie", "defined", "undefined", "undecided".
const char* name(Rung rung);

/// An element that no rung decided. Channel -1 is the row's LSE.
struct UndecidedElement {
  std::int64_t row, channel;
};

/// Little-endian words of storage_bytes() each.
struct RoundedRows {
  std::vector<std::int64_t> rows;
  Format output_format = fp32, lse_format = fp32;
  std::int64_t channels = 0;
  std::vector<std::byte> output;  ///< rows x dv
  std::vector<std::byte> lse;     ///< rows
  RungCounts counts;
  std::vector<UndecidedElement> undecided;  ///< by row, at most 1000 of them

  std::uint64_t output_code(std::size_t row, std::int64_t channel) const;
  std::uint64_t lse_code(std::size_t row) const;
};

/// O and LSE of the given rows, each element correctly rounded to its target: the code is that of
/// the exact real number rounded once. Rows without visible keys: O = +0, LSE = -infinity (or the
/// sink). Rows with a NaN or an infinity in their query, or in a visible key, value or bias, are
/// undefined: canonical NaN. Parallel over blocks of rows. Throws InputError from validate().
RoundedRows correctly_rounded(const AttentionProblem& problem, std::span<const std::int64_t> rows,
                              const LadderOptions& options);

/// Enclosures of O and LSE by the cheapest rung that gives one; every element within [lo, hi].
/// Undefined rows have the whole line. `counts` says which rung.
struct EnclosedRows {
  std::vector<std::int64_t> rows;
  std::int64_t channels = 0;
  std::vector<double> output_lo, output_hi;  ///< rows x dv
  std::vector<double> lse_lo, lse_hi;
  RungCounts counts;
};
EnclosedRows enclosures(const AttentionProblem& problem, std::span<const std::int64_t> rows,
                        const LadderOptions& options);

/// All rows, 0 .. Nq - 1.
std::vector<std::int64_t> all_rows(const AttentionProblem& problem);

}  // namespace headroom
