#pragma once
/// @file
/// What the accesses of a kernel have shown: the first mistake of each kind.

#include <cstdint>
#include <string>

#include "exercise/kernel.cuh"

namespace exercise {

/// The first mistake of each kind, as a sentence; empty where there is none.
struct Findings {
  std::string stray;      ///< an index outside of an array
  std::string race;       ///< two accesses that nothing orders
  std::string unwritten;  ///< an element that is read before it is written
};

/// Those since the last call of forget_findings().
const Findings& findings();
void forget_findings();
/// Notes that a pointer has left an array. @param does "reads" or "writes" @param where "the memory behind x"
void note_stray_pointer(const char* does, const std::string& where, std::uint64_t bytes);
/// Adds what the emulator has found in the last launches.
void add_findings();

/// Without the path of the project.
std::string short_path(std::string text);

}  // namespace exercise
