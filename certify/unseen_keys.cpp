#include "certify/unseen_keys.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace headroom {
namespace {

/// Pairs of rows and keys that are looked at, at most.
constexpr std::int64_t most_pairs = std::int64_t{1} << 26;

bool seen_by_a_row(const Head& head, std::int64_t key) {
  for (std::int64_t row = 0; row < head.queries(); ++row) {
    if (head.modifiers.sees(head.visibility, row, key)) return true;
  }
  return false;
}

}  // namespace

std::optional<Head> without_unseen_keys(const Head& head, const KernelModel& kernel,
                                        Policy policy) {
  const bool norm_free =
      policy == Policy::online || policy == Policy::fa4 || policy == Policy::fdpp;
  if (!norm_free || kernel.mask.form != MaskForm::select ||
      kernel.centring.keys != Centring::none || kernel.tiles.padding == Padding::zero_keys) {
    return {};
  }
  const auto d = static_cast<std::size_t>(head.channels());
  std::vector<double> values, row(d);
  std::int64_t found = 0;
  for (std::int64_t j = 0; j < head.keys(); ++j) {
    head.k.load_row(j, row.data());
    if (!std::all_of(row.begin(), row.end(), [](double x) { return std::isfinite(x); })) {
      if (++found * head.queries() > most_pairs || seen_by_a_row(head, j)) return {};
      std::fill(row.begin(), row.end(), 0.0);
    }
    values.insert(values.end(), row.begin(), row.end());
  }
  if (found == 0) return {};
  Head cleaned = head;
  cleaned.k = Matrix::from_values(head.k.format(), head.keys(), head.channels(), values);
  return cleaned;
}

}  // namespace headroom
