// The one exception type for bad input: a file, tensor, option or kernel key that is not what it
// must be. The program prints what() on one line and exits with 2.
#pragma once

#include <stdexcept>
#include <string>

namespace headroom {

/// Thrown when input cannot be used. `what()` is one line that names the file, tensor, key or
/// option, what was found and what was expected. Never thrown for a numerical outcome: an
/// undecided or refuted claim is a value, not an error.
class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace headroom
