#include "common/device/tensor_map.hpp"

#include <stdexcept>

#include "common/device/error.hpp"

namespace tutorial {
namespace {

constexpr std::int64_t kElementBytes = 2;

/// The bytes from one index to the next of dimensions L, H and B.
struct ByteStrides {
  std::int64_t bytes[3];
};

ByteStrides byte_strides(const View<const __nv_bfloat16>& view, const TensorSizes& sizes) {
  // A dimension with one index has no step, so any allowed stride will do for it.
  const std::int64_t any = (sizes.D * kElementBytes + 15) / 16 * 16;
  return {{sizes.L > 1 ? view.stride_l * kElementBytes : any, sizes.H > 1 ? view.stride_h * kElementBytes : any,
           sizes.B > 1 ? view.stride_b * kElementBytes : any}};
}

#if !TUTORIAL_EMULATOR
/// The driver's function. The runtime looks it up, so that nothing has to be linked with the driver's library.
decltype(&cuTensorMapEncodeTiled) encode_function() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result));
#else
  check(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &result));
#endif
  if (result != cudaDriverEntryPointSuccess || !function) {
    throw std::runtime_error("the driver has no cuTensorMapEncodeTiled: tensor maps need a driver for CUDA 12");
  }
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
}
#endif

}  // namespace

std::string why_not_mapped(const View<const __nv_bfloat16>& view, const TensorSizes& sizes, int rows) {
  if (rows < 1 || rows > 256) return "a tile of a bulk copy has 1 to 256 rows, not " + std::to_string(rows);
  for (const std::int64_t size : {sizes.B, sizes.H, sizes.L, sizes.D}) {
    if (size < 1 || size > std::int64_t{1} << 32) {
      return "a tensor map needs sizes between 1 and 2^32, not " + std::to_string(size);
    }
  }
  if (reinterpret_cast<std::uintptr_t>(view.data) % 16 != 0) {
    return "bulk copies need tensors that begin at a multiple of 16 bytes";
  }
  const ByteStrides strides = byte_strides(view, sizes);
  for (const std::int64_t& bytes : strides.bytes) {
    // Heads that share a tensor have no step from one to the next.
    const bool may_be_zero = &bytes != &strides.bytes[0];
    if (bytes < 0 || (bytes == 0 && !may_be_zero)) {
      return "bulk copies need positive strides, not " + std::to_string(bytes) + " bytes";
    }
    if (bytes % 16 != 0) {
      return "bulk copies need strides that are multiples of 16 bytes, not " + std::to_string(bytes) + " bytes";
    }
    if (bytes >= std::int64_t{1} << 40) return "bulk copies need strides below 2^40 bytes";
  }
  return {};
}

TensorMap tile_map(const View<const __nv_bfloat16>& view, const TensorSizes& sizes, int rows) {
  if (const std::string reason = why_not_mapped(view, sizes, rows); !reason.empty()) {
    throw std::invalid_argument(reason);
  }
  const ByteStrides strides = byte_strides(view, sizes);
  auto* data = const_cast<__nv_bfloat16*>(view.data);  // a map is for loads and for stores
#if TUTORIAL_EMULATOR
  return {{.base = reinterpret_cast<std::byte*>(data),
           .sizes = {sizes.D, sizes.L, sizes.H, sizes.B},
           .strides = {strides.bytes[0], strides.bytes[1], strides.bytes[2]},
           .rows = static_cast<unsigned>(rows)}};
#else
  static const auto encode = encode_function();
  const cuuint64_t global_sizes[] = {static_cast<cuuint64_t>(sizes.D), static_cast<cuuint64_t>(sizes.L),
                                     static_cast<cuuint64_t>(sizes.H), static_cast<cuuint64_t>(sizes.B)};
  const cuuint64_t global_strides[] = {static_cast<cuuint64_t>(strides.bytes[0]),
                                       static_cast<cuuint64_t>(strides.bytes[1]),
                                       static_cast<cuuint64_t>(strides.bytes[2])};
  const cuuint32_t tile[] = {kTileColumns, static_cast<cuuint32_t>(rows), 1, 1};
  const cuuint32_t steps[] = {1, 1, 1, 1};
  TensorMap map;
  const CUresult status = encode(&map.map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, data, global_sizes, global_strides,
                                 tile, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) {
    throw std::runtime_error("cuTensorMapEncodeTiled has failed with error " + std::to_string(status));
  }
  return map;
#endif
}

TensorMap tile_map(const View<__nv_bfloat16>& view, const TensorSizes& sizes, int rows) {
  return tile_map(read_only(view), sizes, rows);
}

}  // namespace tutorial
