// One attention head: what a verdict is about.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "reference/head/matrix.h"
#include "reference/head/scale.h"
#include "reference/head/score_modifiers.h"
#include "reference/head/visibility.h"

namespace headroom {

class TensorFile;

/// One query head with its KV head. Shapes: q Nq x d, k Nk x d, v Nk x dv.
struct Head {
  std::string id;      ///< `stem:prefix` + `h` or `b.h` (query head h, batch entry b)
  std::string file;    ///< path the tensors came from
  std::string prefix;  ///< tensor name less its final q|k|v, e.g. "layer3."
  std::int64_t batch = 0;
  bool has_batch = false;
  std::int64_t query_head = 0, kv_head = 0;
  /// The files of Q, K and V; none for a head that was made in memory.
  std::array<std::shared_ptr<const TensorFile>, 3> files;
  std::string layout;  ///< "nd", "hnd", "bhnd", "bnhd"

  Matrix q, k, v;
  /// The rows as stored in the file; set only after `--cast` (else q, k, v are those rows).
  Matrix file_q, file_k, file_v;
  /// Formats as stored in the file; differ from q.format() only after `--cast`.
  Format stored_q{fp32}, stored_k{fp32}, stored_v{fp32};
  bool was_cast = false;

  Scale scale = Scale::natural(1);
  std::string scale_source;  ///< "option", "metadata", "sidecar" or "default"
  Visibility visibility;
  std::string mask_source;  ///< as scale_source
  ScoreModifiers modifiers;

  /// What is legal but looks wrong, one line each: an implausible scale, values that overflowed in
  /// a cast, tensors beside this head that nothing reads. A verdict does not depend on them.
  std::vector<std::string> warnings;

  const Matrix& stored_rows_q() const { return was_cast ? file_q : q; }
  const Matrix& stored_rows_k() const { return was_cast ? file_k : k; }
  const Matrix& stored_rows_v() const { return was_cast ? file_v : v; }

  std::int64_t queries() const { return q.rows(); }
  std::int64_t keys() const { return k.rows(); }
  std::int64_t channels() const { return q.columns(); }
  std::int64_t value_channels() const { return v.columns(); }

  /// Takes the pages of its rows out of the process, so that a run over files larger than memory
  /// stays small: to be called when the head is done. Whoever reads them again, as heads do that
  /// share keys or interleave their rows, reads them from the file again.
  void drop_pages() const;
  /// Throws InputError if one of the files changed since it was opened: to be called between the
  /// last read of the head's numbers and the first word about them.
  void require_unchanged() const;
};

}  // namespace headroom
