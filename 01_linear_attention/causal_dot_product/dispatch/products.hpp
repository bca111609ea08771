#pragma once
/// @file
/// What dispatch does for several products at once, such as the gradients of one.

#include <span>
#include <string>

#include "01_linear_attention/linear_attention.hpp"

namespace tutorial::causal_dot_product {

/// Computes up to kMostAtOnce products of the same sizes, as dispatch() would each of them: side by side where it takes
/// the kernel of lmha, otherwise one after the other. None reads what another writes.
/// @throws CudaError if a launch is refused
void dispatch_at_once(std::span<const Arguments> products);
/// The kernel that it picks, as text for the report.
std::string dispatch_at_once_note(std::span<const Arguments> products);

constexpr std::size_t kMostAtOnce = 3;  ///< the most products at once

}  // namespace tutorial::causal_dot_product
