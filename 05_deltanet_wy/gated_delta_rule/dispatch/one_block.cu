/// @file
/// `one_block`: a head in one block, with two chains, for as many heads as there are multiprocessors or more.
///
/// Idea: let b_t be the sum of the logarithms of a chunk's gates up to position t, and S'_t = S_t / exp(b_t). Dividing the
/// equation of a step by exp(b_t) leaves delta_rule's, for this state:
///
///     S'_t = S'_{t-1} + beta_t k_t^T (v_t / exp(b_t) - k_t S'_{t-1}),     o_t = exp(b_t) scale q_t S'_t
///
/// So a chunk is one of delta_rule, and T and P have no gates. Decays multiply values before the chunk, outputs after it,
/// and once the state. All three pass through the chains' registers anyway, and outputs are multiplied by `scale` there.
/// The warps for T do nothing that they would not do without gates, and a step of an inverse is what limits them.
///
/// Only the range of numbers limits this. With b_e the last sum of a chunk, everything is divided by exp(b_t - b_e / 2)
/// instead, so that no factor is beyond 2^50 in either direction where exp(b_e) is at least 2^-100. Rounding does not
/// change by that: each term of a sum is multiplied by the same factor. A chunk with stronger gates than that is strong:
/// its pairs of positions are multiplied by their decays, and sums by theirs, as in `cluster`. It takes longer.
///
/// Improves on: `cluster` multiplies pairs of positions by decays, and sums three times; and as in delta_rule, what
/// passes between its multiprocessors takes power.
/// **Packed sequences.** Those that are longer than a segment are cut where gates forget enough before each cut: segments
/// start from zeros some chunks earlier (zero_starts.cuh), and a kernel behind walks the heads where they may not.
///
/// Unchanged: delta_rule's `one_block` (05_deltanet_wy/delta_rule/dispatch/one_block.cu), whose kernel this is.
///
/// Equation: that of `tensor_core`.
/// Shapes: those of `tensor_core`; g [B, H, L] fp32 in device memory.
/// Thread mapping: that of delta_rule's `one_block`. The warp that loads Q and K computes the chunk's decays meanwhile,
/// two positions per lane.
/// Synchronization: that of delta_rule's `one_block`. Decays lie beside Q and K of their chunk, and have their barriers.
/// Resources: that kernel's, and 784 bytes per pair of Q and K: 223 KB of shared memory at Dk = 128.
/// Work: that kernel's, and 3 Dv + Dk Dv / 64 multiplications per position in the chains.
/// Bytes: those of that kernel, and g once per 128 columns.
/// Bound by: as that kernel.
/// Requires: what `cluster` requires.
/// Weakness: that kernel's. Strong chunks take longer, and no estimate knows the gates.
/// Sources: those of delta_rule's `one_block`.

#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/chunk/decay_columns.cuh"
#include "05_deltanet_wy/chunk/one_block.cuh"
#include "05_deltanet_wy/chunk/one_block_chains.cuh"
#include "05_deltanet_wy/chunk/warpgroup_products.cuh"
#include "05_deltanet_wy/gated_delta_rule.hpp"
#include "05_deltanet_wy/gated_delta_rule/dispatch/zero_starts.cuh"
#include "05_deltanet_wy/gated_delta_rule/gates.cuh"
#include "05_deltanet_wy/gated_delta_rule_packed/dispatch/walks.hpp"
#include "common/device/ldmatrix.cuh"
#include "common/device/pack.cuh"
#include "common/device/warp.cuh"
#include "common/device/wgmma.cuh"
#include "common/parts.hpp"
#include "common/tile/base2.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::gated_delta_rule {
namespace {

using namespace delta_rule;  // the kernel
using tile::ex2;
using tile::kChunk;

constexpr float kStrong = -100;  // of a chunk's sum to base 2: a chunk with less is strong

/// What a chunk's decays are in shared memory. Where the chunk is not strong, S' is S / exp(b_t - b_e / 2).
struct Decays {
  float before;           ///< from S after the chunk before to that with which this one begins
  float after;            ///< from S with which this chunk ends to the true one
  int is_strong;          ///< 0 or 1
  int may_be_strong;      ///< 0 if neither this chunk nor the next one is
  float values[kChunk];   ///< what V is multiplied by, with the opposite sign; strong: 0
  float outputs[kChunk];  ///< what outputs are multiplied by; strong: scale
  float b[kChunk];        ///< to base 2

  using Arguments = Bf16Arguments;
  static constexpr bool kExist = true;
  static constexpr int kBytes = (4 + 3 * kChunk) * int(sizeof(float));

  class Source;
  class Chain;

