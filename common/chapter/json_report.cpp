#include "common/chapter/json_report.hpp"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/atomic_file.hpp"
#include "common/chapter/options.hpp"
#include "common/device/device.hpp"
#include "common/error.hpp"

namespace tutorial {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

Json number(const std::optional<double>& value) {
  return value ? number(*value) : Json(nullptr);
}

// A count of bytes or operations, without a decimal point.
Json whole(double count) {
  return static_cast<std::int64_t>(count);
}

Json whole(const std::optional<double>& count) {
  return count ? whole(*count) : Json(nullptr);
}

// A rate in units of `unit` a second; null where it was not measured.
Json rate(double per_second, double unit) {
  return per_second > 0 ? number(per_second / unit) : Json(nullptr);
}

std::string text_of(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

Json capability(int number) {
  return number > 0 ? Json(capability_text(number)) : Json(nullptr);
}

Json device(const RunSettings& settings) {
  const Machine& machine = settings.machine;
  return {{"backend", kEmulated ? "emulator" : "cuda"},
          {"name", machine.has_gpu ? machine.gpu : machine.cpu},
          {"compute_capability", capability(machine.capability)},
          {"passes_for", capability(machine.passes_for)},
          {"copy_bandwidth_gb_s", rate(settings.gpu_roofline.copy_bytes_s, 1e9)},
          {"fp32_tflop_s", rate(settings.gpu_roofline.fma_flops_s, 1e12)},
          {"tensor_tflop_s", rate(settings.gpu_roofline.tensor_flops_s, 1e12)},
          {"ex2_tera_s", rate(settings.gpu_roofline.exponentials_s, 1e12)},
          {"cpu_name", machine.cpu},
          {"cpu_threads", machine.threads},
          {"cpu_copy_bandwidth_gb_s", rate(settings.cpu_roofline.copy_bytes_s, 1e9)},
          {"cpu_fp32_tflop_s", rate(settings.cpu_roofline.fma_flops_s, 1e12)}};
}

Json problem(const OperatorResult& result) {
  Json json = Json::object();
  for (const std::string& symbol : result.definition->symbols()) json[symbol] = result.sizes.find(symbol)->second;
  json["scale"] = number(result.scale);
  for (const auto& [name, value] : result.parameters) json[name] = number(value);
  json["seed"] = result.seed;
  if (result.heads_inside) json["layout"] = "blhd";
  for (const auto& [option, help] : result.definition->form_options()) json[option] = true;
  return json;
}

Json time_ms(const StageResult& stage) {
  if (!stage.times) return nullptr;
  return {{"median", number(stage.times->median)},
          {"min", number(stage.times->min)},
          {"max", number(stage.times->max)},
          {"runs", stage.times->runs},
          {"graph", number(stage.graph_ms)}};
}

Json parts(const StageResult& stage) {
  Json json = Json::array();
  for (const auto& [name, times] : stage.parts) {
    json.push_back({{"name", name},
                    {"time_ms",
                     {{"median", number(times.median)},
                      {"min", number(times.min)},
                      {"max", number(times.max)},
                      {"runs", times.runs}}}});
  }
  return json;
}

Json work(const Work& work) {
  return {{"fma_flops", whole(work.fma_flops)},
          {"tensor_flops", whole(work.tensor_flops)},
          {"exponentials", whole(work.exponentials)}};
}

// What the emulator counted of a call; null where it ran no kernels.
Json counts(const StageResult& stage) {
  if (!stage.ran() || !stage.emulated()) return nullptr;
  const KernelCounts& counts = stage.counts;
  return {{"launches", whole(counts.launches)},
          {"blocks", whole(counts.blocks)},
          {"threads", whole(counts.threads)},
          {"barriers", whole(counts.barriers)},
          {"atomics", whole(counts.atomics)},
          {"bytes_read", whole(counts.bytes_read)},
          {"bytes_written", whole(counts.bytes_written)}};
}

Json stage_json(const StageResult& stage) {
  const bool ran = stage.ran();
  return {{"name", stage.stage->name},
          {"runs_on", stage.runs_on},
          {"dtype", name_of(stage.stage->dtype)},
          {"checked_against", text_or_null(stage.checked_against)},
          {"error", number(stage.error)},
          {"reference_error", number(stage.reference_error)},
          {"tolerance", number(stage.tolerance)},
          {"passed", ran ? Json(stage.passed()) : Json(nullptr)},
          {"time_ms", time_ms(stage)},
          {"parts", parts(stage)},
          {"bytes", ran ? whole(stage.bytes) : Json(nullptr)},
          {"workspace_bytes", whole(stage.memory)},
          {"launches", ran && stage.stage->processor == Processor::gpu ? whole(stage.launches) : Json(nullptr)},
          {"bytes_moved", whole(stage.bytes_moved)},
          {"counts", counts(stage)},
          {"flops", whole(stage.work.fma_flops + stage.work.tensor_flops)},
          {"work", work(stage.work)},
          {"limit_ms", number(stage.limit_ms)},
          {"note", text_or_null(stage.note)},
          {"failure", text_or_null(stage.failure)},
          {"skipped", text_or_null(stage.skipped)}};
}

// The options that set an operator's sizes, by symbol: {"L": "--length", ...}.
Json size_options(const Operator& definition) {
  Json json = Json::object();
  for (const std::string& symbol : definition.symbols()) {
    if (symbol == "N" && definition.form_options().contains("lengths")) continue;  // --lengths sets it
    if (const std::string option = option_of(symbol); !option.empty()) json[symbol] = option;
  }
  return json;
}

// What a file gives an operator.
Json inputs_of(const Operator& definition) {
  Json json = Json::array();
  for (const Input& input : definition.inputs()) {
    json.push_back({{"name", input.name},
                    {"dims", input.dims},
                    {"dtype", name_of(input.dtype)},
                    {"optional", input.optional},
                    {"weight", input.weight}});
  }
  return json;
}

}  // namespace

std::string to_json(const Chapter& chapter, const RunSettings& settings, const std::vector<OperatorResult>& results) {
  Json json = {{"chapter", chapter.name()}, {"device", device(settings)}, {"results", Json::array()}};
  for (const OperatorResult& result : results) {
    Json stages = Json::array();
    for (const StageResult& stage : result.stages) stages.push_back(stage_json(stage));
    json["results"].push_back(
        {{"operator", result.definition->name()}, {"problem", problem(result)}, {"stages", std::move(stages)}});
  }
  return text_of(json);
}

std::string list_to_json(const Chapter& chapter, const std::string& operator_name) {
  Json json = {{"chapter", chapter.name()}, {"title", chapter.title()}, {"operators", Json::array()}};
  for (const Operator& definition : chapter.operators()) {
    if (!operator_name.empty() && operator_name != definition.name()) continue;
    const Operator* backward = chapter.backward_of(definition);
    Json stages = Json::array();
    for (const Stage& stage : definition.stages()) {
      stages.push_back({{"name", stage.name},
                        {"place", stage.processor == Processor::cpu ? "cpu" : "gpu"},
                        {"dtype", name_of(stage.dtype)},
                        {"idea", stage.idea},
                        {"variant", stage.is_variant},
                        {"backward", backward != nullptr && backward->find(stage.name) != nullptr}});
    }
    json["operators"].push_back({{"operator", definition.name()},
                                 {"form", text_or_null(definition.form())},
                                 {"summary", definition.summary()},
                                 {"options", size_options(definition)},
                                 {"inputs", inputs_of(definition)},
                                 {"stages", std::move(stages)}});
  }
  return text_of(json);
}

void write_json(const std::string& path, const std::string& json) {
  if (path == "-") {
    std::fwrite(json.data(), 1, json.size(), stdout);  // Chapter::run() looks whether it could be written
    return;
  }
  AtomicFile file(path);
  file.write(json.data(), json.size());
  file.commit();
}

}  // namespace tutorial
