#pragma once
/// @file
/// The effect of gates inside a sub-chunk of 16 positions, computed by one warp, with all of its scores on tensor cores.
/// decay_sub_chunk.cuh does the same pair by pair.
///
/// A score P_ti is a sum over d of q_td k_id times all gates from i + 1 to t. Cut that product of gates at an anchor c,
/// i < c <= t: the gates from c to t go to the query and those from i + 1 to c - 1 to the key. Both parts are products
/// of numbers of at most 1, and each depends on one position alone. So the scores of all queries from c on with all
/// keys before c are a product of two matrices. Every pair of positions has such an anchor, or needs none:
///
///     P_ti    i = 0 1 2 3 4 5 6 7 ...
///     t = 0       =                        =: no gate lies between, so P_tt = q_t k_t
///         1       1 =                      1: the anchor is t itself; k_i needs no factor
///         2       2 2 =                    2, 4, 8: the anchor is the last multiple of that number up to t
///         3       2 2 1 =
///         4       4 4 4 4 =
///         5       4 4 4 4 1 =
///         6       4 4 4 4 2 2 =
///         7       4 4 4 4 2 2 1 =
///         8..15   8 8 8 8 8 8 8 8 ...      and to the right of it the same once more
///
/// At level n the warp multiplies queries, decayed from the last multiple of n, by keys, decayed to the next. From one
/// level to the next half of the rows are multiplied by the decay of n positions. At the last level, 16, they are q~
/// and k~.
///
/// A warp has all columns of Dk, kDk / 32 per lane, and eight positions at a time: a half. It leaves the rows of each
/// level in shared memory of its own for ldmatrix. Queries and keys as loaded serve the levels = and 1.
///
/// All lanes of the warp call each function.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/ldmatrix.cuh"
#include "common/device/mma.cuh"
#include "common/device/pack.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/warp.cuh"
#include "common/tile/base2.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/decay_sub_chunk.cuh"
#include "common/tile/float_panels.cuh"
#include "common/tile/panel_tile.cuh"
#include "common/tile/sub_chunk.hpp"

namespace tutorial::fused_gla {

using namespace tile;

inline constexpr int kHalf = kSubChunk / 2;  ///< positions

/// Sixteen rows of bf16.
template <int kDk>
using SixteenRows = PanelTile<kDk, kSubChunk>;

/// What a warp has in shared memory.
template <int kDk>
struct LevelTiles {
  static constexpr int kRowsBytes = int(SixteenRows<kDk>::kPanelBytes) * (kDk / 64);
  static constexpr int kGateBytes = FloatPanels<kHalf, kDk>::kBytes;
  static constexpr int kBytes = 4 * kRowsBytes + 2 * kGateBytes;
  static constexpr unsigned kLoadedBytes = unsigned(kRowsBytes + kGateBytes);  ///< that a half's barrier expects

  unsigned char* memory;       ///< kBytes, aligned to 1024
  unsigned char* first_level;  ///< the upper four rows of a tile with the stride of SixteenRows: queries of level 1

  /// A half as bulk copies load it: queries in rows 0 to 7, keys in rows 8 to 15.
  __device__ __forceinline__ SixteenRows<kDk> raw(int half) const { return tile(half); }
  /// The gates of a half.
  __device__ __forceinline__ FloatPanels<kHalf, kDk> gates(int half) const {
    return {reinterpret_cast<const float*>(memory + 4 * kRowsBytes + half * kGateBytes)};
  }
  /// Level 8: the keys of the first half, the queries of the second.
  __device__ __forceinline__ SixteenRows<kDk> far() const { return tile(2); }
  /// Levels 2 and 4 of one half: queries in rows 0 to 3 and 4 to 7, keys in rows 8 to 11 and 12 to 15.
  __device__ __forceinline__ SixteenRows<kDk> near() const { return tile(3); }
  /// Where a tile lies, counted from `memory`.
  __device__ __forceinline__ int byte_of(const SixteenRows<kDk>& tile) const {
    return int(reinterpret_cast<unsigned char*>(tile.data) - memory);
  }

