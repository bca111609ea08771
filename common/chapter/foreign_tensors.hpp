#pragma once
/// @file
/// Inputs of other libraries that change what an operator computes, and that would be ignored here.

#include <string>
#include <string_view>

namespace tutorial {

/// Why a file with a tensor of this name cannot be meant for an operator that has no such input, as a sentence; empty
/// where the tensor may stay unused.
std::string why_foreign(std::string_view name);

}  // namespace tutorial
