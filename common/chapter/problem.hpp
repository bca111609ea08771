#pragma once
/// @file
/// A problem: the sizes and the inputs that all stages of an operator get.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/chapter/operator.hpp"
#include "common/chapter/sizes.hpp"
#include "common/tensor.hpp"

namespace tutorial {

/// What the user says of a problem; the rest is the operator's default.
struct ProblemRequest {
  Sizes sizes = {};                         ///< those given by options
  std::optional<double> scale = {};         ///< --scale
  std::uint64_t seed = 0;                   ///< of what is drawn
  std::vector<std::int64_t> lengths = {};   ///< --lengths: of packed sequences; empty: drawn, or as a file says
  std::string gates = {};                   ///< --gates, a name of gate_draws(); empty: as the operator draws them
  std::filesystem::path input_file = {};    ///< --input; empty: all inputs are drawn
  std::filesystem::path weights_file = {};  ///< --weights
  bool modest = false;                      ///< default sizes for the emulator or the CPU alone
  bool heads_inside = false;                ///< files have [B, L, H, D], and stages take such memory
};

/// Inputs as packed fp32 or int32 tensors on the host, by name; an absent optional input is not there.
struct Problem {
  Sizes sizes;
  double scale = 1;
  Parameters parameters;
  std::uint64_t seed = 0;
  std::map<std::string, Shape, std::less<>> flattened;  ///< the dimensions that a file has in the place of a symbol
  std::map<std::string, Tensor, std::less<>> inputs;
  bool from_file = false;     ///< some input came from a file, and is not rounded to bf16
  bool heads_inside = false;  ///< stages take and give memory of [B, L, H, D]; the tensors here are [B, H, L, D]
  std::vector<std::string> warnings;  ///< of files: what they have that is not used, what may not be meant
};

/// The sizes, the scale and the parameters of the problem, from options, shapes and metadata in files, and defaults.
/// Reads headers only, so that bad requests are found before anything is computed. Throws UsageError where a file
/// cannot be read, lacks an input or has one of another library that would be ignored (why_foreign()), where two shapes,
/// or a shape and an option, contradict each other, and where a size is out of range.
Problem plan_problem(const Operator& definition, const ProblemRequest& request);

/// Reads the inputs that files give, one after the other, and throws UsageError where one is of the wrong type, not
/// finite or not valid, or where offsets do not tell sequences apart.
void check_inputs(const Operator& definition, const ProblemRequest& request, const Problem& problem);

/// Reads and draws the inputs of a planned problem. Throws UsageError like check_inputs().
void load_inputs(const Operator& definition, const ProblemRequest& request, Problem& problem);

/// A planned problem with its inputs. Throws UsageError as the two do.
Problem make_problem(const Operator& definition, const ProblemRequest& request);

}  // namespace tutorial
