#pragma once
/// @file
/// What the scans of simple_gla and delta_rule share: 32 columns of a state in the registers of a block, and what a
/// step does to them. Columns of a state do not depend on each other.
///
///     S  = decay S + k^T v      decay_and_add()
///     S += k^T v                add()
///     o  = q S                  read(), then sum_for_lane() or sum_for_all()
///
/// A block has 128 threads. 16 neighbouring lanes share four columns. Each of them has Dk / 16 rows, in groups of four.
/// So a float4 of k, which a lane reads from shared memory, serves 16 multiply-adds; both halves of a warp read the
/// same ones. Neighbouring lanes read neighbouring float4, so no two of them share a bank.
///
///     rows  0 to 3, 64 to 67, ...   lane 0 of the 16          registers [r][c]: r = 0 to 3 are the first four rows,
///     rows  4 to 7, 68 to 71, ...   lane 1                     r = 4 to 7 the next four; c = 0 to 3 the columns

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "06_scan/state_shape.hpp"
#include "common/device/cp_async.cuh"
#include "common/device/memory.cuh"
#include "common/device/warp.cuh"
#include "common/tile/requirements.hpp"
#include "common/view.hpp"

namespace tutorial::scan {

/// This thread among those that share its columns.
__device__ __forceinline__ int share() {
  return int(threadIdx.x) % kShare;
}
/// The first of this thread's four columns in the block's tile.
__device__ __forceinline__ int first_column() {
  return int(threadIdx.x) / kShare * 4;
}

/// Four numbers of a row in shared memory, from `index` on: aligned to 16 bytes.
__device__ __forceinline__ float4 four(const float* row, int index) {
  return *reinterpret_cast<const float4*>(row + index);
}

/// factor times this thread's four columns of a row of v.
/// @param row of kStateColumns numbers in shared memory
__device__ __forceinline__ void load_values(const float* row, float factor, float (&values)[4]) {
  const float4 v = four(row, first_column());
  values[0] = factor * v.x, values[1] = factor * v.y, values[2] = factor * v.z, values[3] = factor * v.w;
}

/// A thread's part of a state.
/// @tparam kDk Dk rounded up to 64, 128 or 256, so that the compiler knows the length of every loop over registers
template <int kDk>
struct StateTile {
  static constexpr int kRows = kDk / kShare;

  float of[kRows][4];

  /// The row of the state in of[r].
  static __device__ __forceinline__ int row(int r) { return r / 4 * 4 * kShare + share() * 4 + r % 4; }

  /// Calls f(d, j, element) for the elements that there are.
  /// @param columns of the block's tile that there are
  template <class F>
  __device__ __forceinline__ void each(int Dk, int columns, F f) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        if (row(r) < Dk && first_column() + c < columns) f(row(r), first_column() + c, of[r][c]);
      }
    }
  }

  /// Writes the state where load_packed() finds it. Every thread writes its own part, so that neighbouring threads
  /// write neighbouring float4. @param to the part of the first thread of the block; kRows kStateThreads float4 in all
  __device__ __forceinline__ void store_packed(float4* to) const {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      store_global(&to[r * kStateThreads + int(threadIdx.x)], make_float4(of[r][0], of[r][1], of[r][2], of[r][3]));
    }
  }
  /// Reads what another launch has written with store_packed().
  __device__ __forceinline__ void load_packed(const float4* from) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float4 row = load_global(&from[r * kStateThreads + int(threadIdx.x)]);
      of[r][0] = row.x, of[r][1] = row.y, of[r][2] = row.z, of[r][3] = row.w;
    }
  }

  /// S += factor times what another block has written with store_packed() while this kernel runs: by ordinary reads,
  /// without the promise of load_global().
  __device__ __forceinline__ void add_packed(float factor, const float4* from) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float4 row = from[r * kStateThreads + int(threadIdx.x)];
      of[r][0] += factor * row.x, of[r][1] += factor * row.y;
      of[r][2] += factor * row.z, of[r][3] += factor * row.w;
    }
  }

  /// S = 0.
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int c = 0; c < 4; ++c) of[r][c] = 0;
    }
  }

  /// S = factor S.
  __device__ __forceinline__ void scale(float factor) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int c = 0; c < 4; ++c) of[r][c] *= factor;
    }
  }

  /// S += factor other.
  __device__ __forceinline__ void add_scaled(float factor, const StateTile& other) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int c = 0; c < 4; ++c) of[r][c] += factor * other.of[r][c];
    }
  }

  /// S += k^T v.
  /// @param k row of kDk numbers in shared memory, aligned to 16 bytes
  __device__ __forceinline__ void add(const float* k, const float (&v)[4]) {
    with_rows(*this, k, [&](float& S, float key, int c) { S += key * v[c]; });
  }

  /// S = decay S + k^T v.
  __device__ __forceinline__ void decay_and_add(float decay, const float* k, const float (&v)[4]) {
    with_rows(*this, k, [&](float& S, float key, int c) { S = decay * S + key * v[c]; });
  }

  /// This thread's part of q S, its four columns.
  __device__ __forceinline__ void read(const float* q, float (&sums)[4]) const {
#pragma unroll
    for (int c = 0; c < 4; ++c) sums[c] = 0;
    with_rows(*this, q, [&](float S, float query, int c) { sums[c] += query * S; });
  }

 private:
  /// Calls f(element, x of its row, c) for this thread's elements.
  /// @param x kDk numbers in shared memory, aligned to 16 bytes
  template <class Tile, class F>
  static __device__ __forceinline__ void with_rows(Tile& tile, const float* x, F f) {
#pragma unroll
    for (int r = 0; r < kRows; r += 4) {
      const float4 four_x = four(x, row(r));
      const float of_rows[4] = {four_x.x, four_x.y, four_x.z, four_x.w};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
#pragma unroll
        for (int c = 0; c < 4; ++c) f(tile.of[r + e][c], of_rows[e], c);
      }
    }
  }
};

