"""The table: what is weakened, and the test program that must then fail.

  name     of the weakening
  file     that is changed
  old      text that stands there exactly once
  new      what replaces it
  target   test program, as Ninja names it
  tests    --gtest_filter, or "" for all
"""

MUTATIONS = []

WEAKENINGS = "tests/unit/certify/certify_weakenings_test"
POLICIES = "tests/unit/certify/certify_policies_test"
ROWS = "tests/unit/certify/certify_rows_test"
SCAN = "tests/unit/certify/certify_scan_test"
CASES = "tests/cases/public_gates_test"
NORMS = "tests/unit/bounds/bounds_norms_test"
ROW_BOUNDS = "tests/unit/certify/certify_row_bounds_test"
ROW_MAXIMA = "tests/unit/bounds/bounds_row_max_test"
BALL = "tests/unit/bounds/bounds_enclosing_ball_test"
PASSES = "tests/unit/model/model_passes_test"
SUMS = "tests/unit/bounds/bounds_sums_test"
INTERVALS = "tests/unit/real/real_interval_test"
REPORTS = "tests/cases/public_reports_test"


def mutation(name, file, old, new, target, tests=""):
    assert all(other["name"] != name for other in MUTATIONS), f"two mutations named {name}"
    MUTATIONS.append({"name": name, "file": file, "old": old, "new": new, "target": target,
                      "tests": tests})


# Bounds ------------------------------------------------------------------------------------------

mutation("norm-to-nearest", "bounds/norms.cpp",
         "  double upper = sum_of_lanes(upper0, upper1);\n"
         "  double minus_lower = sum_of_lanes(lower0, lower1);\n",
         "  const NearestRounding nearest;\n"
         "  double upper = sum_of_lanes(upper0, upper1);\n"
         "  double minus_lower = sum_of_lanes(lower0, lower1);\n"
         "  for (; i < n; ++i) {\n"
         "    upper = upper + x[i] * x[i];\n"
         "    minus_lower = minus_lower + x[i] * hidden(-x[i]);\n"
         "  }\n"
         "  return {std::sqrt(upper), std::sqrt(upper)};\n", NORMS)
mutation("norm-sum-to-nearest", "bounds/norms.cpp",
         "  for (; i < n; ++i) {\n    upper = upper + x[i] * x[i];\n",
         "  for (; i < n; ++i) {\n    upper = -(-upper - x[i] * x[i]);\n", NORMS)
mutation("G-at-least-one-dropped", "bounds/stabilizer.cpp",
         "  if (!(vmax > 1)) return std::isnan(vmax) ? unbounded_exponent : 0;\n",
         "  if (std::isnan(vmax)) return unbounded_exponent;\n  if (vmax == 0) return 0;\n",
         WEAKENINGS, "*PublishedCap*")
mutation("G-floor-for-ceil", "bounds/stabilizer.cpp",
         "  return fraction == 0.5 ? exponent - 1 : exponent;\n",
         "  return exponent - 1;\n", WEAKENINGS, "*ValuesThatAreNoPowersOfTwo*")
mutation("any-order-k-beyond-2^p", "bounds/sums.cpp",
         "  if (k <= power(2 * p)) return 2 * k - power(p);\n",
         "  if (k <= power(2 * p)) return k;\n", SUMS)
mutation("any-order-no-end", "bounds/sums.cpp",
         "  if (k <= power(2 * p)) return 2 * k - power(p);\n", "  return 2 * k - power(p);\n", SUMS)
mutation("lost-mass-without-ln2", "bounds/lost_mass.cpp",
         "  const Interval e_d_ln2 = euler * bits * ln_2();\n",
         "  const Interval e_d_ln2 = euler * bits;\n", WEAKENINGS, "*LostMassAtTheExtremalRow*")
mutation("lost-mass-second-e", "bounds/lost_mass.cpp",
         "  const Interval e_d_ln2 = euler * bits * ln_2();\n",
         "  const Interval e_d_ln2 = euler * euler * bits * ln_2();\n", NORMS)
mutation("exp2-flush-ignored", "bounds/exp2_unit.cpp",
         "  const int flush = flush_exponent(unit.result, unit.flush_to_zero);\n",
         "  const int flush = flush_exponent(unit.result, false);\n",
         WEAKENINGS, "*LostMassAtTheExtremalRow*")
