/// Exercise 2.5: load the next tile while this one is used
///
/// y[i] = sum over the tiles n of x[n * 128 + i]^2, for `tiles` tiles of 128 numbers, by one block of 32 threads. Tiles
/// come to shared memory by asynchronous copies: `load(n, buffer)` starts that of tile n and commits it. Each thread
/// copies 4 numbers that others read: thread i sums elements i, i + 32, i + 64 and i + 96. There are two buffers. While
/// a tile is used, the next one is to be under way: `cp_async_wait<N>()` waits until at most N committed groups of this
/// thread are not there yet.
///
/// Goal: right whenever the copies come, with tile n + 1 under way while tile n is used. At most two barriers per tile.

#include "common/device/cp_async.cuh"
#include "exercise/kernel.cuh"

static __global__ void prefetch(Global<const float> x, Global<float> y, int tiles) {
  __shared__ Shared<float, 2, 128> tile;
  const int i = static_cast<int>(threadIdx.x);
  const auto load = [&](int n, int buffer) {
    cp_async<16>(&tile[buffer][i * 4], &x[n * 128 + i * 4]);
    cp_async_commit();
  };
  float sums[4] = {};
  // solution
  load(0, 0);
  for (int n = 0; n < tiles; ++n) {
    if (n + 1 < tiles) {
      load(n + 1, (n + 1) % 2);
      cp_async_wait<1>();
    } else {
      cp_async_wait<0>();
    }
    __syncthreads();
    for (int part = 0; part < 4; ++part) {
      const float value = tile[n % 2][part * 32 + i];
      sums[part] += value * value;
    }
    __syncthreads();
  }
  // end
  for (int part = 0; part < 4; ++part) y[part * 32 + i] = sums[part];
}

void run(Global<const float> x, Global<float> y, int tiles) {
  launch(prefetch, {1, 32}, x, y, tiles);
}
