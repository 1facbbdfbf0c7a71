#include "reference/evaluate/ladder/problem.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "reference/input_error.h"

namespace headroom {

namespace {

std::string shape_text(const Matrix& m) {
  return std::to_string(m.rows()) + " x " + std::to_string(m.columns());
}

}  // namespace

AttentionProblem::AttentionProblem(const Head& head)
    : q(head.q), k(head.k), v(head.v), scale(head.scale), visibility(head.visibility) {}

KeyRange AttentionProblem::range(std::int64_t row) const {
  KeyRange r = visibility.visible(row);
  if (window) {
    const std::int64_t offset =
        visibility.kind == MaskKind::causal_bottom_right ? keys() - queries() : 0;
    const std::int64_t centre = row + offset;
    if (window->left >= 0) r.begin = std::max(r.begin, centre - window->left);
    if (window->right >= 0) r.end = std::min(r.end, centre + window->right + 1);
  }
  r.begin = std::min(r.begin, keys());
  r.end = std::max(r.end, r.begin);
  return r;
}

bool AttentionProblem::sees(std::int64_t row, std::int64_t key) const {
  const KeyRange r = range(row);
  if (key < r.begin || key >= r.end) return false;
  if (!query_segments.empty() && query_segments[static_cast<std::size_t>(row)] !=
                                     key_segments[static_cast<std::size_t>(key)]) {
    return false;
  }
  if (mask.empty()) return true;
  const bool shared = static_cast<std::int64_t>(mask.size()) == keys();
  return mask[static_cast<std::size_t>(shared ? key : row * keys() + key)] != 0;
}

double AttentionProblem::bias_at(std::int64_t row, std::int64_t key) const {
  if (!bias) return 0;
  return decode(bias->format(), bias->code(bias->rows() == 1 ? 0 : row, key));
}

bool AttentionProblem::visible(std::int64_t row, std::int64_t key) const {
  return sees(row, key) && bias_at(row, key) != -std::numeric_limits<double>::infinity();
}

void AttentionProblem::validate() const {
  const auto refuse = [](const std::string& line) { throw InputError("reference: " + line); };
  if (k.columns() != q.columns()) {
    refuse("q is " + shape_text(q) + " and k " + shape_text(k) + ": channels differ");
  }
  if (v.rows() != k.rows()) {
    refuse("k is " + shape_text(k) + " and v " + shape_text(v) + ": keys differ");
  }
  for (const Matrix* m : {&q, &k, &v}) {
    if (m->format().precision > 24) {
      refuse("operands of format " + std::string(m->format().name) + ", expected fp32 or narrower");
    }
  }
  if (visibility.queries != queries() || visibility.keys != keys()) {
    refuse("the mask is for " + std::to_string(visibility.queries) + " x " +
           std::to_string(visibility.keys) + ", the head is " + std::to_string(queries()) + " x " +
           std::to_string(keys()));
  }
  if (query_segments.empty() != key_segments.empty() ||
      (!query_segments.empty() && (static_cast<std::int64_t>(query_segments.size()) != queries() ||
                                   static_cast<std::int64_t>(key_segments.size()) != keys()))) {
    refuse("segments: " + std::to_string(query_segments.size()) + " query and " +
           std::to_string(key_segments.size()) + " key ids, expected " + std::to_string(queries()) +
           " and " + std::to_string(keys()));
  }
  const auto mask_size = static_cast<std::int64_t>(mask.size());
  if (!mask.empty() && mask_size != keys() && mask_size != queries() * keys()) {
    refuse("mask of " + std::to_string(mask_size) + " elements, expected Nq x Nk or 1 x Nk");
  }
  if (bias && (bias->columns() != keys() || (bias->rows() != 1 && bias->rows() != queries()))) {
    refuse("bias is " + shape_text(*bias) + ", expected Nq x Nk or 1 x Nk");
  }
  if (bias && bias->format().precision > 24) refuse("bias: expected fp32 or narrower");
  if (softcap && *softcap <= 0) refuse("softcap " + to_text(*softcap) + ", expected > 0");
  if (sink && !std::isfinite(*sink)) refuse("sink is not finite");
}

}  // namespace headroom
