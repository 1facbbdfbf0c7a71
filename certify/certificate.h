// Certificates: one small JSON file a head (certify/certificate_v1.md), and the same as part of
// `--json`.
#pragma once

#include <string>

#include "certify/certify.h"

namespace headroom {

/// A double as certificates write it: "0x1.8p+3", "inf", "-inf"; parsed back exactly.
std::string hex_float(double value);

/// The certificate's text, ending in a newline. Keys in the specification's order.
std::string certificate_json(const Head& head, const KernelModel& kernel,
                             const CertifyOptions& options, const HeadReport& report);

/// File name of a head's certificate: the id with characters that a file name cannot hold
/// percent-encoded, and ".json".
std::string certificate_file_name(const std::string& id);

}  // namespace headroom
