#pragma once
/// @file
/// The command line of a chapter.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/chapter/chapter.hpp"
#include "common/chapter/sizes.hpp"

namespace tutorial {

/// What the command line says.
struct Options {
  std::string operator_name;        ///< empty: all of the chapter
  std::string form;                 ///< as Operator::form(); empty: the operators that are no form
  std::vector<std::string> stages;  ///< empty: all, but for variants
  bool variants = false;            ///< variants, too, where `stages` is empty
  std::set<std::string> shown;      ///< the options of demonstrations that were given
  bool list = false;
  Sizes sizes;                        ///< those that were given
  std::vector<std::int64_t> lengths;  ///< of packed sequences; empty: not given
  std::optional<double> scale;
  std::uint64_t seed = 0;  ///< fresh unless given
  std::string gates;       ///< a name of gate_draws(); empty: as operators draw them
  std::optional<int> repeat;
  std::optional<int> warmup;
  bool cpu_only = false;
  std::optional<bool> heads_inside;  ///< --layout: true for blhd
  std::optional<int> as;             ///< the compute capability of the card that the GPU is to pass for: 120 for 12.0
  std::filesystem::path input;       ///< empty where not given, like the other files
  std::filesystem::path weights;
  std::filesystem::path output;
  std::string json;             ///< a path or "-"
  std::filesystem::path trace;  ///< --timeline; empty: no trace
  unsigned trace_blocks = 8;    ///< of each launch
};

/// Parses the command line. Nothing is returned where it asked for help, which has then been printed. Throws UsageError
/// where an option is unknown, lacks its value, or has one that is no number or out of range.
std::optional<Options> parse_options(const Chapter& chapter, int argc, const char* const* argv);

/// The option that sets a size: "--length" for L. Empty for a size that has none.
std::string option_of(const std::string& symbol);

}  // namespace tutorial
