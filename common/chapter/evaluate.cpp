#include "common/chapter/evaluate.hpp"

#include "common/device/error.hpp"
#include "common/device/stream.hpp"

namespace tutorial {

Outputs evaluate(const Operator& definition, const Stage& stage, const Problem& problem, const Layout& layout) {
  StageTensors tensors(definition, problem, stage.processor, storage_of(stage), Dtype::fp32, layout);
  const Call call = tensors.call();
  if (stage.share_out) stage.share_out(call);
  stage.run(call);
  if (stage.collect) stage.collect(call);
  if (stage.processor == Processor::gpu) check(cudaStreamSynchronize(current_stream()));
  return tensors.download_outputs(stage.without);
}

Outputs evaluate_reference(const Operator& definition, const Problem& problem, Dtype dtype) {
  const Dtype rounded_to = size_of(dtype) == 2 ? dtype : Dtype::fp32;
  StageTensors tensors(definition, problem, Processor::cpu, Dtype::fp32, rounded_to);
  Call call = tensors.call();
  std::map<std::string, StridedTensor> beside;
  const auto add = [&](const Output& spec, const std::string& name) {
    const Shape shape = shape_of(spec.dims, problem.sizes);
    const auto [term, is_new] = beside.try_emplace(name, Processor::cpu, Dtype::fp32, spec.dims, shape, Layout{});
    call.add(term->first, term->second.reference(true));
  };
  for (const Output& spec : definition.outputs()) {
    if (spec.cancels) add(spec, subtracted_of(spec.name));
    if (spec.is_sum) add(spec, terms_of(spec.name));
  }
  definition.compute_reference(call, dtype);
  Outputs outputs = tensors.download_outputs();
  for (const auto& [name, term] : beside) outputs.insert_or_assign(name, term.download(name));
  return outputs;
}

Comparison compare(const std::string& output, const Tensor& out, const Outputs& reference) {
  const auto subtracted = reference.find(subtracted_of(output));
  return compare(out, reference.at(output), subtracted == reference.end() ? nullptr : &subtracted->second);
}

std::string why_not(const Operator& definition, const Stage& stage, const Problem& problem, const Layout& layout) {
  if (!stage.unsupported) return {};
  return stage.unsupported(
      StageTensors(definition, problem, stage.processor, storage_of(stage), Dtype::fp32, layout).call());
}

}  // namespace tutorial