/// S = a tile of a state from device memory, rows `stride` elements apart.
template <int kDk>
__device__ __forceinline__ void load_state(StateTile<kDk>& S, const float* from, std::int64_t stride, int Dk,
                                           int columns) {
  S.each(Dk, columns, [&](int d, int c, float& element) { element = load_global(&from[d * stride + c]); });
}

/// Writes the tile.
template <int kDk>
__device__ __forceinline__ void store_state(StateTile<kDk>& S, float* to, std::int64_t stride, int Dk, int columns) {
  S.each(Dk, columns, [&](int d, int c, float& element) { store_global(&to[d * stride + c], element); });
}

/// The sum over the lanes that share columns, of column share() / 4. Each lane passes half of its numbers to another
/// lane and keeps the other half: 5 shuffles instead of 16. All lanes of the warp call it, as the next two functions.
__device__ __forceinline__ float sum_for_lane(const float (&x)[4]) {
  const bool second_pair = share() & 8, second = share() & 4;
  const float low = (second_pair ? x[2] : x[0]) + shuffle_xor(second_pair ? x[0] : x[2], 8);
  const float high = (second_pair ? x[3] : x[1]) + shuffle_xor(second_pair ? x[1] : x[3], 8);
  float sum = (second ? high : low) + shuffle_xor(second ? low : high, 4);
  sum += shuffle_xor(sum, 2);
  return sum + shuffle_xor(sum, 1);
}

/// The same for all four columns; all lanes receive the result.
__device__ __forceinline__ void sum_for_all(const float (&x)[4], float (&sums)[4]) {
  const float sum = sum_for_lane(x);
#pragma unroll
  for (int c = 0; c < 4; ++c) sums[c] = __shfl_sync(kAllLanes, sum, int(lane_index()) / kShare * kShare + c * 4);
}

/// Writes scale times q S of one position, the block's columns of o.
/// @param o the first of them; @param columns how many there are
__device__ __forceinline__ void store_output(float* o, const float (&parts)[4], float scale, int columns) {
  const float sum = sum_for_lane(parts);
  const int column = first_column() + share() / 4;
  if (share() % 4 == 0 && column < columns) store_global(&o[column], scale * sum);
}

/// Starts copies of kSteps rows of a tensor to rows of kWidth floats in shared memory, by all threads of the block.
/// @tparam kVector 16 bytes at once, which must be aligned, and there as a whole (see has_vector_rows()); else 4
/// @param from the first element; rows are `stride` elements apart
/// @param rows, columns that there are; zeros beyond
template <bool kVector, int kSteps, int kWidth>
__device__ __forceinline__ void load_rows_async(float* to, const float* from, std::int64_t stride, int rows,
                                                int columns) {
  constexpr int kElements = kVector ? 4 : 1, kCopies = kWidth / kElements;
#pragma unroll 4
  for (int i = int(threadIdx.x); i < kSteps * kCopies; i += kStateThreads) {
    const int row = i / kCopies, column = i % kCopies * kElements;
    cp_async<4 * kElements>(&to[row * kWidth + column], from + row * stride + column, row < rows && column < columns);
  }
}

/// Whether rows of `width` elements can be copied 16 bytes at a time.
inline bool has_vector_rows(const View<const float>& view, int width) {
  return width % 4 == 0 && tile::has_aligned_rows(view);
}

/// What a kernel is specialised for.
/// @tparam kWidth Dk rounded up; kIsVector: rows of q, k and v can be copied 16 bytes at a time
template <int kWidth, bool kIsVector>
struct StateShape {
  static constexpr int kDk = kWidth;
  static constexpr bool kVector = kIsVector;
};

/// Calls f with the shape for these q, k, v and widths.
/// @param a an operator's arguments; Dk <= kMaxKeyDim
/// @param f a function of a StateShape
template <class SomeArguments, class F>
void select_state_shape(const SomeArguments& a, F f) {
  const auto select_width = [&]<bool kVector>(std::bool_constant<kVector>) {
    if (a.Dk <= 64) return f(StateShape<64, kVector>{});
    if (a.Dk <= 128) return f(StateShape<128, kVector>{});
    return f(StateShape<256, kVector>{});
  };
  const bool is_vector = has_vector_rows(a.q, a.Dk) && has_vector_rows(a.k, a.Dk) && has_vector_rows(a.v, a.Dv);
  return is_vector ? select_width(std::true_type{}) : select_width(std::false_type{});
}

}  // namespace tutorial::scan
