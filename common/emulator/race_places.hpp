#pragma once
/// @file
/// Lines of source files, by numbers of four bytes; and names of variables.

#include <source_location>
#include <string>
#include <vector>

#include "race_clocks.hpp"

namespace emulator::races {

/// The place of an instruction of this program: the one before the address that a call returns to.
Place place_of(const void* return_address);
/// The same for a place that the source itself names.
Place place_of(const std::source_location& where);

/// A line of a source file.
struct Line {
  std::string file;
  unsigned number = 0;  ///< 0: it is not known
};

/// For each place its line: that of the kernel, not that of a wrapper of common/device that is inlined there. An
/// instruction's line is asked of addr2line, which comes with every compiler.
std::vector<Line> lines_of(const std::vector<Place>& places);

/// Whether the address is that of a constant or of code of this program.
bool is_constant(const void* address);

/// A variable in static memory.
struct Variable {
  std::string name;
  const void* address = nullptr;
  std::size_t bytes = 0;
};

/// The __shared__ variable of this program that the address lies in, as the OS thread that calls has it; without a name
/// if there is none.
Variable shared_variable_at(const void* address);

}  // namespace emulator::races