 private:
  __device__ __forceinline__ SixteenRows<kDk> tile(int number) const {
    return {reinterpret_cast<__nv_bfloat16*>(memory + number * kRowsBytes)};
  }
};

/// Starts to load a half. Called by one thread. Positions and columns that do not exist become zeros; for g that means
/// gates of 1.
/// @param maps q, k and g, tiles of kHalf rows
/// @param barrier expects LevelTiles::kLoadedBytes
template <int kDk, class Maps>
__device__ __forceinline__ void load_half(const LevelTiles<kDk>& tiles, int half, const Maps& maps, Barrier& barrier,
                                          TileOrigin origin) {
  const SixteenRows<kDk> raw = tiles.raw(half);
  load_panels(tiles.gates(half), maps.g, barrier, origin);
#pragma unroll
  for (int panel = 0; panel < kDk / 64; ++panel) {
    __nv_bfloat16* rows = raw.data + panel * raw.kPanelElements;
    load_tile(maps.q, rows, barrier, origin);
    load_tile(maps.k, rows + kHalf * 64, barrier, origin);
    origin.column += 64;
  }
}

/// The scores of a sub-chunk: accumulators of products. They start as zeros.
struct LevelScores {
  float own[2][4];   ///< of each half: rows 0 to 7 queries, 8 to 11 level 1; columns keys
  float near[2][4];  ///< of each half, in rows 0 to 7: the first four rows and columns level 2, the others level 4
  float far[4];      ///< in rows 8 to 15: level 8
};

/// What the second half needs of the first.
template <int kDk>
struct FirstHalf {
  float keys[kHalf][kDk / 32];  ///< decayed to its end
  float decay[kDk / 32];        ///< of all of it
};

namespace level_rows {

template <int kColumns>
using Columns = float[kColumns];  ///< a lane's columns of a row

/// x *= y
template <int kColumns>
__device__ __forceinline__ void multiply(Columns<kColumns>& x, const Columns<kColumns>& y) {
#pragma unroll
  for (int i = 0; i < kColumns; ++i) x[i] *= y[i];
}

/// The byte where a lane's columns lie in row 0 of SixteenRows. Row r has them at (that ^ r % 8 * 16) + r * 128.
template <int kDk>
__device__ __forceinline__ int lane_byte() {
  const unsigned column = lane_index() * (kDk / 32);
  return int(column / 64 * SixteenRows<kDk>::kPanelBytes + column % 64 * 2);
}

/// The lane's columns of a row, as they lie in memory.
template <int kDk>
using Packed = decltype(Row<kDk / 32>::q);

/// The lane's columns of row `row` of a tile.
template <int kDk>
__device__ __forceinline__ Packed<kDk>* in_row(const SixteenRows<kDk>& tile, int lane_byte, int row) {
  return reinterpret_cast<Packed<kDk>*>(reinterpret_cast<unsigned char*>(tile.data) + (lane_byte ^ row % 8 * 16) +
                                        row * 128);
}

/// The byte where a lane's columns lie in row 0 of a tile of gates. Row r has them at (that ^ r % 8 * 16) + r * 128.
template <int kDk, int kRows = kHalf>
__device__ __forceinline__ int first_gate_byte() {
  const unsigned column = lane_index() * (kDk / 32);
  return int(column / 32 * FloatPanels<kRows, kDk>::kPanelElements * 4 + column % 32 * 4);
}

/// The lane's gates of a row.
template <int kDk, int kRows>
__device__ __forceinline__ const decltype(Row<kDk / 32>::g)* gates_in_row(const FloatPanels<kRows, kDk>& tile, int byte,
                                                                          int row) {
  return reinterpret_cast<const decltype(Row<kDk / 32>::g)*>(reinterpret_cast<const unsigned char*>(tile.data) +
                                                             (byte ^ row % 8 * 16) + row * 128);
}

/// A row of an 8 x 8 matrix, and of the matrices to the right of it: what a lane names to ldmatrix.
struct MatrixRow {
  int first;  ///< byte of the row's first unit of 8 columns

