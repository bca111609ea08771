#include "06_scan/delta_rule/requirements.hpp"

#include <climits>

#include "06_scan/delta_rule/map_tree.hpp"
#include "06_scan/memory_shortage.hpp"
#include "06_scan/state_shape.hpp"
#include "common/ceil_div.hpp"

namespace tutorial::scan {
namespace {

using delta_rule::FloatArguments;

/// Floats of F and of b, and pieces of them that a block has.
struct Pieces {
  std::int64_t F, b;                     ///< of one map
  std::int64_t key_tiles, value_tiles;   ///< 32 columns of a state
  std::int64_t strips, product_columns;  ///< 64 rows, 64 columns of b

  explicit Pieces(const FloatArguments& a)
      : F(std::int64_t(a.Dk) * a.Dk),
        b(std::int64_t(a.Dk) * a.Dv),
        key_tiles(ceil_div(a.Dk, kStateColumns)),
        value_tiles(ceil_div(a.Dv, kStateColumns)),
        strips(ceil_div(a.Dk, 64)),
        product_columns(ceil_div(a.Dv, 64)) {}
};

/// Floats per head of the leaves and of the walk, which both stages have.
std::int64_t leaves_and_walk(const FloatArguments& a) {
  const Pieces p(a);
  const int N = leaf_count(a.L);
  std::int64_t count = a.L * (p.value_tiles * (2 * std::int64_t(a.Dk) + 1) + 2 * a.Dv) + (N - 1) * p.b;  // walk
  if (N > 1) {
    count += kLeaf * ((N - 1) * (p.value_tiles * (a.Dk + 1) + a.Dv) + (N - 2) * p.key_tiles * (a.Dk + 1));
    count += (N - 1) * p.b + (N - 2) * p.F;
  }
  if (a.initial_state.data) count += (N > 1 ? 2 : 1) * p.b;
  if (a.final_state.data) count += p.b;
  return count;
}

/// Floats per head of so many applied maps, the first of which is a copy.
std::int64_t applied(const Pieces& p, std::int64_t maps) {
  return maps == 0 ? 0 : maps * 2 * p.b + (maps - 1) * (p.product_columns * p.F + p.strips * p.b);
}

}  // namespace

std::string affine_chain_unsupported(const FloatArguments& a) {
  if (a.normalize_keys) return "keys that it would have to normalise";
  if (a.Dk > kMaxKeyDim) return "Dk > 256: the state's columns would not fit into the registers of 16 threads";
  const Pieces p(a);
  if (std::int64_t(a.B) * a.H * leaf_count(a.L) > INT_MAX / (p.key_tiles + p.value_tiles)) {
    return "more than 2^31 - 1 blocks: the grid";
  }
  if (a.L > INT_MAX - kLeaf) return "L > 2^31 - 33: positions are counted in int";
  return memory_shortage(kRunsTag, affine_chain_memory(a));
}

std::string scan_affine_unsupported(const FloatArguments& a) {
  return affine_chain_unsupported(a);
}

std::int64_t affine_chain_memory(const FloatArguments& a) {
  const Pieces p(a);
  return std::int64_t(sizeof(float)) * a.B * a.H * (leaf_count(a.L) - 1) * (p.F + 2 * p.b);
}

std::int64_t scan_affine_memory(const FloatArguments& a) {
  return affine_chain_memory(a);
}

std::int64_t affine_chain_bytes_moved(const FloatArguments& a) {
  const std::int64_t count = leaves_and_walk(a) + applied(Pieces(a), leaf_count(a.L) - 1);
  return std::int64_t(sizeof(float)) * a.B * a.H * count;
}

std::int64_t scan_affine_bytes_moved(const FloatArguments& a) {
  const Pieces p(a);
  const int N = leaf_count(a.L), longest = longest_run(N);
  std::int64_t count = leaves_and_walk(a);
  for (int s = 1; s < longest; s *= 2) {  // the first pair has no F
    const std::int64_t pairs = pairs_going_up(N, s);
    count += pairs * (p.F + (p.strips + 2) * p.b) + (pairs - 1) * (p.strips + 1) * p.F;
  }
  for (int s = longest; s > 0; s /= 2) count += applied(p, states_going_down(N, s));
  return std::int64_t(sizeof(float)) * a.B * a.H * count;
}

}  // namespace tutorial::scan
