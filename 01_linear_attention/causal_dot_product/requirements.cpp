/// @file
/// Why a stage cannot run a problem.

#include <climits>
#include <cstdint>

#include "01_linear_attention/causal_dot_product.hpp"
#include "common/ceil_div.hpp"

namespace tutorial::causal_dot_product {

std::string quadratic_unsupported(const Arguments& a) {
  return a.L > 4096 ? "L > 4096: the score matrix would take over 134 MB and O(L^2) time" : "";
}

std::string atomic_unsupported(const Arguments& a) {
  if (a.Dv > 1024) return "Dv > 1024: one thread per value column, and a block has 1024 threads at most";
  if (ceil_div(a.Dk, 8) > 65535) return "Dk > 8 x 65535: the grid's second dimension";
  if (std::int64_t(a.B) * a.H > INT_MAX) return "B H > 2^31 - 1: the grid's first dimension";
  return "";
}

std::string registers_unsupported(const Arguments& a) {
  if (a.Dk > 64) return "Dk > 64: a column of S would not fit into the registers of one thread";
  if (a.Dv > 128) return "Dv > 128: one thread per value column, and these blocks have 128 threads at most";
  if (a.L > INT_MAX - 64) return "L > 2^31 - 65: positions are counted in int";
  if (std::int64_t(a.B) * a.H > INT_MAX) return "B H > 2^31 - 1: the grid's first dimension";
  return "";
}

std::string lmha_unsupported(const Arguments& a) {
  return registers_unsupported(a);  // it has the same threads and registers
}

std::string lmha_low_occupancy_unsupported(const Arguments& a) {
  if (a.Dk > 256) return "Dk > 256: more than 8 elements of a row per lane";
  if (a.L > INT_MAX - 64) return "L > 2^31 - 65: positions are counted in int";
  if (std::int64_t(a.B) * a.H * a.Dv > INT_MAX) return "B H Dv > 2^31 - 1: the grid's first dimension";
  return "";
}

}  // namespace tutorial::causal_dot_product
