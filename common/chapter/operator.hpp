#pragma once
/// @file
/// An operator as its chapter defines it: inputs, outputs, sizes, cost, the double reference, and its stages. Sizes are
/// in elements, memory is in bytes. A definition that contradicts itself is a std::logic_error.

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/chapter/call.hpp"
#include "common/chapter/draw.hpp"
#include "common/chapter/sizes.hpp"
#include "common/dtype.hpp"

namespace tutorial {

struct Problem;

/// An input of an operator. Drawn at random unless --input gives it.
struct Input {
  std::string name = {};  ///< also its name in files
  Dims dims = {};
  Draw draw = {};             ///< none: absent unless a file gives it; the input must then be optional
  bool gate = false;          ///< natural logarithms of gates, which --gates may draw in another way
  Dtype dtype = Dtype::fp32;  ///< fp32 or int32
  bool optional = false;      ///< stages can do without it; it is not drawn where a file gives other inputs
  bool bf16 = true;           ///< bf16 stages take it in bf16, and a drawn one is rounded to bf16 for all stages
  bool in_graph = true;       ///< false for an initial state: the graph measure leaves it out
  bool weight = false;        ///< a layer's weight: --weights may give it
  bool times_scale = false;   ///< every output that depends on it is linear in the scale times this input
  bool slots = false;         ///< numbers of a pool's slots, no two alike, or -1
  bool offsets = false;       ///< where packed sequences begin, and where the last one ends; --lengths may give it
  std::function<bool(double value, const Sizes& sizes)> valid = {};  ///< of an element; none: every finite value is
  std::string requirement = {};  ///< what `valid` asks for, as in "g[0, 0, 3] = 0.5: must be at most 0"
};

/// A number that stages take beside sizes and scale.
struct Parameter {
  std::string name;
  double value;     ///< unless a file's metadata gives another
  std::string key;  ///< in that metadata
};

/// An output of an operator.
struct Output {
  std::string name = {};  ///< `o`, `y`, `final_state`
  Dims dims = {};
  bool bf16 = true;      ///< bf16 stages give it in bf16
  bool in_graph = true;  ///< false for a final state: the graph measure does not ask for it
  /// The output is a difference of two terms, which may cancel: then no arithmetic gets it right relative to its own
  /// size. The reference also writes the term that is subtracted, under subtracted_of(name), and errors are relative to
  /// the size of the output and this term together.
  bool cancels = false;
  /// The output is a sum of terms of either sign, of which nothing may be left. Its error is relative to its own size. But
  /// the reference also writes the root of the sum of the squares of its terms, under terms_of(name): the size that it has
  /// if the signs are random. It bounds how far a tolerance grows (most_amplified()).
  bool is_sum = false;
};

/// Operations of one call, by the unit that does them.
struct Work {
  double fma_flops = 0;     ///< on the fp32 units; a multiply-add counts as two
  double tensor_flops = 0;  ///< on the tensor cores
  double exponentials = 0;  ///< ex2 instructions
};

/// The name under which a reference finds the tensor for the term that is subtracted; null in every other call.
inline std::string subtracted_of(const std::string& output) {
  return output + "_subtracted";
}

/// The name under which a reference finds the tensor for the size of the terms (Output::is_sum); null in every other call.
inline std::string terms_of(const std::string& output) {
  return output + "_terms";
}

enum class Processor { cpu, gpu };

/// A function of a stage that the runner can call: one on the chapter's own plain struct of views and sizes, which has
/// a `static Arguments bind(const Call&)`. Empty where the stage does not give it.
template <class Result>
class StageFunction {
 public:
  /// None.
  StageFunction() = default;
  /// A function of any arguments that have bind().
  template <class Arguments>
  StageFunction(Result (*function)(const Arguments&))  // NOLINT(google-explicit-constructor): a stage lists functions
      : function_([function](const Call& call) { return function(Arguments::bind(call)); }) {}

  /// Whether the stage gives the function.
  explicit operator bool() const { return static_cast<bool>(function_); }
  /// One that makes of the call what it wants.
  static StageFunction of(std::function<Result(const Call&)> function) {
    StageFunction made;
    made.function_ = std::move(function);
    return made;
  }
  /// Calls it on the arguments that it binds.
  Result operator()(const Call& call) const { return function_(call); }

