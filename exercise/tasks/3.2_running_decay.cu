/// Exercise 3.2: running sums of the logarithms
///
/// Two sums over a chunk, for each channel d. B[t * width + d] is the sum of the gates' logarithms from the start of
/// the chunk up to position t: the logarithm of the decay, up to t, of what came before the chunk. R[t * width + d] is
/// the sum of those after t, up to the end of the chunk: the logarithm of the decay of what position t adds. G, B and R
/// are [length, width]; chunk n has the 16 positions from 16 n on, the last one may have fewer. Block (x, y) has chunk
/// y and the channels 32 x to 32 x + 31, of which those below `width` exist. One thread per channel.
///
/// Goal: G is read once, B and R are written once and not read, all without a barrier.

#include "exercise/kernel.cuh"

static __global__ void running_decay(Global<const float> G, Global<float> B, Global<float> R, int length, int width) {
  const int d = static_cast<int>(blockIdx.x * 32 + threadIdx.x);
  const int first = static_cast<int>(blockIdx.y) * 16;
  // solution
  if (d >= width) return;
  const int positions = min(16, length - first);
  float sums[16];
  float sum = 0.0f;
  for (int i = 0; i < positions; ++i) {
    sum += G[(first + i) * width + d];
    sums[i] = sum;
    B[(first + i) * width + d] = sum;
  }
  for (int i = 0; i < positions; ++i) R[(first + i) * width + d] = sum - sums[i];
  // end
}

void run(Global<const float> G, Global<float> B, Global<float> R, int length, int width) {
  const dim3 grid(static_cast<unsigned>((width + 31) / 32), static_cast<unsigned>((length + 15) / 16));
  launch(running_decay, {grid, 32}, G, B, R, length, width);
}
