#pragma once
/// @file
/// What the pairs of a sub-chunk give to dq, dk and dg, in fp32, for the kernels that compute the gradients of chunks.

#include <cuda_runtime.h>

#include "common/tile/decay_sub_chunk.cuh"
#include "common/tile/sub_chunk.hpp"

namespace tutorial::gla {

using tile::convert;
using tile::kSubChunk;

/// Two columns of a row.
using Two = float[2];

/// x *= y
__device__ __forceinline__ void multiply(Two& x, const Two& y) {
  x[0] *= y[0];
  x[1] *= y[1];
}
/// x += y z
__device__ __forceinline__ void multiply_add(Two& x, const Two& y, const Two& z) {
  x[0] += y[0] * z[0];
  x[1] += y[1] * z[1];
}
__device__ __forceinline__ void multiply_add(Two& x, float y, const Two& z) {
  x[0] += y * z[0];
  x[1] += y * z[1];
}

/// The pairs of a sub-chunk, for a lane's two columns. All in fp32.
///
/// A pair i, m takes part in dq_i and in dk_m, with its decay exp(g_{m+1}) ... exp(g_i) in both. Pairs of rows in one
/// quarter, of four rows, get their decay one by one. The rows of a quarter meet those of the quarter before, if both
/// are in the same half, at the border between the two, and the rows of the second half meet those of the first half at
/// the middle: there the queries are decayed from the border and the keys to the border, once for all their pairs. So
/// such a pair takes two multiply-adds, where the others take two multiplications more.
///
/// The compiler moves no load to before a store that may be to the same place, and the results of a row take the places
/// of its inputs. So a row is loaded before the one above it is stored: its loads wait for no sum.
struct Pairs {
  Two dk[kSubChunk];      ///< of the sub-chunk's own pairs
  Two decays[kSubChunk];  ///< from each row to the sub-chunk's end

  /// @param load load(i, q, k, gates) gives a row: its query, its key, its gates; 0, 0, 1 where it does not exist
  /// @param R scale times R [16, 16]
  /// @param A scale times A: A(i) has the two elements of row i
  /// @param store store(i, dq_i, q_i . dq_i), the latter without the row's own pair, when row i + 1 has been loaded
  template <class Load, class FromStart, class Store>
  __device__ __forceinline__ void add(const Load& load, const float* R, const FromStart& A, const Store& store) {
    Two k[4] = {}, quarter = {};               // keys of the quarter, its decay so far
    Two near_keys[4] = {}, near_sums[4] = {};  // of the quarter before: keys decayed to its end, what they get
    Two far_keys[8] = {}, far_sums[8] = {};    // the same of the half before
    Two before = {}, half = {};                // decays of the two
    Two last_dq = {}, last_product = {};       // of the row above, not stored yet
#pragma unroll
    for (int i = 0; i < kSubChunk; ++i) {
      const int j = i / 4 * 4;  // the quarter's first row
      Two q, gates, dq = {}, sum;
      float r[kSubChunk];
      load(i, q, k[i - j], gates);
      convert(sum, A(i));
#pragma unroll
      for (int m = 0; m <= i; ++m) r[m] = R[i * kSubChunk + m];
      if (i > 0) store(i - 1, last_dq, last_product);
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        quarter[e] = i == j ? gates[e] : quarter[e] * gates[e];
        decays[i][e] = 1;
        dk[i][e] = 0;
      }
#pragma unroll
      for (int m = j; m < i; ++m) {
        multiply(decays[m], gates);
        const Two x = {r[m] * decays[m][0], r[m] * decays[m][1]};
        multiply_add(dq, x, k[m - j]);
        multiply_add(dk[m], x, q);
      }
      Two decayed = {q[0] * quarter[0], q[1] * quarter[1]};
      if (i >= 8) {
        multiply(sum, half);
#pragma unroll
        for (int m = 0; m < 8; ++m) multiply_add(sum, r[m], far_keys[m]);
      }
      if (j / 4 % 2 == 1) {
        multiply(sum, before);
#pragma unroll
        for (int m = 0; m < 4; ++m) {
          multiply_add(sum, r[j - 4 + m], near_keys[m]);
          multiply_add(near_sums[m], r[j - 4 + m], decayed);
        }
        multiply(decayed, before);
      }
      if (i >= 8) {
#pragma unroll
        for (int m = 0; m < 8; ++m) multiply_add(far_sums[m], r[m], decayed);
      }
      multiply_add(dq, quarter, sum);
      multiply(q, dq);
      multiply_add(dq, r[i], k[i - j]);
#pragma unroll
      for (int e = 0; e < 2; ++e) last_dq[e] = dq[e], last_product[e] = q[e];

      if (i % 8 == 3) {
#pragma unroll
        for (int m = 0; m < 4; ++m) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            near_keys[m][e] = k[m][e] * decays[j + m][e];
            near_sums[m][e] = 0;
            before[e] = quarter[e];
          }
        }
      }
      if (i % 8 == 7) {
#pragma unroll
        for (int m = 0; m < 4; ++m) {
          multiply_add(dk[j - 4 + m], decays[j - 4 + m], near_sums[m]);
          multiply(decays[j - 4 + m], quarter);
        }
        multiply(before, quarter);  // of the half
      }
      if (i == 7) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          half[e] = before[e];
#pragma unroll
          for (int m = 0; m < 8; ++m) {
            far_keys[m][e] = (m < 4 ? near_keys[m % 4][e] * quarter[e] : k[m % 4][e] * decays[m][e]);
            far_sums[m][e] = 0;
          }
        }
      }
      if (i == 15) {
#pragma unroll
        for (int m = 0; m < 8; ++m) {
          multiply_add(dk[m], decays[m], far_sums[m]);
          multiply(decays[m], before);
        }
      }
    }
    store(kSubChunk - 1, last_dq, last_product);
  }
};

}  // namespace tutorial::gla
