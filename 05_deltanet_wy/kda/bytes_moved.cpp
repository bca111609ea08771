/// @file
/// The bytes that the kernels of each GPU stage read from global memory or write to it; kda_test.cpp compares them with
/// the bytes that the emulator counts.

#include "05_deltanet_wy/kda.hpp"
#include "05_deltanet_wy/kda/prepared.hpp"
#include "common/ceil_div.hpp"

namespace tutorial::kda {
namespace {

constexpr std::int64_t kBytesOfKeys = 2 + 2 + 4;  // of an element of q, of k and of g

template <class T>
std::int64_t heads_of(const Arguments<T>& a) {
  return std::int64_t(a.B) * a.H;
}

/// The initial and the final state, in fp32, if there are any.
template <class T>
std::int64_t state_bytes(const Arguments<T>& a) {
  return 4 * heads_of(a) * a.Dk * a.Dv * ((a.initial_state.data != nullptr) + (a.final_state.data != nullptr));
}

/// Both kernels of the stages on tensor cores.
/// @param columns of Dv in a block of the walk
/// @param prepared bytes that prepare() leaves
std::int64_t prepare_and_walk(const Bf16Arguments& a, int columns, std::int64_t prepared) {
  const std::int64_t positions = heads_of(a) * a.L, chunks = heads_of(a) * ceil_div(a.L, 64);
  // prepare(): rows that do not exist are not left out. q, k, g and beta; k once more for its lengths.
  const std::int64_t elements = chunks * 64 * ceil_div(a.Dk, 64) * 64;
  const std::int64_t prepare =
      elements * kBytesOfKeys + positions * 4 + (a.normalize_keys ? chunks * 64 * 2 * a.Dk : 0);
  return prepare + (1 + ceil_div(a.Dv, columns)) * prepared + positions * 2 * 2 * a.Dv + state_bytes(a);
}

}  // namespace

std::int64_t recurrent_gpu_bytes_moved(const FloatArguments& a) {
  const std::int64_t tiles = ceil_div(a.Dv, 32);
  return 4 * heads_of(a) * a.L * (tiles * (3 * a.Dk + 1) + 2 * a.Dv) + state_bytes(a);
}

std::int64_t tensor_core_bytes_moved(const Bf16Arguments& a) {
  return prepare_and_walk(a, 64, prepared_memory(a));
}

std::int64_t specialized_warps_bytes_moved(const Bf16Arguments& a) {
  return prepare_and_walk(a, walk_columns(a), prepared_memory(a));
}

std::int64_t warpgroup_chain_bytes_moved(const Bf16Arguments& a) {
  return prepare_and_walk(a, 64, prepared_tiles_memory(a));
}

std::int64_t two_products_bytes_moved(const Bf16Arguments& a) {
  return prepare_and_walk(a, 64, prepared_updates_memory(a));
}

std::int64_t one_anchor_bytes_moved(const Bf16Arguments& a) {
  const std::int64_t positions = heads_of(a) * a.L, prepared = prepared_updates_memory(a);
  return positions * (kBytesOfKeys * a.Dk + 4) + (1 + ceil_div(a.Dv, 64)) * prepared + positions * 2 * 2 * a.Dv +
         state_bytes(a);
}

std::int64_t cluster_bytes_moved(const Bf16Arguments& a) {
  const std::int64_t of_keys = kBytesOfKeys * a.Dk + 4, of_values = 2 * 2 * a.Dv;
  return heads_of(a) * a.L * (ceil_div(a.Dv, 128) * of_keys + of_values) + state_bytes(a);
}

}  // namespace tutorial::kda
