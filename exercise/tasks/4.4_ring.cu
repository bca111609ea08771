/// Exercise 4.4: a ring of tiles with mbarriers
///
/// y[i] = sum over n of x[n * 32 + i], for `tiles` tiles of 32 numbers, by two warps that share two stages. The first
/// warp is the producer: it waits until a stage is empty, fills it and arrives at `full`. The second is the consumer:
/// it waits until a stage is full, adds it to its sums and arrives at `empty`. All 32 lanes of a warp arrive.
/// `Ring<2>::producer()` and `Ring<2>::consumer()` of common/device/mbarrier.cuh keep the stage and the parity:
/// `ring.wait(full)`, `ring.stage()`, `ring.advance()`. A lane arrives by `full[ring.stage()].arrive()`.
///
/// Goal: right in every order of the warps. x is read once. One `__syncthreads()`, that of the skeleton.

#include "common/device/mbarrier.cuh"
#include "exercise/kernel.cuh"

static __global__ void ring_of_tiles(Global<const float> x, Global<float> y, int tiles) {
  __shared__ Shared<float, 2, 32> stages;
  __shared__ Barrier full[2];
  __shared__ Barrier empty[2];
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) {
      full[i].init(32);
      empty[i].init(32);
    }
    fence_barrier_init();
  }
  __syncthreads();
  // solution
  if (threadIdx.x < 32) {
    auto ring = Ring<2>::producer();
    for (int n = 0; n < tiles; ++n) {
      ring.wait(empty);
      stages[ring.stage()][lane] = x[n * 32 + lane];
      full[ring.stage()].arrive();
      ring.advance();
    }
  } else {
    auto ring = Ring<2>::consumer();
    float sum = 0.0f;
    for (int n = 0; n < tiles; ++n) {
      ring.wait(full);
      sum += stages[ring.stage()][31 - lane];
      empty[ring.stage()].arrive();
      ring.advance();
    }
    y[31 - lane] = sum;
  }
  // end
}

void run(Global<const float> x, Global<float> y, int tiles) {
  launch(ring_of_tiles, {1, 64}, x, y, tiles);
}
