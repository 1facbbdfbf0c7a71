// The first rung: enclosures of O and LSE of many rows in vectorised doubles, with proved errors.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "reference/evaluate/ladder/kernels.h"
#include "reference/evaluate/ladder/problem.h"

namespace headroom {

/// What the first rung found about a row.
enum class RowKind : std::uint8_t {
  enclosed,   ///< lo, hi and the LSE hold the exact values
  empty,      ///< no visible key
  undefined,  ///< the query or a visible key, value or bias is NaN or infinite
  unknown,    ///< beyond the range of this rung; nothing is said
};

/// Doubles that a resize leaves unset.
template <class T>
struct UnsetAllocator : std::allocator<T> {
  template <class U>
  struct rebind {
    using other = UnsetAllocator<U>;
  };
  template <class U>
  void construct(U* p) {
    ::new (static_cast<void*>(p)) U;
  }
  template <class U, class... Args>
  void construct(U* p, Args&&... args) {
    ::new (static_cast<void*>(p)) U(std::forward<Args>(args)...);
  }
};
using UnsetDoubles = std::vector<double, UnsetAllocator<double>>;

/// Enclosures of some rows. Outputs are row-major, rows x dv.
struct RowEnclosures {
  std::vector<RowKind> kind;
  UnsetDoubles lo, hi;
  std::vector<double> lse2_lo, lse2_hi;  ///< log2 of l
};

/// Exact scaling constants of a problem as pairs of doubles (relative error 2^-105).
struct ScaleConstants {
  double c_hi, c_lo;         ///< log2 units a unit of <q, k>
  double cap_hi, cap_lo;     ///< softcap log2(e), 0 without
  double w_hi, w_lo;         ///< 2 scale log2(e) / softcap, 0 without
  double natural_magnitude;  ///< upper bound of |s|, natural units a unit of <q, k>
  explicit ScaleConstants(const AttentionProblem& problem);
};

/// Norms, grids and column bounds of one problem, computed once; then rows in any order and from
/// any thread. Memory: a byte a key and at most 214 dv doubles; a block of rows adds
/// O(rows (d + 3 dv)) and one tile.
///
/// Requires: problem.validate() passed; the problem outlives the rung; every call under
/// NearestRounding.
class VectorRung {
 public:
  VectorRung(const AttentionProblem& problem, InstructionSet set);

  /// Rows best handled together: the block size is a multiple of a panel's.
  std::int64_t panel_rows() const { return kernels_->panel_rows; }
  InstructionSet instruction_set() const { return kernels_->set; }

  /// A vector's squared norm, rounded up, and the quarter bits by which it exceeds the grid of its
  /// elements: scores of two vectors are exact if these add to at most 4 * 53.
  struct Reach {
    double square = 0;
    int quarters = 0;
    bool finite = true;
    double norm() const;  ///< rounded up
  };
  Reach reach(const Format& format, const double* x) const;
  /// Of a key of keys(): its reach in quarter bits, and a bound of the norms of keys of that reach.
  int key_reach(std::int64_t j) const { return key_reach_[static_cast<std::size_t>(j)]; }
  double norm_of_reach(int quarters) const {
    return reach_norm_[static_cast<std::size_t>(quarters)];
  }
  /// How many keys have that reach or more.
  std::int64_t keys_of_reach(int quarters) const {
    return reach_count_[static_cast<std::size_t>(quarters)];
  }

  /// One row of an operand as doubles.
  void load(const Matrix& m, std::int64_t row, double* out) const;
  const ScaleConstants& constants() const { return constants_; }

  /// empty, undefined, or unknown: from the row's visible keys, one by one.
  RowKind scan(std::int64_t row) const;

  RowEnclosures enclose(std::span<const std::int64_t> rows) const;

  /// Is key j, or its value row, NaN or infinite?
  bool bad_key(std::int64_t j) const { return !bad_.empty() && bad_[static_cast<std::size_t>(j)]; }
  bool any_bad_key() const { return !bad_.empty(); }

 private:
  struct RowFacts;
  struct Block;

  Reach reach(const Format& format, double squares, double least) const;
  void measure_keys(bool check_values);
  RowFacts facts_of(std::int64_t row, double* query) const;

  const AttentionProblem* problem_;
  const LadderKernels* kernels_;
  ScaleConstants constants_;
  std::int64_t d_, dv_, dv4_;
  KeyRange keys_;  ///< union of the rows' ranges
  std::vector<std::uint8_t> bad_;
  double key_norm_ = 0;  ///< largest |k|
  std::vector<std::uint8_t> key_reach_;
  // Keys by reach: quarter bits of |k| over the grid of its elements. At index a: of all keys of
  // reach a or more, how many, their largest norm, and where the column norms of their values are.
  std::vector<std::int64_t> reach_count_;
  std::vector<double> reach_norm_, reach_v_norm_;
  std::vector<std::size_t> reach_row_;
  std::vector<double> vmax_, v_norm_;
  double sink_hi_ = 0, sink_lo_ = 0;  ///< sink log2(e)
  bool split_all_ = false;
};

}  // namespace headroom
