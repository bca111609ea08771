#pragma once
/// @file
/// The product of a warp: what common/device/mma.cuh is on the emulator.

#include <cstdint>
#include <source_location>

namespace emulator {

/// A lane's fragments of the product of a 16 x 16 and a 16 x 8 matrix, added to a 16 x 8 matrix; mma.cuh has the layout.
struct WarpProduct {
  std::uint32_t a[4], b[2];
  float d[4];
};

/// D += A B for all lanes at once, when the last one has come: 32 lanes that each fetch their rows and columns from the
/// others take many times as long. Ends the launch where warp_exchange() with a mask of all lanes does.
/// @tparam Element __nv_bfloat16 or __half, of A and B
/// @param mine d is the lane's part of the result afterwards
template <class Element>
void warp_product(WarpProduct& mine, std::source_location where);

}  // namespace emulator
