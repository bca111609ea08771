#include "emulator/warp_product.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstring>

#include "block.hpp"

namespace emulator {
namespace {

constexpr unsigned kProductRows = 16, kProductColumns = 8, kProductDepth = 16;

template <class Element>
void unpack_into(float (&two)[2], std::uint32_t bits) {
  two[0] = Element::from_bits(static_cast<std::uint16_t>(bits & 0xFFFF));
  two[1] = Element::from_bits(static_cast<std::uint16_t>(bits >> 16));
}

/// The product of all lanes. @param lanes the WarpProduct of each; nullptr for lanes that the block does not have
template <class Element>
void multiply_fragments(void* const (&lanes)[kWarpSize]) {
  float a[kProductRows][kProductDepth], b[kProductDepth][kProductColumns], d[kProductRows][kProductColumns];
  WarpProduct missing;
  std::memset(&missing, 0xFF, sizeof missing);
  for (unsigned lane = 0; lane < kWarpSize; ++lane) {
    const auto& part = lanes[lane] ? *static_cast<const WarpProduct*>(lanes[lane]) : missing;
    const unsigned g = lane / 4, p = lane % 4 * 2;
    for (unsigned i = 0; i < 4; ++i) {
      float two[2];
      unpack_into<Element>(two, part.a[i]);
      std::copy_n(two, 2, &a[g + i % 2 * 8][p + i / 2 * 8]);
    }
    for (unsigned i = 0; i < 2; ++i) {
      float two[2];
      unpack_into<Element>(two, part.b[i]);
      b[p + i * 8][g] = two[0];
      b[p + i * 8 + 1][g] = two[1];
    }
    for (unsigned i = 0; i < 2; ++i) std::copy_n(&part.d[2 * i], 2, &d[g + i * 8][p]);
  }
  // Row by row, so that the compiler sees that nothing overlaps; each sum in ascending order of k.
  for (unsigned m = 0; m < kProductRows; ++m) {
    float row[kProductColumns];
    std::copy_n(d[m], kProductColumns, row);
    for (unsigned k = 0; k < kProductDepth; ++k) {
      const float factor = a[m][k];
      for (unsigned n = 0; n < kProductColumns; ++n) row[n] += factor * b[k][n];
    }
    std::copy_n(row, kProductColumns, d[m]);
  }
  for (unsigned lane = 0; lane < kWarpSize; ++lane) {
    if (!lanes[lane]) continue;
    const unsigned g = lane / 4, p = lane % 4 * 2;
    for (unsigned i = 0; i < 2; ++i)
      std::copy_n(&d[g + i * 8][p], 2, &static_cast<WarpProduct*>(lanes[lane])->d[2 * i]);
  }
}

}  // namespace

template <class Element>
[[gnu::flatten]] void warp_product(WarpProduct& mine, std::source_location where) {
  Block::current()->warps().compute(~0u, &mine, sizeof mine, &multiply_fragments<Element>, where);
}

template void warp_product<__nv_bfloat16>(WarpProduct&, std::source_location);
template void warp_product<__half>(WarpProduct&, std::source_location);

}  // namespace emulator
