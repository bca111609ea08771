#pragma once
/// @file
/// Errors that are the user's to mend.

#include <stdexcept>

namespace tutorial {

/// Bad usage or bad input: the message is one line that says what is wrong and where. The executable prints it to
/// standard error and exits with status 2; nothing has been written by then.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace tutorial
