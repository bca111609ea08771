#include "03_gla/operators.hpp"

#include <algorithm>

#include "03_gla/gla.hpp"
#include "03_gla/packed.hpp"
#include "03_gla/retention.hpp"
#include "03_gla/retention_backward.hpp"
#include "common/chapter/attention.hpp"
#include "common/chapter/bind_packed.hpp"

namespace tutorial {
namespace {

constexpr std::int64_t kGpuChunk = 64, kSubChunk = 16;

/// How many keys of its chunk a query sees on average, including its own.
double keys_seen(const Sizes& s, std::int64_t C) {
  return double(std::min(C, s.at("L")) + 1) / 2;
}

/// The operations of a stage in chunks of C, a multiply-add counting as two, but for those of the gates: k_t^T v_t into
/// the state, q_t S out of it, and a score and a row of v for each key of the chunk.
double chunk_flops(const Sizes& s, std::int64_t C) {
  const auto Dk = double(s.at("Dk")), Dv = double(s.at("Dv"));
  return positions(s) * (4 * Dk * Dv + 2 * keys_seen(s, C) * (Dk + Dv));
}

/// So many exponentials for each gate of each position.
double exponentials(const Sizes& s, double per_gate) {
  return positions(s) * double(s.at("Dk")) * per_gate;
}

/// Of chunk_gpu, with the scores counted once: per gate one exponential for each pair of a chunk, one from its start
/// and one to its end.
Work pairwise_work(const Sizes& s) {
  return {.fma_flops = chunk_flops(s, kGpuChunk) + exponentials(s, 2 * keys_seen(s, kGpuChunk)),
          .exponentials = exponentials(s, keys_seen(s, kGpuChunk) + 2)};
}

/// Exponentials of two levels: one per pair in a sub-chunk; between sub-chunks one per row of queries, and one per row
/// of all keys before them; one from the chunk's start, one to its end, and one for the whole chunk.
Work two_level_work(const Sizes& s, std::int64_t C) {
  C = std::min(C, s.at("L"));
  const auto length = double(C), part = double(std::min(C, kSubChunk));
  const double blocks = (1 - part / length) + (length / part - 1) / 2;
  return {.fma_flops = chunk_flops(s, C),
          .exponentials = exponentials(s, keys_seen(s, std::int64_t(part)) + blocks + 2 + 1 / length)};
}

}  // namespace

namespace gla {

template <class T>
Arguments<T> Arguments<T>::bind(const Call& call) {
  return {call.size("B"),
          call.size("H"),
          call.size("L"),
          call.size("Dk"),
          call.size("Dv"),
          call.chunk(),
          call.scale(),
          call.view<const T>("q"),
          call.view<const T>("k"),
          call.view<const T>("v"),
          call.view<const float>("g"),
          call.view<const float>("initial_state"),
          call.view<T>("o"),
          call.view<float>("final_state")};
}
template struct Arguments<float>;
template struct Arguments<__nv_bfloat16>;

}  // namespace gla
template struct PackedSequences<gla::Bf16Arguments>;
namespace gla {

Operator packed_definition() {
  return definition().packed();
}

Operator definition() {
  Operator definition("gla", "S_t = diag(exp(g_t)) S_{t-1} + k_t^T v_t, o_t = scale q_t S_t");
  definition.reference(recurrent).work(pairwise_work);
  return with_attention(std::move(definition), normal(), normal(),
                        {{.name = "g",
                          .dims = {"B", "H", "L", "Dk"},
                          .draw = logsigmoid(16),
                          .gate = true,
                          .bf16 = false,
                          .valid = [](double g, const Sizes&) { return g <= 0; },
                          .requirement = "must be at most 0"}});
}

Work recurrent_work(const Sizes& s) {
  // The decay's multiplication takes a unit as long as a multiply-add.
  return {.fma_flops = positions(s) * 6 * double(s.at("Dk") * s.at("Dv")), .exponentials = exponentials(s, 1)};
}

Work parallel_unstable_work(const Sizes& s) {
  return {.fma_flops = chunk_flops(s, s.at("L")), .exponentials = exponentials(s, 1)};
}

Work parallel_log_work(const Sizes& s) {
  return {.fma_flops = chunk_flops(s, s.at("L")), .exponentials = exponentials(s, keys_seen(s, s.at("L")) + 2)};
}

Work chunkwise_work(const Sizes& s) {
  return two_level_work(s, s.at("C"));
}

Work chunk_gpu_work(const Sizes& s) {
  return pairwise_work(s);
}

Work subchunk_work(const Sizes& s) {
  const double between = keys_seen(s, kGpuChunk) - keys_seen(s, kSubChunk);
  Work work = subchunk_walk_work(s);
  work.tensor_flops += positions(s) * 2 * between * double(s.at("Dk") + s.at("Dv"));
  return work;
}

Work subchunk_walk_work(const Sizes& s) {
  const auto Dk = double(s.at("Dk")), Dv = double(s.at("Dv")), pairs = keys_seen(s, kSubChunk);
  // Of a pair in a sub-chunk: the key's multiplication with the gate, and a multiply-add; of the state: its decay.
  return {.fma_flops = positions(s) * (Dk * 4 * pairs + 2 * Dk * Dv / double(kSubChunk)),
          .tensor_flops = positions(s) * (4 * Dk * Dv + 2 * pairs * Dv),
          .exponentials = exponentials(s, 1)};
}

}  // namespace gla

namespace retention {

template <class T>
Arguments<T> Arguments<T>::bind(const Call& call) {
  return {call.size("B"),          call.size("H"),
          call.size("L"),          call.size("Dk"),
          call.size("Dv"),         call.scale(),
          call.view<const T>("q"), call.view<const T>("k"),
          call.view<const T>("v"), call.view<const float>("initial_state"),
          call.view<T>("o"),       call.view<float>("final_state")};
}
template struct Arguments<float>;
template struct Arguments<__nv_bfloat16>;

Operator definition() {
  Operator definition("retention", "gla with one constant gate per head, exp(g) = 1 - 2^(-5-h)");
  definition.reference(recurrent_double).work(pairwise_work);
  return with_attention(std::move(definition), normal(), normal());
}

template <class T>
BackwardArguments<T> BackwardArguments<T>::bind(const Call& call) {
  return {call.size("B"),           call.size("H"),
          call.size("L"),           call.size("Dk"),
          call.size("Dv"),          call.scale(),
          call.view<const T>("q"),  call.view<const T>("k"),
          call.view<const T>("v"),  call.view<const float>("initial_state"),
          call.view<const T>("do"), call.view<const float>("dfinal_state"),
          call.view<T>("dq"),       call.view<T>("dk"),
          call.view<T>("dv"),       call.view<float>("dinitial_state")};
}
template struct BackwardArguments<float>;
template struct BackwardArguments<__nv_bfloat16>;

Operator backward_definition() {
  return definition()
      .backward("dS_t = (1 - 2^(-5-h)) dS_{t+1} + scale q_t^T do_t, and what gla's gradients make of it")
      .reference(recurrent_double_backward)
      .work(gla::one_anchor_backward_work);
}

}  // namespace retention
}  // namespace tutorial
