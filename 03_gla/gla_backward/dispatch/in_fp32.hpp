#pragma once
/// @file
/// The gradients in fp32 on a GPU, for problems that the kernels on tensor cores do not support (in_fp32.cu).

#include <string>

#include "03_gla/gla_backward.hpp"

namespace tutorial::gla {

/// Starts two kernels on current_stream(). They compute in fp32 and take q, k, v and do as they are, with any strides.
template <class T>
void backward_in_fp32(const BackwardArguments<T>&);
/// Why they do not support these sizes; empty if they do.
template <class T>
std::string backward_in_fp32_unsupported(const BackwardArguments<T>&);

}  // namespace tutorial::gla
