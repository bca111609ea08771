/// Exercise 2.9: packed sequences
///
/// Sequences of different lengths lie one behind the other, without gaps: sequence s has the positions cu_seqlens[s] to
/// cu_seqlens[s + 1] - 1 of K [positions, heads, 32] and V [positions, heads, 8]. A sequence may be empty. S
/// [sequences, heads, 32, 8] gets the state at the end of each: S[d][j] is the sum of K[i][d] V[i][j] over its
/// positions i, zero for an empty one. One block of 8 x 32 threads per sequence and head, s = blockIdx.x and h =
/// blockIdx.y, goes over its sequence in chunks of 16 positions. Thread (x = j, y = d) has element [d][j] in a
/// register. For each chunk all threads load K, two elements each, and the first 16 x 8 of them load V, into shared
/// memory. The last chunk may have fewer positions. Behind its end the next sequence begins, so put zeros there.
///
/// Goal: K and V are read once, S is written once, with one launch. At most two barriers per chunk.

#include "exercise/kernel.cuh"

static __global__ void packed_states(Global<const float> K, Global<const float> V, Global<const unsigned> cu_seqlens,
                                     Global<float> S) {
  __shared__ Shared<float, 16, 32> k;
  __shared__ Shared<float, 16, 8> v;
  const int j = static_cast<int>(threadIdx.x);
  const int d = static_cast<int>(threadIdx.y);
  const int thread = d * 8 + j;  // 0 to 255
  const int s = static_cast<int>(blockIdx.x);
  const int h = static_cast<int>(blockIdx.y);
  const int heads = static_cast<int>(gridDim.y);
  // solution
  const int end = static_cast<int>(cu_seqlens[s + 1]);
  float sum = 0.0f;
  for (int first = static_cast<int>(cu_seqlens[s]); first < end; first += 16) {
    for (int e = thread; e < 16 * 32; e += 256) {
      const int t = first + e / 32;
      k[e / 32][e % 32] = t < end ? K[(t * heads + h) * 32 + e % 32] : 0.0f;
    }
    if (thread < 16 * 8) {
      const int t = first + thread / 8;
      v[thread / 8][thread % 8] = t < end ? V[(t * heads + h) * 8 + thread % 8] : 0.0f;
    }
    __syncthreads();
    for (int i = 0; i < 16; ++i) sum += k[i][d] * v[i][j];
    __syncthreads();
  }
  S[(s * heads + h) * 256 + thread] = sum;
  // end
}

void run(Global<const float> K, Global<const float> V, Global<const unsigned> cu_seqlens, Global<float> S,
         int sequences, int heads) {
  launch(packed_states, {dim3(static_cast<unsigned>(sequences), static_cast<unsigned>(heads)), dim3(8, 32)}, K, V,
         cu_seqlens, S);
}
