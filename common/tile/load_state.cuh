#pragma once
/// @file
/// Moves a state between the registers of a block (chunk_threads.cuh) and device memory.

#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/memory.cuh"
#include "common/tile/chunk_threads.cuh"
#include "common/tile/state_strides.hpp"

namespace tutorial::tile {

/// Calls f(element, address) for each element of the state that the lane holds and that exists, with its address in
/// device memory.
/// @param state the first row's element of the block's first column
/// @param stride the layout of the state there
/// @param Dk,columns rows of the state and columns of the block that exist: multiples of 16
template <class Shape, class Float, class F>
__device__ __forceinline__ void for_each_element(typename Shape::State& S, Float* state, StateStrides stride, int Dk,
                                                 int columns, F f) {
  const int lane = fresh_lane(), first_column = warp_index() * Shape::kWarpColumns;
  state += lane % 4 * 2 * stride.row + (first_column + lane / 4) * stride.column;
#pragma unroll
  for (int d = 0; d < Shape::kDk; d += 8) {
    if (d < Dk) {
#pragma unroll
      for (int j = 0; j < Shape::kWarpColumns; j += 8) {
        if (first_column + j < columns) {
          f(S[j / 16][d / 8][j / 8 % 2 * 2], state + j * stride.column);
          f(S[j / 16][d / 8][j / 8 % 2 * 2 + 1], state + stride.row + j * stride.column);
        }
      }
    }
    state += 8 * stride.row;
  }
}

/// S = the block's columns of a state in fp32, and zeros for elements that do not exist; see for_each_element().
/// @param state null: all zeros
template <class Shape>
__device__ __forceinline__ void load_state(typename Shape::State& S, const float* state, StateStrides stride, int Dk,
                                           int columns) {
#pragma unroll
  for (auto& tiles : S) {
#pragma unroll
    for (auto& tile : tiles) {
#pragma unroll
      for (float& element : tile) element = 0;
    }
  }
  if (state == nullptr) return;
  for_each_element<Shape>(S, state, stride, Dk, columns,
                          [](float& element, const float* address) { element = load_global(address); });
}

/// Writes the block's columns of the state; see for_each_element().
template <class Shape>
__device__ __forceinline__ void store_state(float* state, typename Shape::State& S, StateStrides stride, int Dk,
                                            int columns) {
  for_each_element<Shape>(S, state, stride, Dk, columns,
                          [](float& element, float* address) { store_global(address, element); });
}

}  // namespace tutorial::tile
