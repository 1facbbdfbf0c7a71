// Heads moved onto the equations: a gate's value, the scores of a row.
#include "fuzz/generate/pieces.h"

namespace headroom::fuzz {
namespace {

/// N times the mean of the keys that are not padding; exact for keys of one binade.
std::vector<double> key_sums(const Candidate& c) {
  const Index d = c.shape.channels;
  std::vector<double> sums(at(d));
  for (Index j = 0; j < c.length(); ++j) {
    const float* key = c.key(j);
    for (Index ch = 0; ch < d; ++ch) sums[at(ch)] += static_cast<double>(key[ch]);
  }
  return sums;
}

double largest_rounded_difference(const Landmarks& marks, const Candidate& c) {
  const Index d = c.shape.channels, n = c.length();
  std::vector<double> mean = key_sums(c);
  for (double& x : mean) {
    x = static_cast<double>(operand_number(marks.operand, x / static_cast<double>(n)));
  }
  std::vector<float> difference(at(d));
  double largest = 0;
  for (Index j = 0; j < n; ++j) {
    const float* key = c.key(j);
    for (Index ch = 0; ch < d; ++ch) {
      difference[at(ch)] = to_float(static_cast<double>(key[ch]) - mean[at(ch)]);
    }
    round_numbers(marks.operand, difference);
    largest = std::max(largest, square(difference.data(), d));
  }
  return std::sqrt(largest);
}

double largest_difference(const Candidate& c) {
  const Index d = c.shape.channels, n = c.length();
  const std::vector<double> sums = key_sums(c);
  const auto count = static_cast<double>(n);
  double largest = 0;
  for (Index j = 0; j < n; ++j) {
    const float* key = c.key(j);
    // N k - sum: no rounding where keys lie close together, as the quotient would have
    double even = 0, odd = 0;
    Index ch = 0;
    for (; ch + 2 <= d; ch += 2) {
      const double a = count * static_cast<double>(key[ch]) - sums[at(ch)];
      const double b = count * static_cast<double>(key[ch + 1]) - sums[at(ch + 1)];
      even += a * a;
      odd += b * b;
    }
    if (ch < d) {
      const double a = count * static_cast<double>(key[ch]) - sums[at(ch)];
      even += a * a;
    }
    largest = std::max(largest, even + odd);
  }
  return std::sqrt(largest) / count;
}

double largest_query_norm(const Candidate& c) {
  double largest = 0;
  for (Index i = 0; i < c.shape.queries; ++i) {
    largest = std::max(largest, square(c.query(i), c.shape.channels));
  }
  return std::sqrt(largest);
}

bool numbers(const std::vector<float>& all) {
  return std::all_of(all.begin(), all.end(), [](float x) { return std::isfinite(x); });
}

/// The least change of `q` that gives q . key_j = wish_j for the first keys, by the normal
/// equations. False where the keys are not independent, or nearly so.
bool solve_query(const Candidate& c, const std::vector<double>& wish, std::vector<double>& q) {
  const Index d = c.shape.channels, n = static_cast<Index>(wish.size());
  std::vector<double> a(at(n * (n + 1)));
  const auto element = [&](Index i, Index j) -> double& { return a[at(i * (n + 1) + j)]; };
  for (Index i = 0; i < n; ++i) {
    for (Index j = 0; j < n; ++j) element(i, j) = dot(c.key(i), c.key(j), d);
    double now = 0;
    for (Index ch = 0; ch < d; ++ch) now += static_cast<double>(c.key(i)[ch]) * q[at(ch)];
    element(i, n) = wish[at(i)] - now;
  }
  for (Index p = 0; p < n; ++p) {  // elimination; a Gram matrix needs no pivots
    const double square_of_key = dot(c.key(p), c.key(p), d), pivot = element(p, p);
    if (!(pivot > 0x1p-16 * square_of_key)) return false;
    for (Index i = 0; i < n; ++i) {
      if (i == p) continue;
      const double by = element(i, p) / pivot;
      for (Index j = p; j <= n; ++j) element(i, j) -= by * element(p, j);
    }
  }
  for (Index i = 0; i < n; ++i) {
    const double by = element(i, n) / element(i, i);
    for (Index ch = 0; ch < d; ++ch) q[at(ch)] += by * static_cast<double>(c.key(i)[ch]);
  }
  return true;
}

}  // namespace

double largest_key_norm(const Landmarks& marks, const Candidate& c, Centre centre) {
  if (centre == Centre::mean) return largest_difference(c);
  if (centre == Centre::rounded_mean) return largest_rounded_difference(marks, c);
  double largest = 0;
  for (Index j = 0; j < c.length(); ++j) {
    largest = std::max(largest, square(c.key(j), c.shape.channels));
  }
  return std::sqrt(largest);
}

double gate_value(const Landmarks& marks, const Candidate& c, Centre centre) {
  return std::fabs(marks.factor) * largest_query_norm(c) * largest_key_norm(marks, c, centre);
}

bool aim_at_gate(const Landmarks& marks, double target, Candidate& c) {
  return aim_at_gate(marks, target, marks.centred ? Centre::mean : Centre::none, c);
}

bool aim_at_gate(const Landmarks& marks, double target, Centre centre, Candidate& c) {
  const Format& format = marks.operand;
  round_numbers(format, c.q);
  round_numbers(format, c.k);
  if (!(target > 0) || !numbers(c.q)) return false;
  const double per_norm = std::fabs(marks.factor) * largest_key_norm(marks, c, centre);
  const double norm = largest_query_norm(c);
  if (!(per_norm * norm > 0) || !std::isfinite(per_norm * norm)) return false;
  double by = target / (per_norm * norm);
  double largest = 0;
  for (const float x : c.q) largest = std::max(largest, std::fabs(static_cast<double>(x)));
  if (!(largest * by <= format.max_finite()) || !(by > 0)) return false;
  const std::vector<float> before = c.q;
  // rounding to nearest raises a norm by at most 2^-p of itself: a few steps are enough
  for (int attempt = 0; attempt < 8; ++attempt) {
    for (std::size_t i = 0; i < before.size(); ++i) {
      c.q[i] = to_float(static_cast<double>(before[i]) * by);
    }
    round_numbers(format, c.q);
    const double value = per_norm * largest_query_norm(c);
    if (value == 0) break;
    if (value <= target) return true;
    by *= 1 - two_to(-format.precision - 1);
  }
  c.q = before;
  return false;
}

bool aim_at_score(const Landmarks& marks, Index row, Index j, double wish, Candidate& c) {
  const Format& format = marks.operand;
  const Index d = c.shape.channels;
  round_numbers(format, {c.query(row), at(d)});
  const float* q = c.query(row);
  float* key = c.key(j);
  const double length = square(q, d);
  if (!(length > 0) || !std::isfinite(length) || marks.factor == 0) return false;
  const double raw = wish / marks.factor, now = dot(q, key, d);
  const double by = (raw - now) / length, top = format.max_finite();
  for (Index ch = 0; ch < d; ++ch) {
    const double moved = static_cast<double>(key[ch]) + by * static_cast<double>(q[ch]);
    if (!(std::fabs(moved) <= top)) return false;
  }
  for (Index ch = 0; ch < d; ++ch) {
    const auto x = static_cast<double>(key[ch]);
    const double moved = x + by * static_cast<double>(q[ch]);
    // what rounding in binary64 leaves of a difference of 0 is no number to keep
    key[ch] = std::fabs(moved) > 0x1p-48 * std::fabs(x) ? to_float(moved) : 0;
  }
  round_numbers(format, {key, at(d)});
  std::size_t coarsest = 0;
  double unit = 0;
  for (Index ch = 0; ch < d; ++ch) {
    const double u = std::fabs(static_cast<double>(q[ch])) * ulp_at(format, key[ch]);
    if (u > unit) {
      unit = u;
      coarsest = at(ch);
    }
  }
  // what rounding left, by whole ulps of one channel: of the coarsest first, of others where better
  double left = raw - dot(q, key, d);
  const auto mend = [&](std::size_t ch) {
    const double u = static_cast<double>(q[ch]) * ulp_at(format, key[ch]);
    if (u == 0 || !(std::fabs(left) >= std::fabs(u) / 2)) return;
    const double steps = std::floor(left / u + 0.5);
    if (!(std::fabs(steps) <= static_cast<double>(d))) return;
    const float before = key[ch];
    key[ch] = step_by(format, before, static_cast<int>(steps));
    const double now_left = raw - dot(q, key, d);
    if (std::fabs(now_left) < std::fabs(left)) {
      left = now_left;
    } else {
      key[ch] = before;
    }
  };
  mend(coarsest);
  for (std::size_t ch = 0; ch < std::min(at(d), std::size_t{8}); ++ch) mend(ch);
  return true;
}

bool aim_at_scores(const Landmarks& marks, Index row, const std::vector<double>& scores,
                   Candidate& c) {
  const Format& format = marks.operand;
  const Index n = std::min(c.shape.keys, static_cast<Index>(scores.size()));
  const Index d = c.shape.channels;
  if (marks.factor == 0) return false;
  float* query = c.query(row);
  round_numbers(format, {query, at(d)});
  const std::vector<float> query_before(query, query + d), keys_before = c.k;
  if (d >= 2 && n < d) {
    std::vector<double> wish(at(n)), q(query, query + d);
    for (Index j = 0; j < n; ++j) wish[at(j)] = scores[at(j)] / marks.factor;
    if (solve_query(c, wish, q) && std::all_of(q.begin(), q.end(), [&](double x) {
          return std::fabs(x) <= format.max_finite();
        })) {
      for (Index ch = 0; ch < d; ++ch) query[ch] = operand_number(format, q[at(ch)]);
    }
  }
  for (Index j = 0; j < n; ++j) {
    if (aim_at_score(marks, row, j, scores[at(j)], c)) continue;
    std::copy(query_before.begin(), query_before.end(), query);
    c.k = keys_before;
    return false;
  }
  return true;
}

}  // namespace headroom::fuzz
