#pragma once
/// @file
/// What both walks of `--backward` with a gate per row have in shared memory, and the tensors that they read and write
/// (warpgroup_walks.cuh).

#include <cuda_runtime.h>

#include <algorithm>

#include "05_deltanet_wy/delta_rule_backward/warpgroup_walks.cuh"
#include "05_deltanet_wy/kda_backward.hpp"
#include "05_deltanet_wy/kda_backward/dispatch/prepare_chunks.hpp"
#include "common/tile/float_panels.cuh"

namespace tutorial::kda {
namespace {

using namespace delta_rule;  // walks without gates
using namespace tile;

/// A walk: 64 columns of Dv of a head, in one of the two directions.
struct WalkPlace {
  int b, h, tile, tiles;  ///< tiles of Dv
  bool is_reversed;
  int N;                  ///< chunks
  __nv_bfloat16* states;  ///< of the head
  int* progress;          ///< null, or [2]: chunks of which the states, and v_new or dV, are in memory

  /// The first column.
  __device__ __forceinline__ int first() const { return tile * kColumns; }
};

constexpr int kForwardDepth = 3, kReversedDepth = 2;  // chunks in the shared memory of a walk

/// What the walk from the beginning reads of a chunk in shared memory.
template <int kDk>
struct ForwardTiles {
  PanelTile<kDk> K, K_end;
  ValuePanel V;
  SquarePanel T_high, T_low;

  static constexpr int kBytes = 2 * (2 * kChunk * kDk + 3 * SquarePanel::kPanelElements);

  __device__ __forceinline__ explicit ForwardTiles(unsigned char* memory)
      : K{reinterpret_cast<__nv_bfloat16*>(memory)},
        K_end{K.data + kChunk * kDk},
        V{K_end.data + kChunk * kDk},
        T_high{V.data + V.kPanelElements},
        T_low{T_high.data + T_high.kPanelElements} {}
};

/// What the walk from the end reads first of a chunk.
template <int kDk>
struct FirstTiles {
  PanelTile<kDk> K_end, Q;
  ValuePanel dO;
  SquarePanel P;

  static constexpr int kBytes = 2 * (2 * kChunk * kDk + 2 * SquarePanel::kPanelElements);

  __device__ __forceinline__ explicit FirstTiles(unsigned char* memory)
      : K_end{reinterpret_cast<__nv_bfloat16*>(memory)},
        Q{K_end.data + kChunk * kDk},
        dO{Q.data + kChunk * kDk},
        P{dO.data + dO.kPanelElements} {}
};

/// What it reads then, when the first tiles may be filled again.
template <int kDk>
struct LaterTiles {
  SquarePanel T_high, T_low;
  PanelTile<kDk> K;

  static constexpr int kBytes = 2 * (kChunk * kDk + 2 * SquarePanel::kPanelElements);

  __device__ __forceinline__ explicit LaterTiles(unsigned char* memory)
      : T_high{reinterpret_cast<__nv_bfloat16*>(memory)},
        T_low{T_high.data + T_high.kPanelElements},
        K{T_low.data + T_low.kPanelElements} {}
};

template <int kDk>
using ChunkDecays = FloatPanels<1, kDk>;

/// Shared memory of a walk: tiles, what is stored, decays.
template <int kDk>
struct WalkMemory {
  using Stored = StoredTiles<PanelShape<kDk, kColumns>>;
  static constexpr int kLater = kReversedDepth * FirstTiles<kDk>::kBytes;
  static constexpr int kTiles =
      std::max(kForwardDepth * ForwardTiles<kDk>::kBytes, kLater + kReversedDepth * LaterTiles<kDk>::kBytes);
  static constexpr int kDecays = kTiles + Stored::kBytes;
  static constexpr int kBytes = kDecays + kForwardDepth * ChunkDecays<kDk>::kBytes;

  unsigned char* data;  ///< kBytes, aligned to kTileAlignment

  __device__ __forceinline__ ForwardTiles<kDk> forward(int stage) const {
    return ForwardTiles<kDk>(data + stage * ForwardTiles<kDk>::kBytes);
  }
  __device__ __forceinline__ FirstTiles<kDk> first(int stage) const {
    return FirstTiles<kDk>(data + stage * FirstTiles<kDk>::kBytes);
  }
  __device__ __forceinline__ LaterTiles<kDk> later(int stage) const {
    return LaterTiles<kDk>(data + kLater + stage * LaterTiles<kDk>::kBytes);
  }
  __device__ __forceinline__ ChunkDecays<kDk> decays(int stage) const {
    return {reinterpret_cast<const float*>(data + kDecays + stage * ChunkDecays<kDk>::kBytes)};
  }
  __device__ __forceinline__ Stored stored() const { return Stored(data + kTiles); }
};

/// The barriers of a walk. In the walk from the end `full` and `empty` are those of the first tiles.
struct DecayedBarriers : WalkBarriers {
  Barrier later_full[kReversedDepth], later_empty[kReversedDepth];
  int state_is_tile;  ///< whether the state that has been passed on lies in shared memory
};

/// The tensors of both walks.
struct DecayedMaps {
  TensorMap K, K_end, T, decays;
  TensorMap v, v_new, S;        // from the beginning
  TensorMap Q, P, d_o, dv, dS;  // from the end
};

/// The map of rows that prepare_chunks() has left. @param rows of a sequence, of a tile
inline TensorMap prepared_map(const Bf16BackwardArguments& g, const __nv_bfloat16* data, std::int64_t rows, int columns,
                              int tile) {
  return tile_map(packed(data, g.H, rows, columns), {g.B, g.H, rows, columns}, tile);
}

/// The tensors of both walks.
inline DecayedMaps walk_maps(const Bf16BackwardArguments& g, const PreparedChunks& x, const Workspace& out) {
  const TensorSizes values = tensor_sizes(g, g.Dv), decays{g.B, g.H, x.N, g.Dk};
  const std::int64_t rows = std::int64_t(x.N) * kChunk, matrices = std::int64_t(x.N) * kMatrixRows;
  return {.K = prepared_map(g, x.K, rows, g.Dk, kChunk),
          .K_end = prepared_map(g, x.K_end, rows, g.Dk, kChunk),
          .T = prepared_map(g, x.matrices, matrices, kChunk, 2 * kChunk),
          .decays = float_tile_map(packed<const float>(x.decays, g.H, x.N, g.Dk), decays, 1),
          .v = tile_map(g.v, values, kChunk),
          .v_new = tile_map(out.v_new, values, kChunk),
          .S = tile_map(out.S, out.states, kColumns),
          .Q = prepared_map(g, x.Q, rows, g.Dk, kChunk),
          .P = prepared_map(g, x.matrices, matrices, kChunk, kChunk),
          .d_o = tile_map(g.d_o, values, kChunk),
          .dv = tile_map(g.dv, values, kChunk),
          .dS = tile_map(out.dS, out.states, kColumns)};
}

}  // namespace
}  // namespace tutorial::kda
