#pragma once
/// @file
/// Runs the stages of an operator on one problem: checked first, then timed.

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/chapter/machine.hpp"
#include "common/chapter/operator.hpp"
#include "common/chapter/problem.hpp"
#include "common/chapter/progress.hpp"
#include "common/chapter/result.hpp"
#include "common/chapter/stage_tensors.hpp"
#include "common/roofline.hpp"
#include "common/timing.hpp"

namespace tutorial {

/// How stages are run, the same for all operators of a run.
struct RunSettings {
  Machine machine;
  Roofline cpu_roofline;
  Roofline gpu_roofline;      ///< of a real GPU
  std::optional<int> repeat;  ///< exactly as many timed runs; with 0 a stage runs once, to be checked
  std::optional<int> warmup;
  bool keep_outputs = false;
  std::filesystem::path trace;  ///< of the stage's kernels; empty: none
  unsigned trace_blocks = 0;
};

/// The stages of one operator, run one after the other.
class OperatorRun {
 public:
  /// The arguments outlive this. The timer is nullptr where there is no GPU.
  OperatorRun(const Operator& definition, const Problem& problem, const RunSettings& settings, GpuTimer* timer,
              Progress& progress);

  /// Runs one stage, checks it against the reference and the last stage that passed, and times it if it passes. Errors
  /// of the stage end up in the result.
  StageResult run(const Stage& stage);

 private:
  struct Previous {
    const Stage* stage = nullptr;
    double tolerance = 0;
    std::shared_ptr<const Outputs> outputs;
  };

  StageTensors& tensors_for(Processor processor, Dtype dtype);
  const Outputs& reference(const Stage& stage);
  std::string why_skipped(const Stage& stage);
  /// Writes the file of settings.trace.
  void write_trace(StageResult& result);
  /// Runs it once more, to be written down.
  void run_traced(const Stage& stage, const Call& call);
  void run_checked(const Stage& stage, StageResult& result);
  void check_outputs(const Stage& stage, const StageTensors& tensors, const Outputs& expected, StageResult& result);

  const Operator& definition_;
  const Problem& problem_;
  const RunSettings& settings_;
  GpuTimer* timer_;
  Progress& progress_;
  std::map<std::pair<Processor, Dtype>, std::unique_ptr<StageTensors>> tensors_;
  std::map<Dtype, Outputs> references_;  // by the type that their inputs were rounded to
  Previous previous_;                    // the last stage that passed
};

/// Bytes that the run of some stages takes at least: on the host, and on the GPU.
struct MemoryNeed {
  double host = 0;
  double gpu = 0;
};
/// What these stages need, with the reference and, if they are kept, all outputs. On the emulator all of it is the
/// host's. Throws UsageError where a tensor is larger than any memory.
MemoryNeed memory_need(const Operator& definition, const std::vector<const Stage*>& stages, const Problem& problem,
                       const Machine& machine, bool keep_outputs);

/// The largest error |out - ref|_F / |ref|_F of a stage against the reference that is taken for rounding: what the
/// stage says, else 1e-2 in 16 bits and 1e-5 in fp32, which grows with the square root of L above 4096.
double tolerance_of(const Stage& stage, const Sizes& sizes);

}  // namespace tutorial
