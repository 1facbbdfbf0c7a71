#include "certify/path_builder.h"

#include <algorithm>

namespace headroom {

RowInputs PathBuilder::fixed_inputs(std::int64_t i, const FixedStabilizer& stabilizer,
                                    Upper<Log2> largest) const {
  const RowScan& row = c_.scan.rows[static_cast<std::size_t>(i)];
  RowInputs in;
  in.row = i;
  in.visible = in.least_visible = row.visible;
  in.norm = row.norm.hi();
  in.value = value_of(row);
  in.score_error = error_of(i);
  if (const auto it = row_terms_.find(i); it != row_terms_.end()) in.terms = it->second;
  in.mu = stabilizer.mu(i);
  in.mean_score_lo = row.mean_score.lo();
  in.exponent = stabilizer.largest_exponent(i, Upper<Log2>(in.score_error));
  if (c_.scan.softcap) {  // a cap raises negative scores
    const Interval from_mu = Interval(in.score_error) - Interval(in.mu.lo());
    in.exponent = tighter(max(in.exponent, Upper<Log2>(from_mu.hi())),
                          Upper<Log2>((*c_.scan.softcap + from_mu).hi()));
  }
  if (c_.head.modifiers.bias) in.exponent = in.exponent + Upper<Log2>(row.bias.most);
  in.exponent = tighter(  // z^ - mu, z^ at most e above the largest score
      in.exponent, modified(largest, row) + Upper<Log2>(in.score_error) - Lower<Log2>(in.mu.lo()));
  in.far = row.far_keys;
  if (in.far > 0) in.far_exponent = in.exponent + Upper<Log2>(8 - far_bits);
  if (c_.paths != nullptr) in.exponent = tighter(in.exponent, Upper<Log2>(stabilizer.cap()));
  if (c_.scan.padding_keys > 0) {  // zero keys have exponent 0 - mu
    in.exponent = max(in.exponent, Upper<Log2>(-in.mu.lo()));
  }
  in.least_exponent = stabilizer.least_exponent(i);
  in.exact_mean = Lower<Log2>((Interval(row.mean_score.lo()) - Interval(in.mu.hi())).lo());
  // a stored exponent of at least this is one of exact scores within their error
  in.mean_exponent =
      tighter(in.exact_mean - Upper<Log2>(in.score_error),
              in.least_exponent - Upper<Log2>(in.score_error) - Upper<Log2>(in.score_error));
  in.bias_reach = row.bias.largest;
  add_sink(in);
  if (finite_mask()) {
    in.hidden_score = hidden_score(row);
    in.exponent = max(in.exponent, Upper<Log2>((in.hidden_score - in.mu).hi()));
  }
  return in;
}

}  // namespace headroom