mutation("weight-flush-ignored", "bounds/exp2_unit.cpp",
         "  return flush_exponent(p.format, p.flush_to_zero);\n",
         "  return flush_exponent(p.format, false);\n", WEAKENINGS, "*LostMassAtTheExtremalRow*")
mutation("comparison-reversed", "reference/real/interval.h",
         "  if (a.hi() <= b.lo()) return Tri::yes;\n"
         "  return a.lo() > b.hi() ? Tri::no : Tri::unknown;\n",
         "  if (a.hi() <= b.lo()) return Tri::no;\n"
         "  return a.lo() > b.hi() ? Tri::yes : Tri::unknown;\n", INTERVALS)

mutation("box-of-the-last-key", "bounds/row_max/box.cpp",
         "    hi_[c] = std::max(hi_[c], hi[c]);\n", "    hi_[c] = hi[c];\n", ROW_MAXIMA)
mutation("box-lower-end", "bounds/row_max/box.cpp",
         "  return Upper<Log2>::of(factor * dot(up, q, keys.lo(), keys.hi()));\n",
         "  return Upper<Log2>((factor * dot(up, q, keys.lo(), keys.lo())).hi());\n", ROW_MAXIMA)
mutation("block-radius-rounded-down", "bounds/row_max/key_blocks.cpp",
         "  radii_.emplace_back(radius);\n",
         "  radii_.emplace_back(radius * (1 - 0x1p-51));\n", ROW_MAXIMA)
mutation("last-block-not-seen", "bounds/row_max/key_blocks.cpp",
         "(keys.end + size_ - 1) / size_", "keys.end / size_", ROW_MAXIMA)
mutation("ball-radius-rounded-down", "bounds/row_max/enclosing_ball.cpp",
         "Upper<Absolute>::of(sqrt(Interval(most)))",
         "Upper<Absolute>(sqrt(Interval(most * (1 - 0x1p-51))).lo())", BALL)
mutation("ball-of-its-core-set", "bounds/row_max/enclosing_ball.cpp",
         "      most = std::max(most, square);\n",
         "      if (ball.passes == 2 || core.holds(j)) most = std::max(most, square);\n", BALL)
mutation("least-radius-about-the-wrong-centre", "bounds/row_max/enclosing_ball.cpp",
         "(spread / total - off).lo();\n", "(spread / total - off * Interval(0.0)).lo();\n", BALL)
mutation("exact-maximum-of-hidden-keys", "bounds/row_max/exact.cpp",
         "j < std::min(end, run.end); ++j", "j < end; ++j", ROW_MAXIMA)
mutation("run-across-tiles-forgotten", "bounds/row_max/exact.cpp",
         "        if (run.end > end) break;  // goes on in the next tile\n", "", ROW_MAXIMA)

# Policies ----------------------------------------------------------------------------------------

mutation("published-cap-at-most-for-less", "certify/policy.cpp",
         "    return std::min(u_exp, u_acc - a - 1);\n", "    return std::min(u_exp, u_acc - a);\n",
         WEAKENINGS, "*PublishedCap*")
mutation("published-cap-without-V", "certify/policy.cpp",
         "const int a = keys + ceil", "const int a = keys + 0 * ceil", WEAKENINGS, "*PublishedCap*")
mutation("sound-gate-without-guard-bits", "certify/policy.cpp",
         " - Interval(guard_bits(up_, eps_).value()) +\n", " - Interval(0.0) +\n", WEAKENINGS, "*LostMassAtTheExtremalRow*")
mutation("sound-gate-without-score-error", "certify/policy.cpp",
         "      const double e = row_errors_.of(row).value();\n      const Interval m = mu(",
         "      const double e = 0 * row_errors_.of(row).value();\n      const Interval m = mu(", WEAKENINGS, "*ScoreErrorAtTheThreshold*")
mutation("kappa-without-score-error", "certify/policy.cpp",
         "    kappa += (Interval(error) + Interval(of_centre)) / Interval(largest_norm);\n",
         "    kappa += (Interval(0 * error) + Interval(of_centre)) / Interval(largest_norm);\n",
         WEAKENINGS, "*ScoreErrorAboveTheNormProduct*")
mutation("gate-comparison-reversed", "certify/policy.cpp",
         "less_equal(value, Interval(limit))", "less_equal(Interval(limit), value)",
         CASES)
