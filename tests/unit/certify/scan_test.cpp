// The scan by passes against the row by row scan, and both against exact values; branch and bound
// over rows against a look at each.
#include <gtest/gtest.h>
#include <mpfr.h>

#include <cmath>
#include <random>

#include "certify/certify.h"
#include "certify/head_scan.h"
#include "certify/worst_rows.h"
#include "reference/model/kernel_file.h"
#include "tests/cases/public_gates.h"

namespace headroom {
namespace {

struct Reading {
  const char* name;
  const char* text;
  const Format* format;
};
constexpr const char* start = "name = \"scan\"\n";
const Reading setups[] = {
    {"plain bf16", "machine = \"ieee-fp32\"\noperand = \"bf16\"\n", &bf16},
    {"plain fp16", "machine = \"ieee-fp32\"\noperand = \"fp16\"\n", &fp16},
    {"plain fp32", "machine = \"ieee-fp32\"\noperand = \"fp32\"\n", &fp32},
    {"hopper", "machine = \"hopper\"\n", &bf16},
    {"folded and centred in bf16", "machine = \"tpu7x\"\n", &bf16},
    {"folded, not centred", "machine = \"tpu7x\"\n[centring]\nkeys = \"none\"\n", &bf16},
    {"centred by an fp32 mean",
     "machine = \"ieee-fp32\"\noperand = \"bf16\"\n[centring]\nkeys = \"mean\"\nmean = \"fp32\"\n"
     "difference = \"fp32\"\n",
     &bf16},
    {"centred virtually",
     "machine = \"ieee-fp32\"\noperand = \"bf16\"\n[centring]\nkeys = \"virtual\"\n"
     "mean = \"fp32\"\n",
     &bf16},
    {"centred virtually by a bf16 mean, folded",
     "machine = \"tpu7x\"\n[centring]\nkeys = \"virtual\"\nmean = \"bf16\"\n", &bf16},
};

enum class Kind { normal, offset, sink, equal, integers, tiny, huge, zeros };
constexpr Kind kinds[] = {Kind::normal,   Kind::offset, Kind::sink, Kind::equal,
                          Kind::integers, Kind::tiny,   Kind::huge, Kind::zeros};

Head make(const Format& format, Kind kind, std::int64_t queries, std::int64_t keys, std::int64_t d,
          std::mt19937_64& engine) {
  std::normal_distribution<double> normal;
  const auto value = [&](std::int64_t row, std::int64_t c, bool key) {
    switch (kind) {
      case Kind::normal:
        return normal(engine);
      case Kind::offset:
        return normal(engine) + (key ? 3 * std::sin(static_cast<double>(c)) : 0);
      case Kind::sink:
        return normal(engine) * (key && row == 3 ? 40 : 1);
      case Kind::equal:
        return key ? 0.75 + static_cast<double>(c % 3) : normal(engine);
      case Kind::integers:
        return static_cast<double>(static_cast<int>(engine() % 5)) - 2;
      case Kind::tiny:
        return normal(engine) * (format == fp16 ? 0x1p-20 : 0x1p-70);
      case Kind::huge:
        return normal(engine) * (format == fp16 ? 0x1p13 : 0x1p60);
      case Kind::zeros:
        return 0.0;
    }
    return 0.0;
  };
  const auto rounded = [&](bool key) {
    return
        [&, key](std::int64_t row, std::int64_t c) { return round_to(format, value(row, c, key)); };
  };
  Head head = cases::make_head("scan", queries, keys, d, 3, rounded(false), rounded(true),
                               rounded(true), format);
  return head;
}

template <class Body>
void for_all(const Body& body) {
  std::mt19937_64 engine(1);
  for (const Reading& setup : setups) {
    const KernelModel kernel = parse_kernel(std::string(start) + setup.text, "scan.toml");
    for (const Kind kind : kinds) {
      for (const std::int64_t d : {1, 33, 64, 130}) {
        for (const MaskKind mask :
             {MaskKind::none, MaskKind::causal_top_left, MaskKind::causal_bottom_right}) {
          Head head = make(*setup.format, kind, 37, 50, d, engine);
          head.visibility.kind = mask;
          if (engine() % 3 == 0) head.visibility.length = 41;
          if (engine() % 3 == 0) head.scale = Scale::reciprocal_sqrt(3);
          SCOPED_TRACE(testing::Message() << setup.name << " kind " << static_cast<int>(kind)
                                          << " d " << d << " mask " << static_cast<int>(mask));
          body(head, kernel);
        }
      }
    }
  }
}

void expect_equal(const Interval& a, const Interval& b, const char* what) {
  EXPECT_EQ(a.lo(), b.lo()) << what;
  EXPECT_EQ(a.hi(), b.hi()) << what;
}

/// Of one number: they meet, and are narrow for the size of what they were summed from.
void expect_close(const Interval& a, const Interval& b, double size, const char* what) {
  EXPECT_LE(a.lo(), b.hi()) << what;
  EXPECT_GE(a.hi(), b.lo()) << what;
  EXPECT_LE(a.hi(), b.hi() + 1e-11 * size) << what;  // both may be infinite
  EXPECT_GE(a.lo(), b.lo() - 1e-11 * size) << what;
}

TEST(ScanByPasses, FindsTheSameMaximaAndTheSameRows) {
  for_all([](const Head& head, const KernelModel& kernel) {
    const UpwardRounding up;
    const Operands operands(up, head, kernel);
    const HeadScan a = scan_head(up, head, kernel, operands, true);
    const HeadScan b = scan_head(up, head, kernel, operands, false);
    ASSERT_EQ(a.finite, b.finite);
    if (!a.finite) return;
    EXPECT_EQ(a.v_min, b.v_min);
    EXPECT_EQ(a.v_max, b.v_max);
    EXPECT_EQ(a.v_magnitude, b.v_magnitude);
    EXPECT_EQ(a.v_real_magnitude, b.v_real_magnitude);
    expect_equal(a.key_norm, b.key_norm, "key norm");
    expect_equal(a.radius, b.radius, "radius");
    expect_equal(a.kernel_radius, b.kernel_radius, "kernel radius");
    EXPECT_EQ(a.key_norm_at, b.key_norm_at);
    EXPECT_EQ(a.radius_at, b.radius_at);
    EXPECT_EQ(a.key_difference, b.key_difference);
    EXPECT_EQ(a.raw_centred_norm, b.raw_centred_norm);
    EXPECT_EQ(a.most_visible, b.most_visible);
    EXPECT_EQ(a.empty_rows, b.empty_rows);
    EXPECT_EQ(a.first_empty_row, b.first_empty_row);
    const double factor = operands.score_factor().magnitude();
    expect_close(a.query_norm, b.query_norm, b.query_norm.hi(), "query norm");
    ASSERT_EQ(a.rows.size(), b.rows.size());
    for (std::size_t i = 0; i < a.rows.size(); ++i) {
      const RowScan &x = a.rows[i], &y = b.rows[i];
      EXPECT_EQ(x.visible, y.visible);
      EXPECT_EQ(x.v_magnitude, y.v_magnitude);
      const double size = y.norm.hi(), score = factor * size * b.key_norm.hi() * 20 + 1e-300;
      expect_close(x.norm, y.norm, size, "norm");
      // rounded to FP32: a neighbour at most
      expect_close(x.kernel_norm, y.kernel_norm, 2e4 * size + 1e-40, "kernel norm");
      expect_close(x.mean_score, y.mean_score, score, "mean score");
      expect_close(x.centre_score, y.centre_score, score, "centre score");
      EXPECT_NEAR(x.operand_error, y.operand_error, 1e-10 * (y.operand_error + score));
    }
  });
}

/// Exact sums by MPFR with a precision that holds every partial sum of these heads.
class Exact {
 public:
  Exact() { mpfr_init2(v, 2048), mpfr_set_zero(v, 1); }
  ~Exact() { mpfr_clear(v); }
  Exact(const Exact&) = delete;
  Exact& operator=(const Exact&) = delete;
  void add_product(double a, double b) {
    Exact p;
    mpfr_set_d(p.v, a, MPFR_RNDN);
    mpfr_mul_d(p.v, p.v, b, MPFR_RNDN);
    mpfr_add(v, v, p.v, MPFR_RNDN);
  }
  mpfr_t v;
};

// Enclosures hold the exact norm and the exact mean: no error term may be missing.
TEST(ScanByPasses, RowsEncloseTheExactValues) {
  std::mt19937_64 engine(7);
  for (const Reading& setup : {setups[0], setups[1], setups[2], setups[7]}) {
    const KernelModel kernel = parse_kernel(std::string(start) + setup.text, "scan.toml");
    for (const Kind kind : kinds) {
      for (const MaskKind mask : {MaskKind::none, MaskKind::causal_top_left}) {
        Head head = make(*setup.format, kind, 7, 40, 129, engine);
        head.visibility.kind = mask;
        const UpwardRounding up;
        const Operands operands(up, head, kernel);
        ASSERT_TRUE(operands.query_reading().has_value());
        const HeadScan scan = scan_head(up, head, kernel, operands);
        std::vector<double> q(129), k(129);
        for (std::int64_t i = 0; i < head.queries(); ++i) {
          const RowScan& row = scan.rows[static_cast<std::size_t>(i)];
          head.q.load_row(i, q.data());
          Exact squares, dots, lo, hi;
          for (const double x : q) squares.add_product(x, x);
          lo.add_product(row.norm.lo(), row.norm.lo());
          hi.add_product(row.norm.hi(), row.norm.hi());
          EXPECT_LE(mpfr_cmp(lo.v, squares.v), 0);
          EXPECT_GE(mpfr_cmp(hi.v, squares.v), 0);
          for (std::int64_t j = 0; j < row.visible; ++j) {
            head.k.load_row(j, k.data());
            for (std::size_t c = 0; c < q.size(); ++c) dots.add_product(q[c], k[c]);
          }
          // the scale is 1
          EXPECT_GE(mpfr_cmp_d(dots.v, row.mean_score.lo() * static_cast<double>(row.visible)), 0)
              << setup.name << static_cast<int>(kind) << " row " << i;
          EXPECT_LE(mpfr_cmp_d(dots.v, row.mean_score.hi() * static_cast<double>(row.visible)), 0)
              << setup.name << static_cast<int>(kind) << " row " << i;
        }
      }
    }
  }
}

// Two keys of opposite sign swallow the others in sums of doubles: the exact mean is 1.2.
TEST(ScanByPasses, MeansOfKeysWhoseSumRounds) {
  const KernelModel kernel = parse_kernel(std::string(start) + setups[2].text, "scan.toml");
  const auto one = [](std::int64_t, std::int64_t) { return 1.0; };
  const auto key = [](std::int64_t row, std::int64_t) {
    return row == 0 ? 0x1p60 : row == 49 ? -0x1p60 : 1.25;
  };
  const Head head = cases::make_head("scan", 3, 50, 1, 3, one, key, one, fp32);
  const UpwardRounding up;
  const Operands operands(up, head, kernel);
  ASSERT_TRUE(operands.key_squares().has_value());
  for (const bool by_passes : {true, false}) {
    const Interval mean = scan_head(up, head, kernel, operands, by_passes).rows[1].mean_score;
    EXPECT_TRUE(mean.contains(1.2)) << mean.lo() << " " << mean.hi();
  }
}

TEST(ScanByPasses, PlacesOfNanAndInfinityAreTheSame) {
  std::mt19937_64 engine(3);
  const KernelModel kernel = parse_kernel(std::string(start) + setups[4].text, "scan.toml");
  for (int trial = 0; trial < 30; ++trial) {
    Head head = make(bf16, Kind::normal, 20, 40, 33, engine);
    Matrix* tensors[] = {&head.q, &head.k, &head.v};
    Matrix& hit = *tensors[trial % 3];
    std::vector<double> values(static_cast<std::size_t>(hit.rows() * hit.columns()));
    for (std::int64_t i = 0; i < hit.rows(); ++i) {
      hit.load_row(i, &values[static_cast<std::size_t>(i * hit.columns())]);
    }
    values[engine() % values.size()] = trial % 2 == 0 ? NAN : INFINITY;
    hit = Matrix::from_values(bf16, hit.rows(), hit.columns(), values);
    const UpwardRounding up;
    const Operands operands(up, head, kernel);
    const HeadScan a = scan_head(up, head, kernel, operands, true);
    const HeadScan b = scan_head(up, head, kernel, operands, false);
    EXPECT_FALSE(a.finite);
    EXPECT_EQ(a.non_finite_where, b.non_finite_where);
    EXPECT_FALSE(a.non_finite_where.empty());
  }
}

// A mask that hides nothing leaves every number as it is but for roundings, and has the rows'
// inputs made one by one.
TEST(RowInputs, OfPlainRowsAreThoseMadeOneByOne) {
  int compared = 0;
  std::mt19937_64 engine(9);
  for (const Reading& setup : {setups[0], setups[3]}) {
    const KernelModel kernel = parse_kernel(std::string(start) + setup.text, "scan.toml");
    for (const Kind kind : {Kind::normal, Kind::offset, Kind::sink, Kind::integers}) {
      for (const Policy policy : {Policy::clis, Policy::fixed_m}) {
        const Head head = make(bf16, kind, 200, 150, 33, engine);
        Head masked = head;
        masked.modifiers.mask.assign(150, 1);
        CertifyOptions options;
        options.policy = policy;
        const HeadReport a = certify_head(head, kernel, options);
        const HeadReport b = certify_head(masked, kernel, options);
        SCOPED_TRACE(testing::Message() << setup.name << " kind " << static_cast<int>(kind) << " "
                                        << to_text(policy) << " " << a.reason);
        EXPECT_EQ(a.verdict, b.verdict) << b.reason;
        // of the fixed path: online softmax has one claim more where keys may be hidden
        const bool refused = a.gate_accepts == Tri::no;
        const std::vector<Claim>& of_plain = refused ? a.fixed_claims : a.claims;
        const std::vector<Claim>& of_masked = refused ? b.fixed_claims : b.claims;
        ASSERT_EQ(of_plain.size(), of_masked.size());
        for (std::size_t i = 0; i < of_plain.size(); ++i) {
          const Claim &x = of_plain[i], &y = of_masked[i];
          ASSERT_EQ(x.id, y.id);
          const auto near = [](double u, double v) {
            return u == v || std::fabs(u - v) <= 1e-6 * (1 + std::fabs(v));
          };
          EXPECT_TRUE(near(x.value.lo(), y.value.lo()) && near(x.value.hi(), y.value.hi()))
              << x.id << " [" << x.value.lo() << ", " << x.value.hi() << "] and [" << y.value.lo()
              << ", " << y.value.hi() << "]";
          ++compared;
        }
      }
    }
  }
  EXPECT_GT(compared, 100);
}

// --- branch and bound ----------------------------------------------------------------------------

/// Two quantities a row; a range's claims take the worst of each.
std::vector<Claim> range_claims(const std::vector<double>& above, const std::vector<double>& below,
                                std::size_t begin, std::size_t end, int& looked_at) {
  ++looked_at;
  Claim at_most, at_least;
  at_most.kind = LimitKind::at_most;
  at_most.limit = 1;
  at_least.kind = LimitKind::at_least;
  at_least.limit = -1;
  double most = -INFINITY, least = INFINITY;
  for (std::size_t i = begin; i < end; ++i) {
    if (above[i] > most) most = above[i], at_most.row = static_cast<std::int64_t>(i);
    if (below[i] < least) least = below[i], at_least.row = static_cast<std::int64_t>(i);
  }
  // a range's bound is looser than its worst row's
  const double slack = end - begin == 1 ? 0 : 0.01 * static_cast<double>(end - begin);
  at_most.value = Interval(-INFINITY, most + slack);
  at_least.value = Interval(least - slack, INFINITY);
  return {at_most, at_least};
}

TEST(WorstRows, AreThoseThatALookAtEachRowFinds) {
  std::mt19937_64 engine(5);
  std::uniform_real_distribution<double> uniform(-3, 0.9);
  for (const std::size_t n : {1U, 2U, 8U, 9U, 63U, 64U, 65U, 700U, 5000U}) {
    std::vector<double> above(n), below(n);
    for (double& x : above) x = uniform(engine);
    for (double& x : below) x = -uniform(engine);
    const auto most = std::max_element(above.begin(), above.end());
    const auto least = std::min_element(below.begin(), below.end());
    int looks = 0;
    const std::vector<Claim> worst = worst_claims(
        n, {n / 2},
        [&](std::size_t begin, std::size_t end) {
          return range_claims(above, below, begin, end, looks);
        },
        nullptr);
    ASSERT_EQ(worst.size(), 2U);
    EXPECT_GE(worst[0].value.hi(), *most);
    EXPECT_LE(worst[0].value.hi(), *most + 0x1p-26);
    EXPECT_LE(worst[1].value.lo(), *least);
    EXPECT_GE(worst[1].value.lo(), *least - 0x1p-26);
    EXPECT_EQ(worst[0].row, most - above.begin());
    EXPECT_EQ(worst[1].row, least - below.begin());
  }
}

TEST(WorstRows, EveryRowThatDoesNotHoldIsLeftOpen) {
  std::mt19937_64 engine(6);
  const std::size_t n = 3000;
  std::vector<double> above(n, 0.5), below(n, 0.0);
  std::vector<std::size_t> expected;
  for (int i = 0; i < 20; ++i) above[engine() % n] = 1.5;
  for (std::size_t i = 0; i < n; ++i) {
    if (above[i] > 1) expected.push_back(i);
  }
  std::vector<std::size_t> open;
  int looks = 0;
  const std::vector<Claim> worst = worst_claims(
      n, {expected.front()},
      [&](std::size_t begin, std::size_t end) {
        return range_claims(above, below, begin, end, looks);
      },
      &open);
  EXPECT_EQ(open, expected);
  EXPECT_LE(worst[0].value.hi(), 0.5 + 0x1p-26);  // of the rows that hold
}

}  // namespace
}  // namespace headroom
