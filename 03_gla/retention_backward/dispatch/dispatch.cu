/// @file
/// `dispatch`: the gradients of gla with gates that do not change.
///
/// Idea: as retention's `gpu`: a table of one row of g per head, seen with a stride of 0 from position to position. gla's
/// dispatch also wants a place for dg, the gradient of each gate, which nobody asks for here: a workspace.
/// Bytes: those of gla's gradients.
/// Weakness: dg is as many bytes as q, k and their gradients in bf16 together, and all of them are thrown away.

#include <cuda_runtime.h>

#include "03_gla/gla_backward.hpp"
#include "03_gla/retention/gate_table.cuh"
#include "03_gla/retention_backward.hpp"
#include "common/device/workspace.hpp"

namespace tutorial::retention {
namespace {

constexpr int kChunk = 64;  // unused: dispatch has a length of its own

/// The same call of gla.
/// @param g [H, Dk], null if the call only asks what it would take @param dg [B, H, L, Dk], likewise
gla::Bf16BackwardArguments gated(const Bf16BackwardArguments& a, const float* g, float* dg) {
  return {a.B,
          a.H,
          a.L,
          a.Dk,
          a.Dv,
          kChunk,
          a.scale,
          a.q,
          a.k,
          a.v,
          {g, 0, a.Dk, 0},
          a.initial_state,
          a.d_o,
          a.dfinal_state,
          a.dq,
          a.dk,
          a.dv,
          packed(dg, a.H, a.L, a.Dk),
          a.dinitial_state};
}

std::int64_t gates_of(const Bf16BackwardArguments& a) {
  return std::int64_t(a.B) * a.H * a.L * a.Dk;
}

}  // namespace

void dispatch_backward(const Bf16BackwardArguments& a) {
  const float* g = write_gate_table(a.H, a.Dk);
  float* dg = workspace<float>("retention --backward: dg", std::size_t(gates_of(a)));
  gla::dispatch_backward(gated(a, g, dg));
}

std::string dispatch_backward_unsupported(const Bf16BackwardArguments& a) {
  return gla::dispatch_backward_unsupported(gated(a, nullptr, nullptr));
}

std::string dispatch_backward_note(const Bf16BackwardArguments& a) {
  return gla::dispatch_backward_note(gated(a, nullptr, nullptr));
}

std::int64_t dispatch_backward_memory(const Bf16BackwardArguments& a) {
  return gla::dispatch_backward_memory(gated(a, nullptr, nullptr)) +
         std::int64_t(sizeof(float)) * (std::int64_t(a.H) * a.Dk + gates_of(a));
}

}  // namespace tutorial::retention
