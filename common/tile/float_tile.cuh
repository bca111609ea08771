#pragma once
/// @file
/// Tiles of 64 rows of fp32 in shared memory, and the products of a chunk on them, one multiply-add at a time:
///
///     P   = Q K^T          add_scores(), then store_masked()
///     O  += Q S            add_product<false>()
///     O  += P V            add_product<true>(): P is zero above the diagonal
///     S  += K^T V          add_transposed_product()
///
/// A block of 256 threads is a square of 16 x 16, and thread (y, x) has a small tile of each result in registers: with
/// 4 x 4 sums, 8 numbers read from shared memory serve 16 multiply-adds. Of P and O it has the rows y, y + 16, y + 32
/// and y + 48. So sum r of every thread lies in block row r of P. The compiler leaves out the blocks above the
/// diagonal, and all threads have the same work.
///
///     P in blocks:   c = 0   1   2   3
///              r = 0     m                     m  masked within
///                  1     #   m                 #  whole
///                  2     #   #   m                left out: 10 blocks of 16 are computed
///                  3     #   #   #   m
///
/// Rows are padded by 4 floats. So neighbouring rows begin 4 banks apart, 8 lanes that each read 16 bytes from a row of
/// their own use all 32 banks, and rows stay aligned to 16 bytes. Shared memory is read along the rows, 16 bytes at a
/// time (8 from tiles of 32 columns). Device memory is read one element per thread, so that every stride and width is
/// supported. The caller places the barriers, before a tile is read and before it is overwritten.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/memory.cuh"

namespace tutorial::tile {

inline constexpr int kTileRows = 64;      ///< positions of a chunk, or rows of a state
inline constexpr int kTileThreads = 256;  ///< of a block, for all functions here

/// [64, kColumns] fp32.
template <int kColumns>
struct FloatTile {
  static constexpr int kStride = kColumns + 4;
  static constexpr int kElements = kTileRows * kStride;

  float* data;  ///< aligned to 16 bytes

  /// The address of an element.
  __device__ __forceinline__ float* at(int row, int column) const { return data + row * kStride + column; }
};

/// Neighbouring floats that are read and written together.
template <int kCount>
struct alignas(4 * kCount) Floats {
  float of[kCount];
};
/// The floats from an address on. The address must be aligned to their size.
template <int kCount>
__device__ __forceinline__ Floats<kCount>& floats(float* address) {
  return *reinterpret_cast<Floats<kCount>*>(address);
}

/// The column of this thread in the square.
__device__ __forceinline__ int tile_x() {
  return int(threadIdx.x) % 16;
}
/// The row of this thread in the square.
__device__ __forceinline__ int tile_y() {
  return int(threadIdx.x) / 16;
}

/// Loads an element, fp32 or bf16, from device memory as fp32.
__device__ __forceinline__ float to_float(float value) {
  return value;
}
/// A bf16 number in fp32.
__device__ __forceinline__ float to_float(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
/// Stores to device memory in the tensor's type.
__device__ __forceinline__ void store_float(float* address, float value) {
  store_global(address, value);
}
/// Rounds to bf16 and stores to device memory.
__device__ __forceinline__ void store_float(__nv_bfloat16* address, float value) {
  store_global(address, __float2bfloat16(value));
}

/// tile = 64 rows from device memory; zeros beyond `rows` and `columns`.
/// @param from the first element; rows are `stride` elements apart
template <int kColumns, class T>
__device__ __forceinline__ void load_tile(const FloatTile<kColumns>& tile, const T* from, std::int64_t stride, int rows,
                                          int columns) {
  const int column = int(threadIdx.x) % kColumns, first = int(threadIdx.x) / kColumns;
#pragma unroll
  for (int step = 0; step < kTileRows; step += kTileThreads / kColumns) {
    const int row = first + step;
    const bool is_there = row < rows && column < columns;
    *tile.at(row, column) = is_there ? to_float(load_global(&from[row * stride + column])) : 0.0f;
  }
}

/// P += Q K^T, sums of the rows y + 16 r and the columns x + 16 c, in the blocks that the mask does not zero as a whole
/// (c <= r).
__device__ __forceinline__ void add_scores(float (&P)[4][4], const FloatTile<64>& Q, const FloatTile<64>& K) {
#pragma unroll 4
  for (int d = 0; d < 64; d += 4) {
    Floats<4> q[4], k[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      q[r] = floats<4>(Q.at(tile_y() + 16 * r, d));
      k[r] = floats<4>(K.at(tile_x() + 16 * r, d));
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
#pragma unroll
      for (int c = 0; c <= r; ++c) {
#pragma unroll
        for (int e = 0; e < 4; ++e) P[r][c] += q[r].of[e] * k[c].of[e];
      }
    }
  }
}

/// tile = P . M where c <= r; the rest of the tile is left as it is.
__device__ __forceinline__ void store_masked(const FloatTile<64>& tile, const float (&P)[4][4]) {
#pragma unroll
  for (int r = 0; r < 4; ++r) {
#pragma unroll
    for (int c = 0; c <= r; ++c) {
      const int t = tile_y() + 16 * r, i = tile_x() + 16 * c;
      *tile.at(t, i) = i <= t ? P[r][c] : 0.0f;
    }
  }
}

/// O += A B, sums of the rows y + 16 r and of kColumns / 16 columns side by side. Of a causal A it reads only the
/// blocks that store_masked() has written.
template <bool kCausal, int kColumns>
__device__ __forceinline__ void add_product(float (&O)[4][kColumns / 16], const FloatTile<64>& A,
                                            const FloatTile<kColumns>& B) {
  constexpr int kWide = kColumns / 16;
#pragma unroll
  for (int band = 0; band < 4; ++band) {
#pragma unroll
    for (int i = band * 16; i < band * 16 + 16; i += 4) {
      Floats<kWide> b[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) b[e] = floats<kWide>(B.at(i + e, tile_x() * kWide));
#pragma unroll
      for (int r = kCausal ? band : 0; r < 4; ++r) {
        const Floats<4> a = floats<4>(A.at(tile_y() + 16 * r, i));
#pragma unroll
        for (int e = 0; e < 4; ++e) {
#pragma unroll
          for (int c = 0; c < kWide; ++c) O[r][c] += a.of[e] * b[e].of[c];
        }
      }
    }
  }
}

/// S += K^T V, sums of the rows 4 y + r and of kColumns / 16 columns side by side.
template <int kColumns>
__device__ __forceinline__ void add_transposed_product(float (&S)[4][kColumns / 16], const FloatTile<64>& K,
                                                       const FloatTile<kColumns>& V) {
  constexpr int kWide = kColumns / 16;
#pragma unroll 8
  for (int i = 0; i < 64; ++i) {
    const Floats<4> k = floats<4>(K.at(i, tile_y() * 4));
    const Floats<kWide> v = floats<kWide>(V.at(i, tile_x() * kWide));
#pragma unroll
    for (int r = 0; r < 4; ++r) {
#pragma unroll
      for (int c = 0; c < kWide; ++c) S[r][c] += k.of[r] * v.of[c];
    }
  }
}

/// Writes a row of a thread's sums, times `factor`, to device memory: kWide columns side by side, of which `columns`
/// exist.
template <int kWide, class T>
__device__ __forceinline__ void store_row(T* row, const float (&sums)[kWide], float factor, int columns) {
#pragma unroll
  for (int c = 0; c < kWide; ++c) {
    const int column = tile_x() * kWide + c;
    if (column < columns) store_float(&row[column], factor * sums[c]);
  }
}

}  // namespace tutorial::tile