  /// @param tile its first byte
  /// @param key of the permutation of units: the number of the row, or another one that was used to store it
  __device__ __forceinline__ MatrixRow(int tile, int row, int key, int unit)
      : first(tile + row * 128 + (unit ^ key % 8) * 16) {}
  /// The byte of the unit that is d columns further.
  __device__ __forceinline__ int at(int d) const {
    return (first ^ d % 64 * 2) + d / 64 * int(SixteenRows<64>::kPanelBytes);
  }
};

/// Multiplies the rows of a half's levels, and in the second half those of level 8. A product has 16 rows of queries
/// and eight columns of keys. Queries of two levels share its rows where one load brings both.
template <int kNumber, int kDk>
__device__ __forceinline__ void multiply_half(const LevelTiles<kDk>& tiles, LevelScores& scores) {
  const unsigned lane = lane_index();
  const int row = int(lane % 8), unit = int(lane / 16), key_unit = int(lane / 8);
  const bool is_second = lane / 8 % 2 == 1;  // of the upper and the lower eight queries
  const int raw = tiles.byte_of(tiles.raw(kNumber)), near = tiles.byte_of(tiles.near()),
            far = tiles.byte_of(tiles.far());
  // Level 1 is permuted like its positions, 1, 3, 5 and 7. Rows 4 to 7 repeat rows 0 to 3, and are not used.
  const MatrixRow queries = is_second ? MatrixRow(int(tiles.first_level - tiles.memory), row % 4, row % 4 * 2 + 1, unit)
                                      : MatrixRow(raw, row, row, unit);
  const MatrixRow keys(raw, kHalf + row, row, key_unit), near_keys(near, kHalf + row, row, key_unit),
      far_keys(far, row, row, key_unit);
  const MatrixRow decayed(is_second ? far + kHalf * 128 : near, row, row, unit);
  const MatrixRow near_queries(near, row, row, is_second);
#pragma unroll
  for (int d = 0; d < kDk; d += 32) {
    std::uint32_t k[4], near_k[4], far_k[4];
    ldmatrix_x4(k, tiles.memory + keys.at(d));
    ldmatrix_x4(near_k, tiles.memory + near_keys.at(d));
    if (kNumber == 1) ldmatrix_x4(far_k, tiles.memory + far_keys.at(d));
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      std::uint32_t q[4];
      ldmatrix_x4(q, tiles.memory + queries.at(d + i * 16));
      mma_m16n8k16(scores.own[kNumber], q, {k[2 * i], k[2 * i + 1]});
      if (kNumber == 1) {
        ldmatrix_x4(q, tiles.memory + decayed.at(d + i * 16));
        mma_m16n8k16(scores.far, q, {far_k[2 * i], far_k[2 * i + 1]});
      } else {
        std::uint32_t upper[2];
        ldmatrix_x2(upper, tiles.memory + near_queries.at(d + i * 16));
        q[0] = upper[0], q[1] = q[2] = q[3] = upper[1];  // the lower eight queries are not used
      }
      mma_m16n8k16(scores.near[kNumber], q, {near_k[2 * i], near_k[2 * i + 1]});
    }
  }
}

}  // namespace level_rows

/// The decays of a sub-chunk in shared memory, in the order in which the threads of a warpgroup have the rows of S^T's
/// columns: that of row 8 i + 2 p + e is element 2 i + e of part p. Four elements between two parts make their banks
/// differ.
template <int kDk>
struct OrderedDecays {
  static constexpr int kPart = kDk / 4 + 4;
  static constexpr int kBytes = 4 * kPart * int(sizeof(float));

  float* data;  ///< kBytes, aligned to 16

  /// Writes those of a lane's columns of all of Dk.
  __device__ __forceinline__ void store(const float (&decay)[kDk / 32]) const {
    const unsigned first = lane_index() * (kDk / 32);
#pragma unroll
    for (unsigned i = 0; i < kDk / 32; i += 2) put(first + i, make_float2(decay[i], decay[i + 1]));
  }
  /// Writes those of rows d and d + 1 of S, d even.
  __device__ __forceinline__ void put(unsigned d, float2 two) const {
    *reinterpret_cast<float2*>(data + d % 8 / 2 * kPart + d / 8 * 2) = two;
  }
  /// Reads those that the calling thread has rows for.
  __device__ __forceinline__ void load(float2 (&decays)[kDk / 8]) const {
    const float* part = data + lane_index() % 4 * kPart;
#pragma unroll
    for (int i = 0; i < kDk / 8; i += 2) {
      const float4 four = *reinterpret_cast<const float4*>(part + 2 * i);
      decays[i] = make_float2(four.x, four.y);
      decays[i + 1] = make_float2(four.z, four.w);
    }
  }
};

