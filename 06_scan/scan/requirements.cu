#include "06_scan/scan/requirements.hpp"

#include <climits>

#include "06_scan/affine.hpp"
#include "06_scan/scan/gate_gradient.hpp"
#include "06_scan/scan/look_back.cuh"
#include "06_scan/scan/look_back_tiles.hpp"
#include "06_scan/scan/tree.hpp"
#include "common/ceil_div.hpp"
#include "common/parallel.hpp"

namespace tutorial::scan {
namespace {

/// The same reason for the operator and its adjoint.
template <class SomeArguments>
std::string loop_unsupported(const SomeArguments& a) {
  if ((std::int64_t(a.B) * a.H * a.D - 1) / 64 >= INT_MAX) return "B H D > 2^31 - 1 blocks of 64 channels: the grid";
  return a.L > INT_MAX - 8 ? "L > 2^31 - 9: positions are counted in int" : "";
}

std::string positions_unsupported(const Arguments& a, int tile) {
  return a.L > INT_MAX - tile ? "L > 2^31 - 1 less a tile: positions are counted in int" : "";
}

/// Why a stage with one block per channel cannot run the problem.
std::string channel_per_block_unsupported(const Arguments& a, int tile) {
  return channels(a) > INT_MAX ? "B H D > 2^31 - 1: the grid" : positions_unsupported(a, tile);
}

/// The same for a stage with one block per channel and tile.
std::string tiles_unsupported(const Arguments& a, int tile) {
  if (channels(a) > INT_MAX / tiles_of(a, tile)) return "more than 2^31 - 1 tiles: the grid";
  return positions_unsupported(a, tile);
}

/// For wide_tiles: whether four neighbouring steps lie side by side, aligned to 16 bytes. A null view, whose memory is not allocated
/// yet, counts as aligned.
template <class T>
bool is_aligned(const View<T>& view) {
  const bool steps = view.stride_l == 1 && view.stride_h % 4 == 0 && view.stride_b % 4 == 0;
  return !view.data || (steps && reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0);
}

}  // namespace

// --- on the CPU ---

std::int64_t hillis_steele_memory(const Arguments& a) {
  return 2 * std::int64_t(sizeof(Affine<double>)) * a.L * processor_count();
}

std::int64_t blelloch_memory(const Arguments& a) {
  const auto nodes = std::int64_t(tree_size(std::size_t(a.L)));
  return std::int64_t(sizeof(Affine<double>)) * (nodes + a.L) * processor_count();
}

// --- on the GPU ---

std::string sequential_gpu_unsupported(const Arguments& a) {
  return loop_unsupported(a);
}

std::string blelloch_gpu_unsupported(const Arguments& a) {
  return channel_per_block_unsupported(a, kBlockTile);
}

std::string warp_shuffle_unsupported(const Arguments& a) {
  return channel_per_block_unsupported(a, kBlockTile);
}

std::string single_pass_unsupported(const Arguments& a) {
  return tiles_unsupported(a, kBlockTile);
}

std::int64_t single_pass_memory(const Arguments& a) {
  return look_back_memory(published_maps(a, kBlockTile));
}

std::string wide_tiles_unsupported(const Arguments& a) {
  if (a.D > 1) return "D > 1: a lane copies numbers that are neighbours in time";
  const bool aligned = a.L % 4 == 0 && is_aligned(a.x) && is_aligned(a.log_decay) && is_aligned(a.y);
  return aligned ? tiles_unsupported(a, kWideTile)
                 : "sequences that are not aligned to 16 bytes: a lane copies as many";
}

std::int64_t wide_tiles_memory(const Arguments& a) {
  return look_back_memory(published_maps(a, kWideTile));
}

std::string channel_lanes_unsupported(const Arguments& a) {
  return tiles_unsupported(a, kChannelsTile);
}

std::int64_t channel_lanes_memory(const Arguments& a) {
  Arguments whole_groups = a;
  whole_groups.D = ceil_div(a.D, 32) * 32;
  return look_back_memory(published_maps(whole_groups, kChannelsTile));
}

std::int64_t channel_bytes_moved(const Arguments& a) {
  const std::int64_t heads = std::int64_t(a.B) * a.H;
  const std::int64_t states = (a.initial_state.data ? a.D : 0) + (a.final_state.data ? a.D : 0);
  return 4 * heads * (3 * std::int64_t(a.L) * a.D + states + (a.final_log_decay.data ? a.Dg : 0));
}

// --- the adjoint ---

std::string sequential_gpu_backward_unsupported(const BackwardArguments& a) {
  const std::string scans = loop_unsupported(a);
  return scans.empty() ? gate_gradient_unsupported(a) : scans;
}

std::int64_t sequential_gpu_backward_memory(const BackwardArguments& a) {
  return recomputed_y_memory(a);
}

std::string gate_gradient_unsupported(const BackwardArguments& a) {
  if (std::int64_t(a.B) * a.H * gate_blocks_of_head(a) > INT_MAX) {
    return "gates for more than 2^31 - 1 blocks: the grid";
  }
  return a.L > INT_MAX - kGatesOfThread * kGateThreads ? "L > 2^31 - 1025: positions are counted in int" : "";
}

std::int64_t recomputed_y_memory(const BackwardArguments& a) {
  return std::int64_t(sizeof(float)) * a.B * a.H * a.L * a.D;
}

}  // namespace tutorial::scan
