/// Exercise 2.8: a producer, two consumers and their registers
///
/// y[c][i] = sum of x[n * 128 + i] over the tiles n = c, c + 2, c + 4, ..., for `tiles` tiles of 128 numbers and c = 0
/// and 1; y is [2, 128]. Three warpgroups of 128 threads share four slots of a tile each. Of warpgroup 0 the first warp
/// is the producer: it waits until the next slot is empty, each lane fills 4 of the 128 numbers, and all 32 lanes
/// arrive at `full`. The other three warps have nothing to do. Warpgroup 1 consumes the even tiles and warpgroup 2 the
/// odd ones: thread i adds number i to its sum. Then one lane of each of its 4 warps arrives at `empty`, when all lanes
/// of the warp have read. The producer and both consumers have a `Ring<4>` each, and it advances by one with each tile,
/// also with one that the other consumer takes. Since 4 is even, all tiles of a slot belong to the same consumer, which
/// so sees each of its phases.
///
/// `Ring<4>::producer()` and `Ring<4>::consumer()` of common/device/mbarrier.cuh keep slot and parity: `ring.stage()`
/// is the slot, `ring.wait(full)` waits for its barrier, and `ring.advance()` goes on. `full[slot].arrive()` arrives.
///
/// Registers: 65536 for 384 threads are 168 each. All warps of warpgroup 0 first call `decrease_registers<24>()`, and
/// all those of the two others `increase_registers<240>()`: 24 + 240 + 240 = 3 x 168.
///
/// Goal: right in every order of the warps. x is read once. One `__syncthreads()`, that of the skeleton. Each of the 12
/// warps changes its registers once.

#include "common/device/mbarrier.cuh"
#include "common/device/registers.cuh"
#include "exercise/kernel.cuh"

static __global__ void __launch_bounds__(384, 1) two_consumers(Global<const float> x, Global<float> y, int tiles) {
  __shared__ Shared<float, 4, 128> slots;
  __shared__ Barrier full[4];
  __shared__ Barrier empty[4];
  const int group = static_cast<int>(threadIdx.x) / 128;
  const int i = static_cast<int>(threadIdx.x) % 128;
  const int lane = i % 32;
  if (threadIdx.x == 0) {
    for (int slot = 0; slot < 4; ++slot) {
      full[slot].init(32);
      empty[slot].init(4);
    }
    fence_barrier_init();
  }
  __syncthreads();
  // solution
  if (group == 0) {
    decrease_registers<24>();
    auto ring = Ring<4>::producer();
    for (int n = 0; n < tiles && i < 32; ++n) {
      ring.wait(empty);
      for (int e = lane; e < 128; e += 32) slots[ring.stage()][e] = x[n * 128 + e];
      full[ring.stage()].arrive();
      ring.advance();
    }
  } else {
    increase_registers<240>();
    auto ring = Ring<4>::consumer();
    float sum = 0.0f;
    for (int n = 0; n < tiles; ++n) {
      if (n % 2 == group - 1) {
        ring.wait(full);
        sum += slots[ring.stage()][i];
        __syncwarp();
        if (lane == 0) empty[ring.stage()].arrive();
      }
      ring.advance();
    }
    y[(group - 1) * 128 + i] = sum;
  }
  // end
}

void run(Global<const float> x, Global<float> y, int tiles) {
  launch(two_consumers, {1, 384}, x, y, tiles);
}
