#include <cuda_runtime.h>

#include "03_gla/gla/dispatch/in_fp32.hpp"
#include "common/device/fp32_copies.cuh"
#include "common/device/workspace.hpp"

namespace tutorial::gla {
namespace {

FloatArguments with_copies(const Bf16Arguments& a, const Fp32Copies& copies) {
  return {.B = a.B,
          .H = a.H,
          .L = a.L,
          .Dk = a.Dk,
          .Dv = a.Dv,
          .C = a.C,
          .scale = a.scale,
          .q = read_only(copies.q),
          .k = read_only(copies.k),
          .v = read_only(copies.v),
          .g = a.g,
          .initial_state = a.initial_state,
          .o = copies.o,
          .final_state = a.final_state};
}

/// The same problem in fp32 before there is memory, for questions about it.
FloatArguments sizes_in_fp32(const Bf16Arguments& a) {
  return with_copies(a, Fp32Copies(a, nullptr));
}

}  // namespace

void dispatch_in_fp32(const Bf16Arguments& a) {
  const Fp32Copies copies(a, workspace<float>("gla: q, k, v, o in fp32", std::size_t(Fp32Copies::count(a))));
  copies.load(a);
  dispatch(with_copies(a, copies));
  copies.store(a);
}

std::string in_fp32_unsupported(const Bf16Arguments& a) {
  if (const std::string reason = convert_unsupported(a.B, a.H, a.L); !reason.empty()) return reason;
  return dispatch_unsupported(sizes_in_fp32(a));
}

std::string in_fp32_note(const Bf16Arguments& a) {
  return dispatch_note(sizes_in_fp32(a));
}

std::int64_t in_fp32_memory(const Bf16Arguments& a) {
  return std::int64_t(sizeof(float)) * Fp32Copies::count(a) + dispatch_memory(sizes_in_fp32(a));
}

}  // namespace tutorial::gla
