#pragma once
/// @file
/// A tensor as kernels and CPU stages see it: a pointer and three strides. No dependencies, so that .cu files can
/// include it.

#include <cstdint>

#ifdef __CUDACC__
#define TUTORIAL_HOST_DEVICE __host__ __device__
#else
#define TUTORIAL_HOST_DEVICE
#endif

namespace tutorial {

/// What the runner calls a stage with (chapter/call.hpp): an operator's `static Arguments bind(const Call&)` turns it
/// into the plain struct that kernels and CPU stages see.
class Call;

/// A [B, H, L, D] tensor somewhere in memory, host or device. The D elements of a row are packed; the three outer
/// strides are free, counted in elements, so that [B, L, H, D] memory is viewed without a copy.
template <class T>
struct View {
  T* data = nullptr;
  std::int64_t stride_b = 0;  ///< elements from one batch entry to the next
  std::int64_t stride_h = 0;  ///< elements from one head to the next
  std::int64_t stride_l = 0;  ///< elements from one position to the next

  /// The first of the D elements of batch entry b, head h, position t.
  TUTORIAL_HOST_DEVICE T* row(std::int64_t b, std::int64_t h, std::int64_t t) const {
    return data + b * stride_b + h * stride_h + t * stride_l;
  }
};

/// The same tensor, to be read only.
template <class T>
View<const T> read_only(const View<T>& view) {
  return {view.data, view.stride_b, view.stride_h, view.stride_l};
}

/// The view of packed [B, H, L, D] memory.
template <class T>
View<T> packed(T* data, std::int64_t H, std::int64_t L, std::int64_t D) {
  return {data, H * L * D, L * D, D};
}

}  // namespace tutorial
