/// Exercise 2.4: from what chunks add to the states before them
///
/// A[n] is what chunk n adds to the state, [chunks, size]. In place of it A[n] is to become the state before chunk n:
/// the sum of A[0] to A[n - 1], and the initial state, which `initial` has. `last` gets the state after the last chunk.
/// One thread has one of the `size` elements: A[n * size + element] in chunk n. A block has 64 threads, and the last
/// block may have more of them than there are elements. run() is yours, too. It starts `states_before`, with as many
/// blocks as the elements need, by `launch(states_before, {blocks, 64}, A, initial, last, chunks, size)`, where
/// `blocks` is unsigned.
///
/// Goal: one launch. A is read once and written once, in place. No barrier.

#include "exercise/kernel.cuh"

static __global__ void states_before(Global<float> A, Global<const float> initial, Global<float> last, int chunks,
                                     int size) {
  // solution
  const int element = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (element >= size) return;
  float state = initial[element];
  for (int n = 0; n < chunks; ++n) {
    const float addend = A[n * size + element];
    A[n * size + element] = state;
    state += addend;
  }
  last[element] = state;
  // end
}

void run(Global<float> A, Global<const float> initial, Global<float> last, int chunks, int size) {
  // solution
  launch(states_before, {static_cast<unsigned>((size + 63) / 64), 64}, A, initial, last, chunks, size);
  // end
}
