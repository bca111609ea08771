#include "05_deltanet_wy/gated_delta_rule/prepare_packed.hpp"

#include "05_deltanet_wy/gated_delta_rule/store_fragments.cuh"
#include "common/tile/packed_chunks.cuh"

namespace tutorial::gated_delta_rule {
namespace {

/// A block for each chunk of each sequence. Grid (packed_chunks(), H, B).
template <int kDk>
__global__ void __launch_bounds__(kThreads, kDk <= 128 ? 6 : 3)
    packed_prepare_kernel(PackedSequences<Bf16Arguments> p, Prepared out, ForGradients also) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), number = int(blockIdx.x);
  const PackedChunk chunk(p.cu_seqlens, p.N, number);
  if (chunk.begin == chunk.end) return;
  p.all.L = chunk.end;
  prepare_chunk<kDk>(p.all, out, also, b, h, chunk.begin, (std::int64_t(b) * p.all.H + h) * out.N + number);
}

std::int64_t all_chunks(const PackedSequences<Bf16Arguments>& p) {
  return std::int64_t(p.all.B) * p.all.H * packed_chunks(extents_of(p.all), p.N);
}

}  // namespace

Prepared prepare(const PackedSequences<Bf16Arguments>& p, const ForGradients& also) {
  const Bf16Arguments& a = p.all;
  const std::int64_t units = all_chunks(p) * kBlockUnits;
  auto* blocks = workspace<uint4>("gated_delta_rule: T and P", std::size_t(3 * units));
  auto* decays = workspace<float>("gated_delta_rule: decays", std::size_t(all_chunks(p) * kDecays));
  const Prepared out{packed_chunks(extents_of(a), p.N), blocks, blocks + 2 * units, decays};
  const auto start = [&]<int kDk>(std::integral_constant<int, kDk>) {
    const int bytes = std::max(2 * kChunk * kDk * int(sizeof(__nv_bfloat16)), InverseMemory::kBytes);
    launch(packed_prepare_kernel<kDk>,
           {dim3(unsigned(out.N), unsigned(a.H), unsigned(a.B)), kThreads, std::size_t(bytes)}, p, out, also);
  };
  a.Dk <= 64    ? start(std::integral_constant<int, 64>())
  : a.Dk <= 128 ? start(std::integral_constant<int, 128>())
                : start(std::integral_constant<int, 256>());
  return out;
}

std::int64_t prepared_memory(const PackedSequences<Bf16Arguments>& p) {
  return all_chunks(p) * (3 * kBlockUnits * std::int64_t(sizeof(uint4)) + kDecays * std::int64_t(sizeof(float)));
}

}  // namespace tutorial::gated_delta_rule
