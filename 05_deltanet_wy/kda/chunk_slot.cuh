#pragma once
/// @file
/// A chunk of `one_anchor` and of `cluster` in shared memory (5_one_anchor.cu, dispatch/cluster.cu).

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "05_deltanet_wy/chunk/warpgroup_products.cuh"
#include "common/tile/base2.cuh"
#include "common/tile/float_panels.cuh"
#include "common/tile/panel_tile.cuh"
#include "common/tile/sub_chunk.hpp"

namespace tutorial::kda {

/// A chunk in shared memory. What comes later takes the place of what is not needed any more. At Dk = 128:
///
///             loaded                (long way)     rows are ready     inverse is ready   prepared
///     16 KB   q                     (q~)           Q+                 Q+                 Q+
///     16 KB   k                     (k+~)          K+                 K+                 K+
///     16 KB   g, columns  0 .. 63   (k~)           K-                 K-                 -J
///      8 KB   g, columns 64 .. 95                  decays, growths    U, rounded         the chunk's decays
///      8 KB   g, columns 96 .. 127  (own scores)                                         -R
template <int kDk>
struct ChunkSlot {
  static constexpr int kTile = tile::kChunk * 128 * 2;  ///< bytes of a tile, at Dk = 64, too
  static constexpr int kBytes = 4 * kTile;
  static constexpr int kDecays = 3 * kTile, kR = kDecays + int(delta_rule::SquarePanel::kPanelBytes);
  static constexpr int kRowBytes = kDecays + 4 * kDk;  ///< of what a walk needs, from `memory` on, beside R
  static constexpr int kPushBytes = kRowBytes + int(delta_rule::SquarePanel::kPanelBytes);  ///< with R
  static constexpr int kOfSubChunk = 2048;  ///< bytes of 16 rows of a panel

  unsigned char* memory;  ///< kBytes, aligned to 1024

  __device__ __forceinline__ tile::PanelTile<kDk> Q() const { return {at(0)}; }              ///< q, q~ or Q+
  __device__ __forceinline__ tile::PanelTile<kDk> K() const { return {at(kTile)}; }          ///< k, k+~ or K+
  __device__ __forceinline__ tile::PanelTile<kDk> K_end() const { return {at(2 * kTile)}; }  ///< k~ or K-
  __device__ __forceinline__ tile::PanelTile<kDk> J() const { return K_end(); }              ///< -J
  __device__ __forceinline__ delta_rule::SquarePanel U() const { return {at(kDecays)}; }     ///< U, rounded
  __device__ __forceinline__ delta_rule::SquarePanel R() const { return {at(kR)}; }          ///< -R
  /// The gates.
  __device__ __forceinline__ tile::FloatPanels<tile::kChunk, kDk> g() const { return {floats(2 * kTile)}; }
  /// exp(b_end) of the chunk, [kDk].
  __device__ __forceinline__ float* chunk_decays() const { return floats(kDecays); }

  /// exp(b_end) until U has left that place. Growths of sub-chunks are not needed any more then.
  __device__ __forceinline__ float* prepared_decays() const { return growths(1); }
  /// exp(-b_end) of the chunk, [kDk], on the short way.
  __device__ __forceinline__ float* growths() const { return growths(0); }

  /// With two anchors, the decays from the chunk's start to that of half h, [kDk],
  __device__ __forceinline__ float* from_start(int h) const { return decays(h); }
  /// from that of half h to the chunk's end,
  __device__ __forceinline__ float* to_end(int h) const { return decays(2 + h); }
  /// and from the anchor of the first half to that half's end (0), and on to the anchor of the second half (1).
  __device__ __forceinline__ float* between(int i) const { return growths(2 + i); }

  /// exp(b_e) of sub-chunk r, [kDk].
  __device__ __forceinline__ float* decays(int r) const { return floats(3 * kTile + r * kOfSubChunk); }
  /// exp(-b_e) of sub-chunk r, [kDk]; 0 where own_scores() has the column's part of the scores.
  __device__ __forceinline__ float* growths(int r) const { return decays(r) + kDk; }
  /// Whether there are any such columns.
  __device__ __forceinline__ int& has_own_scores(int r) const { return *reinterpret_cast<int*>(growths(r) + kDk); }
  /// [16, 16] of P or A: the part of some columns.
  /// @param of 0: of P, 1: of A
  __device__ __forceinline__ float* own_scores(int r, int of) const {
    constexpr int kScores = tile::kSubChunk * tile::kSubChunk;
    return floats(kR + r * kOfSubChunk) + of * kScores;
  }

 private:
  __device__ __forceinline__ __nv_bfloat16* at(int offset) const {
    return reinterpret_cast<__nv_bfloat16*>(memory + offset);
  }
  __device__ __forceinline__ float* floats(int offset) const { return reinterpret_cast<float*>(memory + offset); }
};

/// b += g, to base 2.
__device__ __forceinline__ void add_gates(float2& b, float2 g) {
  constexpr float kLog2E = 1.44269504f;
  b.x = fmaf(g.x, kLog2E, b.x);
  b.y = fmaf(g.y, kLog2E, b.y);
}

}  // namespace tutorial::kda
