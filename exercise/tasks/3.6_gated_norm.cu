/// Exercise 3.6: the norm at the end of a layer
///
/// Y = O / rms(O) * weight * silu(Z), row by row: rms(O) is the square root of the mean of O^2 over the row's `width`
/// elements plus 1e-5, and silu(z) = z / (1 + exp(-z)). O, Z and Y are [rows, width], weight is [width]. One warp per
/// row; four warps, so four rows, per block. The lanes add up their sums of squares by `__shfl_xor_sync`. Keep what you
/// load of O in registers: width is at most 128, so a lane has at most 4 elements.
///
/// Goal: O and Z are read once, no barrier. Strong negative z must not become NaN.

#include "exercise/kernel.cuh"

static __global__ void gated_norm(Global<const float> O, Global<const float> Z, Global<const float> weight,
                                  Global<float> Y, int rows, int width) {
  const int row = static_cast<int>(blockIdx.x * 4 + threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  float o[4] = {};
  // solution
  if (row >= rows) return;
  float sum = 0.0f;
  for (int i = 0; i < 4; ++i) {
    if (lane + i * 32 < width) o[i] = O[row * width + lane + i * 32];
    sum += o[i] * o[i];
  }
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, distance);
  const float scale = rsqrtf(sum / static_cast<float>(width) + 1e-5f);
  for (int i = 0; i < 4; ++i) {
    const int d = lane + i * 32;
    if (d >= width) break;
    const float z = Z[row * width + d];
    Y[row * width + d] = o[i] * scale * weight[d] * z / (1.0f + expf(-z));
  }
  // end
}

void run(Global<const float> O, Global<const float> Z, Global<const float> weight, Global<float> Y, int rows,
         int width) {
  launch(gated_norm, {static_cast<unsigned>((rows + 3) / 4), 128}, O, Z, weight, Y, rows, width);
}
