#include "certify/worst_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace headroom {
namespace {

constexpr double near_enough = 0x1p-26;

struct Range {
  std::size_t begin, end;
  std::vector<Claim> claims;
  bool is_row() const { return end - begin == 1; }
};

/// The unfavourable end, larger is worse.
double badness(const Claim& claim) {
  return claim.kind == LimitKind::at_least ? -claim.value.lo() : claim.value.hi();
}

/// A range this bad cannot hold a row that matters beside one of badness `row`.
bool within(double range, const Claim& row) {
  const double worst = badness(row);
  if (range <= worst) return true;
  const double slack = row.unit == ClaimUnit::log2 ? near_enough : near_enough * std::fabs(worst);
  return range - worst <= slack;  // false for infinities
}

bool all_hold(const std::vector<Claim>& claims) {
  return std::all_of(claims.begin(), claims.end(),
                     [](const Claim& claim) { return claim.outcome() == ClaimOutcome::holds; });
}

/// A failure binds before an open claim, an open claim before one that holds.
int rank(const Claim& claim) {
  switch (claim.outcome()) {
    case ClaimOutcome::fails:
      return 2;
    case ClaimOutcome::unknown:
      return 1;
    case ClaimOutcome::holds:
      return 0;
  }
  return 0;
}

class Search {
 public:
  Search(std::size_t n, const RangeClaims& claims, std::vector<std::size_t>* open)
      : claims_(claims), open_(open), ranges_{{0, n, claims(0, n)}} {
    if (ranges_.front().is_row()) see(ranges_.front());
  }

  void try_row(std::size_t i) {
    Range row{i, i + 1, claims_(i, i + 1)};
    see(row);
  }

  std::vector<Claim> run() {
    for (std::vector<std::size_t> wide = to_divide(); !wide.empty(); wide = to_divide()) {
      std::vector<Range> next;
      for (std::size_t i = 0; i < ranges_.size(); ++i) {
        if (std::find(wide.begin(), wide.end(), i) == wide.end()) {
          next.push_back(std::move(ranges_[i]));
        } else {
          divide(ranges_[i], next);
        }
      }
      ranges_ = std::move(next);
    }
    std::vector<Claim> worst;
    for (const Range& range : ranges_) {
      if (left_open(range)) {
        open_->push_back(range.begin);
      } else {
        worsen_claims(worst, range.claims);
      }
    }
    if (open_ != nullptr) std::sort(open_->begin(), open_->end());
    for (std::size_t i = 0; i < worst.size() && !rows_.empty(); ++i) {
      worst[i].row = rows_[i].row;
      worst[i].key = rows_[i].key;
    }
    return worst;
  }

 private:
  bool left_open(const Range& range) const {
    return open_ != nullptr && range.is_row() && !all_hold(range.claims);
  }
  void see(const Range& row) {
    if (!left_open(row)) worsen_claims(rows_, row.claims);
  }

  std::vector<std::size_t> to_divide() const {
    std::vector<std::size_t> wide;
    const std::size_t count = ranges_.front().claims.size();
    std::vector<std::size_t> worst(count, ranges_.size());
    for (std::size_t r = 0; r < ranges_.size(); ++r) {
      const Range& range = ranges_[r];
      if (range.is_row()) continue;
      if (open_ != nullptr && !all_hold(range.claims)) {
        wide.push_back(r);
        continue;
      }
      for (std::size_t i = 0; i < count; ++i) {
        const double bad = badness(range.claims[i]);
        if (!rows_.empty() && within(bad, rows_[i])) continue;
        if (worst[i] == ranges_.size() || bad > badness(ranges_[worst[i]].claims[i])) worst[i] = r;
      }
    }
    for (const std::size_t r : worst) {
      if (r != ranges_.size() && std::find(wide.begin(), wide.end(), r) == wide.end()) {
        wide.push_back(r);
      }
    }
    return wide;
  }

  void divide(const Range& range, std::vector<Range>& into) {
    std::size_t width = 1;
    while (width * range_fan < range.end - range.begin) width *= range_fan;
    for (std::size_t begin = range.begin; begin < range.end; begin += width) {
      const std::size_t end = std::min(begin + width, range.end);
      into.push_back({begin, end, claims_(begin, end)});
      if (into.back().is_row()) see(into.back());
    }
  }

  const RangeClaims& claims_;
  std::vector<std::size_t>* open_;
  std::vector<Range> ranges_;  // a partition of all rows
  std::vector<Claim> rows_;    // the worst of the rows seen one by one
};

}  // namespace

Claim worse(const Claim& a, const Claim& b) {
  const bool lower = a.kind == LimitKind::at_least;
  const bool replaces = rank(b) != rank(a)
                            ? rank(b) > rank(a)
                            : (lower ? b.value.lo() < a.value.lo() : b.value.hi() > a.value.hi());
  Claim both = a;
  both.value = lower ? min(a.value, b.value) : max(a.value, b.value);
  if (replaces) {
    both.row = b.row;
    both.key = b.key;
  }
  return both;
}

void worsen_claims(std::vector<Claim>& worst, const std::vector<Claim>& more) {
  if (worst.empty()) {
    worst = more;
    return;
  }
  for (std::size_t i = 0; i < worst.size(); ++i) worst[i] = worse(worst[i], more[i]);
}

std::vector<Claim> worst_claims(std::size_t n, const std::vector<std::size_t>& likely,
                                const RangeClaims& claims, std::vector<std::size_t>* open) {
  if (n == 0) return {};
  Search search(n, claims, open);
  for (const std::size_t i : likely) search.try_row(i);
  return search.run();
}

}  // namespace headroom
