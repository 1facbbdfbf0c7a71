#include "cli/bounds_output.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "certify/certificate.h"
#include "cli/table.h"

namespace headroom::cli {
namespace {

/// Two decimals, rounded up: the shown number is a bound too.
std::string bits_up(double bits) {
  if (!std::isfinite(bits)) return "inf";
  const double hundredths = std::ceil(bits * 100);
  return fmt::format("{:.2f}", hundredths / 100);
}

std::string ratio(double part, double whole) {
  return whole > 0 ? fmt::format("{:.4f}", part / whole) : "-";
}

}  // namespace

std::string bounds_tables(const std::vector<HeadReport>& reports, bool colour) {
  std::vector<Column> columns = {{"head"}, {"rows", Align::right}, {"largest", Align::right}};
  for (const ScoreBound bound : score_bounds) {
    columns.push_back({std::string(to_text(bound)), Align::right});
  }
  Table slack(columns);
  Table radii({{"head"},
               {"radius", Align::right},
               {"ball", Align::right},
               {"least", Align::right},
               {"ball/radius", Align::right},
               {"ball/least", Align::right},
               {"passes", Align::right},
               {"kappa", Align::right},
               {"of ball", Align::right}});
  std::string rows;
  for (const HeadReport& r : reports) {
    if (!r.bounds) continue;
    const BoundsReport& b = *r.bounds;
    rows = b.rows;
    std::vector<Cell> line = {r.id, std::to_string(b.evaluated.size())};
    if (b.evaluated.empty()) {
      line.resize(columns.size(), Cell("-"));
      slack.add_row(std::move(line));
      continue;
    }
    line.emplace_back(fmt::format("{:.2f}", b.largest.hi()));
    for (const BoundSlack& s : b.slack) {
      line.emplace_back(bits_up(s.median) + "/" + bits_up(s.largest));
    }
    slack.add_row(std::move(line));
    radii.add_row({r.id, fmt::format("{:.4g}", b.radius), fmt::format("{:.4g}", b.ball_radius),
                   fmt::format("{:.4g}", b.least_radius), ratio(b.ball_radius, b.radius),
                   ratio(b.ball_radius, b.least_radius), std::to_string(b.passes),
                   fmt::format("{:.4g}", b.kappa), fmt::format("{:.4g}", b.ball_kappa)});
  }
  if (slack.row_count() == 0) return {};
  return fmt::format(
             "\nbounds of a row's largest score less that score, bits, median/largest (rows {})\n",
             rows) +
         slack.render(colour) + "\nradius of the keys about the kernel's centre and the ball's\n" +
         radii.render(colour);
}

nlohmann::ordered_json row_maxima_json(const BoundsReport& bounds) {
  auto maxima = nlohmann::ordered_json::array();
  for (const EvaluatedRow& e : bounds.evaluated) {
    nlohmann::ordered_json row;
    row["row"] = e.row;
    row["key"] = e.key;
    row["largest"] = {hex_float(e.largest.lo()), hex_float(e.largest.hi())};
    for (const ScoreBound bound : score_bounds) {
      row[std::string(to_text(bound))] = hex_float(e.bounds[bound].value());
    }
    maxima.push_back(std::move(row));
  }
  return maxima;
}

}  // namespace headroom::cli
