#include "05_deltanet_wy/gated_delta_rule/prepare_gated.hpp"

#include "05_deltanet_wy/chunk/fragments.cuh"
#include "05_deltanet_wy/gated_delta_rule/prepare_gated.cuh"

namespace tutorial::gated_delta_rule {

static __device__ __forceinline__ void store_scores(const Prepared& out, const ForGradients& also, std::int64_t chunk,
                                                    BlockRow& P, int r) {
  if (also.blocks) store_flipped_blocks(also.blocks + (chunk * 3 + 2) * kBlockUnits, P, r);
  store_blocks(out.P + chunk * kBlockUnits, P, r);
}
static __device__ __forceinline__ void store_T(const Prepared& out, const ForGradients& also, std::int64_t chunk,
                                               BlockRow& T, int r) {
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    if (also.blocks) store_flipped_blocks(also.blocks + (chunk * 3 + part) * kBlockUnits, T, r);
    store_blocks(out.T + (chunk * 2 + part) * kBlockUnits, T, r);
  }
}

static Prepared reserve(const Bf16Arguments& a, int N) {
  const std::int64_t units = std::int64_t(a.B) * a.H * N * kBlockUnits;
  auto* blocks = workspace<uint4>("gated_delta_rule: T and P", std::size_t(3 * units));
  return {N, blocks, blocks + 2 * units, reserve_decays(a, N)};
}

Prepared prepare(const Bf16Arguments& a, const ForGradients& also) {
  return filled(a, a, reserve(a, ceil_div(a.L, kChunk)), also);
}

Prepared prepare(const PackedSequences<Bf16Arguments>& p, const ForGradients& also) {
  return filled(p, p.all, reserve(p.all, packed_chunks(extents_of(p.all), p.N)), also);
}

std::int64_t prepared_memory(const Bf16Arguments& a) {
  return prepared_memory(a, ceil_div(a.L, kChunk));
}

std::int64_t prepared_memory(const Bf16Arguments& a, int N) {
  return std::int64_t(a.B) * a.H * N * (3 * kBlockUnits * sizeof(uint4) + kDecays * sizeof(float));
}

}  // namespace tutorial::gated_delta_rule
