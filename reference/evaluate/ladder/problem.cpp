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
    : ScoreModifiers(head.modifiers),
      q(head.q),
      k(head.k),
      v(head.v),
      scale(head.scale),
      visibility(head.visibility) {}

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
  ScoreModifiers::validate(visibility, "reference");
}

}  // namespace headroom