 private:
  std::function<Result(const Call&)> function_;
};

/// Of several functions with one name the one on these arguments: on<Bf16Arguments>(fused).
template <class Arguments, class Result>
constexpr auto on(Result (*function)(const Arguments&)) {
  return function;
}

/// One step of a chapter, its dispatch, or a variant that dispatch may choose.
struct Stage {
  std::string name = {};
  Processor processor = Processor::cpu;
  /// bf16: takes and gives `bf16` tensors in bf16. Otherwise tensors are fp32 and this is the type of the arithmetic:
  /// fp64 for a stage that computes in double.
  Dtype dtype = Dtype::fp32;
  StageFunction<void> run = {};  ///< computes; on a GPU it starts kernels on current_stream()
  std::string idea = {};         ///< one line for --list
  /// Why it cannot run a problem, as a sentence; empty text where it can.
  StageFunction<std::string> unsupported = {};
  StageFunction<std::string> note = {};  ///< a line below the stage's row, such as what a dispatch picked; or nothing
  /// Bytes that it takes beside its inputs and outputs; empty: none. Asked before there are tensors: it sees the sizes,
  /// and null for every tensor.
  StageFunction<std::int64_t> memory = {};
  /// Bytes that its kernels ask device memory for or give to it in a call, whether a cache serves them or not: what the
  /// emulator counts. A function of the sizes and of which tensors are there; -1: it does not say.
  StageFunction<std::int64_t> bytes_moved = {};
  std::function<Work(const Sizes&)> work = {};         ///< its operations, where they differ from the operator's
  std::function<double(const Sizes&)> tolerance = {};  ///< where it differs from the default of dtype and L; say why
  /// How many times its tolerance a stage may be off at most where keys are alike (input_rounding.hpp). 0: as many times
  /// as rounding the inputs once more asks for. Say why.
  double most_where_alike = 0;
  /// The same of outputs that are sums (Output::is_sum), relative to the size of their terms. Say why.
  double most_of_terms = 0;
  std::vector<std::string> without = {};  ///< outputs that it does not compute: not compared, not written
  /// For a stage over several devices, or one that changes its inputs: `share_out` brings the inputs to where `run` takes
  /// them, and `collect` brings the outputs back, before and after each run. Neither is part of its time.
  StageFunction<void> share_out = {};
  StageFunction<void> collect = {};  ///< see share_out
  /// Whether runs on one device may follow one another without share_out, each on what the last has left. Then there is a
  /// time in a graph, too.
  bool goes_on = false;
  bool is_variant = false;  ///< set by Operator::variant()
};

/// The options that run a form, each after a space: " --backward --normalize" for "backward+normalize".
std::string options_of_form(const std::string& form);
/// The form that takes one option more.
std::string with_option(const std::string& form, const std::string& option);

/// An operator and its stages, in order. Arguments is the chapter's own plain struct of views and sizes; it has
/// `static Arguments bind(const Call&)`. Operators whose stages differ in type may have several such structs.
class Operator {
 public:
  /// `name` is what --operator takes, `summary` the formula or a line of text.
  Operator(std::string name, std::string summary) : name_(std::move(name)), summary_(std::move(summary)) {}

  // The definition.

