#include "fuzz/shrink.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <unordered_set>
#include <utility>

#include "reference/evaluate/ladder/ladder.h"
#include "reference/input_error.h"

namespace headroom::fuzz {
namespace {

using Indices = std::vector<std::int64_t>;

Indices up_to(std::int64_t n) {
  Indices all(static_cast<std::size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// --- Parts of heads

/// A matrix's chosen columns of its chosen rows; 1 row stands for all.
template <class T>
std::vector<T> part(const std::vector<T>& x, std::int64_t columns, const Indices& rows,
                    const Indices& chosen) {
  const bool one_row = static_cast<std::int64_t>(x.size()) == columns;
  std::vector<T> result;
  for (const std::int64_t i : one_row ? Indices{0} : rows) {
    for (const std::int64_t j : chosen)
      result.push_back(x[static_cast<std::size_t>(i * columns + j)]);
  }
  return result;
}

/// Which keys the prefix mask, the padding and the window let a row see.
KeyRange range_of(const Candidate& c, std::int64_t row) {
  Visibility v;
  v.kind = c.setting.mask;
  v.queries = c.shape.queries;
  v.keys = c.shape.keys;
  v.length = c.length();
  ScoreModifiers m;
  m.window = c.setting.window;
  return m.range(v, row);
}

/// These rows and keys alone, each pair as visible as before: by the mask that was there if it
/// still says so, else by a boolean one.
Candidate select(const Candidate& c, const Indices& rows, const Indices& keys) {
  Candidate s;
  s.shape = c.shape;
  s.shape.queries = static_cast<std::int64_t>(rows.size());
  s.shape.keys = static_cast<std::int64_t>(keys.size());
  s.q = part(c.q, c.shape.channels, rows, up_to(c.shape.channels));
  s.k = part(c.k, c.shape.channels, keys, up_to(c.shape.channels));
  s.v = part(c.v, c.shape.value_channels, keys, up_to(c.shape.value_channels));
  s.setting = c.setting;
  Setting& g = s.setting;
  if (!g.query_segments.empty()) {
    g.query_segments = part(g.query_segments, c.shape.queries, {0}, rows);
    g.key_segments = part(g.key_segments, c.shape.keys, {0}, keys);
  }
  if (!g.visible.empty()) g.visible = part(g.visible, c.shape.keys, rows, keys);
  if (!g.bias.empty()) g.bias = part(g.bias, c.shape.keys, rows, keys);
  const auto length = static_cast<std::int64_t>(
      std::lower_bound(keys.begin(), keys.end(), c.length()) - keys.begin());
  g.length = length == s.shape.keys ? -1 : length;
  const auto sees = [&](std::size_t i, std::size_t j) {
    const KeyRange range = range_of(c, rows[i]);
    return keys[j] >= range.begin && keys[j] < range.end;
  };
  const auto as_before = [&] {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const KeyRange was = range_of(c, rows[i]), is = range_of(s, static_cast<std::int64_t>(i));
      const auto place = [&](std::int64_t key) {
        return static_cast<std::int64_t>(std::lower_bound(keys.begin(), keys.end(), key) -
                                         keys.begin());
      };
      const std::int64_t begin = place(was.begin), end = std::max(begin, place(was.end));
      if (end - begin != is.count() || (end > begin && begin != is.begin)) return false;
    }
    return true;
  };
  if ((g.mask != MaskKind::none || g.window) && !as_before()) {
    if (g.mask == MaskKind::causal) g.mask = MaskKind::causal_bottom_right;
    if (as_before()) return s;
    g.mask = MaskKind::none;
    g.window.reset();
    if (as_before()) return s;
    std::vector<std::uint8_t> all;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      for (std::size_t j = 0; j < keys.size(); ++j) {
        const std::size_t at = g.visible.size() == keys.size() ? j : i * keys.size() + j;
        all.push_back(sees(i, j) && (g.visible.empty() || g.visible[at] != 0));
      }
    }
    g.visible = all;
  }
  return s;
}

/// These channels of Q and K alone.
Candidate with_channels(const Candidate& c, const Indices& channels) {
  Candidate s = c;
  s.shape.channels = static_cast<std::int64_t>(channels.size());
  s.q = part(c.q, c.shape.channels, up_to(c.shape.queries), channels);
  s.k = part(c.k, c.shape.channels, up_to(c.shape.keys), channels);
  return s;
}
Candidate with_value_channels(const Candidate& c, const Indices& channels) {
  Candidate s = c;
  s.shape.value_channels = static_cast<std::int64_t>(channels.size());
  s.v = part(c.v, c.shape.value_channels, up_to(c.shape.keys), channels);
  return s;
}

double dot(const float* a, const float* b, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

/// max |q| max |k - mean|, or max |k|: what gates look at, roughly.
double gate_product(const Candidate& c, bool centred) {
  const auto d = static_cast<std::size_t>(c.shape.channels);
  std::vector<double> mean(d, 0.0);
  for (std::int64_t j = 0; centred && j < c.length(); ++j) {
    for (std::size_t t = 0; t < d; ++t) mean[t] += c.key(j)[t] / static_cast<double>(c.length());
  }
  double q = 0, k = 0;
  for (std::int64_t i = 0; i < c.shape.queries; ++i) {
    q = std::max(q, dot(c.query(i), c.query(i), c.shape.channels));
  }
  for (std::int64_t j = 0; j < c.length(); ++j) {
    double square = 0;
    for (std::size_t t = 0; t < d; ++t) {
      square += (c.key(j)[t] - mean[t]) * (c.key(j)[t] - mean[t]);
    }
    k = std::max(k, square);
  }
  return std::sqrt(q) * std::sqrt(k);
}

/// Q times a factor, rounded to its format.
Candidate scaled(const Candidate& c, double factor, const Format& operand) {
  Candidate s = c;
  for (float& x : s.q) x = operand_number(operand, x * factor);
  return s;
}

/// One row's head with the same scores and norms in two channels: along q, and across it with the
/// signs of `sign`.
template <class Sign>
Candidate in_two_channels(const Candidate& c, const Format& operand, const Sign& sign) {
  const double norm = std::sqrt(dot(c.query(0), c.query(0), c.shape.channels));
  Candidate s = c;
  s.shape.channels = 2;
  s.q = {operand_number(operand, norm), 0};
  s.k.clear();
  for (std::int64_t j = 0; j < c.shape.keys; ++j) {
    const double along = norm > 0 ? dot(c.query(0), c.key(j), c.shape.channels) / norm : 0;
    const double square = dot(c.key(j), c.key(j), c.shape.channels) - along * along;
    s.k.push_back(operand_number(operand, along));
    s.k.push_back(operand_number(operand, sign(j) * std::sqrt(std::max(0.0, square))));
  }
  return s;
}

// --- Simpler numbers

/// x with at most `digits` binary digits, to nearest.
float shortened(float x, int digits) {
  if (x == 0 || !std::isfinite(x)) return x;
  const int place = std::ilogb(x) - digits + 1;
  return static_cast<float>(
      std::ldexp(std::nearbyint(std::ldexp(static_cast<double>(x), -place)), place));
}

/// How far a number is from simple: 0 none, powers of two next, then by digits; small integers are
/// simpler than other numbers of as many.
int complexity(float x) {
  if (x == 0) return std::signbit(x) ? 1 : 0;
  if (!std::isfinite(x)) return 2;
  if (x == 1) return 3;
  if (x == -1) return 4;
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t significand = (bits & 0x7fffffU) | 0x800000U;
  const int digits = 24 - std::countr_zero(significand);
  const bool small_integer = x == std::floor(x) && std::fabs(x) <= 4096;
  return 4 + 4 * digits + (small_integer ? 0 : 2) + (x < 0 ? 1 : 0);
}

class Shrinker {
 public:
  Shrinker(const Finding& finding, const ShrinkOptions& options)
      : target_(finding.target),
        objective_(finding.objective),
        options_(options),
        best_(finding.candidate) {
    diagnosis_ = diagnosed(best_);
    stage_ = diagnosis_.stage;
    claim_ = diagnosis_.claim;
  }

  Finding run() {
    if (diagnosis_.met) {
      constexpr int rounds = 6;
      for (int round = 0; round < rounds && !spent(); ++round) {
        const Candidate before = best_;
        fewer_rows();
        fewer_keys();
        fewer_value_channels();
        fewer_channels();
        fewer_keys();
        simpler_setting();
        simpler_numbers();
        if (best_ == before) break;
      }
    }
    Finding f;
    f.target = target_;
    f.objective = objective_;
    f.candidate = best_;
    f.diagnosis = diagnosis_;
    f.text = explain(target_, best_, diagnosis_);
    return f;
  }

 private:
  const Format& operand() const { return target_.kernel.operand; }
  bool spent() const { return runs_ >= options_.most_runs; }

  Diagnosis diagnosed(const Candidate& c) {
    ++runs_;
    Diagnosis d = diagnose(target_, c, objective_);
    if (options_.progress) options_.progress(runs_, best_);
    return d;
  }

  static std::uint64_t hash(const Candidate& c) {
    std::uint64_t h = 0xcbf29ce484222325U;
    const auto mix = [&](std::uint64_t x) { h = (h ^ x) * 0x9e3779b97f4a7c15U, h ^= h >> 29; };
    for (const std::int64_t n :
         {c.shape.queries, c.shape.keys, c.shape.channels, c.shape.value_channels}) {
      mix(static_cast<std::uint64_t>(n));
    }
    for (const auto* x : {&c.q, &c.k, &c.v, &c.setting.bias}) {
      for (const float a : *x) mix(std::bit_cast<std::uint32_t>(a));
    }
    const Setting& s = c.setting;
    mix(static_cast<std::uint64_t>(s.mask) + 16 * static_cast<std::uint64_t>(s.length + 1));
    if (s.window) mix(static_cast<std::uint64_t>(s.window->left * 1000003 + s.window->right + 7));
    for (const auto* x : {&s.query_segments, &s.key_segments}) {
      for (const std::int32_t a : *x) mix(static_cast<std::uint64_t>(a) + 3);
    }
    for (const std::uint8_t a : s.visible) mix(a + std::uint64_t{5});
    if (s.softcap) mix(std::bit_cast<std::uint64_t>(*s.softcap));
    if (s.sink) mix(std::bit_cast<std::uint64_t>(*s.sink) + 1);
    return h;
  }

  /// What a run of the fast simulator can rule out.
  bool plausible(const Candidate& c) const {
    const bool looks = objective_ == Objective::non_finite || objective_ == Objective::zero_row ||
                       target_.gate == GateChoice::own;
    const bool has_table = target_.stabilizer == "clis" && !target_.parameters.contains("cap");
    if (!looks || has_table || target_.gate == GateChoice::certified) return true;
    try {
      const AttentionProblem problem = problem_of(c, operand(), target_.scale_of(c.shape));
      const auto loop = make_loop_stabilizer(target_.stabilizer, target_.parameters);
      const Simulated run =
          simulate(problem, target_.kernel, *loop, all_rows(problem), target_.how);
      if (target_.gate == GateChoice::own &&
          run.gate == (objective_ == Objective::needless_fallback)) {
        return false;
      }
      const auto bad = [](float x) { return !std::isfinite(x); };
      if (objective_ == Objective::non_finite) {
        return std::any_of(run.output.begin(), run.output.end(), bad) ||
               std::any_of(run.lse.begin(), run.lse.end(), bad);
      }
      if (objective_ == Objective::zero_row) {
        const auto dv = static_cast<std::ptrdiff_t>(c.shape.value_channels);
        for (auto row = run.output.begin(); row != run.output.end(); row += dv) {
          if (std::all_of(row, row + dv, [](float x) { return x == 0; })) return true;
        }
        return false;
      }
      return true;
    } catch (const InputError&) {
      return false;
    }
  }

  /// Takes a candidate that fails in the same way.
  bool take(Candidate c) {
    if (spent()) return false;
    repair(c);
    round_operands(c, operand());
    if (c == best_ || !seen_.insert(hash(c)).second || !plausible(c)) return false;
    Diagnosis d = diagnosed(c);
    if (!d.met || d.stage != stage_ || d.claim != claim_) return false;
    best_ = std::move(c);
    diagnosis_ = std::move(d);
    return true;
  }

  /// A part of the head: as it is; with V scaled so that sums over fewer keys are as large; and
  /// with Q scaled so that a gate sees what it saw.
  bool take_part(const Candidate& c) {
    if (take(c)) return true;
    if (c.shape.keys < best_.shape.keys && objective_ == Objective::non_finite) {
      const double lost = static_cast<double>(best_.shape.keys) / static_cast<double>(c.shape.keys);
      const double factor = std::exp2(std::ceil(std::log2(lost)));
      Candidate larger = c;
      for (float& x : larger.v) x = operand_number(operand(), x * factor);
      if (take(std::move(larger))) return true;
    }
    const bool centred = target_.kernel.centring.keys != Centring::none;
    double was = gate_product(best_, centred), is = gate_product(c, centred);
    if (!target_.scale) {
      was /= std::sqrt(static_cast<double>(best_.shape.channels));
      is /= std::sqrt(static_cast<double>(c.shape.channels));
    }
    if (!(was > 0 && is > 0 && std::isfinite(was) && std::isfinite(is)) || was == is) return false;
    return take(scaled(c, was / is, operand()));
  }

  /// Delta debugging (Zeller and Hildebrandt, IEEE TSE 28, 2002): `make` builds the head of the
  /// indices that are kept. Pieces down to 1/most of what is left.
  template <class Make>
  bool fewer(std::int64_t n, std::int64_t most, const Make& make) {
    bool any = false;
    std::int64_t pieces = 2;
    while (n > 1 && !spent()) {
      pieces = std::min(pieces, n);
      bool found = false;
      for (std::int64_t p = 0; p < pieces && !found; ++p) {
        const std::int64_t begin = n * p / pieces, end = n * (p + 1) / pieces;
        Indices piece, rest;
        for (std::int64_t i = 0; i < n; ++i) (i >= begin && i < end ? piece : rest).push_back(i);
        if (pieces > 2 || p == 0) found = take_part(make(piece));
        if (found) {
          n = static_cast<std::int64_t>(piece.size());
          pieces = 2;
        } else if (take_part(make(rest))) {
          n = static_cast<std::int64_t>(rest.size());
          pieces = std::max<std::int64_t>(2, pieces - 1);
          found = true;
        }
      }
      any = any || found;
      if (found) continue;
      if (pieces >= n || pieces >= most) break;
      pieces *= 2;
    }
    return any;
  }

  void fewer_rows() {
    const Indices keys = up_to(best_.shape.keys);
    if (best_.shape.queries > 1 && diagnosis_.row >= 0) {
      const std::int64_t row = diagnosis_.row;
      const KeyRange range = range_of(best_, row);
      Indices seen;
      for (std::int64_t j = range.begin; j < range.end; ++j) seen.push_back(j);
      if (!seen.empty() && take_part(select(best_, {row}, seen))) return;
      if (take_part(select(best_, {row}, keys))) return;
    }
    fewer(best_.shape.queries, 64,
          [&](const Indices& rows) { return select(best_, rows, up_to(best_.shape.keys)); });
  }

  /// A sum stops growing at once where one weight is 1 and the others are half an ulp of 1 or a
  /// little less: as many of them as make more than the tolerance. Taken if those are fewer keys.
  bool one_and_tails(int precision) {
    if (!(target_.tolerance < 0.5)) return false;
    const double share = target_.tolerance / (1 - target_.tolerance);
    const double tails = std::ceil(std::ldexp(share, precision) * 1.125) + 1;
    if (!(tails + 1 < static_cast<double>(best_.shape.keys))) return false;
    Candidate c = make_candidate({1, 1 + static_cast<std::int64_t>(tails), 1, 1});
    const double factor = target_.scale_of(c.shape).log2_factor().hi();
    if (!(std::fabs(factor) > 0)) return false;
    std::fill(c.q.begin(), c.q.end(), 1.0F);
    std::fill(c.v.begin(), c.v.end(), 1.0F);
    const double below = (precision + 0x1p-5) / factor;
    std::fill(c.k.begin() + 1, c.k.end(), operand_number(operand(), -below));
    return take(std::move(c));
  }

  void fewer_keys() {
    if (objective_ == Objective::absorption) {
      for (const Accumulator* sum : {&target_.kernel.denominator, &target_.kernel.numerator}) {
        if (one_and_tails(sum->format.precision)) break;
      }
    }
    // every second, every third, ...: heads repeat themselves
    for (const std::int64_t step : {2, 3, 5, 7}) {
      while (best_.shape.keys >= 2 * step && !spent()) {
        bool found = false;
        for (std::int64_t first = 0; first < step && !found; ++first) {
          Indices some;
          for (std::int64_t j = first; j < best_.shape.keys; j += step) some.push_back(j);
          found = take_part(select(best_, up_to(best_.shape.queries), some));
        }
        if (!found) break;
      }
    }
    const auto make = [&](const Indices& some) {
      return select(best_, up_to(best_.shape.queries), some);
    };
    fewer(best_.shape.keys, 128, make);
    few_keys();
  }

  /// Every pair of few keys, then all but a pair of them: what delta debugging's pieces miss.
  void few_keys() {
    constexpr std::int64_t few = 16;
    bool found = best_.shape.keys <= few;
    while (found && best_.shape.keys > 2 && !spent()) {
      found = false;
      const std::int64_t n = best_.shape.keys;
      const Indices rows = up_to(best_.shape.queries);
      for (std::int64_t i = 0; i < n && !found; ++i) {
        for (std::int64_t j = i + 1; j < n && !found; ++j) {
          found = take_part(select(best_, rows, {i, j}));
        }
      }
      for (std::int64_t i = 0; i < n && !found; ++i) {
        for (std::int64_t j = i + 1; j < n && !found; ++j) {
          Indices rest;
          for (std::int64_t l = 0; l < n; ++l) {
            if (l != i && l != j) rest.push_back(l);
          }
          found = take_part(select(best_, rows, rest));
        }
      }
    }
  }

  void fewer_value_channels() {
    if (best_.shape.value_channels == 1) return;
    if (diagnosis_.channel >= 0 && take(with_value_channels(best_, {diagnosis_.channel}))) return;
    if (take(with_value_channels(best_, {0}))) return;
    fewer(best_.shape.value_channels, 64,
          [&](const Indices& some) { return with_value_channels(best_, some); });
  }

  void fewer_channels() {
    if (best_.shape.channels > 2 && best_.shape.queries == 1) {
      const auto alternating = [](std::int64_t j) { return j % 2 == 0 ? 1.0 : -1.0; };
      if (!take_part(in_two_channels(best_, operand(), alternating))) {
        take_part(in_two_channels(best_, operand(), [](std::int64_t) { return 1.0; }));
      }
    }
    fewer(best_.shape.channels, 64,
          [&](const Indices& some) { return with_channels(best_, some); });
  }

  /// Changes the best candidate, and takes the change or leaves it.
  template <class Change>
  bool try_change(const Change& change) {
    Candidate c = best_;
    change(c);
    return take(std::move(c));
  }

  void simpler_setting() {
    const auto drop = [&](auto member) { try_change([&](Candidate& c) { member(c.setting); }); };
    if (best_.setting.plain()) return;
    if (try_change([](Candidate& c) { c.setting = {}; })) return;
    if (best_.length() < best_.shape.keys) {
      take(select(best_, up_to(best_.shape.queries), up_to(best_.length())));
    }
    if (best_.setting.sink) drop([](Setting& s) { s.sink.reset(); });
    if (best_.setting.softcap) drop([](Setting& s) { s.softcap.reset(); });
    if (!best_.setting.bias.empty()) drop([](Setting& s) { s.bias.clear(); });
    if (!best_.setting.visible.empty()) drop([](Setting& s) { s.visible.clear(); });
    if (best_.setting.window) drop([](Setting& s) { s.window.reset(); });
    if (!best_.setting.query_segments.empty()) {
      drop([](Setting& s) { s.query_segments.clear(), s.key_segments.clear(); });
    }
    if (best_.setting.mask != MaskKind::none) drop([](Setting& s) { s.mask = MaskKind::none; });
    if (best_.setting.sink) {
      for (const int digits : {1, 2, 4, 8}) {
        const auto shorter = shortened(static_cast<float>(*best_.setting.sink), digits);
        if (shorter == *best_.setting.sink) break;
        if (try_change([&](Candidate& c) { c.setting.sink = shorter; })) break;
      }
    }
    if (best_.setting.softcap) {
      for (const double cap : {1.0, 16.0, 32.0, 64.0}) {
        if (cap == *best_.setting.softcap) break;
        if (try_change([&](Candidate& c) { c.setting.softcap = cap; })) break;
      }
    }
    if (!best_.setting.bias.empty()) {
      simpler_elements([](Candidate& c) -> std::vector<float>& { return c.setting.bias; });
    }
  }

  void simpler_numbers() {
    using Tensor = std::vector<float>& (*)(Candidate&);
    const Tensor tensors[] = {[](Candidate& c) -> std::vector<float>& { return c.v; },
                              [](Candidate& c) -> std::vector<float>& { return c.k; },
                              [](Candidate& c) -> std::vector<float>& { return c.q; }};
    for (const Tensor tensor : tensors) {
      simpler_as_a_whole(tensor);
      simpler_elements(tensor);
    }
  }

  /// Changes the elements from `begin` to `end`, if that makes them simpler; so nothing is done and
  /// undone in turns.
  template <class Tensor, class Change>
  bool change_elements(const Tensor& tensor, std::size_t begin, std::size_t end,
                       const Change& change) {
    Candidate c = best_;
    std::vector<float>& x = tensor(c);
    std::int64_t before = 0, after = 0;
    for (std::size_t i = begin; i < end; ++i) {
      before += complexity(x[i]);
      x[i] = change(x[i]);
      after += complexity(x[i]);
    }
    return after < before && take(std::move(c));
  }

  /// All elements at once: zeros, signs, few digits; then one value for all, or one row.
  template <class Tensor>
  void simpler_as_a_whole(const Tensor& tensor) {
    const auto change_all = [&](const auto& f) {
      return change_elements(tensor, 0, tensor(best_).size(), f);
    };
    if (change_all([](float) { return 0.0F; })) return;
    change_all([](float x) { return x == 0 || std::isnan(x) ? x : 1.0F; });
    change_all([](float x) { return x == 0 || std::isnan(x) ? x : std::copysign(1.0F, x); });
    for (const int digits : {1, 2, 3, 5, 8}) {
      change_all([digits](float x) { return shortened(x, digits); });
    }
    change_all([](float x) { return std::fabs(x) < 4096 ? std::nearbyint(x) : x; });
    const std::vector<float> values = tensor(best_);
    if (values.empty()) return;
    for (const float x : {values.front(), values.back()}) {
      change_all([x](float) { return x; });
    }
  }

  /// Element by element, or piece by piece where there are many.
  template <class Tensor>
  void simpler_elements(const Tensor& tensor) {
    constexpr std::size_t many = 640, most_pieces = 64;
    const std::size_t n = tensor(best_).size();
    const std::size_t width = n <= many ? 1 : (n + most_pieces - 1) / most_pieces;
    for (std::size_t begin = 0; begin < n && !spent(); begin += width) {
      const std::size_t end = std::min(n, begin + width);
      const auto change_piece = [&](const auto& f) {
        return change_elements(tensor, begin, end, f);
      };
      if (change_piece([](float) { return 0.0F; })) continue;
      if (change_piece([](float) { return 1.0F; })) continue;
      if (change_piece([](float) { return -1.0F; })) continue;
      for (const int digits : {1, 2, 3, 4, 6, 8, 12, 16}) {
        if (change_piece([&](float x) { return shortened(x, digits); })) break;
      }
      change_piece([](float x) { return std::nearbyint(x); });
      // a value that is there already
      if (begin > 0) {
        const float before = tensor(best_)[begin - 1];
        change_piece([before](float) { return before; });
      }
    }
  }

  Target target_;
  Objective objective_;
  const ShrinkOptions& options_;
  Candidate best_;
  Diagnosis diagnosis_;
  std::string stage_, claim_;
  std::int64_t runs_ = 0;
  std::unordered_set<std::uint64_t> seen_;
};

}  // namespace

Finding shrink(const Finding& finding, const ShrinkOptions& options) {
  return Shrinker(finding, options).run();
}

}  // namespace headroom::fuzz
