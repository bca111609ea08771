#include "common/chapter/evaluate.hpp"

#include "common/device/error.hpp"
#include "common/device/stream.hpp"

namespace tutorial {

Outputs evaluate(const Operator& definition, const Stage& stage, const Problem& problem, const Layout& layout) {
  StageTensors tensors(definition, problem, stage.processor, storage_of(stage), Dtype::fp32, layout);
  stage.run(tensors.call());
  if (stage.processor == Processor::gpu) check(cudaStreamSynchronize(current_stream()));
  return tensors.download_outputs(stage.without);
}

Outputs evaluate_reference(const Operator& definition, const Problem& problem, Dtype dtype) {
  const Dtype rounded_to = size_of(dtype) == 2 ? dtype : Dtype::fp32;
  StageTensors tensors(definition, problem, Processor::cpu, Dtype::fp32, rounded_to);
  definition.compute_reference(tensors.call(), dtype);
  return tensors.download_outputs();
}

std::string why_not(const Operator& definition, const Stage& stage, const Problem& problem, const Layout& layout) {
  if (!stage.unsupported) return {};
  return stage.unsupported(
      StageTensors(definition, problem, stage.processor, storage_of(stage), Dtype::fp32, layout).call());
}

}  // namespace tutorial
