// What a stabilizer does inside the KV loop: the interface of every rule for mu, built in or not.
//
// A simulator runs the loop over blocks of query rows and tiles of keys. Before each tile's
// exponents it shows the stabilizer the tile's stored scores, and the stabilizer says what is
// subtracted from each row's scores and by what the row's l and O are multiplied first. Everything
// is computed as the kernel computes it: in the kernel's formats, through `LoopArithmetic`.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reference/format/format.h"
#include "reference/model/kernel_model.h"

namespace headroom {

/// The kernel's arithmetic and operands, for one head. Every number is one of the named stage's
/// format (at most 24 bits). Unit of scores: log2 units if the kernel's base is 2, natural if e.
/// Requires, here and in every member of LoopStabilizer: NearestRounding is active.
class LoopArithmetic {
 public:
  virtual ~LoopArithmetic() = default;

  virtual std::int64_t queries() const = 0;
  virtual std::int64_t keys() const = 0;  ///< without padding
  /// keys() and padding: what public rules count.
  virtual std::int64_t padded_keys() const = 0;
  virtual std::int64_t channels() const = 0;
  virtual int key_block() const = 0;  ///< keys a tile
  virtual const KernelModel& model() const = 0;

  /// Rows of Q~ and K~, the operands as multiplied, channels() numbers.
  virtual const float* query(std::int64_t row) const = 0;
  virtual const float* key(std::int64_t key) const = 0;
  /// Can the row see the key?
  virtual bool sees(std::int64_t row, std::int64_t key) const = 0;

  /// The stored score of a row with any key vector of operand-format numbers: product, factor if
  /// it is multiplied before the store, softcap; no bias and no mask.
  virtual float score(std::int64_t row, const float* key) const = 0;
  /// z: a stored score as the exponent stage scales it, RN(s c); s itself if it holds the factor.
  virtual float scaled(float stored_score) const = 0;
  /// c, what the exponent stage multiplies stored scores by; 1 if nothing.
  virtual float factor() const = 0;
  /// The constant at the score site as stored, whether it is multiplied before or after the store;
  /// 1 if none.
  virtual float score_factor() const = 0;
  /// Does the kernel compute x = fma(s, c, -mu)?
  virtual bool fused() const = 0;
  /// The exponent unit, on an exponent rounded to exponent.format.
  virtual float exponential(float x) const = 0;
  /// The same for n numbers; x and y may be the same array.
  virtual void exponentials(const float* x, float* y, std::size_t n) const {
    for (std::size_t i = 0; i < n; ++i) y[i] = exponential(x[i]);
  }
  /// RN into exponent.format, and into stabilizer.store (RU there if round_up).
  virtual float round_exponent(double exact) const = 0;
  virtual float store(double exact) const = 0;
  /// The initial exponent offset that FP8 P asks for is the stabilizer's; this is P's largest
  /// finite number.
  virtual float largest_weight() const = 0;
  /// Largest |v| of all channels of keys(); NaN if any is NaN or infinite.
  virtual float largest_value() const = 0;
  /// The sink as a scaled score where it starts the loop (sink.place = "start"): m starts there,
  /// and the simulator starts l at 1, for rules that start at a sink. Nothing where there is none
  /// or it enters at the end.
  virtual std::optional<float> sink() const = 0;
  /// softcap in the unit of scaled scores (cap, or cap log2(e)), if the problem has one.
  virtual std::optional<float> softcap() const = 0;
};

/// Scores of one tile for the rows of one query block: scores[j * stride + r], j < keys, r < rows.
/// A hidden key's score is what the kernel's mask left there (minus infinity by default). Keys
/// past the row's last tile are not shown.
struct TileScores {
  const float* scores = nullptr;
  std::int64_t rows = 0, stride = 0, keys = 0;
  std::int64_t first_key = 0;
  std::int64_t tile = 0;  ///< how many tiles came before in this loop
  bool last = false;      ///< no tile follows
};

/// What the stabilizer decides for one tile, `rows` elements each, owned by the caller. On entry
/// they hold the previous tile's shift (at the first tile 0), corrections of 1, recompute of 0.
struct TileDecision {
  /// What is subtracted from scaled scores: a number of exponent.format, or of stabilizer.store
  /// for rules that store mu before the loop. It holds minus offset().
  float* shift = nullptr;
  /// l and O are multiplied by this before the tile's terms are added; 1 leaves them alone.
  float* correction = nullptr;
  /// Set to 1: the row's result is thrown away and computed anew by the fallback.
  std::uint8_t* recompute = nullptr;
};

class LoopStabilizer {
 public:
  virtual ~LoopStabilizer() = default;
  virtual std::string_view name() const = 0;

  /// Once a head, before any row: the place for norms, block keys and tables.
  virtual void init(const LoopArithmetic& kernel) = 0;
  /// The head's own gate, as the kernel computes it; true if it has none.
  virtual bool gate() const { return true; }
  /// Does a row's decision depend on other rows of its query block? Then whole blocks are run;
  /// else any ascending choice of a block's rows.
  virtual bool couples_rows() const { return false; }
  /// These query rows, all of one query block and ascending, start a loop over keys (once more for
  /// each part of a split range). State of the rows is reset here; `rows` stays valid until the
  /// next call. Element r of a tile's scores and decision is of row rows[r].
  virtual void before_loop(std::span<const std::int64_t> rows) = 0;
  /// The order in which the block visits tiles; `tiles` holds their indices in ascending order.
  virtual void order(std::vector<std::int64_t>& tiles) const { static_cast<void>(tiles); }
  virtual void tile(const TileScores& scores, const TileDecision& decision) = 0;

  /// Does m start at the kernel's sink(), if there is one? With other rules, whose mu no sink
  /// moves, it enters after the last key wherever the kernel says.
  virtual bool starts_at_sink() const { return false; }
  /// l before the first tile, for rules that do not start at 0.
  virtual float initial_denominator() const { return 0; }
  /// log2 (base 2) or natural units: P is 2^offset times too large by intent, so LSE is that much
  /// too large too. FA3's and FA4's FP8 offset.
  virtual float offset() const { return 0; }
  /// The stabilizer that recomputes rows; empty if no row is ever given up.
  virtual std::string_view fallback() const { return {}; }
};

/// Named numbers that a rule leaves open ("threshold", "safety", "sink_blocks", ...).
using LoopParameters = std::map<std::string, double>;

/// One stabilizer of the list: what it is, and its parameters with their defaults.
struct LoopDescription {
  std::string name;
  std::string summary;  ///< one line, with the source
  LoopParameters parameters;
};
/// Every built-in stabilizer, in the order of the documents.
const std::vector<LoopDescription>& loop_stabilizers();

/// Throws InputError that lists the names, or the parameters, it knows.
std::unique_ptr<LoopStabilizer> make_loop_stabilizer(const std::string& name,
                                                     const LoopParameters& parameters = {});

}  // namespace headroom