mutation("infinite-gate-accepted", "certify/policy.cpp",
         "      gate.accepts = std::isfinite(value.lo()) ? Tri::unknown : Tri::no;\n",
         "      gate.accepts = Tri::yes;\n", POLICIES, "*NonFinite*")
mutation("stored-mu-not-rounded-down", "certify/policy.cpp",
         "      rounding = half_ulp(kernel_.stabilizer.store, unrounded);\n",
         "      rounding = 0 * half_ulp(kernel_.stabilizer.store, unrounded);\n",
         WEAKENINGS, "*StoredStabilizerRoundedDown*")
mutation("cap-reciprocal-one-binade-high", "certify/policy.cpp",
         "      const double reciprocal_limit = -kernel.denominator.format.emin -\n",
         "      const double reciprocal_limit = 1 - kernel.denominator.format.emin -\n",
         WEAKENINGS, "*FlushedReciprocal*")
mutation("cap-without-V", "certify/policy.cpp",
         "    const Upper<Log2> product(stored_weight(up, kernel, weight).value() + "
         "value_exponent);\n",
         "    const Upper<Log2> product(stored_weight(up, kernel, weight).value() + "
         "0 * value_exponent);\n", WEAKENINGS, "*ValuesThatAreNoPowersOfTwo*")

mutation("sound-gate-without-denominator-flush", "certify/policy.cpp",
         "flush_exponent(kernel_.denominator.format, kernel_.denominator.flush_to_zero)});\n",
         "flush_exponent(kernel_.denominator.format, false)});\n",
         WEAKENINGS, "*DenominatorThatFlushes*")

# One pass over the head --------------------------------------------------------------------------

mutation("padding-not-counted", "certify/head_scan.cpp",
         "    scan.padding_keys = (tile - head.visibility.length % tile) % tile;\n",
         "    scan.padding_keys = 0 * tile;\n", WEAKENINGS, "*PaddingThatIsAdded*")
mutation("mean-assumed-zero", "certify/head_scan.cpp",
         "row.mean_score = factor * running.dot_mean(up, q);\n", "row.mean_score = Interval(0.0);\n",
         WEAKENINGS, "*MeanIsNotZero*")
mutation("mean-of-all-keys", "certify/head_scan.cpp",
         "    while (running.count() < visible.end) {\n",
         "    while (running.count() < head.visibility.length) {\n",
         WEAKENINGS, "*CausalRows*")
mutation("nan-in-V-not-seen", "certify/head_scan.cpp",
         "      if (!std::isfinite(v)) {\n", "      if (std::isinf(v)) {\n", POLICIES, "*NonFinite*")

OUTPUT = "tests/unit/bounds/bounds_output_test"
mutation("reciprocal-that-promises-nothing", "bounds/output_error.cpp",
         "    if (!(ulps < std::ldexp(1.0, arithmetic.precision - 1))) return result;\n", "", OUTPUT,
         "*WithoutAPromise*")
mutation("exponentials-that-promise-nothing", "bounds/output_error.cpp",
         "  if (!((one - stage.eps_e).lo() > 0)) return result;\n", "", OUTPUT, "*WithoutAPromise*")

# Claims ------------------------------------------------------------------------------------------

mutation("margin-without-score-error", "certify/fixed_path.cpp",
         "  in.exponent = stabilizer.largest_exponent(i, Upper<Log2>(in.score_error));\n",
         "  in.exponent = stabilizer.largest_exponent(i, Upper<Log2>(in.score_error));\n"
         "  in.score_error = 0;\n", WEAKENINGS, "*ScoreError*")
mutation("exponent-without-score-error", "certify/fixed_path.cpp",
         "  in.exponent = stabilizer.largest_exponent(i, Upper<Log2>(in.score_error));\n",
         "  in.exponent = stabilizer.largest_exponent(i, Upper<Log2>(0));\n",
         WEAKENINGS, "*ScoreErrorAboveTheNormProduct*")
mutation("maximum-for-mean", "certify/fixed_path.cpp",
         "  in.exponent = stabilizer.largest_exponent(i, Upper<Log2>(in.score_error));\n",
         "  in.exponent = stabilizer.largest_exponent(i, Upper<Log2>(in.score_error));\n"
         "  in.mean_exponent = Lower<Log2>(in.exponent.value());\n  return in;\n",
         WEAKENINGS, "*LostMassAtTheExtremalRow*")
