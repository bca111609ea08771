/// Exercise 3.5: the gradient of a gate
///
/// y_t = exp(g_t) y_{t-1} + x_t for each channel d, and y_{-1} = `initial`. Given dy_t, the gradient of y_t, compute
/// dx_t, dg_t, that of the logarithm g_t, and d_initial, that of y_{-1}. With a_t, the gradient of y_t through all
/// later positions too: a_t = dy_t + exp(g_{t+1}) a_{t+1}, dx_t = a_t, dg_t = a_t exp(g_t) y_{t-1}, and y_{-1} is a
/// value of y like the others, but without a dy. G, Y, dY, dX and dG are [length, 32]; Y holds y of the forward pass.
/// initial and d_initial are [32]. One thread per channel goes from the last position to the first. A gate may be 0:
/// then g_t is -infinity.
///
/// Goal: every input is read once, each output is written once, without a barrier. No division by a gate.

#include "exercise/kernel.cuh"

static __global__ void gate_gradient(Global<const float> G, Global<const float> Y, Global<const float> initial,
                                     Global<const float> dY, Global<float> dX, Global<float> dG,
                                     Global<float> d_initial, int length) {
  const int d = static_cast<int>(threadIdx.x);
  // solution
  float a = 0.0f;  // at the start of a round: exp(g_{t+1}) a_{t+1}
  for (int t = length - 1; t >= 0; --t) {
    const int element = t * 32 + d;
    const float before = t > 0 ? Y[element - 32] : initial[d];
    a += dY[element];
    dX[element] = a;
    a *= expf(G[element]);
    dG[element] = a * before;
  }
  d_initial[d] = a;
  // end
}

void run(Global<const float> G, Global<const float> Y, Global<const float> initial, Global<const float> dY,
         Global<float> dX, Global<float> dG, Global<float> d_initial, int length) {
  launch(gate_gradient, {1, 32}, G, Y, initial, dY, dX, dG, d_initial, length);
}
