#include "04_fused_chunk/operators.hpp"

#include <algorithm>
#include <cmath>

#include "04_fused_chunk/packed_simple_gla.hpp"
#include "04_fused_chunk/simple_gla.hpp"
#include "common/chapter/attention.hpp"
#include "common/chapter/bind_packed.hpp"

namespace tutorial {
namespace {

/// How many keys of its chunk of C a query sees on average, including its own.
double keys_seen(const Sizes& s, std::int64_t C) {
  return double(std::min(C, s.at("L")) + 1) / 2;
}

/// The operations on a state at each position, a multiply-add counting as two: k_t^T v_t into it, q_t S out of it.
double state_flops(const Sizes& s) {
  return positions(s) * 4 * double(s.at("Dk") * s.at("Dv"));
}

/// A score and a row of v for each key of the chunk that a query sees.
double score_flops(const Sizes& s, std::int64_t C) {
  return positions(s) * 2 * keys_seen(s, C) * double(s.at("Dk") + s.at("Dv"));
}

}  // namespace

namespace fused_gla {

Work sub_chunk_work(const Sizes& s) {
  constexpr std::int64_t kSubChunk = 16;
  const auto Dk = double(s.at("Dk")), Dv = double(s.at("Dv"));
  const double pairs = keys_seen(s, kSubChunk) - 1;  // with a decay: not those on the diagonal
  // A pair's term is a difference, an exponential, a product and a multiply-add; the first and the third take a unit as
  // long as a multiply-add. Products with v are whole tiles of 16 x 16.
  return {.fma_flops = positions(s) * Dk * (6 * pairs + 2),
          .tensor_flops = state_flops(s) + positions(s) * 2 * kSubChunk * Dv,
          .exponentials = positions(s) * Dk * (pairs + 2)};
}

}  // namespace fused_gla

namespace simple_gla {

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

}  // namespace simple_gla
template struct PackedSequences<simple_gla::Bf16Arguments>;
namespace simple_gla {

Operator packed_definition() {
  return definition().packed();
}

Operator definition() {
  constexpr std::int64_t kGpuChunk = 64, kFragment = 16;
  Operator definition("simple_gla",
                      "S_t = exp(g_t) S_{t-1} + k_t^T v_t, o_t = scale q_t S_t, one gate per head and step");
  definition.reference(recurrent).work(
      [](const Sizes& s) -> Work {  // scores in tiles of 16 x 16, on and below the diagonal
        const double in_tiles = score_flops(s, kGpuChunk + kFragment - 1);
        return {.tensor_flops = state_flops(s) + in_tiles,
                .exponentials = positions(s) * (keys_seen(s, kGpuChunk) + 2)};
      });
  return with_attention(std::move(definition), normal(), normal(),
                        {{.name = "g",
                          .dims = {"B", "H", "L"},
                          .draw = logsigmoid(),
                          .gate = true,
                          .bf16 = false,
                          .valid = [](double g, const Sizes&) { return g <= 0; },
                          .requirement = "must be at most 0"}});
}

Work recurrent_work(const Sizes& s) {
  // The decay's multiplication takes a unit as long as a multiply-add.
  return {.fma_flops = positions(s) * 6 * double(s.at("Dk") * s.at("Dv")), .exponentials = positions(s)};
}

Work chunkwise_work(const Sizes& s) {
  const double pairs = keys_seen(s, s.at("C"));
  return {.fma_flops = state_flops(s) + score_flops(s, s.at("C")) + positions(s) * 4 * pairs,
          .exponentials = positions(s) * (pairs + 2)};
}

}  // namespace simple_gla
}  // namespace tutorial
