// The simulator's loops that run what a report's claims are about.
#pragma once

#include <memory>
#include <vector>

#include "certify/certify.h"
#include "reference/stabilizer/loop/loop.h"

namespace headroom {

/// The loops whose every execution a report is about. `own_rule`: a fixed mu is computed by the
/// loop's own rule, as `headroom simulate` does it, else by the stabilizer that the certifier
/// encloses.
/// The published row rule comes last. Empty where the simulator has no such loop.
std::vector<std::unique_ptr<LoopStabilizer>> certified_loops(const HeadReport& report,
                                                             const Head& head,
                                                             const KernelModel& kernel,
                                                             bool own_rule);

}  // namespace headroom