  /// Makes this a form of the operator that has the same name, run in its stead with the option --NAME. Called
  /// again, it makes it the form that takes all of these options.
  Operator& form(const std::string& name, std::string help);
  /// A new definition, the form `backward` of this one: from the gradients of this operator's outputs to those of
  /// its floating-point inputs. It has this operator's inputs; for each output an input of the same shape, named with a
  /// `d` before its name, which is absent unless a file gives it where the output is not part of the graph measure; and
  /// as outputs the gradients of the inputs, named likewise. Sizes, scale and parameters are this operator's;
  /// reference, work and stages are not. A file with `dfinal_state` is refused where this operator has no final state.
  /// GPU stages sum up dS / scale. So where the scale has no reciprocal in fp32, they get the same problem in other
  /// words: scale 1, and zeros for the gradients that the scale multiplies, such as `do`.
  Operator backward(std::string summary) const;
  /// A new definition, the form of this one that --lengths runs, or a file with `cu_seqlens`: B is 1, and N sequences lie
  /// one behind the other. Sequence n has the positions from cu_seqlens[n] to cu_seqlens[n + 1]. Tensors without positions,
  /// such as states, have an entry for each sequence, [N, ...]; an empty sequence hands its initial state on. The
  /// references are those of this operator on each sequence. It has no stages yet.
  Operator packed() const;
  /// Of packed(): what runs a function of the operator's CPU stages on one sequence after the other.
  StageFunction<void> on_each_sequence(const StageFunction<void>& function) const;
  /// The form of this one that --key-heads runs, with the same stages: q, k and their gradients have Hk heads, which
  /// divides H, and head h of the others uses head h / (H / Hk) of theirs. The stages get the groups of heads as batch
  /// entries, in which q and k take no step from head to head (Call::grouped()). Gradients of q and k, which they compute
  /// for each head, are added up behind them. Called when the stages are there.
  Operator grouped() const;
  /// Adds an input: what a call finds under its name.
  Operator& input(Input input);
  /// Adds an output, which each stage fills.
  Operator& output(Output output);
  /// Marks an output that there is: see Output::cancels. std::logic_error where there is none of this name. The gradient
  /// of a gate needs no mark: common/README.md says why its error is relative to its own size, however strong gates are.
  Operator& cancels(std::string_view output);
  /// The same for Output::is_sum.
  Operator& sums(std::string_view output);
  /// A file with a tensor of this name is refused, for a reason such as "it has no final state": the results would not
  /// be those of the whole file.
  Operator& refuses(std::string tensor, std::string reason);
  /// The default problem where there is a GPU. A symbol that is named here has a command line option, if one exists
  /// for it: B --batch, H --heads, L --length, Dk --key-dim, Dv or D --value-dim, Dg --gate-dim, C --chunk, P --prompt.
  Operator& sizes(Sizes sizes);
  /// The default problem of the emulator and of --cpu-only; symbols not named keep the size given by sizes().
  Operator& modest_sizes(Sizes sizes);
  /// The size of a symbol that no option sets, from the sizes before it, unless a file sets it.
  Operator& derived_size(std::string symbol, std::function<std::int64_t(const Sizes&)> size);
  /// The size of a symbol may be 0: one that no tensor has, such as the length of a prompt.
  Operator& may_be_zero(std::string symbol);
  /// The size of a symbol stands under this key in the metadata of files that were saved with it. It then counts like
  /// one in a tensor's shape.
  Operator& metadata_size(std::string symbol, std::string key);
  /// The symbol is the last of its tensors: in files it may stand for several dimensions, which are flattened to one,
  /// or be left out where it is 1. Outputs that end with it are written in the shape of the first input that ends with
  /// it.
  Operator& flattened(std::string symbol);
  /// Says in a sentence which sizes do not go together, and nothing where they do.
  Operator& consistent(std::function<std::string(const Sizes&)> conflict);
  /// A number above 0 that stages read with Call::parameter().
  Operator& parameter(std::string name, double value, std::string key);
  /// The operator takes a scale: this one, unless the file's metadata or --scale gives another.
  Operator& scale(std::function<double(const Sizes&)> scale);
  /// Operations of one call, for stages that do not say otherwise.
  Operator& work(std::function<Work(const Sizes&)> work);

  /// A line below the table about the inputs, such as a warning of numbers that are unlike what the operator is for.
  /// Empty: none.
  Operator& problem_note(std::function<std::string(const Problem&)> note);

  /// What every stage is checked against: computed on the CPU in double, its outputs rounded to fp32.
  /// @param memory the bytes that it takes beside its tensors, asked like Stage::memory; empty: no more than some rows
  Operator& reference(StageFunction<void> function, StageFunction<std::int64_t> memory = {}) {
    reference_ = std::move(function);
    reference_memory_ = std::move(memory);
    return *this;
  }
  /// The reference for L > 4096, where one that is quadratic in L would take too long.
  Operator& long_reference(StageFunction<void> function, StageFunction<std::int64_t> memory = {}) {
    long_reference_ = std::move(function);
    long_reference_memory_ = std::move(memory);
    return *this;
  }
  /// The reference of stages in bf16, where it is not enough that `reference` has the same inputs: in a layer, what
  /// those stages keep in bf16 between its parts may decide what comes after.
  Operator& bf16_reference(StageFunction<void> function) {
    bf16_reference_ = std::move(function);
    return *this;
  }

  /// Adds a stage after those that are there. std::logic_error where one has its name, or where it has no `run`.
  Operator& stage(Stage stage);
  /// Adds a variant: a kernel that dispatch may choose and that is no step of the lesson. It is checked and tested like a
  /// stage, but it only runs where its name or --variants asks for it.
  Operator& variant(Stage stage);

