/// @file
/// What the kernels of the operator need: whether they can run a problem, memory beside its inputs and outputs, and the
/// bytes that they read from device memory or write to it, even if a cache serves them. bytes_moved_test.cpp compares
/// these with the bytes that the emulator counts.

#include <cuda_runtime.h>

#include <algorithm>
#include <climits>

#include "05_deltanet_wy/chunk/blocks.hpp"
#include "05_deltanet_wy/chunk/prepare.hpp"
#include "05_deltanet_wy/chunk/prepare_inverses.hpp"
#include "05_deltanet_wy/delta_rule.hpp"
#include "05_deltanet_wy/delta_rule/dispatch/requirements.hpp"
#include "05_deltanet_wy/delta_rule/dispatch/segmented_walk.hpp"
#include "05_deltanet_wy/delta_rule/dispatch/specialized_warps.hpp"
#include "05_deltanet_wy/delta_rule/segments.hpp"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"
#include "common/parallel.hpp"
#include "common/tile/bulk_requirements.hpp"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/requirements.hpp"

namespace tutorial::delta_rule {
namespace {

constexpr int kChunk = 64;    // positions, on tensor cores
constexpr int kColumns = 64;  // of a tile of the products
constexpr int kMaxKeyDim = 256;
constexpr std::int64_t kBlockBytes = kLowerBlocks * kBlock * kBlock * 2;  // P of a chunk, or T in one bf16

template <class T>
std::int64_t heads_of(const Arguments<T>& a) {
  return std::int64_t(a.B) * a.H;
}

template <class T>
std::int64_t chunks_of(const Arguments<T>& a) {
  return heads_of(a) * ceil_div(a.L, kChunk);
}

/// Dk as kernels with tiles of 64, 128 or 256 columns round it up.
int rounded_width(int Dk) {
  return Dk <= 64 ? 64 : Dk <= 128 ? 128 : 256;
}

}  // namespace

// Whether a kernel can run.

std::string recurrent_gpu_unsupported(const FloatArguments& a) {
  if (a.Dk > kMaxKeyDim) return "Dk > 256: the state's columns would not fit into the registers of 8 threads";
  if (heads_of(a) * ceil_div(a.Dv, 32) > INT_MAX) return "B H > 2^31 - 1 tiles of 32 columns: the grid";
  if (a.L > INT_MAX - 16) return "L > 2^31 - 17: positions are counted in int";
  return "";
}

std::string chunk_gpu_unsupported(const FloatArguments& a) {
  if (a.C > kChunk) return "C > 64: a chunk is a tile of 64 rows";
  if (a.Dk > kMaxKeyDim) return "Dk > 256: a tile of the state would not fit into shared memory";
  if (heads_of(a) * ceil_div(a.L, a.C) > INT_MAX) return "B H > 2^31 - 1 chunks: the grid";
  if (ceil_div(a.Dv, 32) > 65535) return "Dv > 65535 tiles of 32 columns: the grid's second dimension";
  if (a.L > INT_MAX - kChunk) return "L > 2^31 - 65: positions are counted in int";
  return "";
}

std::string tensor_core_unsupported(const Bf16Arguments& a) {
  if (a.normalize_keys) return "keys are not normalised: on tensor cores only dispatch does that";
  return tile::tensor_core_unsupported(a);
}

std::string fused_unsupported(const Bf16Arguments& a) {
  if (const std::string reason = tensor_core_unsupported(a); !reason.empty()) return reason;
  // T in two bf16, P, K, Q and V of two chunks, and a tile of outputs.
  const std::int64_t chunk = 3 * kBlockBytes + 2 * kChunk * (2 * rounded_width(a.Dk) + kColumns);
  return shared_memory_missing(std::size_t(2 * chunk + 2 * kChunk * kColumns));
}

std::string specialized_warps_unsupported(const Bf16Arguments& a) {
  if (const std::string reason = tile::tensor_core_unsupported(a); !reason.empty()) return reason;
  // With 32 columns: what the chain and the outputs read, and what passes from one to the other, twice for two warps.
  const std::int64_t width = rounded_width(a.Dk), depth = width <= 128 ? 3 : 2;
  const std::int64_t chunk = 3 * kBlockBytes + 2 * kChunk * (2 * width + 64) + 4 * kChunk;
  return shared_memory_missing(std::size_t(depth * chunk + 2 * 2 * 512 * (width / 16 + kChunk / 16)));
}

std::string warpgroup_chain_unsupported(const Bf16Arguments& a) {
  if (const std::string reason = warpgroup_products_missing(); !reason.empty()) return reason;
  if (const std::string reason = tensor_core_unsupported(a); !reason.empty()) return reason;
  if (a.Dk > 128) return "Dk > 128: the state and its copy would not fit into a warpgroup's registers";
  return tile::bulk_copies_unsupported(a);
}

// Memory.

std::int64_t dense_product_memory(const FloatArguments& a) {
  const std::int64_t Dk = a.Dk, Dv = a.Dv;
  return (walk_memory(a) + 8 * (4 * Dk * Dk + 3 * Dk * Dv)) *
         processor_count();  // I, F, Phi and its successor; H twice
}

std::int64_t wy_memory(const FloatArguments& a) {
  return (walk_memory(a) + step_memory(a)) * processor_count();
}

std::int64_t ut_transform_memory(const FloatArguments& a) {
  const std::int64_t C = std::min(a.C, a.L);
  return (walk_memory(a) + step_memory(a) + 8 * 2 * C * C) * processor_count();
}

std::int64_t chunk_gpu_memory(const FloatArguments& a) {
  const std::int64_t positions = heads_of(a) * a.L, chunks = heads_of(a) * ceil_div(a.L, a.C);
  const std::int64_t T = chunks * a.C * a.C, W = positions * a.Dk, U = positions * a.Dv, states = chunks * a.Dk * a.Dv;
  return 4 * (T + W + 2 * U + states + (a.normalize_keys ? positions : 0));
}

std::int64_t tensor_core_memory(const Bf16Arguments& a) {
  // W, U and v_new of whole chunks, and their states.
  return prepared_memory(a) + chunks_of(a) * 2 * (kChunk * (a.Dk + 2 * std::int64_t(a.Dv)) + std::int64_t(a.Dk) * a.Dv);
}

std::int64_t fused_memory(const Bf16Arguments& a) {
  return prepared_memory(a);
}

std::int64_t warpgroup_chain_memory(const Bf16Arguments& a) {
  return prepared_tiles_memory(a);
}

std::int64_t segment_maps_memory(const Bf16Arguments& a, const tile::LaunchPlan& plan) {
  const std::int64_t key_tiles = a.Dk <= 64 ? 1 : 2, value_tiles = ceil_div(a.Dv, kColumns), tile = kColumns * kColumns;
  return heads_of(a) * (plan.segments - 1) * key_tiles * tile * (4 * value_tiles + 2 * key_tiles);
}

std::int64_t segments_memory(const Bf16Arguments& a, const tile::LaunchPlan& plan) {
  return prepared_inverses_memory(a) + segment_maps_memory(a, plan);
}

std::int64_t segments_memory(const Bf16Arguments& a) {
  return segments_memory(a, one_wave_of_segments(a));
}

// Bytes.

namespace {

/// The initial and the final state, in fp32, if there are any.
template <class T>
std::int64_t state_bytes(const Arguments<T>& a) {
  return 4 * heads_of(a) * a.Dk * a.Dv * ((a.initial_state.data != nullptr) + (a.final_state.data != nullptr));
}

/// What the stages on tensor cores read and write, in bytes.
struct Bf16Bytes {
  std::int64_t keys, values;  ///< q or k; v or o
  std::int64_t W, U, states;  ///< in whole chunks; v_new has as many as U
  std::int64_t blocks;        ///< P, or T in one bf16
  std::int64_t prepare;       ///< of prepare()
  int key_tiles, value_tiles;

