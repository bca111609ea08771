/// Exercise 3.5: the gradient of a gate
///
/// y_t = exp(g_t) y_{t-1} + x_t with y_{-1} = 0, for each channel d. Given dy_t, the gradient of y_t, compute dx_t and
/// dg_t, that of the logarithm g_t. With a_t, the gradient of y_t through all later positions too: a_t = dy_t +
/// exp(g_{t+1}) a_{t+1}, dx_t = a_t, and dg_t = a_t exp(g_t) y_{t-1}. All arrays are [length, 32]; Y holds y of the
/// forward pass. One thread per channel goes from the last position to the first. Gates may be 0, g = -infinity.
///
/// Goal: every input is read once, each output is written once, without a barrier. No division by a gate.

#include "exercise/kernel.cuh"

static __global__ void gate_gradient(Global<const float> G, Global<const float> Y, Global<const float> dY,
                                     Global<float> dX, Global<float> dG, int length) {
  const int d = static_cast<int>(threadIdx.x);
  // solution
  float a = 0.0f;  // exp(g_{t+1}) a_{t+1}
  for (int t = length - 1; t >= 0; --t) {
    a += dY[t * 32 + d];
    dX[t * 32 + d] = a;
    const float before = t > 0 ? Y[(t - 1) * 32 + d] : 0.0f;
    a *= expf(G[t * 32 + d]);
    dG[t * 32 + d] = a * before;
  }
  // end
}

void run(Global<const float> G, Global<const float> Y, Global<const float> dY, Global<float> dX, Global<float> dG,
         int length) {
  launch(gate_gradient, {1, 32}, G, Y, dY, dX, dG, length);
}
