#pragma once
/// @file
/// A problem on bf16 tensors in fp32: what a dispatch does with widths and rows that no kernel on bf16 supports.

#include <cuda_bf16.h>

#include <cstdint>

#include "common/device/convert.cuh"
#include "common/view.hpp"

namespace tutorial {

/// q, k [B, H, L, Dk] and v, o [B, H, L, Dv] of some arguments in fp32, packed one behind the other.
struct Fp32Copies {
  View<float> q, k, v, o;

  /// Elements of memory that the copies take.
  template <class Arguments>
  static std::int64_t count(const Arguments& a) {
    return 2 * std::int64_t(a.B) * a.H * a.L * (std::int64_t(a.Dk) + a.Dv);
  }

  /// @param memory count() elements in device memory; null where only sizes are of interest
  template <class Arguments>
  Fp32Copies(const Arguments& a, float* memory) {
    const std::int64_t rows = std::int64_t(a.B) * a.H * a.L;
    const auto next = [&](int D) {
      const View<float> view = packed(memory, a.H, a.L, D);
      if (memory) memory += rows * D;
      return view;
    };
    q = next(a.Dk);
    k = next(a.Dk);
    v = next(a.Dv);
    o = next(a.Dv);
  }

  /// Starts the copies of q, k and v to fp32. Requires: an empty convert_unsupported().
  template <class Arguments>
  void load(const Arguments& a) const {
    convert(a.B, a.H, a.L, a.Dk, a.q, q);
    convert(a.B, a.H, a.L, a.Dk, a.k, k);
    convert(a.B, a.H, a.L, a.Dv, a.v, v);
  }
  /// Starts the copy of o to bf16, rounded to nearest.
  template <class Arguments>
  void store(const Arguments& a) const {
    convert(a.B, a.H, a.L, a.Dv, o, a.o);
  }
};

}  // namespace tutorial
