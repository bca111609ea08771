/// @file
/// Why a stage cannot run a problem.

#include <climits>
#include <cstdint>

#include "01_linear_attention/causal_dot_product_backward.hpp"

namespace tutorial::causal_dot_product_backward {

std::string lmha_unsupported(const Arguments& a) {
  if (a.Dk > 64 || a.Dv > 64)
    return "Dk or Dv > 64: a column of the state would not fit into the registers of one thread";
  if (a.L > INT_MAX - 64) return "L > 2^31 - 65: positions are counted in int";
  if (std::int64_t(a.B) * a.H > INT_MAX) return "B H > 2^31 - 1: the grid's first dimension";
  return "";
}

}  // namespace tutorial::causal_dot_product_backward
