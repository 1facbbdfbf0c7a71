// The arithmetic of one attention kernel on one machine, as data.
//
// An immutable description with three interpreters: exact (reference/evaluate), simulated and
// bounded (bounds/, certify/). Nothing may be a parameter of one and absent in another. Read from a
// kernel file (kernel_file.h, docs/kernel_file.md); presets in presets.cpp.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "reference/format/format.h"

namespace headroom {

/// How well a fact of a machine is known.
enum class Evidence : std::uint8_t { measured, documented, assumed };

/// Order in which an accumulator adds `count` terms.
enum class OrderKind : std::uint8_t {
  sequential,  ///< one after another
  tile,        ///< `size` terms a tile in any order, tile sums added one after another
  pairwise,    ///< balanced binary tree
  lanes,       ///< `size` partial sums, lane j adds terms j, j + size, ...; then lanes in any order
  matrix_unit,  ///< blocks of `size` terms and the accumulator aligned to the largest exponent,
                ///< each truncated to `fraction_bits` below it, summed exactly, then truncated
  any,          ///< any association: no assumption
};
struct AccumulationOrder {
  OrderKind kind = OrderKind::any;
  int size = 0;           ///< tile, lanes: terms or lanes; matrix_unit: terms a step (k)
  int fraction_bits = 0;  ///< matrix_unit: F
  bool operator==(const AccumulationOrder&) const = default;
};

/// One accumulator: format of partial sums, order, and whether subnormal partial sums flush.
struct Accumulator {
  Format format = fp32;
  AccumulationOrder order;
  bool flush_to_zero = false;
  /// Products are rounded and may flush before they are added (no fused multiply-add).
  bool rounded_products = false;
  /// Subnormal terms, and operands of products, are read as zeros; partial sums are not.
  bool denormals_are_zero = false;
  bool operator==(const Accumulator&) const = default;
};

/// Where a constant factor of the scores is multiplied in.
enum class FactorSite : std::uint8_t {
  query,  ///< into Q before the product, result rounded to the operand format
  key,    ///< into K before centring, result rounded to the operand format
  score,  ///< into the accumulated score
};
/// z = c <q, k>: where the softmax scale s and log2(e) enter. Two factors at one site are one
/// constant, rounded once to `constant`. With `--scale-log2` only c enters, where `scale` says.
struct ScaleFolding {
  FactorSite scale = FactorSite::score;
  FactorSite log2e = FactorSite::score;
  Format constant = fp32;    ///< format of the stored constant(s), RNE
  Format arithmetic = fp32;  ///< Q and K products are rounded to this, then to the operand format
  bool operator==(const ScaleFolding&) const = default;
};

enum class Centring : std::uint8_t {
  none,
  mean,     ///< K~ = RN(K - mean) is what the matrix unit multiplies
  virtual_  ///< K stays; mu_i = BoundUp(|q_i| max |k - mean|) + <q_i, mean> - C
};
/// Key centring. The mean is over all keys that are not padding, summed in FP32 in any order.
struct KeyCentring {
  Centring keys = Centring::none;
  Format mean = bf16;        ///< format the mean is rounded to (RNE)
  Format difference = bf16;  ///< format of K - mean (RNE); mean centring only
  bool operator==(const KeyCentring&) const = default;
};

/// How a capped score cap * tanh(s / cap) is computed, u = s / cap.
enum class SoftcapFormula : std::uint8_t {
  tanh,       ///< tanh u, correctly rounded
  exp_ratio,  ///< (e^u - e^-u) / (e^u + e^-u)
  logistic,   ///< 1 - 2 / (e^2u + 1)
};
/// Scores as the kernel holds them.
struct ScoreStage {
  Accumulator accumulator;
  Format store = fp32;  ///< format the score is held in before the exponent
  /// `scale_before_store`: the score-site constant multiplies before the rounding to `store`.
  bool scale_before_store = true;
  SoftcapFormula softcap = SoftcapFormula::tanh;
  bool operator==(const ScoreStage&) const = default;
};

enum class MaskForm : std::uint8_t {
  select,    ///< a hidden score is replaced by the value
  additive,  ///< the value is added to it, in score.store
};
/// What becomes of the score of a hidden key that is computed. Scores that are wholly outside of
/// the row's range of tiles are not computed.
struct MaskStage {
  MaskForm form = MaskForm::select;
  /// In the unit of the stored score. Minus infinity, or a finite stand-in for it.
  double value = -std::numeric_limits<double>::infinity();
  bool operator==(const MaskStage&) const = default;
};

/// Where a sink, a key without a value, enters.
enum class SinkPlace : std::uint8_t {
  end,    ///< l += E(sink - mu) after the last key: the sink has no part in mu
  start,  ///< the loop starts with m = sink and l = 1 (of later parts: l = 0)
};

enum class ExponentBase : std::uint8_t { two, e };
/// x = z - mu.
struct ExponentStage {
  Format format = fp32;
  bool fused = false;  ///< x = fma(s, c, -mu): no rounding of s c
  /// e: the unit computes e^x, and scores are never multiplied by log2(e).
  ExponentBase base = ExponentBase::two;
  bool operator==(const ExponentStage&) const = default;
};

/// A model of an exp2 unit: what is promised of E(x).
struct Exp2Unit {
  /// "correctly-rounded", "ulp:K" (K = max_error_ulps, no promise at integers), "ex2.approx.ftz",
  /// or "fa4-poly1" to "fa4-poly5": FlashAttention-4's polynomials, edges included.
  std::string name = "correctly-rounded";
  Format result = fp32;
  /// Largest error in ulps of the result for normal results; 0.5 is correct rounding to nearest.
  double max_error_ulps = 0.5;
  bool flush_to_zero = false;        ///< results below the smallest normal become 0
  bool monotone_at_integers = true;  ///< E(k) <= 2^k and E(k) = 2^k for integer k in range
  bool propagates_nan = true;
  Evidence evidence = Evidence::assumed;
  std::string source;
  /// No result is below this, that of minus infinity included: hardware that never gives zero.
  double floor = 0;
  bool operator==(const Exp2Unit&) const = default;
};

/// FlashAttention-4's polynomial of degree 1 to 5 on [0, 1) ("fa4-poly3"), as a unit with what is
/// promised of it for -126 <= x < 128; nothing for other names.
std::optional<Exp2Unit> fa4_polynomial(const std::string& name);

/// P as stored for P.V.
struct WeightStage {
  Format format = bf16;
  bool saturate = false;
  bool flush_to_zero = false;
  /// The denominator adds P after (true) or before (false) its rounding to `format`.
  bool denominator_rounded = false;
  bool operator==(const WeightStage&) const = default;
};

enum class Division : std::uint8_t { divide, reciprocal };
enum class DenominatorGuard : std::uint8_t {
  none,
  zero_to_one,   ///< l == 0 (or NaN) is replaced by 1
  zero_to_zero,  ///< 1 / l is replaced by 0 if l == 0 (or NaN)
  maximum,       ///< l = max(l, guard_value)
};
/// Final normalisation O / l.
struct Normalisation {
  Division division = Division::divide;
  double reciprocal_max_error_ulps = 0.5;
  bool reciprocal_flush_to_zero = false;
  bool reciprocal_exact_at_powers_of_two = true;
  DenominatorGuard guard = DenominatorGuard::none;
  double guard_value = 0;
  Format output = bf16;
  Evidence evidence = Evidence::assumed;
  std::string source;
  /// O is divided by l after every tile, and multiplied by it before the next.
  bool every_tile = false;
  bool operator==(const Normalisation&) const = default;
};

/// The stored stabilizer mu and the norms behind it.
struct StabilizerStage {
  Format norm = fp32;    ///< format of norms and their product
  Format store = fp32;   ///< format of the stored mu
  bool round_up = true;  ///< mu is rounded toward +infinity (clis); else RNE
  bool operator==(const StabilizerStage&) const = default;
};

enum class GateSides : std::uint8_t { two_sided, one_sided };
enum class GateUnit : std::uint8_t { head, head_over_batch };
/// Parameters of published gates.
struct GateParameters {
  double vmax = 256;                       ///< fixed-m-n: largest |V| it admits
  GateSides sides = GateSides::two_sided;  ///< fixed-m-n
  GateUnit unit = GateUnit::head;
  int query_block = 0;  ///< fixed-m-n: rows that share mu; 0: one row
  bool operator==(const GateParameters&) const = default;
};

enum class Padding : std::uint8_t {
  sliced,    ///< the ragged tail is never computed
  masked,    ///< padded keys get score -inf by selection: P = 0 exactly
  zero_keys  ///< padded keys are zero rows of K and V, their P is added to l
};
enum class EmptyRowRule : std::uint8_t {
  zero,          ///< O = 0, LSE = -inf (the reference's convention)
  zero_pos_inf,  ///< O = 0, LSE = +inf
  mean_of_visited,
  nan
};
struct Tiling {
  int keys = 128;  ///< KV block
  Padding padding = Padding::sliced;
  EmptyRowRule empty_row = EmptyRowRule::zero;
  int queries = 128;  ///< query block: the rows that tile rules of stabilizers look at together
  bool operator==(const Tiling&) const = default;
};

/// How the parts of a split KV range, or the hops of a ring, are joined.
enum class MergeRule : std::uint8_t {
  lse,         ///< weights E(LSE - max LSE); a part of LSE = -infinity weighs 0
  lse_naive,   ///< two at a time in order, without care for two without keys: inf - inf
  lse_log1p,   ///< LSE = a + ln(1 + e^(b - a)) in the order of the parts: b - a may be positive
  accumulate,  ///< O and l are added: every part has the same mu
};
/// Far more parts than any grid of a GPU has blocks for one head; what each part holds is kept
/// until the merge.
inline constexpr int max_split_parts = 4096;
struct SplitStage {
  int parts = 1;  ///< contiguous parts of whole tiles, as equal as can be
  MergeRule merge = MergeRule::lse;
  /// The base that the merge takes LSE to have; [lse] base says which it has.
  ExponentBase reads = ExponentBase::e;
  bool operator==(const SplitStage&) const = default;
};

/// The log-sum-exp as delivered: ln or log2 of the sum.
struct LseStage {
  ExponentBase base = ExponentBase::e;
  bool operator==(const LseStage&) const = default;
};

/// Facts of the chip, with how well each is known; each `assumed` one becomes a named assumption
/// of every certificate.
struct MachineFact {
  std::string id;  ///< e.g. "exp2.error", "matrix-unit.order", "reciprocal.flush"
  std::string text;
  Evidence evidence = Evidence::assumed;
  std::string source;
  bool operator==(const MachineFact&) const = default;
};

struct KernelModel {
  std::string name;
  std::string machine;
  Format operand = bf16;  ///< stored format of Q, K, V that the kernel reads
  ScaleFolding scale;
  KeyCentring centring;
  ScoreStage score;
  MaskStage mask;
  SinkPlace sink = SinkPlace::end;
  ExponentStage exponent;
  Exp2Unit exp2;
  WeightStage p;
  Accumulator denominator;
  Accumulator numerator;
  Normalisation normalise;
  StabilizerStage stabilizer;
  GateParameters gate;
  Tiling tiles;
  SplitStage split;
  LseStage lse;
  std::vector<MachineFact> facts;
  bool operator==(const KernelModel&) const = default;
};

/// What of a model is simulated but not bounded, as "key = value": the certifier decides nothing
/// about a kernel for which this is not empty.
std::vector<std::string> simulated_only(const KernelModel& model);

/// Flush thresholds in log2 units (theory.md, notation): a value of exponent >= L is not lost.
/// FTZ: the smallest normal exponent; gradual: the exponent of the smallest subnormal.
constexpr int flush_exponent(const Format& f, bool flush_to_zero) {
  return flush_to_zero ? f.emin : f.least_exponent();
}

/// Text forms used by kernel files, certificates and messages.
std::string to_text(Evidence e);
std::string to_text(FactorSite site);
std::string to_text(Centring keys);
std::string to_text(Division division);
std::string to_text(DenominatorGuard guard);
std::string to_text(GateSides sides);
std::string to_text(GateUnit unit);
std::string to_text(Padding padding);
std::string to_text(EmptyRowRule rule);
std::string to_text(SoftcapFormula formula);
std::string to_text(MaskForm form);
std::string to_text(SinkPlace place);
std::string to_text(ExponentBase base);
std::string to_text(MergeRule rule);
std::string to_text(const AccumulationOrder& order);     ///< "tile:64", "matrix-unit:25:16", ...
AccumulationOrder parse_order(const std::string& text);  ///< throws std::invalid_argument

/// The one spelling of "ulp:K", exact: a decimal for sixteenths of an ulp, else hexadecimal.
std::string ulp_unit_name(double ulps);

/// The formats that a key (`section.key`) of a kernel file may name.
std::vector<const Format*> formats_of_key(const std::string& key);

/// Why a model is no model: the keys concerned (`section.key`, most telling first), what was found
/// and what was expected.
struct ModelProblem {
  std::vector<std::string> keys;
  std::string found, expected;
};
/// The first problem of a model, or nothing. Checked: every format is one its stage can have,
/// every number is in range, and no two fields contradict each other (DESIGN.md, "Kernel model").
std::optional<ModelProblem> find_problem(const KernelModel& model);
/// Throws InputError "kernel NAME: key: found X, expected Y" if find_problem finds one.
void validate(const KernelModel& model);

}  // namespace headroom
