#include "reference/head/head.h"

#include "reference/head/tensor_file.h"

namespace headroom {

void Head::require_unchanged() const {
  for (const auto& one : files) {
    if (one != nullptr) one->require_unchanged();
  }
}

}  // namespace headroom