mutation("tighter-exponent-without-score-error", "certify/fixed_path.cpp",
         "modified(largest, row) + Upper<Log2>(in.score_error) - Lower<Log2>(in.mu.lo())",
         "modified(largest, row) - Lower<Log2>(in.mu.lo())", ROW_BOUNDS)
mutation("ball-without-its-radius", "certify/row_bounds.cpp",
         "  return cauchy_schwarz(up, factor, q_norm, ball.radius,\n",
         "  return cauchy_schwarz(up, factor, q_norm, Upper<Absolute>(0 * ball.radius.value()),\n",
         ROW_BOUNDS)
mutation("V-ignored", "certify/path_rows.cpp",
         "    const Interval v = log2(Interval(c_.scan.v_magnitude));\n",
         "    const Interval v(0.0);\n", WEAKENINGS, "*ValuesThatAreNoPowersOfTwo*")
mutation("saturation-ignored", "certify/path_limits.cpp",
         "  limits.weight = log2_max_finite(up, kernel.p.format).value();\n",
         "  limits.weight = kernel.p.saturate ? infinity\n"
         "                                    : log2_max_finite(up, kernel.p.format).value();\n",
         WEAKENINGS, "*SaturatedWeights*")
mutation("reciprocal-one-binade-high", "certify/path_limits.cpp",
         "      limits.final_l_most = exact ? -f.emin\n",
         "      limits.final_l_most = exact ? 1 - f.emin\n", CASES)
mutation("denominator-flush-ignored", "certify/path_limits.cpp",
         "flush_exponent(kernel.denominator.format, kernel.denominator.flush_to_zero)});\n",
         "flush_exponent(kernel.denominator.format, false)});\n",
         WEAKENINGS, "*DenominatorThatFlushes*")
mutation("exponent-of-padding-forgotten", "certify/path_rows.cpp",
         "rounded_exponent(max(run.max_exponent, -in.mu)));\n",
         "rounded_exponent(run.max_exponent));\n", WEAKENINGS, "*PaddingThatIsAdded*")

# Exact evaluation --------------------------------------------------------------------------------

mutation("exponent-rounding-dropped", "certify/row_execution.cpp",
         "  const double error_bound = (Interval(score_error) + exponent_rounding).hi();\n",
         "  const double error_bound = (Interval(score_error) + Interval(0.0) * "
         "exponent_rounding).hi();\n", ROWS)
mutation("saturated-mass-kept", "certify/row_execution.cpp",
         "  if (kernel.p.saturate) {\n", "  if (false) {\n", ROWS)
mutation("flush-threshold-without-rounding", "certify/row_execution.cpp",
         "  const double slack = ftz ? std::ldexp(1.0, 2 - format.precision) : 1.0;\n",
         "  const double slack = 0;\n  (void)ftz;\n", ROWS)

# Masks, biases, softcaps, sinks -------------------------------------------------------------------

MODIFIERS = "tests/unit/certify/certify_modifiers_test"
mutation("softcap-mean-of-scores", "certify/row_scores.cpp",
         "    if (scan.softcap) {\n      const Interval reach = reach_of",
         "    if (scan.softcap && count == 0) {\n      const Interval reach = reach_of", MODIFIERS)
mutation("far-keys-in-the-mass", "certify/row_scores.cpp",
         "    if (near < count) {\n", "    if (near < count && count < 0) {\n", MODIFIERS)
mutation("hidden-keys-in-the-mean", "certify/row_scores.cpp",
         "    if (!m.visible(head.visibility, row, j)) continue;\n",
         "    if (m.bias && !m.visible(head.visibility, row, j)) continue;\n", MODIFIERS)
mutation("cap-ignores-sink", "certify/row_scores.cpp",
         "  if (scan.sink) most =", "  if (scan.sink && most < 0) most =", MODIFIERS)

# Tested ranges, maxima that stay behind, stand-ins, merges ------------------------------------------

RULES = "tests/unit/certify/certify_rules_test"
REPORTS = "tests/cases/public_reports_test"
mutation("range-without-phi", "certify/range_test.cpp",
         "z + Interval(-error, error) - test_.shift, false);",
         "z + Interval(-error, error), false);", RULES)
mutation("lag-without-threshold", "certify/online_path.cpp",
         "  Interval top = Interval(residual) + Interval(lag) + Interval(offset);\n",
         "  Interval top = Interval(residual) + Interval(offset);\n", RULES)