  // What the runner asks.

  const std::string& name() const { return name_; }
  const std::string& summary() const { return summary_; }
  /// The name of the form; empty where this is none. Where it takes several options, their names in alphabetical
  /// order with + between them: "backward+normalize".
  std::string form() const;
  /// Its options by name, each with a line of help.
  const std::map<std::string, std::string>& form_options() const { return form_options_; }
  /// The name, and for a form its options: "linear_attention --normalize".
  std::string label() const { return name_ + options_of_form(form()); }
  const std::vector<Input>& inputs() const { return inputs_; }
  const std::vector<Output>& outputs() const { return outputs_; }
  const std::deque<Stage>& stages() const { return stages_; }
  /// Tensors that no file may have, with the reasons.
  const std::map<std::string, std::string>& refused() const { return refused_; }
  /// The stage of this name; null where there is none.
  const Stage* find(std::string_view stage) const;
  /// Every symbol, in the order in which the definition first names it.
  const std::vector<std::string>& symbols() const { return symbols_; }
  /// Whether a tensor of the operator has a dimension of this size.
  bool has_symbol(std::string_view symbol) const;
  /// The default of a symbol that has one.
  std::optional<std::int64_t> default_size(std::string_view symbol, bool modest) const;
  /// Fills in the derived sizes that are missing; those that they come from are there.
  void derive(Sizes& sizes) const;
  /// Symbols whose sizes metadata may give, with their keys.
  const std::vector<std::pair<std::string, std::string>>& metadata_sizes() const { return metadata_sizes_; }
  /// Whether the size may be 0.
  bool can_be_zero(const std::string& symbol) const { return may_be_zero_.contains(symbol); }
  /// Whether files may have several dimensions in the place of this one.
  bool is_flattened(const std::string& symbol) const { return flattened_.contains(symbol); }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  /// Why these sizes, which are complete, do not go together; empty where they do.
  std::string conflict(const Sizes& sizes) const { return conflict_ ? conflict_(sizes) : ""; }
  /// Whether --scale means something for it.
  bool takes_scale() const { return static_cast<bool>(scale_); }
  /// The scale where none is given; 1 where it takes none.
  double default_scale(const Sizes& sizes) const { return scale_ ? scale_(sizes) : 1.0; }
  /// A line about the inputs; empty where there is nothing to say.
  std::string note_on(const Problem& problem) const { return problem_note_ ? problem_note_(problem) : ""; }
  /// The operations of a stage: its own count, or the operator's.
  Work work_of(const Stage& stage, const Sizes& sizes) const;
  /// Bytes that the reference of a call takes beside its tensors.
  std::int64_t reference_memory(const Call& call) const;
  /// Whether stages on 16-bit numbers have a reference of their own.
  bool has_bf16_reference() const { return static_cast<bool>(bf16_reference_); }
  /// Computes the reference into the outputs of the call, which are fp32 in host memory. The operator has one.
  /// @param dtype the storage type of the stages that it is for
  void compute_reference(const Call& call, Dtype dtype) const;

 private:
  Output& find_output(std::string_view output);
  void add_symbol(const std::string& symbol);
  bool takes_long_reference(const Call& call) const;

  std::string name_;
  std::string summary_;
  std::map<std::string, std::string> form_options_;
  std::map<std::string, std::string> refused_;
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
  std::deque<Stage> stages_;
  std::vector<std::string> symbols_;
  Sizes sizes_;
  Sizes modest_sizes_;
  std::vector<std::pair<std::string, std::function<std::int64_t(const Sizes&)>>> derived_sizes_;
  std::vector<std::pair<std::string, std::string>> metadata_sizes_;
  std::set<std::string> flattened_;
  std::set<std::string> may_be_zero_;
  std::function<std::string(const Sizes&)> conflict_;
  std::vector<Parameter> parameters_;
  std::function<double(const Sizes&)> scale_;
  std::function<Work(const Sizes&)> work_;
  std::function<std::string(const Problem&)> problem_note_;
  StageFunction<void> reference_;
  StageFunction<std::int64_t> reference_memory_;
  StageFunction<void> long_reference_;
  StageFunction<std::int64_t> long_reference_memory_;
  StageFunction<void> bf16_reference_;
};

}  // namespace tutorial
