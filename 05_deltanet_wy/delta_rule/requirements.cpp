/// @file
/// What `one_kernel` does not support. The other stages say it in their files.

#include "05_deltanet_wy/delta_rule.hpp"

namespace tutorial::delta_rule {

std::string one_kernel_unsupported(const Bf16Arguments& a) {
  if (const std::string reason = warpgroup_chain_unsupported(a); !reason.empty()) return reason;
#if TUTORIAL_EMULATOR
  return "";
#else
  return "wrong results in 3 of 23 processes on an H200, for a reason that is not known yet (README)";
#endif
}

}  // namespace tutorial::delta_rule
