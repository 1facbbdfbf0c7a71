#include "certify/certificate.h"

#include <cmath>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "reference/head/visibility.h"
#include "reference/model/kernel_file.h"

namespace headroom {
namespace {

using Json = nlohmann::ordered_json;

Json interval_json(const Interval& value) {
  return Json::array({hex_float(value.lo()), hex_float(value.hi())});
}

Json claim_json(const Claim& claim) {
  Json j;
  j["id"] = claim.id;
  j["unit"] = to_text(claim.unit);
  j["kind"] = to_text(claim.kind);
  j["value"] = interval_json(claim.value);
  j["limit"] = claim.kind == LimitKind::none ? Json(nullptr) : Json(hex_float(claim.limit));
  j["margin_bits"] =
      claim.kind == LimitKind::none ? Json(nullptr) : Json(hex_float(claim.margin_bits()));
  j["outcome"] = to_text(claim.outcome());
  j["required"] = claim.required;
  j["reference"] = claim.reference;
  j["row"] = claim.row >= 0 ? Json(claim.row) : Json(nullptr);
  j["key"] = claim.key >= 0 ? Json(claim.key) : Json(nullptr);
  j["status"] = to_text(claim.status);
  if (!claim.note.empty()) j["note"] = claim.note;
  return j;
}

Json claims_json(const std::vector<Claim>& claims) {
  Json j = Json::array();
  for (const Claim& claim : claims) j.push_back(claim_json(claim));
  return j;
}

/// SHA-256 of an array's bytes, as of a tensor's rows.
template <typename T>
std::string digest_of(const std::vector<T>& array) {
  const Format& words = sizeof(T) == 1 ? e5m2 : fp32;  // of the same width
  return Matrix(nullptr, reinterpret_cast<const std::byte*>(array.data()), words, 1,
                static_cast<std::int64_t>(array.size()),
                static_cast<std::int64_t>(array.size() * sizeof(T)))
      .sha256();
}

Json modifiers_json(const ScoreModifiers& m) {
  Json j = Json::object();
  if (m.window) j["window"] = {m.window->left, m.window->right};
  if (!m.query_segments.empty()) {
    j["segments"] = {{"query_sha256", digest_of(m.query_segments)},
                     {"key_sha256", digest_of(m.key_segments)}};
  }
  if (!m.mask.empty()) j["mask"] = {{"elements", m.mask.size()}, {"sha256", digest_of(m.mask)}};
  if (m.bias) {
    j["bias"] = {
        {"rows", m.bias->rows()}, {"format", m.bias->format().name}, {"sha256", m.bias->sha256()}};
  }
  if (m.softcap) j["softcap"] = to_text(*m.softcap);
  if (m.sink) j["sink"] = hex_float(*m.sink);
  return j;
}

Json head_json(const Head& head) {
  Json j;
  j["id"] = head.id;
  j["prefix"] = head.prefix;
  j["layout"] = head.layout;
  j["batch"] = head.has_batch ? Json(head.batch) : Json(nullptr);
  j["query_head"] = head.query_head;
  j["kv_head"] = head.kv_head;
  j["queries"] = head.queries();
  j["keys"] = head.keys();
  j["channels"] = head.channels();
  j["value_channels"] = head.value_channels();
  j["mask"] = to_text(head.visibility.kind);
  j["length"] = head.visibility.length;
  j["scale"] = head.scale.text();
  if (!head.modifiers.none()) j["modifiers"] = modifiers_json(head.modifiers);
  j["stored"] = {{"q", head.stored_q.name}, {"k", head.stored_k.name}, {"v", head.stored_v.name}};
  j["cast"] = head.was_cast ? Json("rne") : Json(nullptr);
  j["sha256"] = {{"q", head.stored_rows_q().sha256()},
                 {"k", head.stored_rows_k().sha256()},
                 {"v", head.stored_rows_v().sha256()}};
  return j;
}

Json bounds_json(const BoundsReport& bounds) {
  Json j;
  j["rows"] = bounds.rows;
  j["evaluated"] = bounds.evaluated.size();
  if (bounds.evaluated.empty()) return j;
  j["largest"] = interval_json(bounds.largest);
  j["row"] = bounds.row;
  j["key"] = bounds.key;
  for (const BoundSlack& slack : bounds.slack) {
    j["slack"][std::string(to_text(slack.bound))] = {{"median", hex_float(slack.median)},
                                                     {"largest", hex_float(slack.largest)},
                                                     {"row", slack.row}};
  }
  j["radius"] = hex_float(bounds.radius);
  j["ball_radius"] = hex_float(bounds.ball_radius);
  j["least_radius"] = hex_float(bounds.least_radius);
  j["passes"] = bounds.passes;
  j["block"] = bounds.block;
  j["kappa"] = hex_float(bounds.kappa);
  j["ball_kappa"] = hex_float(bounds.ball_kappa);
  return j;
}

/// What the proof development says of such a certificate: the theorem's name, or why there is none.
/// `headroom check` derives the same from the certificate and refuses another answer.
std::string theorem_of(const Head& head, const CertifyOptions& options, const HeadReport& report) {
  if (options.policy != Policy::clis) {
    return std::string("none: policy ") + std::string(to_text(options.policy));
  }
  if (report.verdict != Verdict::certified) {
    return std::string("none: verdict ") + std::string(to_text(report.verdict));
  }
  if (!head.modifiers.none()) return "none: head.modifiers";
  if (head.was_cast) return "none: head.cast";
  return "Certified.certified";
}

}  // namespace

std::string hex_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char text[40];
  std::snprintf(text, sizeof text, "%a", value);
  return text;
}

