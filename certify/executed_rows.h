// Refutation by execution: rows that bounds leave open, run bit by bit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "certify/certify.h"
#include "certify/head_scan.h"

namespace headroom {

/// Runs rows of an undecided head as the kernel computes them, in one of the executions that its
/// model allows (terms in ascending order, units at their nearest results), and makes each claim
/// that the execution breaks fail, with what was found as its value. Rows of open claims come
/// first.
///
/// What breaks a claim: an intermediate that is NaN or infinite of operands and scores that are
/// not; an l of 0, or at its guard; a reciprocal that is flushed; a merged LSE that is no number; a
/// hidden key of nonzero weight in the row's last frame; terms that leave l, or a channel of O
/// whose values have one sign, as it was, and are more than eps of it. The first event in the row
/// is the one that counts.
///
/// **Ensures** that a claim which fails by it is false of an execution of the path that
/// `report.stabilizer` names, on this head. An execution that breaks nothing proves nothing, and
/// leaves the report as it is.
/// **Requires** scan.finite, and that a gate, if the path has one, takes the head.
/// Budget: 8 rows and evaluate_scores / 16 scores; none if evaluate_rows is 0.
void refute_by_execution(const Head& head, const KernelModel& kernel, const CertifyOptions& options,
                         const HeadScan& scan, HeadReport& report);

}  // namespace headroom
