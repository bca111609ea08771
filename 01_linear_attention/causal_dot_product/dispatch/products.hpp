#pragma once
/// @file
/// dispatch for several products at once, such as the gradients of one product.

#include <span>
#include <string>

#include "01_linear_attention/causal_dot_product.hpp"

namespace tutorial::causal_dot_product {

/// Computes up to kMostAtOnce products of the same sizes, each as dispatch() would. The products run side by side if
/// the kernel is that of lmha, otherwise one after the other. No product may read what another writes.
/// @throws CudaError if a launch is refused
void dispatch_at_once(std::span<const Arguments> products);
/// The kernel that dispatch_at_once() chooses, as text for the report.
std::string dispatch_at_once_note(std::span<const Arguments> products);

constexpr std::size_t kMostAtOnce = 3;  ///< the most products at once

}  // namespace tutorial::causal_dot_product