  explicit Bf16Bytes(const Bf16Arguments& a)
      : keys(heads_of(a) * a.L * a.Dk * 2),
        values(heads_of(a) * a.L * a.Dv * 2),
        key_tiles(ceil_div(a.Dk, kColumns)),
        value_tiles(ceil_div(a.Dv, kColumns)) {
    const std::int64_t chunks = chunks_of(a);
    W = chunks * kChunk * a.Dk * 2;
    U = chunks * kChunk * a.Dv * 2;
    states = chunks * a.Dk * a.Dv * 2;
    blocks = chunks * kBlockBytes;
    prepare = 2 * keys + heads_of(a) * a.L * 4 + prepared_memory(a);
  }
  /// vectors_kernel: the high parts of T, k, v; W, U.
  std::int64_t vectors() const { return (key_tiles + value_tiles) * blocks + keys + values + W + U; }
  /// states_kernel, if it reads W and U: W, k, U; v_new, states.
  std::int64_t walk_with_vectors() const { return value_tiles * (W + keys) + 2 * U + states; }
  /// outputs_kernel: q, P, states, v_new; o.
  std::int64_t outputs() const { return value_tiles * (keys + blocks) + states + U + values; }
};

/// A walk that computes the outputs: q, k, T and P once per tile of columns, v; o.
std::int64_t whole_walk(const Bf16Arguments& a, int tiles) {
  const Bf16Bytes bytes(a);
  return bytes.prepare + tiles * (2 * bytes.keys + 3 * bytes.blocks) + 2 * bytes.values + state_bytes(a);
}

}  // namespace

std::int64_t recurrent_gpu_bytes_moved(const FloatArguments& a) {
  const std::int64_t tiles = ceil_div(a.Dv, 32);
  return 4 * heads_of(a) * a.L * (tiles * (2 * a.Dk + 1) + 2 * a.Dv) + state_bytes(a);
}

std::int64_t chunk_gpu_bytes_moved(const FloatArguments& a) {
  const std::int64_t positions = heads_of(a) * a.L, chunks = heads_of(a) * ceil_div(a.L, a.C);
  const std::int64_t T = chunks * a.C * a.C, states = chunks * a.Dk * a.Dv;
  const std::int64_t keys = positions * a.Dk, values = positions * a.Dv;  // of k, q and W; of v, o, U and v_new
  const std::int64_t key_tiles = ceil_div(a.Dk, kColumns), value_tiles = ceil_div(a.Dv, kColumns);
  const std::int64_t walk_tiles = ceil_div(a.Dv, 32);
  std::int64_t count = keys + positions + T;                       // solve: k, beta; T
  count += (key_tiles + value_tiles) * T + 2 * keys + 2 * values;  // vectors: T, k, v; W, U
  count += walk_tiles * 2 * keys + 2 * values + states;            // states: W, k, U; v_new, S_{n-1}
  count += value_tiles * 2 * keys + states + 2 * values;           // outputs: q, k, S_{n-1}, v_new; o
  if (a.normalize_keys) {  // each thread loads the factor of each element that it scales
    count += positions * (1 + key_tiles * kColumns * (1 + walk_tiles + value_tiles));
  }
  return 4 * count + state_bytes(a);
}

std::int64_t tensor_core_bytes_moved(const Bf16Arguments& a) {
  const Bf16Bytes bytes(a);
  return bytes.prepare + bytes.vectors() + bytes.walk_with_vectors() + bytes.outputs() + state_bytes(a);
}

std::int64_t fused_bytes_moved(const Bf16Arguments& a) {
  return whole_walk(a, ceil_div(a.Dv, kColumns));
}

std::int64_t specialized_warps_bytes_moved(const Bf16Arguments& a) {
  const int tiles = ceil_div(a.Dv, specialized_warps_columns(a));
  return whole_walk(a, tiles) + tiles * chunks_of(a) * kChunk * 4;  // the keys' factors
}

std::int64_t warpgroup_chain_bytes_moved(const Bf16Arguments& a) {
  const Bf16Bytes bytes(a);
  const std::int64_t prepared = prepared_tiles_memory(a), beta = heads_of(a) * a.L * 4;
  return 2 * bytes.keys + beta + prepared + bytes.value_tiles * (2 * bytes.keys + prepared) + 2 * bytes.values +
         state_bytes(a);
}

std::int64_t scores_in_walk_bytes_moved(const Bf16Arguments& a) {
  const Bf16Bytes bytes(a);
  const std::int64_t T = chunks_of(a) * 2 * kChunk * kChunk * 2, beta = heads_of(a) * a.L * 4;
  return bytes.keys + beta + T + bytes.value_tiles * (2 * bytes.keys + T) + 2 * bytes.values + state_bytes(a);
}

std::int64_t segment_maps_bytes_moved(const Bf16Arguments& a, const tile::LaunchPlan& plan, int inverse_rows) {
  const std::int64_t count = plan.segments - 1;
  if (count == 0) return 0;
  const int key_tiles = a.Dk <= 64 ? 1 : 2, value_tiles = ceil_div(a.Dv, kColumns);
  const std::int64_t transition = std::int64_t(key_tiles) * key_tiles * kColumns * kColumns * 2;
  const std::int64_t state = std::int64_t(key_tiles) * value_tiles * kColumns * kColumns * 4;
  // Of a segment: K and T once per 128 columns of [V | -K], and these columns.
  const std::int64_t keys = std::int64_t(plan.length) * a.Dk * 2, values = std::int64_t(plan.length) * a.Dv * 2;
  const std::int64_t K_and_T = keys + std::int64_t(plan.length) * inverse_rows * 2;
  const std::int64_t initial = a.initial_state.data ? 4 * std::int64_t(a.Dk) * a.Dv : 0;
  const std::int64_t maps = count * (ceil_div(a.Dv, 2 * kColumns) * K_and_T + values + state) + initial +
                            (count - 1) * (K_and_T + keys + transition);
  const std::int64_t carry = count * 2 * state + (count - 1) * value_tiles * transition, starts = count * state;
  return heads_of(a) * (maps + carry + starts);
}

std::int64_t segments_bytes_moved(const Bf16Arguments& a, const tile::LaunchPlan& plan) {
  const Bf16Bytes bytes(a);
  const std::int64_t inverses = prepared_inverses_memory(a), beta = heads_of(a) * a.L * 4;
  const std::int64_t walk = bytes.value_tiles * (2 * bytes.keys + inverses) + 2 * bytes.values + state_bytes(a);
  return bytes.keys + beta + inverses + walk + segment_maps_bytes_moved(a, plan, kInverseRows);
}

std::int64_t segments_bytes_moved(const Bf16Arguments& a) {
  return segments_bytes_moved(a, one_wave_of_segments(a));
}

std::int64_t one_kernel_bytes_moved(const Bf16Arguments& a) {
  const Bf16Bytes bytes(a);
  return bytes.value_tiles * (2 * bytes.keys + heads_of(a) * a.L * 4) + 2 * bytes.values + state_bytes(a);
}

std::int64_t cluster_bytes_moved(const Bf16Arguments& a) {
  const Bf16Bytes bytes(a);
  // Of 128 columns: each block's tiles for the chain, and once those for T and P.
  const std::int64_t pairs = (bytes.value_tiles + 1) / 2;
  return pairs * (3 * 2 * bytes.keys + heads_of(a) * a.L * 4) + 2 * bytes.values + state_bytes(a);
}

std::int64_t one_block_bytes_moved(const Bf16Arguments& a) {
  const Bf16Bytes bytes(a);
  // Of 128 columns: q and k once, and beta for A and for the columns of the inverses.
  const std::int64_t pairs = (bytes.value_tiles + 1) / 2;
  return pairs * (2 * bytes.keys + heads_of(a) * a.L * 8) + 2 * bytes.values + state_bytes(a);
}

std::int64_t segmented_walk_bytes_moved(const Bf16Arguments& a, const tile::LaunchPlan& plan, int floats) {
  const Bf16Bytes bytes(a);
  const std::int64_t vectors = 4 * floats;  // of a chunk
  const std::int64_t walk =
      whole_walk(a, bytes.value_tiles) + bytes.value_tiles * heads_of(a) * ceil_div(a.L, kChunk) * vectors;
  const std::int64_t count = plan.segments - 1;
  if (count == 0) return walk;
  // Of a segment, once per 128 columns of [V | K]: K, T and vectors.
  const std::int64_t T = 2 * kLowerBlocks * kBlock * kBlock * 2;
  const std::int64_t keys = std::int64_t(plan.length) * a.Dk * 2 + plan.length / kChunk * (T + vectors);
  const std::int64_t values = std::int64_t(plan.length) * a.Dv * 2;
  const std::int64_t state = std::int64_t(a.Dk) * a.Dv * 4, transition = std::int64_t(a.Dk) * a.Dk * 2;
  const std::int64_t maps = count * (ceil_div(a.Dv, 2 * kColumns) * keys + values + state) +
                            (a.initial_state.data ? state : 0) + (count - 1) * (keys + transition);
  // H is read, the starts are written, and E is read once per 16 columns. With one start there is nothing to carry.
  const std::int64_t carry = count == 1 ? 0 : state + (count - 1) * (2 * state + a.Dv / 16 * transition);
  return walk + heads_of(a) * (maps + carry + count * state);
}

}  // namespace tutorial::delta_rule
