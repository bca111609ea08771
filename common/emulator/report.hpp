#pragma once
/// @file
/// What the emulator says when a kernel went wrong.

#include <source_location>
#include <string>

#include "emulator/runtime_error.hpp"
#include "emulator/vector_types.hpp"

namespace emulator {

class Cluster;
struct KernelThread;

/// "(3,0,0)"
std::string describe(uint3 index);
/// "file.cu:12 in void kernel(float*)"
std::string describe(const std::source_location& where);
/// The blocks of a cluster that are stuck, the kernel's launch, and which threads wait where: several lines.
std::string describe_stuck(const Cluster& cluster);
/// What a thread did wrong at `where`.
std::string describe_trap(const KernelThread& thread, const std::string& what, const std::source_location& where);

/// Keeps `text` for last_report() and prints it to standard error.
void report(const std::string& text);

}  // namespace emulator