std::string certificate_json(const Head& head, const KernelModel& kernel,
                             const CertifyOptions& options, const HeadReport& report) {
  Json j;
  j["schema"] = "headroom-certificate/1";
  j["toolkit"] = std::string("headroom ") + HEADROOM_VERSION;
  j["kernel"] = {{"name", kernel.name},
                 {"machine", kernel.machine},
                 {"sha256", digest(kernel)},
                 {"text", canonical_text(kernel)}};
  j["policy"] = to_text(options.policy);
  Json& parameters = j["parameters"];
  parameters["eps"] = hex_float(options.eps);
  parameters["max_error"] = options.max_error ? Json(hex_float(*options.max_error)) : Json(nullptr);
  parameters["evaluate_rows"] = options.evaluate_rows;
  parameters["evaluate_scores"] = options.evaluate_scores;
  for (const auto& [name, value] : report.parameters) parameters[name] = hex_float(value);
  j["head"] = head_json(head);
  Json& gate = j["gate"];
  if (report.has_gate) {
    gate["stabilizer"] = to_text(report.policy);
    gate["C"] = hex_float(report.cap);
    if (report.policy == Policy::clis) gate["kappa"] = hex_float(report.kappa);
    gate["value"] = interval_json(report.gate_value);
    gate["limit"] = hex_float(report.gate_limit);
    gate["accepts"] = report.gate_accepts == Tri::yes  ? "yes"
                      : report.gate_accepts == Tri::no ? "no"
                                                       : "unknown";
    if (report.has_kernel_gate) gate["kernel_value"] = hex_float(report.kernel_gate_value);
    if (!report.gate_note.empty()) gate["note"] = report.gate_note;
    if (report.policy == Policy::fdpp) {
      gate["rows"] = {{"stay", report.row_paths.fixed},
                      {"leave", report.row_paths.online},
                      {"either", report.row_paths.either}};
    }
  } else {
    gate = nullptr;
  }
  const auto scanned = [&](double value) {
    return report.scanned ? Json(hex_float(value)) : Json(nullptr);
  };
  Json& values = j["values"];
  values["query_norm"] = scanned(report.query_norm);
  values["key_norm"] = scanned(report.key_norm);
  values["radius"] = scanned(report.radius);
  values["v_magnitude"] = scanned(report.v_magnitude);
  values["most_visible"] = report.scanned ? Json(report.most_visible) : Json(nullptr);
  values["rows_evaluated"] = report.rows_evaluated;
  values["rows_undecided"] = report.rows_undecided;
  if (report.bounds) j["bounds"] = bounds_json(*report.bounds);
  j["path"] = report.stabilizer;
  if (report.execution) {
    j["execution"] = {{"loop", report.execution->loop},
                      {"row", report.execution->row},
                      {"found", report.execution->what}};
  }
  j["claims"] = claims_json(report.claims);
  j["refused"] = claims_json(report.fixed_claims);
  j["assumptions"] = report.assumptions;
  j["not_covered"] = {
      "index.range: index arithmetic of the kernel", "backward.exponent: the backward pass",
      kernel.split.parts == 1 ? "merge.range, merge.identity: split-KV and ring merges"
                              : "output.error, lse.error: of merged parts",
      "lse.shift: the LSE of centred keys must be shifted back by the caller"};
  j["theorem"] = theorem_of(head, options, report);
  j["verdict"] = to_text(report.verdict);
  j["safe"] = to_text(report.safe);
  j["accurate"] = to_text(report.accurate);
  j["reason"] = report.reason;
  j["binding"] = report.binding;
  j["margin_bits"] = hex_float(report.margin_bits);
  j["status"] = to_text(report.status);
  // Names can hold any bytes; what is not UTF-8 is replaced rather than refused.
  return j.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string certificate_file_name(const std::string& id) {
  constexpr std::size_t longest = 200;
  std::string name;
  for (std::size_t i = 0; i < id.size(); ++i) {
    const auto c = static_cast<unsigned char>(id[i]);
    const bool plain = c > 0x20 && c != 0x7f && c != '/' && c != '%' && !(i == 0 && c == '.');
    if (plain) {
      name += id[i];
    } else {
      char escaped[4];
      std::snprintf(escaped, sizeof escaped, "%%%02x", c);
      name += escaped;
    }
  }
  if (name.size() > longest) {  // keep it unique: the end of an id is what differs
    std::size_t hash = 1469598103934665603U;
    for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
    char suffix[24];
    std::snprintf(suffix, sizeof suffix, "~%016zx", hash);
    name = name.substr(0, longest) + suffix;
  }
  return name + ".json";
}

}  // namespace headroom