mutation("offset-of-fp8-forgotten", "certify/online_path.cpp",
         "  Interval top = Interval(residual) + Interval(lag) + Interval(offset);\n",
         "  Interval top = Interval(residual) + Interval(lag);\n", REPORTS, "*B27*")
mutation("wave-never-falls", "certify/policy_parameters.h",
         "  bool may_fall() const { return wave != 1 && !running_max; }\n",
         "  bool may_fall() const { return wave < 0; }\n", RULES)
mutation("hidden-keys-two-bits-nearer", "certify/path_limits.cpp",
         "  limits.hidden = certainly_zero_below(kernel.exp2);\n",
         "  limits.hidden = certainly_zero_below(kernel.exp2) + 2;\n", REPORTS, "*B07*")
mutation("initial-maximum-ignored", "certify/online_path.cpp",
         "    in.initial = start - own;\n", "    in.initial = start - own - Interval(1e9);\n",
         REPORTS, "*B06*")
mutation("base-of-merged-lse-ignored", "certify/path_merge.cpp",
         "  if (k.split.reads != k.lse.base) {\n", "  if (k.split.parts < 0) {\n", REPORTS,
         "*B18*")

# Passes at memory speed --------------------------------------------------------------------------

mutation("pass-norm-without-error", "certify/scan_passes.cpp",
         "  const double above = 1 + 2 * relative, below = -(2 * relative - 1);\n",
         "  const double above = 1, below = 1;\n", SCAN, "*RowsEncloseTheExactValues*")
mutation("pass-mean-without-error", "certify/scan_passes.cpp",
         "  const double mean_error = relative * mean.length + (wide ? 0.0 : mean.half_length) + "
         "keys.apart;\n",
         "  const double mean_error = 0;\n", SCAN, "*RowsEncloseTheExactValues*")
mutation("pass-prefix-without-error", "certify/scan_passes.cpp",
         "    const double off = row.norm.hi() * (count * prefix_rounding + prefix_error);\n",
         "    const double off = 0 * row.norm.hi() * (count * prefix_rounding + prefix_error);\n", SCAN,
         "*RowsEncloseTheExactValues*")
mutation("plain-rows-exponent-of-the-first", "certify/path_claims.cpp",
         "      exponent = std::max(exponent, x);\n", "", SCAN, "RowInputs*")
mutation("plain-rows-mu-of-the-first", "certify/path_claims.cpp",
         "      if (magnitude >= most.mu) most.mu = magnitude, most.mu_row = i;\n",
         "      if (at == 0) most.mu = magnitude, most.mu_row = i;\n", SCAN, "RowInputs*")
mutation("pass-key-sums-without-error", "certify/scan_passes.cpp",
         "    keys.apart = (Interval(2 * column_sum_error(n)) * scan.key_norm).hi();\n",
         "    keys.apart = 0;\n", SCAN, "*MeansOfKeysWhoseSumRounds*")
mutation("pass-centred-sum-without-error", "reference/model/passes/passes.cpp",
         "  return 0x1.8p-16 + ", "  return 0x1p-40 + 0 * ", PASSES, "*SumsOfSquares*")
mutation("pass-first-candidate-only", "certify/scan_passes.cpp",
         "    if (!below) facts.take(j, scan);\n",
         "    if (!below && j == length.largest()) facts.take(j, scan);\n", SCAN,
         "*FindsTheSameMaxima*")
mutation("branch-and-bound-stops-early", "certify/worst_rows.cpp",
         "  if (range <= worst) return true;\n", "  return true;\n", SCAN, "WorstRows*")
VALUES = "tests/unit/certify/certify_values_test"
mutation("product-flush-over-the-largest-of-the-head", "certify/row_values.cpp",
         "  if (prefixes && head.visibility.kind == MaskKind::none) return;\n",
         "  if (prefixes || scan.finite) return;\n", VALUES)
mutation("row-values-of-the-first-row", "certify/path_claims.cpp",
         "  worst.value = std::min(worst.value, in.value);\n", "", VALUES, "*WhateverHides*")
mutation("flushed-row-over-the-largest-of-the-head", "certify/row_execution.cpp",
         "events) / Interval(v_magnitude);\n", "events) / Interval(scan.v_magnitude);\n", VALUES,
         "*AreRefuted*")
