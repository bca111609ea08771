#pragma once
/// @file
/// The kernel of `lmha` behind dispatch, for every Dk up to 256 and every way to cut a head.

#include <span>

#include "01_linear_attention/causal_dot_product.hpp"

namespace tutorial::causal_dot_product {

/// The largest Dk that the kernel supports.
constexpr int kLmhaMaxKeyDim = 256;

/// How the kernel cuts a head.
struct LmhaPlan {
  int blocks_per_head = 1;              ///< each has some of the columns of S
  bool two_threads_per_column = false;  ///< instead of one; for Dk <= 64 and blocks of up to 64 columns
};

/// Starts the kernel on current_stream(), for up to kMostAtOnce products of the same sizes side by side. The caller
/// ensures that no block has more than lmha_max_columns(Dk) columns.
/// @throws CudaError if the launch is refused
void planned_lmha(std::span<const Arguments> products, LmhaPlan);
int lmha_max_columns(int Dk);  ///< the most value columns that a block takes

}  // namespace tutorial::causal_dot_product
