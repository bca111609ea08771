#pragma once
/// @file
/// The one way to start a kernel, on both backends: launch(kernel, {grid, block, shared_bytes}, arguments...).

#include <cuda_runtime.h>

#include <type_traits>
#include <utility>

#include "common/device/launch_config.hpp"
#include "common/device/stream.hpp"

#if TUTORIAL_EMULATOR
#include <array>
#include <cstddef>
#include <cstring>
#include <emulator/launch.hpp>
#include <tuple>
#endif

namespace tutorial {

#if TUTORIAL_EMULATOR
/// The bytes of a kernel's parameters, each from a multiple of 8 on. Padding is 0: what happens to be there may look like
/// a pointer to another device's memory, which the emulator would report.
template <class... Parameters>
auto without_padding(const Parameters&... parameters) {
  std::array<std::byte, (0 + ... + ((sizeof(Parameters) + 7) / 8 * 8))> bytes{};
  std::size_t offset = 0;
  [[maybe_unused]] const auto append = [&](auto copy) {
#if __has_builtin(__builtin_clear_padding)
    __builtin_clear_padding(&copy);
#endif
    std::memcpy(bytes.data() + offset, &copy, sizeof copy);
    offset += (sizeof copy + 7) / 8 * 8;
  };
  (append(parameters), ...);
  return bytes;
}
#endif

/// Starts `kernel` on current_stream(). The arguments are converted to the types of the kernel's parameters, as in any
/// call. On a GPU it returns at once, on the emulator when the kernel has run.
/// @throws CudaError if the launch is refused, and on the emulator also if the kernel itself went wrong
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const LaunchConfig& config, Arguments&&... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments), "the kernel takes another number of arguments");
  static_assert((std::is_trivially_destructible_v<Parameters> && ...), "parameters are copied byte by byte");
  const std::size_t shared_bytes = shared_bytes_to_ask_for(reinterpret_cast<const void*>(kernel), config.shared_bytes);
  // A kernel gets 48 KB of static and dynamic shared memory together unless it asks for more.
  if (shared_bytes > 0) {
    const auto bytes = static_cast<int>(shared_bytes);
    check_launch(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), config);
  }
#if TUTORIAL_EMULATOR
  // A copy of the parameters, because a captured graph launches the kernel again when the arguments are long gone.
  const std::tuple<Parameters...> parameters(std::forward<Arguments>(arguments)...);
  check_launch(emulator::launch(
                   config.grid, config.block, shared_bytes, current_stream(), config.where,
                   [kernel, parameters] { std::apply(kernel, parameters); }, reinterpret_cast<const void*>(kernel),
                   config.cluster, std::apply(without_padding<Parameters...>, parameters), config.starts_early),
               config);
#else
  cudaLaunchConfig_t cuda_config{};
  cuda_config.gridDim = config.grid;
  cuda_config.blockDim = config.block;
  cuda_config.dynamicSmemBytes = shared_bytes;
  cuda_config.stream = current_stream();
  cudaLaunchAttribute attributes[2]{};  // a GPU that has no clusters refuses the attribute
  cuda_config.attrs = attributes;
  if (has_clusters(config)) {
    cudaLaunchAttribute& cluster = attributes[cuda_config.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = config.cluster.x;
    cluster.val.clusterDim.y = config.cluster.y;
    cluster.val.clusterDim.z = config.cluster.z;
  }
  if (starts_early(config)) {
    cudaLaunchAttribute& early = attributes[cuda_config.numAttrs++];
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
  }
  // What kernel<<<grid, block, shared_bytes, stream>>>(arguments...) does, but it returns its error.
  check_launch(cudaLaunchKernelEx(&cuda_config, kernel, std::forward<Arguments>(arguments)...), config);
#endif
  count_launch(config);
}

}  // namespace tutorial
