/// @file
/// Stage 8, `fused`: one walk computes v_new from the residual V - K S, and the outputs.
///
/// Idea: W and U exist so that v_new = U - W S takes one product in the walk. But U - W S = T V - T K S = T (V - K S): if
/// the walk has T, it needs neither W nor U. It reads K, which it needs anyway, and V. Then Q S and K S share a factor,
/// the state, whose fragments are in the registers of the warp that walks. So the walk multiplies each fragment by both
/// K and Q while it has it, and also computes P v_new. Neither v_new nor a state leaves the chip. Two kernels are left,
/// prepare() and this one.
///
/// T comes in two bf16. bf16 keeps 8 bits of a number. The rounding error is a number, too, and a second bf16 keeps 8
/// bits of it: T = T_high + T_low has 16 bits (split.cuh). T X = T_high X + T_low X takes one more product with a C x C
/// matrix. Why T, of all factors? Suppose that one key is repeated. Then every row of V - K S contains the same term, -k
/// S. The state already answers k as it should, so a row of T times these equal terms must be close to 0: its elements,
/// such as -0.99 and 1, cancel. Rounding -0.99 gives an error of up to 0.2 %, in the same direction in every row, and 64
/// such errors add up to a tenth of k S. The README lists the errors that the rounding of each factor causes.
/// Grows out of: 7_tensor_core.cu
/// Improves on: `tensor_core` writes W, U, v_new and the state of every chunk, and reads them again in other kernels: 4
/// (Dk + 2 Dv) + 4 Dk Dv / 64 bytes per position. If one key is repeated, the error of its final state is 13 %; here it
/// is 2 %.
/// Unchanged: prepare(), which always writes both parts of T (`tensor_core` reads only the first), and P. V - K S is
/// computed as U - W S was.
///
/// Equation:
///
///     residual = V - K S,  v_new = T residual,  O_n = scale (Q S + P v_new),  S = S + K^T v_new    for each chunk n
///
/// The residual is rounded to bf16 and, transposed, is the A fragment of the product with T: residual^T T^T. All four
/// warps do the same with their columns: they load, multiply and store. Like all matrices of the walk, O is
/// computed transposed, O^T = S^T Q^T + v_new^T P^T. It is transposed back on its way to memory (movmatrix.cuh).
///
/// Shapes: q, k [B, H, L, Dk], v, o [B, H, L, Dv] bf16; beta [B, H, L], S_0 and final_state [B, H, Dk, Dv] fp32.
/// Thread mapping: block (tile, h, b) walks over the chunks of a head with 64 columns of Dv, 16 for each of its four
/// warps. It has one barrier per chunk and loads the next chunk meanwhile.
/// Resources: at Dk = 128, 118 KB of shared memory; per thread 64 registers for S, 32 for O and 32 for sums.
/// Work: that of prepare(), and 6 Dk Dv + 240 Dv operations per position on tensor cores.
/// Bytes: v and o once; q, k, T and P once per tile of 64 columns, after the first tile from the second-level cache; q
/// and k once more in prepare().
/// Bound by: latency. The three products of a chunk depend on each other, and the same warp also loads, computes
/// outputs and stores them before the next chunk begins.
/// Requires: as `tensor_core`, and shared memory as above, 182 KB at Dk > 128.
/// Weakness: loads and outputs delay the walk, although nothing in the walk needs the outputs.
/// Sources: the form T (V - K S), and a kernel that prepares before one that walks: FlashKDA (Moonshot AI), for a related
/// operator. Splitting a factor for more digits is a common technique; see G. Henry, P. T. P. Tang, A. Heinecke,
/// "Leveraging the bfloat16 artificial intelligence datatype for higher-precision computations", arXiv 1904.06376.

#include <cuda_runtime.h>

#include <utility>

#include "05_deltanet_wy/chunk/fragments.cuh"
#include "05_deltanet_wy/chunk/prepare.hpp"
#include "05_deltanet_wy/chunk/warp_products.cuh"
#include "common/ceil_div.hpp"
#include "common/device/cp_async.cuh"
#include "common/device/device.hpp"
#include "common/device/hide_from_compiler.cuh"
#include "common/device/launch.cuh"
#include "common/device/workspace.hpp"
#include "common/parts.hpp"
#include "common/tile/load_tile.cuh"
#include "common/tile/requirements.hpp"
#include "common/tile/select_shape.cuh"
#include "common/tile/state.cuh"
#include "common/tile/store_tile.cuh"

