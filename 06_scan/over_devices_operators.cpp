#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

#include <utility>

#include "02_chunkwise/operators.hpp"
#include "04_fused_chunk/operators.hpp"
#include "05_deltanet_wy/operators.hpp"
#include "06_scan/operators.hpp"
#include "06_scan/over_devices.hpp"
#include "06_scan/over_devices_backward.hpp"
#include "common/device/device_group.hpp"
#include "common/error.hpp"

namespace tutorial::over_devices {
namespace {

Operator chapter_definition(Rule rule) {
  switch (rule) {
    case Rule::linear_attention:
      return linear_attention::definition();
    case Rule::simple_gla:
      return simple_gla::definition();
    case Rule::delta_rule:
      return delta_rule::definition();
  }
  throw std::logic_error("no such rule");
}

Operator chapter_backward_definition(Rule rule) {
  switch (rule) {
    case Rule::linear_attention:
      return linear_attention::backward_definition();
    case Rule::simple_gla:
      return simple_gla::backward_definition();
    case Rule::delta_rule:
      return delta_rule::backward_definition(delta_rule::definition());
  }
  throw std::logic_error("no such rule");
}

/// Devices that there are; 0 if the runtime finds none.
int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  (void)cudaGetLastError();
  return 0;
}

/// The operator as its form `devices`.
Operator with_devices(Operator definition) {
  definition.form("devices", "share the sequence among several GPUs")
      .sizes({{"B", 1}, {"H", 8}, {"L", 1 << 17}, {"Dk", 128}, {"Dv", 128}, {"C", 64}})
      .derived_size("N", [](const Sizes& s) { return std::clamp<std::int64_t>(device_count(), 1, s.at("L")); })
      .consistent([](const Sizes& s) -> std::string {
        const std::int64_t N = s.at("N"), there = device_count();
        const std::string devices = "N = " + std::to_string(N) + " devices: ";
        try {
          timeout_from_environment();
        } catch (const UsageError& error) {  // before anything is computed
          return error.what();
        }
        if (N > s.at("L")) return devices + "there are no more than L = " + std::to_string(s.at("L")) + " positions";
        if (there > 0 && N > there) return devices + "this machine has " + std::to_string(there);
        return "";
      });
  return definition;
}

}  // namespace

Arguments Arguments::bind(const Call& call) {
  return {call.size("B"),
          call.size("H"),
          call.size("L"),
          call.size("Dk"),
          call.size("Dv"),
          call.size("N"),
          call.scale(),
          call.view<const __nv_bfloat16>("q"),
          call.view<const __nv_bfloat16>("k"),
          call.view<const __nv_bfloat16>("v"),
          call.view<const float>("g"),
          call.view<const float>("beta"),
          call.view<const float>("initial_state"),
          call.view<__nv_bfloat16>("o"),
          call.view<float>("final_state")};
}

BackwardArguments BackwardArguments::bind(const Call& call) {
  return {call.size("B"),
          call.size("H"),
          call.size("L"),
          call.size("Dk"),
          call.size("Dv"),
          call.size("N"),
          call.scale(),
          call.view<const __nv_bfloat16>("q"),
          call.view<const __nv_bfloat16>("k"),
          call.view<const __nv_bfloat16>("v"),
          call.view<const float>("g"),
          call.view<const float>("beta"),
          call.view<const float>("initial_state"),
          call.view<const __nv_bfloat16>("do"),
          call.view<const float>("dfinal_state"),
          call.view<__nv_bfloat16>("dq"),
          call.view<__nv_bfloat16>("dk"),
          call.view<__nv_bfloat16>("dv"),
          call.view<float>("dg"),
          call.view<float>("dbeta"),
          call.view<float>("dinitial_state")};
}

template <Rule kRule>
Operator definition() {
  return with_devices(chapter_definition(kRule));
}
template <Rule kRule>
Operator backward_definition() {
  return with_devices(chapter_backward_definition(kRule));
}

#define INSTANTIATE(RULE)               \
  template Operator definition<RULE>(); \
  template Operator backward_definition<RULE>()
INSTANTIATE(Rule::linear_attention);
INSTANTIATE(Rule::simple_gla);
INSTANTIATE(Rule::delta_rule);
#undef INSTANTIATE

}  // namespace tutorial::over_devices
