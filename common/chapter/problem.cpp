#include "common/chapter/problem.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "common/chapter/foreign_tensors.hpp"
#include "common/error.hpp"
#include "common/parallel.hpp"
#include "common/random.hpp"
#include "common/safetensors.hpp"

namespace tutorial {
namespace {

// The files of a request, open.
struct Files {
  std::optional<SafetensorsFile> input;
  std::optional<SafetensorsFile> weights;

  explicit Files(const ProblemRequest& request) {
    if (!request.input_file.empty()) input.emplace(request.input_file);
    if (!request.weights_file.empty()) weights.emplace(request.weights_file);
  }

  // The file that gives an input, or nullptr.
  const SafetensorsFile* of(const Input& spec) const {
    if (spec.weight && weights && weights->contains(spec.name)) return &*weights;
    return input && input->contains(spec.name) ? &*input : nullptr;
  }

  // The metadata under a key: that of the weights, which were saved with it, before that of other inputs.
  struct Entry {
    const SafetensorsFile* file;
    std::string text;
  };
  std::vector<Entry> metadata(const std::string& key) const {
    std::vector<Entry> entries;
    for (const auto* file : {&weights, &input}) {
      if (!*file) continue;
      const auto found = (*file)->metadata().find(key);
      if (found != (*file)->metadata().end()) entries.push_back({&**file, found->second});
    }
    return entries;
  }
};

// Where a size came from, for messages.
struct KnownSize {
  std::int64_t size;
  std::string source;
};

// The dimensions of an input in a file.
Dims dims_in_file(const Input& spec, bool heads_inside) {
  Dims dims = spec.dims;
  if (heads_inside && has_positions(dims)) std::swap(dims[1], dims[2]);
  return dims;
}

// The shape of an input in a file; of a flattened symbol the one dimension that stands for what the file has.
Shape shape_in(const Operator& definition, const Input& spec, const SafetensorsFile& file) {
  Shape shape = file.shape(spec.name);
  const std::size_t outer = spec.dims.size() - 1;
  if (!definition.is_flattened(spec.dims.back()) || shape.size() < outer) return shape;
  const auto inner = shape.begin() + std::ptrdiff_t(outer);
  const std::int64_t size = element_count({inner, shape.end()});
  shape.erase(inner, shape.end());
  shape.push_back(size);
  return shape;
}

// Takes the sizes from the shape of one input in a file.
void take_shape(const Operator& definition, const Input& spec, const SafetensorsFile& file, bool heads_inside,
                std::map<std::string, KnownSize>& known, Problem& problem) {
  const Shape shape = shape_in(definition, spec, file);
  const Dims dims = dims_in_file(spec, heads_inside);
  const std::string tensor = fmt::format("{}: {} {}", file.path().string(), spec.name, to_string(shape));
  if (shape.size() != dims.size()) {
    throw UsageError(fmt::format("{} has {} dimensions, not the {} of [{}]", tensor, shape.size(), dims.size(),
                                 fmt::join(dims, ", ")));
  }
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const auto [symbol, more] = Dimension(dims[i]);
    const std::int64_t size = shape[i] - more;
    if (size <= 0) throw UsageError(fmt::format("{} has {} = {}", tensor, dims[i], shape[i]));
    const auto [found, is_new] = known.try_emplace(symbol, KnownSize{size, spec.name});
    if (!is_new && found->second.size != size) {
      throw UsageError(
          fmt::format("{} has {} = {}, but {} has {}", tensor, symbol, size, found->second.source, found->second.size));
    }
  }
  if (definition.is_flattened(spec.dims.back())) {
    const Shape& whole = file.shape(spec.name);
    problem.flattened.try_emplace(spec.dims.back(), whole.begin() + std::ptrdiff_t(shape.size() - 1), whole.end());
  }
}

// Takes the sizes from --lengths.
void take_lengths(const Operator& definition, const ProblemRequest& request, const Files& files,
                  std::map<std::string, KnownSize>& known) {
  for (const Input& spec : definition.inputs()) {
    if (!spec.offsets || request.lengths.empty()) continue;
    if (const SafetensorsFile* file = files.of(spec)) {
      throw UsageError(fmt::format("--lengths: {} has {}", file->path().string(), spec.name));
    }
    const std::int64_t L = std::accumulate(request.lengths.begin(), request.lengths.end(), std::int64_t{0});
    for (const auto& [symbol, size] : {std::pair("L", L), {"N", std::int64_t(request.lengths.size())}}) {
      const auto [found, is_new] = known.try_emplace(symbol, KnownSize{size, "--lengths"});
      if (is_new || found->second.size == size) continue;
      throw UsageError(
          fmt::format("--lengths has {} = {}, but {} has {}", symbol, size, found->second.source, found->second.size));
    }
  }
}

double metadata_number(const SafetensorsFile& file, const std::string& key, const std::string& text) {
  double number = 0;
  std::size_t used = 0;
  try {
    number = std::stod(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used == 0 || used != text.size() || !std::isfinite(number)) {
    throw UsageError(fmt::format("{}: the {} in its metadata, '{}', is not a number", file.path().string(), key, text));
  }
  return number;
}

// Takes a size that stands in the metadata.
void take_metadata_size(const std::string& symbol, const std::string& key, const Files& files,
                        std::map<std::string, KnownSize>& known) {
  for (const auto& [file, text] : files.metadata(key)) {
    const double number = metadata_number(*file, key, text);
    if (number < 1 || number > std::numeric_limits<int>::max() || number != std::floor(number)) {
      throw UsageError(fmt::format("{}: the {} in its metadata, '{}', is no size", file->path().string(), key, text));
    }
    const auto size = static_cast<std::int64_t>(number);
    const auto [found, is_new] = known.try_emplace(symbol, KnownSize{size, key + " in the metadata"});
    if (!is_new && found->second.size != size) {
      throw UsageError(fmt::format("{}: the {} in its metadata is {}, but {} = {}", file->path().string(), key, size,
                                   symbol, found->second.size));
    }
  }
}

double take_parameter(const Parameter& spec, const Files& files) {
  for (const auto& [file, text] : files.metadata(spec.key)) {
    const double value = metadata_number(*file, spec.key, text);
    if (value > 0) return value;
    throw UsageError(
        fmt::format("{}: the {} in its metadata, {}, must be above 0", file->path().string(), spec.key, value));
  }
  return spec.value;
}

// A layer whose weights are partly those of a file and partly drawn would compute nonsense.
void require_all_weights(const Operator& definition, const Files& files) {
  const SafetensorsFile* given = files.weights ? &*files.weights : nullptr;
  std::vector<std::string> missing;
  for (const Input& spec : definition.inputs()) {
    if (!spec.weight) continue;
    const SafetensorsFile* file = files.of(spec);
    if (file != nullptr && given == nullptr) given = file;
    if (file == nullptr && !spec.optional) missing.push_back(spec.name);
  }
  if (given == nullptr || missing.empty()) return;
  throw UsageError(
      fmt::format("{}: lacks weights of {}: {}", given->path().string(), definition.name(), fmt::join(missing, ", ")));
}

// Names, of which the first are listed.
std::string list_of(std::vector<std::string> names) {
  constexpr std::size_t kMostNames = 12;
  const bool more = names.size() > kMostNames;
  if (more) names.resize(kMostNames);
  return fmt::format("{}{}", fmt::join(names, ", "), more ? ", ..." : "");
}

// A file that lacks an input would be half of a problem, with the rest drawn beside it.
void require_all_inputs(const Operator& definition, const ProblemRequest& request, const SafetensorsFile& file) {
  std::vector<std::string> missing;
  for (const Input& spec : definition.inputs()) {
    if (spec.offsets && !request.lengths.empty()) continue;
    if (!spec.weight && !spec.optional && !file.contains(spec.name)) missing.push_back(spec.name);
  }
  if (missing.empty()) return;
  throw UsageError(fmt::format("{}: lacks inputs of {}: {}; it has {}", file.path().string(), definition.name(),
                               fmt::join(missing, ", "), list_of(file.names())));
}

// What a file has beside the inputs: refused where it would change the results, and else named.
void look_at_the_rest(const Operator& definition, const Files& files, const SafetensorsFile& file, Problem& problem) {
  std::vector<std::string> unused;
  for (const std::string& name : file.names()) {
    const auto is_taken = [&](const Input& spec) { return spec.name == name && files.of(spec) == &file; };
    const auto& inputs = definition.inputs();
    if (std::any_of(inputs.begin(), inputs.end(), is_taken)) continue;
    if (const std::string reason = why_foreign(name); !reason.empty()) {
      throw UsageError(
          fmt::format("{}: {} is of no use to {}: {}", file.path().string(), name, definition.label(), reason));
    }
    unused.push_back(name);
  }
  if (!unused.empty()) {
    problem.warnings.push_back(fmt::format("not used of {}: {}", file.path().string(), list_of(std::move(unused))));
  }
}

// More heads than positions are rare, and what is read of a file in the other layout.
void look_at_the_layout(const Operator& definition, const Files& files, Problem& problem) {
  const auto H = problem.sizes.find("H"), L = problem.sizes.find("L");
  if (!files.input || problem.heads_inside || H == problem.sizes.end() || L == problem.sizes.end()) return;
  const auto is_read = [&](const Input& spec) { return has_positions(spec.dims) && files.of(spec) == &*files.input; };
  const auto& inputs = definition.inputs();
  if (H->second <= L->second || H->second == 1 || !std::any_of(inputs.begin(), inputs.end(), is_read)) return;
  problem.warnings.push_back(
      fmt::format("{} is read as H = {} heads of L = {} positions; if it has [B, L, H, D], give --layout blhd",
                  files.input->path().string(), H->second, L->second));
}

// Reads an input in the type of its specification.
Tensor read_input(const Input& spec, const SafetensorsFile& file) {
  Tensor tensor = file.read(spec.name);
  const bool integer = tensor.dtype() == Dtype::int32 || tensor.dtype() == Dtype::int64;
  if (integer != (spec.dtype == Dtype::int32)) {
    throw UsageError(fmt::format("{}: {} is {}, but has to be {}", file.path().string(), spec.name,
                                 name_of(tensor.dtype()), integer ? "floating-point" : "int32 or int64"));
  }
  if (tensor.dtype() == spec.dtype) return tensor;
  if (tensor.dtype() == Dtype::fp64) {
    for (std::int64_t i = 0; i < tensor.size(); ++i) {
      const double value = tensor.elements<double>()[i];
      if (!std::isfinite(value) || std::isfinite(static_cast<float>(value))) continue;
      throw UsageError(fmt::format("{}: {}{} = {}: is beyond fp32", file.path().string(), spec.name,
                                   to_string(index_of(tensor.shape(), i)), value));
    }
  }
  try {
    return tensor.to(spec.dtype);
  } catch (const UsageError& problem) {
    throw UsageError(fmt::format("{}: {}: {}", file.path().string(), spec.name, problem.what()));
  }
}

// Throws UsageError that names the first element which is not finite or not valid. Of what is not finite, a logarithm of a
// gate may be -inf: the gate is closed.
void check_values(const Input& spec, const Tensor& tensor, const Sizes& sizes, const std::string& source) {
  std::atomic<std::int64_t> first = tensor.size();
  parallel_for(tensor.size(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const double value = tensor.value(i);
      const bool may_be_valid = std::isfinite(value) || (spec.valid && value < 0);
      if (may_be_valid && (!spec.valid || spec.valid(value, sizes))) continue;
      std::int64_t known = first.load();
      while (i < known && !first.compare_exchange_weak(known, i)) {
      }
      return;
    }
  });
  if (first == tensor.size()) return;
  const double value = tensor.value(first);
  throw UsageError(fmt::format("{}: {}{} = {}: {}", source, spec.name, to_string(index_of(tensor.shape(), first)),
                               value, std::isfinite(value) ? spec.requirement : "is not finite"));
}

// Throws UsageError that names the first slot which an entry before has, too.
void check_slots(const Tensor& tensor, const std::string& name, const std::string& source) {
  std::map<std::int32_t, std::int64_t> owners;
  const auto slots = tensor.elements<std::int32_t>();
  for (std::int64_t b = 0; b < tensor.size(); ++b) {
    if (slots[b] < 0) continue;
    const auto [owner, is_new] = owners.try_emplace(slots[b], b);
    if (is_new) continue;
    throw UsageError(fmt::format("{}: {}[{}] = {}: is also {}[{}]", source, name, b, slots[b], name, owner->second));
  }
}

// Throws UsageError that names the first offset which is not 0 at the beginning, L at the end, and not falling between.
void check_offsets(const Tensor& tensor, const std::string& name, const Sizes& sizes, const std::string& source) {
  const auto offsets = tensor.elements<std::int32_t>();
  const std::int64_t L = sizes.at("L"), last = std::int64_t(offsets.size()) - 1;
  for (std::int64_t n = 0; n <= last; ++n) {
    std::string wrong;
    if (n == 0 && offsets[0] != 0) wrong = "must be 0, where the first sequence begins";
    if (n > 0 && offsets[n] < offsets[n - 1]) wrong = fmt::format("falls, {} comes before it", offsets[n - 1]);
    if (n == last && wrong.empty() && offsets[n] != L)
      wrong = fmt::format("must be L = {}, where the last one ends", L);
    if (wrong.empty() && offsets[n] > L) wrong = fmt::format("is beyond L = {}", L);
    if (!wrong.empty()) throw UsageError(fmt::format("{}: {}[{}] = {}: {}", source, name, n, offsets[n], wrong));
  }
}

Tensor read_checked(const Input& spec, const SafetensorsFile& file, const Sizes& sizes) {
  Tensor tensor = read_input(spec, file);
  check_values(spec, tensor, sizes, file.path().string());
  if (spec.slots) check_slots(tensor, spec.name, file.path().string());
  if (spec.offsets) check_offsets(tensor, spec.name, sizes, file.path().string());
  return tensor;
}

}  // namespace