namespace tutorial::delta_rule {
namespace {

using namespace tile;  // tiles and states

constexpr int kColumns = 64;  // of a block
using ValueTile = SwizzledTile<kColumns>;

__host__ __device__ constexpr int column_tiles(int width) {
  return (width - 1) / kColumns + 1;
}

/// What the walk reads of a chunk, in shared memory.
template <class Shape>
struct Tiles {
  uint4 T[2 * kBlockUnits], P[kBlockUnits];
  __nv_bfloat16 K[kChunk * Shape::kDk], V[kChunk * kColumns], Q[kChunk * Shape::kDk];
};

template <class Shape>
constexpr std::size_t kSharedBytes = 2 * sizeof(Tiles<Shape>) + sizeof(__nv_bfloat16) * kChunk* kColumns;

/// Grid (tiles of Dv, H, B).
template <class Shape>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1) walk_kernel(Bf16Arguments a, Prepared x) {
  constexpr int kDk = Shape::kDk;
  const int b = int(blockIdx.z), h = int(blockIdx.y), first = int(blockIdx.x) * kColumns;
  const int columns = min(kColumns, a.Dv - first), warp_column = warp_index() * 16;
  auto* tiles = dynamic_shared<Tiles<Shape>>();                                              // two
  auto* staging = reinterpret_cast<__nv_bfloat16*>(tiles + 2) + warp_index() * kChunk * 16;  // O on its way to memory
  const auto load = [&](int n) {
    Tiles<Shape>& to = tiles[n % 2];
    const int t = n * kChunk, b = hide_from_compiler(int(blockIdx.z));
    const std::int64_t chunk = (std::int64_t(b) * a.H + h) * x.N + n;
    load_units_async<2 * kBlockUnits>(int(threadIdx.x), to.T, x.T + chunk * 2 * kBlockUnits);
    load_tile_async(SwizzledTile<kDk>{to.K}, a.k.row(b, h, t), a.k.stride_l, a.L - t, a.Dk);
    load_tile_async(ValueTile{to.V}, a.v.row(b, h, t) + first, a.v.stride_l, a.L - t, columns);
    load_units_async<kBlockUnits>(int(threadIdx.x), to.P, x.P + chunk * kBlockUnits);
    load_tile_async(SwizzledTile<kDk>{to.Q}, a.q.row(b, h, t), a.q.stride_l, a.L - t, a.Dk);
    cp_async_commit();
  };
  load(0);
  typename Shape::State S;
  load_state<Shape>(S, a.initial_state.data ? a.initial_state.row(b, h, 0) + first : nullptr, a.initial_state.stride_l,
                    a.Dk, columns);
  for (int n = 0; n < x.N; ++n) {
    cp_async_wait<0>();
    __syncthreads();
    if (n + 1 < x.N) load(n + 1);
    Tiles<Shape>& from = tiles[n % 2];
    const SwizzledTile<kDk> K{from.K}, Q{from.Q};

    WarpColumns O = {};
    const auto pass_on_state = [&](int d, const uint4& s) { add_state_rows(O, Q, d, s); };
    const auto pass_on_v_new = [&](int i, const uint4& v_new) { add_scores(O, from.P, i, v_new); };
    WarpFragments residual;
    subtract_product<kDk>(residual, ValueTile{from.V}, warp_column, K, S[0], pass_on_state);
    add_v_new<kDk>(S[0], residual, from.T, K, pass_on_v_new);
    const int t = n * kChunk;
    store_warp_output(a.o.row(b, h, t) + first + warp_column, a.o.stride_l, a.L - t, columns - warp_column, O, a.scale,
                      staging);
  }
  if (a.final_state.data) {
    store_state<Shape>(a.final_state.row(b, h, 0) + first, S, a.final_state.stride_l, a.Dk, columns);
  }
}

}  // namespace

void fused(const Bf16Arguments& a) {
  const Prepared x = prepare(a);
  end_part("prepare");
  const int tiles = column_tiles(a.Dv);
  const auto grid = [&](int blocks) { return dim3(unsigned(blocks), unsigned(a.H), unsigned(a.B)); };
  select_shape(a.Dk, [&]<class Shape>(Shape) {
    launch(walk_kernel<Shape>, {grid(tiles), kThreads, kSharedBytes<Shape>}, a, x);
    end_part("walk");
  });
}

}  // namespace tutorial::delta_rule
