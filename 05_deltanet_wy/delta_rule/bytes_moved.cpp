/// @file
/// The bytes that the kernels of each GPU stage read from global memory or write to it; bytes_moved_test.cpp compares
/// them with the bytes that the emulator counts.

#include "05_deltanet_wy/delta_rule.hpp"
#include "05_deltanet_wy/delta_rule/blocks.hpp"
#include "05_deltanet_wy/delta_rule/dispatch/segmented_plan.hpp"
#include "05_deltanet_wy/delta_rule/dispatch/segmented_walk.hpp"
#include "05_deltanet_wy/delta_rule/dispatch/walk.hpp"
#include "05_deltanet_wy/delta_rule/prepared.hpp"
#include "05_deltanet_wy/delta_rule/segments.hpp"
#include "common/ceil_div.hpp"
#include "common/tile/requirements.hpp"

namespace tutorial::delta_rule {
namespace {

constexpr int kChunk = 64;    // positions, on tensor cores
constexpr int kColumns = 64;  // of a tile of the products

template <class T>
std::int64_t heads_of(const Arguments<T>& a) {
  return std::int64_t(a.B) * a.H;
}

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
    const std::int64_t chunks = heads_of(a) * ceil_div(a.L, kChunk);
    W = chunks * kChunk * a.Dk * 2;
    U = chunks * kChunk * a.Dv * 2;
    states = chunks * a.Dk * a.Dv * 2;
    blocks = chunks * kLowerBlocks * kBlock * kBlock * 2;
    prepare = 2 * keys + heads_of(a) * a.L * 4 + prepared_memory(a);
  }
  /// vectors_kernel: T, k, v; W, U.
  std::int64_t vectors(int bf16_of_T) const {
    return (key_tiles + value_tiles) * bf16_of_T * blocks + keys + values + W + U;
  }
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
  return bytes.prepare + bytes.vectors(1) + bytes.walk_with_vectors() + bytes.outputs() + state_bytes(a);
}

std::int64_t split_inverse_bytes_moved(const Bf16Arguments& a) {
  const Bf16Bytes bytes(a);
  return bytes.prepare + bytes.vectors(2) + bytes.walk_with_vectors() + bytes.outputs() + state_bytes(a);
}

std::int64_t residual_bytes_moved(const Bf16Arguments& a) {
  const Bf16Bytes bytes(a);
  const std::int64_t walk = bytes.value_tiles * (2 * bytes.blocks + bytes.keys) + bytes.values;  // T, k, v
  return bytes.prepare + walk + bytes.U + bytes.states + bytes.outputs() + state_bytes(a);
}

std::int64_t fused_bytes_moved(const Bf16Arguments& a) {
  return whole_walk(a, ceil_div(a.Dv, kColumns));
}

std::int64_t specialized_warps_bytes_moved(const Bf16Arguments& a) {
  return whole_walk(a, ceil_div(a.Dv, kColumns));
}

std::int64_t warpgroup_chain_bytes_moved(const Bf16Arguments& a) {
  const Bf16Bytes bytes(a);
  const std::int64_t prepared = prepared_tiles_memory(a), beta = heads_of(a) * a.L * 4;
  return 2 * bytes.keys + beta + prepared + bytes.value_tiles * (2 * bytes.keys + prepared) + 2 * bytes.values +
         state_bytes(a);
}

namespace {

/// What finds the states that segments start from, and reading these.
/// @param inverse_rows of a chunk's T, each of 64 bf16
std::int64_t starts_bytes(const Bf16Arguments& a, const tile::LaunchPlan& plan, int inverse_rows) {
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

}  // namespace

std::int64_t walk_segments_bytes_moved(const Bf16Arguments& a, const tile::LaunchPlan& plan) {
  return warpgroup_chain_bytes_moved(a) + starts_bytes(a, plan, 2 * kChunk);
}

std::int64_t segments_bytes_moved(const Bf16Arguments& a) {
  return walk_segments_bytes_moved(a, one_wave_of_segments(a));
}

std::int64_t scores_in_walk_bytes_moved(const Bf16Arguments& a, const tile::LaunchPlan& plan) {
  const Bf16Bytes bytes(a);
  const std::int64_t inverses = prepared_inverses_memory(a), beta = heads_of(a) * a.L * 4;
  const std::int64_t walk = bytes.value_tiles * (2 * bytes.keys + inverses) + 2 * bytes.values + state_bytes(a);
  return bytes.keys + beta + inverses + walk + starts_bytes(a, plan, kInverseRows);
}

std::int64_t scores_in_walk_bytes_moved(const Bf16Arguments& a) {
  return scores_in_walk_bytes_moved(a, one_wave_of_segments(a));
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

std::int64_t dispatch_bytes_moved(const Bf16Arguments& a) {
  if (runs_on_warpgroups(a)) {
    const Walk walk = fastest_walk(a);
    if (walk == Walk::segments) return scores_in_walk_bytes_moved(a, fastest_segments(a));
    if (walk == Walk::one_block) return one_block_bytes_moved(a);
    return walk == Walk::one_kernel ? one_kernel_bytes_moved(a) : cluster_bytes_moved(a);
  }
  if (!tile::tensor_core_unsupported(a).empty()) return -1;
  if (const auto plan = segmented_plan(a)) return segmented_walk_bytes_moved(a, *plan);
  const int tiles = ceil_div(a.Dv, walk_columns(a));
  return whole_walk(a, tiles) + tiles * heads_of(a) * ceil_div(a.L, kChunk) * kChunk * 4;  // factors
}

}  // namespace tutorial::delta_rule
