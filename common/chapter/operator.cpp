#include "common/chapter/operator.hpp"

#include <algorithm>
#include <sstream>
#include <stdexcept>

namespace tutorial {
namespace {

constexpr std::int64_t kSequences = 5;  // unless --lengths or a file says how many

// The input that an output is a copy of if a sequence is empty: initial_state of final_state, dfinal_state of
// dinitial_state.
std::string handed_on(const std::string& output) {
  for (const auto& [after, before] :
       {std::pair<std::string, std::string>{"final_", "initial_"}, {"dinitial_", "dfinal_"}}) {
    if (output.starts_with(after)) return before + output.substr(after.size());
  }
  throw std::logic_error("an empty sequence has no " + output);
}

// The options of a form.
std::set<std::string> parts_of(const std::string& form) {
  std::set<std::string> options;
  std::istringstream text(form);
  for (std::string option; std::getline(text, option, '+');) options.insert(option);
  return options;
}

std::string joined(const std::set<std::string>& options) {
  std::string form;
  for (const std::string& option : options) form += (form.empty() ? "" : "+") + option;
  return form;
}

}  // namespace

std::string options_of_form(const std::string& form) {
  std::string options;
  for (const std::string& option : parts_of(form)) options += " --" + option;
  return options;
}

std::string with_option(const std::string& form, const std::string& option) {
  std::set<std::string> options = parts_of(form);
  options.insert(option);
  return joined(options);
}

Operator& Operator::form(const std::string& name, std::string help) {
  form_options_.insert_or_assign(name, std::move(help));
  return *this;
}

std::string Operator::form() const {
  std::set<std::string> options;
  for (const auto& [name, help] : form_options_) options.insert(name);
  return joined(options);
}

Operator Operator::backward(std::string summary) const {
  Operator backward(name_, std::move(summary));
  backward.form_options_ = form_options_;
  backward.form("backward", "the gradients of the inputs for given gradients of the outputs");
  for (const Input& spec : inputs_) backward.input(spec);
  for (const Output& spec : outputs_) {
    backward.input({.name = "d" + spec.name,
                    .dims = spec.dims,
                    .draw = spec.in_graph ? normal() : Draw{},
                    .optional = !spec.in_graph,
                    .bf16 = spec.bf16,
                    .in_graph = spec.in_graph,
                    .times_scale = scale_ && spec.in_graph});
  }
  for (const Input& spec : inputs_) {
    if (spec.dtype != Dtype::fp32) continue;
    backward.output({.name = "d" + spec.name, .dims = spec.dims, .bf16 = spec.bf16, .in_graph = spec.in_graph});
  }
  const auto is_final_state = [](const Output& spec) { return spec.name == "final_state"; };
  if (std::none_of(outputs_.begin(), outputs_.end(), is_final_state)) {
    backward.refuses("dfinal_state", "it has no final state");
  }
  backward.symbols_ = symbols_;
  backward.sizes_ = sizes_;
  backward.modest_sizes_ = modest_sizes_;
  backward.derived_sizes_ = derived_sizes_;
  backward.metadata_sizes_ = metadata_sizes_;
  backward.flattened_ = flattened_;
  backward.may_be_zero_ = may_be_zero_;
  backward.conflict_ = conflict_;
  backward.parameters_ = parameters_;
  backward.scale_ = scale_;
  return backward;
}

Operator Operator::packed() const {
  Operator packed(*this);
  packed.stages_.clear();
  packed.form("lengths",
              "pack sequences of these lengths one behind the other, 37,0,64; without a list they are drawn");
  packed.symbols_ = {"N"};
  for (const std::string& symbol : symbols_) packed.add_symbol(symbol);
  const auto give_entries = [](Dims& dims) {
    if (!dims.empty() && dims[0] == "B" && std::count(dims.begin(), dims.end(), "L") == 0) dims[0] = "N";
  };
  for (Input& spec : packed.inputs_) give_entries(spec.dims);
  for (Output& spec : packed.outputs_) give_entries(spec.dims);
  packed.input({.name = kOffsets, .dims = {"N+1"}, .draw = cuts("L"), .dtype = Dtype::int32, .offsets = true});
  packed.sizes_["N"] = kSequences;
  packed.sizes_["B"] = packed.modest_sizes_["B"] = 1;
  packed.consistent([conflict = conflict_](const Sizes& sizes) {
    if (sizes.at("B") != 1) return "B = " + std::to_string(sizes.at("B")) + ": packed sequences have B = 1";
    return conflict ? conflict(sizes) : "";
  });
  packed.reference_ = packed.on_each_sequence(reference_);
  packed.long_reference_ = packed.on_each_sequence(long_reference_);
  packed.bf16_reference_ = packed.on_each_sequence(bf16_reference_);
  return packed;
}

StageFunction<void> Operator::on_each_sequence(const StageFunction<void>& function) const {
  if (!function) return {};
  std::set<std::string> of_sequences, outputs;
  const auto add = [](const auto& specs, std::set<std::string>& names) {
    for (const auto& spec : specs) {
      if (!spec.dims.empty() && spec.dims[0] == "N") names.insert(spec.name);
    }
  };
  add(outputs_, outputs);
  of_sequences = outputs;
  add(inputs_, of_sequences);
  return StageFunction<void>::of([=](const Call& call) {
    const auto* offsets = call.data<const std::int32_t>(kOffsets);
    for (int n = 0; n < call.size("N"); ++n) {
      const std::int64_t length = offsets[n + 1] - offsets[n];
      const Call part = call.sequence(n, offsets[n], length, of_sequences);
      if (length > 0) {
        function(part);
        continue;
      }
      for (const std::string& name : outputs) {
        const View<float> to = part.view<float>(name);
        if (to.data == nullptr) continue;
        const auto* from = part.view<const float>(handed_on(name)).data;
        const std::int64_t elements = call.size("B") * to.stride_b;
        if (from != nullptr) {
          std::copy_n(from, elements, to.data);
        } else {
          std::fill_n(to.data, elements, 0.0f);
        }
      }
    }
  });
}

Operator& Operator::input(Input input) {
  for (const std::string& dimension : input.dims) add_symbol(Dimension(dimension).symbol);
  inputs_.push_back(std::move(input));
  return *this;
}

Operator& Operator::output(Output output) {
  for (const std::string& symbol : output.dims) add_symbol(symbol);
  outputs_.push_back(std::move(output));
  return *this;
}

Output& Operator::find_output(std::string_view output) {
  const auto found =
      std::find_if(outputs_.begin(), outputs_.end(), [&](const Output& spec) { return spec.name == output; });
  if (found == outputs_.end()) throw std::logic_error(name_ + " has no output '" + std::string(output) + "'");
  return *found;
}

Operator& Operator::cancels(std::string_view output) {
  find_output(output).cancels = true;
  return *this;
}

Operator& Operator::sums(std::string_view output) {
  find_output(output).is_sum = true;
  return *this;
}

Operator& Operator::refuses(std::string tensor, std::string reason) {
  refused_.insert_or_assign(std::move(tensor), std::move(reason));
  return *this;
}

Operator& Operator::sizes(Sizes sizes) {
  for (const auto& [symbol, size] : sizes) add_symbol(symbol);
  sizes_ = std::move(sizes);
  return *this;
}

Operator& Operator::modest_sizes(Sizes sizes) {
  modest_sizes_ = std::move(sizes);
  return *this;
}

Operator& Operator::derived_size(std::string symbol, std::function<std::int64_t(const Sizes&)> size) {
  add_symbol(symbol);
  derived_sizes_.emplace_back(std::move(symbol), std::move(size));
  return *this;
}

Operator& Operator::may_be_zero(std::string symbol) {
  add_symbol(symbol);
  may_be_zero_.insert(std::move(symbol));
  return *this;
}

Operator& Operator::metadata_size(std::string symbol, std::string key) {
  add_symbol(symbol);
  metadata_sizes_.emplace_back(std::move(symbol), std::move(key));
  return *this;
}

Operator& Operator::flattened(std::string symbol) {
  flattened_.insert(std::move(symbol));
  return *this;
}

Operator& Operator::consistent(std::function<std::string(const Sizes&)> conflict) {
  conflict_ = std::move(conflict);
  return *this;
}

Operator& Operator::parameter(std::string name, double value, std::string key) {
  parameters_.push_back({std::move(name), value, std::move(key)});
  return *this;
}

Operator& Operator::scale(std::function<double(const Sizes&)> scale) {
  scale_ = std::move(scale);
  return *this;
}

Operator& Operator::work(std::function<Work(const Sizes&)> work) {
  work_ = std::move(work);
  return *this;
}

Operator& Operator::problem_note(std::function<std::string(const Problem&)> note) {
  problem_note_ = std::move(note);
  return *this;
}

const Stage* Operator::find(std::string_view stage) const {
  const auto found = std::find_if(stages_.begin(), stages_.end(), [&](const Stage& s) { return s.name == stage; });
  return found == stages_.end() ? nullptr : &*found;
}

bool Operator::has_symbol(std::string_view symbol) const {
  return std::find(symbols_.begin(), symbols_.end(), symbol) != symbols_.end();
}

std::optional<std::int64_t> Operator::default_size(std::string_view symbol, bool modest) const {
  if (modest) {
    if (const auto found = modest_sizes_.find(symbol); found != modest_sizes_.end()) return found->second;
  }
  if (const auto found = sizes_.find(symbol); found != sizes_.end()) return found->second;
  return std::nullopt;
}

void Operator::derive(Sizes& sizes) const {
  for (const auto& [symbol, size] : derived_sizes_) {
    if (!sizes.contains(symbol)) sizes[symbol] = size(sizes);
  }
}

Work Operator::work_of(const Stage& stage, const Sizes& sizes) const {
  if (stage.work) return stage.work(sizes);
  return work_ ? work_(sizes) : Work{};
}

void Operator::compute_reference(const Call& call, Dtype dtype) const {
  if (bf16_reference_ && size_of(dtype) == 2) return bf16_reference_(call);
  (takes_long_reference(call) ? long_reference_ : reference_)(call);
}

std::int64_t Operator::reference_memory(const Call& call) const {
  const auto& memory = takes_long_reference(call) ? long_reference_memory_ : reference_memory_;
  return memory ? memory(call) : 0;
}

bool Operator::takes_long_reference(const Call& call) const {
  constexpr int kLongest = 4096;  // the quadratic form of longer sequences would take minutes
  return long_reference_ && has_symbol("L") && call.size("L") > kLongest;
}

Operator& Operator::stage(Stage stage) {
  if (find(stage.name) != nullptr) throw std::logic_error(name_ + " has two stages '" + stage.name + "'");
  if (!stage.run) throw std::logic_error(name_ + ": stage '" + stage.name + "' has nothing to run");
  stages_.push_back(std::move(stage));
  return *this;
}

Operator& Operator::variant(Stage variant) {
  variant.is_variant = true;
  return stage(std::move(variant));
}

void Operator::add_symbol(const std::string& symbol) {
  if (!has_symbol(symbol)) symbols_.push_back(symbol);
}

}  // namespace tutorial
