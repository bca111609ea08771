#include "common/chapter/evaluate.hpp"

#include "common/device/error.hpp"
#include "common/device/stream.hpp"

namespace tutorial {

Outputs evaluate(const Operator& definition, const Stage& stage, const Problem& problem, const Layout& layout) {
  Placement placement(definition, problem, stage.place, storage_of(stage), Dtype::fp32, layout);
  stage.run(placement.call());
  if (stage.place == Place::gpu) check(cudaStreamSynchronize(current_stream()));
  return placement.download_outputs(stage.without);
}

Outputs evaluate_reference(const Operator& definition, const Problem& problem, Dtype dtype) {
  const Dtype rounded_to = size_of(dtype) == 2 ? dtype : Dtype::fp32;
  Placement placement(definition, problem, Place::cpu, Dtype::fp32, rounded_to);
  definition.compute_reference(placement.call(), dtype);
  return placement.download_outputs();
}

std::string why_not(const Operator& definition, const Stage& stage, const Problem& problem, const Layout& layout) {
  if (!stage.limits) return {};
  return stage.limits(Placement(definition, problem, stage.place, storage_of(stage), Dtype::fp32, layout).call());
}

}  // namespace tutorial