  static __device__ __forceinline__ const Decays& at(const float* memory) {
    return *reinterpret_cast<const Decays*>(memory);
  }

  /// Multiplies a warpgroup's K K^T or Q K^T by exp(b_t - b_i) on and below the diagonal, if the chunk is strong.
  static __device__ __forceinline__ void multiply_pairs(tile::WarpgroupScores& sums, const float* memory) {
    const Decays& decays = at(memory);
    if (decays.is_strong == 0) return;
    const float2 b_of_rows{decays.b[wgmma_row(0)], decays.b[wgmma_row(2)]};
#pragma unroll
    for (int i = 0; i < kChunk / 2; i += 4) {
      const float2 b = *reinterpret_cast<const float2*>(decays.b + wgmma_column(i));
      sums[i] *= ex2(min(b_of_rows.x - b.x, 0.0f));
      sums[i + 1] *= ex2(min(b_of_rows.x - b.y, 0.0f));
      sums[i + 2] *= ex2(min(b_of_rows.y - b.x, 0.0f));
      sums[i + 3] *= ex2(min(b_of_rows.y - b.y, 0.0f));
    }
  }
};

/// A warp computes the decays of one chunk after the other. It knows the sums of the next chunk, too, and loads the gates
/// after those.
class Decays::Source {
 public:
  __device__ __forceinline__ Source(const Bf16Arguments& a, int b, int h)
      : g_(a.g.row(b, h, Gates::position())), stride_(a.g.stride_l), left_(a.L), scale_(a.scale) {
    load();
    b_ = gates_.sums();
    load();
  }

  /// Stores those of the next chunk.
  __device__ __forceinline__ void put(float* memory) {
    Decays& decays = *reinterpret_cast<Decays*>(memory);
    const Gates b = b_;
    b_ = gates_.sums();
    load();
    const int lane = int(lane_index());
    const float end = __shfl_sync(kAllLanes, b.second, 31), end_of_next = __shfl_sync(kAllLanes, b_.second, 31);
    const bool is_strong = end < kStrong;
    // The one before, as long as it is near enough: then S stays as it is.
    const float anchor = is_strong ? 0 : end + after_ >= kStrong / 2 ? -after_ : end / 2;
    const auto store = [&](float* row, float first, float second) {
      reinterpret_cast<float2*>(row)[lane] = make_float2(first, second);
    };
    const float first = is_strong ? 0 : b.first - anchor, second = is_strong ? 0 : b.second - anchor;
    store(decays.outputs, scale_ * ex2(first), scale_ * ex2(second));
    store(decays.values, is_strong ? 0 : -ex2(-first), is_strong ? 0 : -ex2(-second));
    if (is_strong) store(decays.b, b.first, b.second);
    const float after = is_strong ? 0 : end - anchor;
    if (lane == 0) {
      decays.before = ex2(after_ + anchor);
      decays.after = ex2(after);
      decays.is_strong = is_strong;
      decays.may_be_strong = is_strong || end_of_next < kStrong;
    }
    after_ = after;
  }

 private:
  __device__ __forceinline__ void load() {
    gates_.load(g_, stride_, left_);
    g_ += kChunk * stride_;
    left_ -= kChunk;
  }

  const float* g_;
  std::int64_t stride_;
  int left_;
  float scale_;
  Gates b_, gates_;
  float after_ = 0;  // from the state with which the chunk before ends to the true one, to base 2
};

/// A chain's part.
class Decays::Chain {
 public:
  __device__ __forceinline__ bool begin(const float* memory) {
    of_chunk_ = &at(memory);
    return of_chunk_->may_be_strong != 0;
  }
  template <int kSums>
  __device__ __forceinline__ void multiply_state(float (&S)[kSums]) {
    after_ = of_chunk_->after;
    if (of_chunk_->before != 1) multiply(S, of_chunk_->before);
  }
  __device__ __forceinline__ void load_values(WarpgroupColumns& sums, const ValuePanel& V, int unit) const {
    load_signed_values(sums, V, unit, kPlus);
    decay_columns(sums, of_chunk_->values);
  }
  /// With scale.
  __device__ __forceinline__ auto output_factors(float) const {
    return [factors = of_chunk_->outputs](int t) { return *reinterpret_cast<const float2*>(factors + t); };
  }
  template <int kSums>
  __device__ __forceinline__ void end(float (&S)[kSums]) const {
    multiply(S, after_);
  }

  // Of strong chunks. They do nothing for others.

