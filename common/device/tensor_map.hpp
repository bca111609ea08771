#pragma once
/// @file
/// Tensor maps: what the hardware has to know of a tensor to copy tiles of it by itself (bulk_copy.cuh).
///
/// A map is made on the host and passed to the kernel by value:
///
///     __global__ void kernel(const __grid_constant__ TensorMap keys, ...)
///     launch(kernel, {blocks, threads, bytes}, tile_map(k, {B, H, L, D}, 64), ...);
///
/// Its dimensions are D, L, H and B, and a tile has 64 columns of D and some rows of L of one head. In shared memory a
/// row takes 128 bytes, and its 16-byte units are permuted: unit u of row r lies at u ^ (r % 8). So neither reading a
/// row nor reading a column of units has bank conflicts. What a tile covers outside of the tensor is zeros after a
/// load, and is not written by a store.
///
/// Source: CUDA Driver API, "Tensor Map Object Management: cuTensorMapEncodeTiled".

#include <cuda_bf16.h>

#include <cstdint>
#include <string>

#include "common/view.hpp"

#if TUTORIAL_EMULATOR
#include <emulator/bulk_copy.hpp>
#else
#include <cuda.h>
#endif

namespace tutorial {

/// The columns of a tile: a row of 64 elements of 16 bits takes 128 bytes.
inline constexpr int kTileColumns = 64;

/// The bytes that a tile takes in shared memory, and that its barrier has to expect. Rows and columns outside of the
/// tensor count, too.
TUTORIAL_HOST_DEVICE constexpr unsigned tile_bytes(int rows) {
  return static_cast<unsigned>(rows) * kTileColumns * 2;
}

/// A tensor and the size of its tiles, as bulk copies want it. A kernel takes it as `const __grid_constant__ TensorMap`
/// and does not look into it.
struct TensorMap {
#if TUTORIAL_EMULATOR
  emulator::TileMap map;  ///< as the emulator wants it
#else
  CUtensorMap map;  ///< as the hardware wants it, aligned to 64 bytes
#endif
};

/// The sizes of a [B, H, L, D] tensor.
struct TensorSizes {
  std::int64_t B = 1;  ///< batch entries
  std::int64_t H = 1;  ///< heads
  std::int64_t L = 1;  ///< positions
  std::int64_t D = 1;  ///< elements of a row
};

/// Why the hardware cannot copy tiles of this tensor, in a sentence that a stage can give as the reason why it is
/// skipped. Empty if it can: the tensor begins at a multiple of 16 bytes, and so do all of its rows; strides are
/// positive and shorter than 2^40 bytes, where there is more than one index. A stride of 0 is allowed from head to head
/// and from entry to entry, for tensors that are shared; negative ones, of reversed views, are not.
/// @param rows of a tile, 1 to 256
std::string why_not_mapped(const View<const __nv_bfloat16>& view, const TensorSizes& sizes, int rows);

/// The map of a tensor for tiles of 64 columns and `rows` rows. The tensor must live as long as kernels use the map.
/// @throws std::invalid_argument with the sentence of why_not_mapped(), unless that is empty
TensorMap tile_map(const View<const __nv_bfloat16>& view, const TensorSizes& sizes, int rows);
/// The same for a tensor that tiles are stored to.
TensorMap tile_map(const View<__nv_bfloat16>& view, const TensorSizes& sizes, int rows);

}  // namespace tutorial
