#pragma once
/// @file
/// What the emulator says when a kernel went wrong.

#include <source_location>
#include <string>
#include <vector>

#include "emulator/runtime_error.hpp"
#include "emulator/vector_types.hpp"

namespace emulator {

class Block;
struct KernelThread;

/// "(3,0,0)"
std::string describe(uint3 index);
/// "file.cu:12 in void kernel(float*)"
std::string describe(const std::source_location& where);
/// The block, the kernel's launch, and which threads wait where: several lines.
std::string describe_stuck(const Block& block, const std::vector<KernelThread>& threads);
/// What a thread did wrong at `where`.
std::string describe_trap(const Block& block, const KernelThread& thread, const std::string& what,
                          const std::source_location& where);

/// Keeps `text` for last_report() and prints it to standard error.
void report(const std::string& text);

}  // namespace emulator
