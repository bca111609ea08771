#pragma once
/// @file
/// What retention requires of a problem, and the memory that it takes.

#include <cstdint>
#include <string>

#include "03_gla/retention.hpp"

namespace tutorial::retention {

template <class T>
std::string gpu_unsupported(const Arguments<T>&);  ///< why it cannot run the problem, as a sentence; empty if it can
template <class T>
std::string gpu_note(const Arguments<T>&);  ///< what gla's dispatch picks
template <class T>
std::int64_t gpu_memory(const Arguments<T>&);  ///< bytes that it needs beside inputs and outputs

}  // namespace tutorial::retention