mutation("output-error-without-its-premises", "certify/path_head.cpp",
         "split() || !safe_)", "split())", WEAKENINGS, "*SaturatedWeights*")
mutation("softcap-of-any-size", "certify/row_scores.cpp",
         "{ return x >= 0x1p-120 && x <= 0x1p120; };\n", "{ return x > -1; };\n",
         "tests/unit/certify/certify_modifiers_test", "*SoftcapsThatFp32*")

# Files -------------------------------------------------------------------------------------------

FILES = "tests/unit/head/head_files_test"
mutation("pages-dropped-outside-the-mapping", "reference/head/mapped_file.cpp",
         "  if (!inside || bytes == 0 ||", "  if ((!inside && bytes == 1) || bytes == 0 ||", FILES,
         "Drop.TouchesNothing*")
mutation("half-of-the-pages-kept", "reference/head/mapped_file.cpp",
         "  ::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);\n",
         "  ::madvise(const_cast<std::byte*>(data_) + begin, (end - begin) / 2, MADV_DONTNEED);\n",
         FILES, "Drop.Takes*")
mutation("split-parts-without-limit", "reference/model/kernel_model.cpp",
         "  check.count(\"split.parts\", m.split.parts, 1, max_split_parts);\n",
         "  check.count(\"split.parts\", m.split.parts, 1);\n",
         "tests/unit/model/model_kernel_file_test")
mutation("a-theorem-for-any-verdict", "certify/certificate.cpp",
         "  if (report.verdict != Verdict::certified) {\n    return std::string(\"none: verdict",
         "  if (false) {\n    return std::string(\"none: verdict",
         "tests/unit/certify/certify_certificate_test", "Certificate.NamesItsTheorem")


# Matrix units in vectors -------------------------------------------------------------------------

LANES = "tests/unit/simulate/simulate_lanes_test"
MATRIX_LOOPS = "reference/evaluate/simulate/lanes/matrix_loops.h"

mutation("matrix-unit-highest-exponent", MATRIX_LOOPS,
         "lowest = -96, highest = 120;", "lowest = -96, highest = 128;", LANES, "Lanes.Matrix*")
mutation("matrix-unit-lowest-exponent", MATRIX_LOOPS,
         "lowest = -96, highest = 120;", "lowest = -126, highest = 120;", LANES, "Lanes.Matrix*")
mutation("matrix-unit-sum-of-33-bits", MATRIX_LOOPS,
         "        left[u] |= M::overflowed(total[u], second[u], both);\n", "", LANES, "Lanes.Matrix*")
mutation("matrix-unit-subnormal-operands", MATRIX_LOOPS,
         "exponents_of(terms.a + t * args.stride, lane_group, unit.a_emin, a + t * lane_group);\n"
         "        }\n        const auto some = [&](auto sums, std::int64_t key)",
         "exponents_of(terms.a + t * args.stride, lane_group, -126, a + t * lane_group);\n"
         "        }\n        const auto some = [&](auto sums, std::int64_t key)",
         LANES, "Lanes.Matrix*")


# Executions and keys that nobody sees ------------------------------------------------------------

mutation("store-overflows-an-ulp-late", "bounds/score.cpp",
         "power_of_two(format.emax - format.precision)",
         "power_of_two(format.emax - format.precision + 1)", REPORTS, "*ScoresInFp16*")
mutation("sequential-sum-unrounded", "bounds/sequential_sum.h",
         "rounded(up_, format_, sum_ + term, false)", "sum_ + term", REPORTS, "*SumsOfOnes*")
mutation("unseen-keys-of-some-rows", "certify/unseen_keys.cpp",
         "    if (head.modifiers.sees(head.visibility, row, key)) return true;\n",
         "    if (row == 0 && head.modifiers.sees(head.visibility, row, key)) return true;\n", REPORTS,
         "*NumbersThatNobodySees*")
mutation("unseen-keys-under-additive-masks", "certify/unseen_keys.cpp",
         "!norm_free || kernel.mask.form != MaskForm::select ||", "!norm_free ||", REPORTS,
         "*NumbersThatNobodySees*")
mutation("unguarded-window", "certify/path_head.cpp",
         "    if (sees / k.tiles.keys > first_keys.at(row / k.tiles.queries) / k.tiles.keys) "
         "return false;\n", "    static_cast<void>(sees);\n", REPORTS,
         "*RowsAndTilesWithoutKeys*")
