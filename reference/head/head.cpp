#include "reference/head/head.h"

#include "reference/head/tensor_file.h"

namespace headroom {

void Head::drop_pages() const {
  const std::array<const Matrix*, 3> rows = {&stored_rows_q(), &stored_rows_k(), &stored_rows_v()};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Matrix& m = *rows[i];
    if (files[i] == nullptr || m.rows() == 0) continue;
    files[i]->drop(m.row_bytes(0), (m.rows() - 1) * m.row_stride_bytes() +
                                       m.columns() * m.format().storage_bytes());
  }
}

void Head::require_unchanged() const {
  for (const auto& one : files) {
    if (one != nullptr) one->require_unchanged();
  }
}

}  // namespace headroom
