// Candidates kept between hunts: one file, replaced whole, that a killed hunt leaves as it was.
#pragma once

#include <string>
#include <vector>

#include "fuzz/candidate.h"
#include "fuzz/target.h"

namespace headroom::fuzz {

/// The line "headroom.corpus/1", then for each candidate a line "entry BYTES" and so many bytes:
/// finding_text() without a diagnosis. Written atomically. Throws InputError.
void write_corpus(const std::string& path, const Target& target,
                  const std::vector<const Candidate*>& candidates);
/// All candidates of a corpus of any target, in order. A file that does not exist has none. Throws
/// InputError that names the path and the entry; at most 256 MiB.
std::vector<Candidate> read_corpus(const std::string& path);

}  // namespace headroom::fuzz