  template <int kSums>
  __device__ __forceinline__ void keep(float (&S)[kSums]) const {
    if (is_strong()) multiply(S, ex2(of_chunk_->b[kChunk - 1]));
  }
  /// diag(exp(b)) K S - V.
  __device__ __forceinline__ void finish_residual(WarpgroupColumns& sums, const ValuePanel& V, int unit) const {
    if (!is_strong()) return;
    finish_output(sums);
#pragma unroll
    for (int t = 0; t < kChunk; t += 16) {
      std::uint32_t v[4];
      ldmatrix_x4_trans(v, V.data + V.advance(unit, t, 0));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 two = unpack(v[i]);
        sums[t / 2 + 2 * i] -= two.x;
        sums[t / 2 + 2 * i + 1] -= two.y;
      }
    }
  }
  /// diag(exp(b)) Q S.
  __device__ __forceinline__ void finish_output(WarpgroupColumns& sums) const {
    if (is_strong()) multiply_columns(sums, [](float b) { return ex2(b); });
  }
  /// diag(exp(b_e - b)) v_new.
  __device__ __forceinline__ void finish_values(WarpgroupColumns& v_new) const {
    if (!is_strong()) return;
    const float end = of_chunk_->b[kChunk - 1];
    multiply_columns(v_new, [=](float b) { return ex2(end - b); });
  }

 private:
  __device__ __forceinline__ bool is_strong() const {
    return of_chunk_->is_strong != 0;
  }

  template <int kSums>
  static __device__ __forceinline__ void multiply(float (&S)[kSums], float decay) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) S[i] *= decay;
  }
  /// sums *= f(b), each column that of its position.
  template <class F>
  __device__ __forceinline__ void multiply_columns(WarpgroupColumns& sums, F f) const {
#pragma unroll
    for (int i = 0; i < kChunk / 2; i += 4) {
      const float2 b = *reinterpret_cast<const float2*>(of_chunk_->b + wgmma_column(i));
      const float2 decays{f(b.x), f(b.y)};
      sums[i] *= decays.x, sums[i + 1] *= decays.y, sums[i + 2] *= decays.x, sums[i + 3] *= decays.y;
    }
  }

  const Decays* of_chunk_;
  float after_ = 1;
};

/// Segments of packed sequences, the longest first. Grid (tiles of Dv, H, B times the list's entries).
class SegmentHeads : public SequenceHeads {
 public:
  /// @param list of list_segments() for segments of `length` positions
  /// @param left [N, B, H], zeros: set where a segment needs its past
  SegmentHeads(const int4* list, int length, const std::int32_t* cu_seqlens, int* left)
      : list_(list), length_(length), cu_seqlens_(cu_seqlens), left_(left) {}

  __device__ __forceinline__ int warm_up() const { return warm_up_; }

  __device__ __forceinline__ bool begin(Bf16Arguments& a, int columns) {
    const int4 segment = load_global(list_ + int(blockIdx.z) / a.B);
    const int n = segment.x, b = batch(a.B), h = head();
    if (n < 0) return false;  // the list may have entries without a sequence
    begin_sequence(a, n, load_global(cu_seqlens_ + n), load_global(cu_seqlens_ + n + 1));
    if (a.L == 0) hand_state_on(a, b, h, int(blockIdx.x) * columns, columns);
    if (a.L <= length_) return a.L > 0;
    const int begin = segment.y - first_, end = segment.z - first_;
    // The first segment asks for the second one: where that may not start, the head is another kernel's.
    const int start = zero_start<kOneBlockThreads>(a, b, h, max(begin, length_));
    if (start == tile::kNoWarmUp) {
      if (threadIdx.x == 0) atomicAdd(left_ + std::int64_t(n * a.B + b) * a.H + h, 1);  // other segments may, too
      return false;
    }
    const int first = begin > 0 ? start : 0;
    warm_up_ = begin - first;
    first_ += first;
    a = part_of(a, first, end);
    return true;
  }

 private:
  const int4* list_;
  int length_;
  const std::int32_t* cu_seqlens_;
  int* left_;
  int warm_up_ = 0;
};

}  // namespace

void one_block(const Bf16Arguments& a) {
  start_one_block<Decays>(a, a.B);
}

void one_block_packed(const PackedBf16Arguments& p, const tile::PackedPlan& plan) {
  int* left = none_left(p);
  const SegmentHeads heads(tile::list_segments(p.cu_seqlens, plan), plan.length, p.cu_seqlens, left);
  start_one_block<Decays>(p.all, p.all.B * plan.entries(), heads);
  end_part("segments");
  if (plan.states == 0) return;
  start_one_block<Decays>(p.all, p.all.B * p.N, HeadsLeft(p.cu_seqlens, left));
  end_part("what needs its past");
}

}  // namespace tutorial::gated_delta_rule
