// Gated linear attention on tensors of this program: two calls, of which the second goes on where the first has stopped.
#include <cuda_runtime.h>

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "03_gla/gla.hpp"
#include "common/device/error.hpp"
#include "common/device/stream.hpp"

using namespace tutorial;

// A tensor in device memory, every element `value`; it is never freed, as the program ends soon.
template <class T>
T* filled(std::size_t count, float value) {
  const std::vector<T> elements(count, T(value));
  void* data = nullptr;
  check(cudaMalloc(&data, count * sizeof(T)));
  check(cudaMemcpy(data, elements.data(), count * sizeof(T), cudaMemcpyHostToDevice));
  return static_cast<T*>(data);
}

int main() try {
  constexpr int B = 1, H = 2, L = 4, D = 64;
  constexpr std::size_t count = std::size_t(B) * H * L * D, states = std::size_t(B) * H * D * D;
  cudaStream_t stream = nullptr;
  check(cudaStreamCreate(&stream));
  set_current_stream(stream);  // of this thread, for all calls that follow

  const auto tensor = [](auto* data) { return packed(data, H, L, D); };  // the strides of [B, H, L, D]
  const auto* q = filled<__nv_bfloat16>(count, 1);
  __nv_bfloat16* o = filled<__nv_bfloat16>(count, 0);
  gla::Bf16Arguments a{};
  a.B = B, a.H = H, a.L = L, a.Dk = a.Dv = D, a.scale = 1.0f / D;
  a.q = a.k = a.v = tensor(q);
  a.g = read_only(tensor(filled<float>(count, -0.6931472f)));  // logarithms: each step forgets half of the state
  a.o = tensor(o);
  a.final_state = packed(filled<float>(states, 0), H, D, D);
  if (const std::string reason = gla::dispatch_unsupported(a); !reason.empty()) throw std::runtime_error(reason);
  std::printf("%s, %lld bytes of workspace\n", gla::dispatch_note(a).c_str(), (long long)gla::dispatch_memory(a));
  gla::dispatch(a);
  a.initial_state = read_only(a.final_state);  // and another one to write to: blocks may write before others have read
  a.final_state = packed(filled<float>(states, 0), H, D, D);
  gla::dispatch(a);

  __nv_bfloat16 last;
  check(cudaMemcpyAsync(&last, o + count - 1, sizeof last, cudaMemcpyDeviceToHost, stream));
  check(cudaStreamSynchronize(stream));
  std::printf("o = %g, the sum of 1, 1/2, 1/4, ... for 8 steps\n", double(float(last)));
  return float(last) == 255.0f / 128 ? 0 : 1;
} catch (const std::exception& error) {  // CudaError: what failed, why, and where
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