Problem plan_problem(const Operator& definition, const ProblemRequest& request) {
  const Files files(request);
  Problem problem;
  problem.seed = request.seed;
  problem.heads_inside = request.heads_inside;

  std::map<std::string, KnownSize> known;
  bool any = false;
  for (const Input& spec : definition.inputs()) {
    if (const SafetensorsFile* file = files.of(spec)) {
      if (spec.gate && !request.gates.empty()) {
        throw UsageError(fmt::format("--gates: {} has {}", file->path().string(), spec.name));
      }
      take_shape(definition, spec, *file, request.heads_inside, known, problem);
      any = true;
    } else if (!spec.draw && !spec.optional) {
      throw UsageError(fmt::format("{} needs the input {}, which only a file can give", definition.name(), spec.name));
    }
  }
  if (files.input && !any) {
    std::vector<std::string> names;
    for (const Input& spec : definition.inputs()) names.push_back(spec.name);
    throw UsageError(fmt::format("{}: holds none of the inputs of {}: {}", files.input->path().string(),
                                 definition.name(), fmt::join(names, ", ")));
  }
  for (const auto& [tensor, reason] : definition.refused()) {
    if (!files.input || !files.input->contains(tensor)) continue;
    throw UsageError(
        fmt::format("{}: {} is of no use to {}: {}", files.input->path().string(), tensor, definition.label(), reason));
  }
  require_all_weights(definition, files);
  if (files.input) require_all_inputs(definition, request, *files.input);
  for (const auto* file : {&files.weights, &files.input}) {
    if (*file) look_at_the_rest(definition, files, **file, problem);
  }
  take_lengths(definition, request, files, known);
  for (const auto& [symbol, key] : definition.metadata_sizes()) take_metadata_size(symbol, key, files, known);
  for (const auto& [symbol, size] : request.sizes) {
    if (!definition.has_symbol(symbol)) continue;
    const auto found = known.find(symbol);
    if (found != known.end() && found->second.size != size) {
      throw UsageError(
          fmt::format("{} = {} was asked for, but {} has {}", symbol, size, found->second.source, found->second.size));
    }
    known.try_emplace(symbol, KnownSize{size, "the command line"});
  }
  for (const std::string& symbol : definition.symbols()) {
    if (const auto found = known.find(symbol); found != known.end()) {
      problem.sizes[symbol] = found->second.size;
    } else if (const auto size = definition.default_size(symbol, request.modest)) {
      problem.sizes[symbol] = *size;
    }
  }
  definition.derive(problem.sizes);
  if (const std::string conflict = definition.conflict(problem.sizes); !conflict.empty()) {
    throw UsageError(fmt::format("{}: {}", definition.name(), conflict));
  }
  if (request.heads_inside && problem.sizes.contains("Hk") && problem.sizes["B"] > 1) {
    throw UsageError("--layout blhd: beside --key-heads for B = 1 alone, where groups of heads are equally far apart");
  }
  for (const auto& [symbol, size] : problem.sizes) {
    const int least = definition.can_be_zero(symbol) ? 0 : 1;
    if (size < least || size > std::numeric_limits<int>::max()) {
      throw UsageError(
          fmt::format("{} = {}: must be between {} and {}", symbol, size, least, std::numeric_limits<int>::max()));
    }
  }

  look_at_the_layout(definition, files, problem);

  problem.scale = definition.default_scale(problem.sizes);
  if (definition.takes_scale()) {
    if (request.scale) {
      problem.scale = *request.scale;
    } else if (files.input && files.input->metadata().contains("scale")) {
      const std::string& text = files.input->metadata().find("scale")->second;
      problem.scale = metadata_number(*files.input, "scale", text);
      if (std::abs(problem.scale) > std::numeric_limits<float>::max()) {
        throw UsageError(fmt::format("{}: the scale in its metadata, {}, is no number of type float",
                                     files.input->path().string(), text));
      }
    }
  }
  for (const Parameter& spec : definition.parameters()) problem.parameters[spec.name] = take_parameter(spec, files);
  return problem;
}