/// Prepares a half: leaves the rows of its levels in `tiles`, for multiply_half().
/// @tparam kNumber 0, then 1
/// @param tiles has the half's rows
/// @param out gets out.query(t, q_t decayed from the start), and in the second half out.key(i, k_i decayed to the end)
/// and out.decay(of all rows); each of them is the lane's columns
/// @param first set by the first half
/// @param wait wait() is called before the first row of a level is written
template <int kNumber, int kDk, class Out, class Wait>
__device__ __forceinline__ void prepare_half(const LevelTiles<kDk>& tiles, const Out& out, FirstHalf<kDk>& first,
                                             Wait wait) {
  using namespace level_rows;
  constexpr int kColumns = kDk / 32, kFirst = kNumber * kHalf;
  const int byte = lane_byte<kDk>(), gate_byte = first_gate_byte<kDk>();
  const SixteenRows<kDk> raw = tiles.raw(kNumber), near = tiles.near(), far = tiles.far();
  const FloatPanels<kHalf, kDk> gates = tiles.gates(kNumber);
  const auto put = [&](const SixteenRows<kDk>& tile, int row, const Columns<kDk / 32>& x) {
    *in_row<kDk>(tile, byte, row) = packed_row(x);
  };
  float keys[kHalf][kColumns], quarter[kColumns] = {};
#pragma unroll
  for (int j = 0; j < kHalf; j += 4) {
    float q[4][kColumns], a[4][kColumns], pair[kColumns], decay[kColumns];
    auto* k = keys + j;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      convert(a[i], *gates_in_row<kDk>(gates, gate_byte, j + i));
      convert(q[i], *in_row<kDk>(raw, byte, j + i));
      convert(k[i], *in_row<kDk>(raw, byte, kHalf + j + i));
#pragma unroll
      for (float& x : a[i]) x = gate(x);
      multiply(q[i], a[i]);
    }
    if (j == 0) wait();
#pragma unroll
    for (int i = 0; i < 4; i += 2) {  // level 1
      auto* rows = tiles.first_level + (byte ^ (j + i + 1) * 16) + (j + i) / 2 * 128;
      *reinterpret_cast<Packed<kDk>*>(rows) = packed_row(q[i + 1]);
      multiply(q[i + 1], a[i]);
      multiply(k[i], a[i + 1]);
    }
#pragma unroll
    for (int e = 0; e < kColumns; ++e) {
      pair[e] = a[0][e] * a[1][e];
      decay[e] = a[2][e] * a[3][e];
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {  // level 2
      put(near, j / 2 + i, q[2 + i]);
      put(near, kHalf + j / 2 + i, k[i]);
      multiply(q[2 + i], pair);
      multiply(k[i], decay);
    }
    multiply(decay, pair);
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // level 4
      if (j == 0) {
        put(near, kHalf + 4 + i, k[i]);
      } else {
        put(near, 4 + i, q[i]);
        multiply(q[i], quarter);
        multiply(keys[i], decay);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // level 8
      if (kNumber == 1) {
        put(far, kHalf + j + i, q[i]);
        multiply(q[i], first.decay);
      }
      out.query(kFirst + j + i, q[i]);
    }
    if (j > 0) multiply(decay, quarter);
#pragma unroll
    for (int e = 0; e < kColumns; ++e) quarter[e] = decay[e];  // in the end, of the half
  }
  if (kNumber == 0) {
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      put(far, i, keys[i]);
#pragma unroll
      for (int e = 0; e < kColumns; ++e) first.keys[i][e] = keys[i][e];
    }
#pragma unroll
    for (int e = 0; e < kColumns; ++e) first.decay[e] = quarter[e];
  } else {
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      out.key(kHalf + i, keys[i]);
      multiply(first.keys[i], quarter);
      out.key(i, first.keys[i]);
    }
    multiply(quarter, first.decay);
    out.decay(quarter);
  }
}

/// Writes the scores in bf16, for products of warpgroups. Elements above the diagonal are not written, because they
/// have been set to zero before.
/// @param P row t, column first_column + i is P_ti
/// @param first_column a multiple of 16
__device__ __forceinline__ void store_scores(const PanelTile<64, kSubChunk>& P, int first_column,
                                             const LevelScores& scores) {
  const unsigned lane = lane_index(), row = lane / 4, pair = lane % 4;
  // The byte of P_ti of the first half; of P_(t+8)i; and of P_(t+8)(i+8).
  const auto in_first = [&](unsigned t, unsigned i) { return (t * 144 + i * 2) ^ unsigned(first_column) * 2; };
  const auto below = [](unsigned byte) { return byte + kHalf * 128; };
  const auto in_second = [&](unsigned byte) { return below(byte ^ 16); };
  const auto put = [&](unsigned byte, auto x) {
    store_for_copies(reinterpret_cast<decltype(x)*>(reinterpret_cast<unsigned char*>(P.data) + byte), x);
  };
  // Level 2: row 2 j + i is query 4 j + 2 + i, column 2 j + i is key 4 j + i. Level 4: row 4 + i is query 4 + i, column
  // 4 + i is key i.
  const unsigned query = row < 4 ? row / 2 * 4 + 2 + row % 2 : row, key = row < 4 ? pair * 4 : pair * 2 - 4;
  const bool is_near = row < 4 ? pair == row / 2 : pair >= 2;
  const unsigned diagonal = in_first(row, row), neighbours = in_first(2 * row + 1, 2 * row),
                 near = in_first(query, key);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const auto& own = scores.own[half];
    const auto& two = scores.near[half];
    const auto place = [&](unsigned byte) { return half == 0 ? byte : in_second(byte); };
    if (pair == row / 2) put(place(diagonal), __float2bfloat16(row % 2 == 0 ? own[0] : own[1]));
    if (pair == row) put(place(neighbours), __float2bfloat16(own[2]));
    if (is_near) put(place(near), pack(two[0], two[1]));
  }
  put(below(in_first(row, pair * 2)), pack(scores.far[2], scores.far[3]));
}

}  // namespace tutorial::fused_gla
