// Stabilizers as kernels compute them: the rule for mu, and the public gate in front of it.
//
// Everything here is emulated bit for bit in the kernel's own formats, sums one after another,
// rounded to nearest. What may be concluded from a gate is decided in certify/, in enclosures; the
// two are compared.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/head/head.h"
#include "reference/model/kernel_model.h"
#include "reference/model/operands.h"

namespace headroom {

/// What a gate said. `accepts` is value <= limit as IEEE compares them, and whatever else the gate
/// asks for: a NaN or infinite value never passes.
struct GateOutcome {
  bool accepts = false;
  double value = 0;
  double limit = 0;
};

class Stabilizer {
 public:
  virtual ~Stabilizer() = default;
  virtual std::string_view name() const = 0;
  /// C: the rule aims at exponents z - mu <= C (log2 units). NaN if the head allows none.
  virtual double exponent_cap() const = 0;
  /// The gate before the loop. Stabilizers without one accept everything.
  virtual GateOutcome gate() const = 0;
  /// The stored mu of a query row, log2 units, a number of kernel.stabilizer.store (or NaN or an
  /// infinity where the kernel would store that).
  virtual double mu(std::int64_t row) const = 0;
  /// The norms behind the gate, in the kernel's arithmetic, for joining heads (GateUnit): the
  /// largest of the query rows and of the (centred) keys. 0 where the rule has none.
  virtual double largest_query_norm() const { return 0; }
  virtual double largest_key_norm() const { return 0; }
};

/// The table that `clis` gets from the certifier for one head: C, the slope kappa (a number of
/// kernel.stabilizer.norm, at least |c| times the radius of the keys and all error of the kernel's
/// scores and norms), and the gate `RU(RU(max norm kappa) + residual) <= width`.
struct ClisTable {
  double cap = 0;
  double kappa = 0;
  double residual = 0;
  double width = 0;
};

struct StabilizerParameters {
  std::optional<ClisTable> clis;  ///< required by "clis"
  /// Norms of the other heads that share this gate (GateUnit::head_over_batch); the larger counts.
  double joined_query_norm = 0;
  double joined_key_norm = 0;
};

/// "clis", "clis-alg1", "fixed-m", "fixed-m-n", "online".
std::vector<std::string> stabilizer_names();

/// Throws InputError that lists the names; std::invalid_argument for clis without its table.
/// Requires: the arguments outlive the result. Any rounding mode may be active, here and in calls.
std::unique_ptr<Stabilizer> make_stabilizer(const std::string& name, const Head& head,
                                            const KernelModel& kernel, const Operands& operands,
                                            const StabilizerParameters& parameters = {});

}  // namespace headroom