void check_inputs(const Operator& definition, const ProblemRequest& request, const Problem& problem) {
  const Files files(request);
  for (const Input& spec : definition.inputs()) {
    if (const SafetensorsFile* file = files.of(spec)) read_checked(spec, *file, problem.sizes);
  }
}

void load_inputs(const Operator& definition, const ProblemRequest& request, Problem& problem) {
  const Files files(request);
  for (const Input& spec : definition.inputs()) {
    const bool rounds = spec.bf16 && spec.dtype == Dtype::fp32;
    if (const SafetensorsFile* file = files.of(spec)) {
      Tensor tensor = read_checked(spec, *file, problem.sizes);
      tensor.reshape(shape_of(dims_in_file(spec, request.heads_inside), problem.sizes));
      if (request.heads_inside && has_positions(spec.dims)) tensor = swap_second_and_third(tensor);
      problem.inputs.insert_or_assign(spec.name, std::move(tensor));
      problem.from_file = problem.from_file || rounds;
    } else if (spec.offsets && !request.lengths.empty()) {
      Tensor tensor(spec.dtype, shape_of(spec.dims, problem.sizes));
      const auto offsets = tensor.elements<std::int32_t>();
      offsets[0] = 0;
      std::partial_sum(request.lengths.begin(), request.lengths.end(), offsets.begin() + 1);
      problem.inputs.insert_or_assign(spec.name, std::move(tensor));
    } else if (spec.draw && !(spec.optional && files.input)) {
      Tensor tensor(spec.dtype, shape_of(spec.dims, problem.sizes));
      const Draw& draw = spec.gate && !request.gates.empty() ? gate_draws().at(request.gates) : spec.draw;
      draw(Random(problem.seed, spec.name), problem.sizes, tensor);
      if (rounds) round_to_bf16(tensor);
      problem.inputs.insert_or_assign(spec.name, std::move(tensor));
    }
  }
}

Problem make_problem(const Operator& definition, const ProblemRequest& request) {
  Problem problem = plan_problem(definition, request);
  load_inputs(definition, request, problem);
  return problem;
}

}  // namespace tutorial
