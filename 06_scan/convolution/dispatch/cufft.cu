/// @file
/// `cufft`: `fft` on the GPU, with the transforms of cuFFT.
///
/// Idea: a channel of a batch entry is a sequence, and cuFFT, NVIDIA's library of Fourier transforms, transforms all of
/// them in one call. Three small kernels are left: one transposes [B, L, D] into sequences and pads them with zeros,
/// one multiplies the spectra, and one transposes back.
/// Improves on: `fft` is on the CPU, and `scan` supports only the kernels r^j.
/// Unchanged: the mathematics of `fft`, in fp32.
/// Equation:
///
///   rows [B D + 1, N]: u transposed and followed by zeros; the last one is the kernel
///   spectra [B D + 1, N / 2 + 1], in place; each times the last one, over N (cuFFT leaves that factor to the caller)
///   rows again; y [B, L, D] from their first L
///
/// Shapes: u, y [B, L, D]; kernel [L]; fp32 in device memory. A row has N + 2 places, for N / 2 + 1 complex numbers.
/// Thread mapping: a block of 32 x 8 threads transposes a tile of 32 x 32 through shared memory, so that both reads and
/// writes are contiguous. In the product, a thread computes one frequency of a row.
/// Resources: 4.2 KB of shared memory; 4 (B D + 1)(N + 2) bytes of workspace and cuFFT's own.
/// Work: 5 N log2(N) operations per channel and 3 N for the product.
/// Bytes: with N = 2 L, and if cuFFT reads and writes a row once in each direction, 17 numbers per step and channel,
/// eight times those of `scan`.
/// Bound by: memory.
/// Requires: a CUDA build, because the emulator has no cuFFT; fewer than 2^31 numbers in all rows.
/// Weakness: it takes several passes over memory. A kernel that transforms, multiplies and transforms back in shared
/// memory would take one (FlashFFTConv). The first output waits for the last input, as in `fft`.
/// Sources: the documentation of cuFFT, "Advanced Data Layout"; Fu et al., "FlashFFTConv", arXiv 2311.05908.

#include "06_scan/convolution/dispatch/cufft.hpp"

#if TUTORIAL_CUDA

#include <cuda_runtime.h>
#include <cufft.h>

#include <algorithm>
#include <climits>
#include <map>
#include <mutex>
#include <source_location>
#include <thread>

#include "common/device/error.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/stream.hpp"
#include "common/device/workspace.hpp"

namespace tutorial::convolution {
namespace {

void check(cufftResult status, std::source_location where = std::source_location::current()) {
  if (status == CUFFT_SUCCESS) return;
  throw CudaError(status == CUFFT_ALLOC_FAILED ? cudaErrorMemoryAllocation : cudaErrorUnknown,
                  "cuFFT call failed with code " + std::to_string(int(status)), where);
}

constexpr int kTile = 32, kTileRows = 8;  // threads of a block

/// [L, D] of each batch entry to rows [D, N], zeros from L on. Grid (ceil(N / kTile), ceil(D / kTile), B).
/// @param pitch places of a row
__global__ void to_rows_kernel(View<const float> from, float* rows, int L, int D, int N, int pitch) {
  __shared__ float tile[kTile][kTile + 1];  // the last column is unused: lanes of a column are in different banks
  const int t0 = int(blockIdx.x) * kTile, d0 = int(blockIdx.y) * kTile, b = int(blockIdx.z), lane = int(threadIdx.x);
#pragma unroll
  for (int i = int(threadIdx.y); i < kTile; i += kTileRows) {
    tile[i][lane] = t0 + i < L && d0 + lane < D ? load_global(from.row(b, 0, t0 + i) + d0 + lane) : 0.0f;
  }
  __syncthreads();
#pragma unroll
  for (int i = int(threadIdx.y); i < kTile; i += kTileRows) {
    if (d0 + i < D && t0 + lane < N) {
      store_global(&rows[(std::int64_t(b) * D + d0 + i) * pitch + t0 + lane], tile[lane][i]);
    }
  }
}

/// The first L of each row back to [L, D]. Grid (ceil(L / kTile), ceil(D / kTile), B).
__global__ void from_rows_kernel(const float* rows, View<float> to, int L, int D, int pitch) {
  __shared__ float tile[kTile][kTile + 1];
  const int t0 = int(blockIdx.x) * kTile, d0 = int(blockIdx.y) * kTile, b = int(blockIdx.z), lane = int(threadIdx.x);
#pragma unroll
  for (int i = int(threadIdx.y); i < kTile; i += kTileRows) {
    if (d0 + i < D && t0 + lane < L) {
      tile[i][lane] = load_global(&rows[(std::int64_t(b) * D + d0 + i) * pitch + t0 + lane]);
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = int(threadIdx.y); i < kTile; i += kTileRows) {
    if (t0 + i < L && d0 + lane < D) store_global(to.row(b, 0, t0 + i) + d0 + lane, tile[lane][i]);
  }
}

constexpr unsigned kThreads = 256;

/// spectra[row] = spectra[row] . kernel / N. Grid ceil(rows frequencies / kThreads).
__global__ void product_kernel(float2* spectra, const float2* kernel, std::int64_t rows, int frequencies,
                               float factor) {
  const std::int64_t i = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= rows * frequencies) return;
  const float2 x = load_for_update(&spectra[i]), k = load_global(&kernel[i % frequencies]);
  store_global(&spectra[i], make_float2(factor * (x.x * k.x - x.y * k.y), factor * (x.x * k.y + x.y * k.x)));
}

/// The sizes of the transforms.
struct Rows {
  std::int64_t count;  ///< without the kernel's
  int N, pitch, frequencies;

  explicit Rows(const Arguments& a)
      : count(std::int64_t(a.B) * a.D), N(int(padded_length(a.L))), pitch(N + 2), frequencies(N / 2 + 1) {}
};

/// Both transforms of this thread's most recent problem; those of another problem replace them. Their work memory is ours,
/// so that it exists when a graph is captured. They are not destroyed at the end of the process, because CUDA may have
/// shut down before.
class Plans {
 public:
  static Plans& of(const Rows& rows) {
    static std::mutex mutex;
    static auto& all = *new std::map<std::thread::id, Plans>;
    Plans& last = [&]() -> Plans& {
      const std::lock_guard lock(mutex);
      return all[std::this_thread::get_id()];
    }();
    if (last.count_ != rows.count || last.N_ != rows.N) last.make(rows);
    return last;
  }

  void forward(float* data) { check(cufftExecR2C(ready(forward_), data, reinterpret_cast<cufftComplex*>(data))); }
  void back(float* data) { check(cufftExecC2R(ready(back_), reinterpret_cast<cufftComplex*>(data), data)); }
  std::size_t bytes() const { return bytes_; }

 private:
  void make(const Rows& rows) {
    count_ = 0;  // no plan counts until all exist
    for (cufftHandle* plan : {&forward_, &back_}) {
      if (*plan != 0) check(cufftDestroy(*plan));
      *plan = 0;
    }
    std::size_t forward_bytes = 0, back_bytes = 0;
    int N[] = {rows.N}, real[] = {rows.pitch}, complex[] = {rows.frequencies};
    check(cufftCreate(&forward_));
    check(cufftSetAutoAllocation(forward_, 0));
    check(cufftMakePlanMany(forward_, 1, N, real, 1, real[0], complex, 1, complex[0], CUFFT_R2C, int(rows.count + 1),
                            &forward_bytes));
    check(cufftCreate(&back_));
    check(cufftSetAutoAllocation(back_, 0));
    check(cufftMakePlanMany(back_, 1, N, complex, 1, complex[0], real, 1, real[0], CUFFT_C2R, int(rows.count),
                            &back_bytes));
    bytes_ = std::max(forward_bytes, back_bytes);
    count_ = rows.count;
    N_ = rows.N;
  }

  cufftHandle ready(cufftHandle plan) const {
    check(cufftSetStream(plan, current_stream()));
    if (bytes_ > 0) check(cufftSetWorkArea(plan, workspace_bytes("cuFFT", bytes_)));
    return plan;
  }

  std::int64_t count_ = 0;
  int N_ = 0;
  cufftHandle forward_ = 0, back_ = 0;
  std::size_t bytes_ = 0;  // of work memory; the two transforms never run at the same time
};

unsigned tiles(int count) {
  return unsigned((count - 1) / kTile + 1);
}

}  // namespace

void by_cufft(const Arguments& a) {
  const Rows rows(a);
  Plans& plans = Plans::of(rows);
  auto* data = workspace<float>("convolution: rows", std::size_t((rows.count + 1) * rows.pitch));
  float* kernel = data + rows.count * rows.pitch;
  const dim3 block(kTile, kTileRows);
  launch(to_rows_kernel, {dim3(tiles(rows.N), tiles(a.D), unsigned(a.B)), block}, a.u, data, a.L, a.D, rows.N,
         rows.pitch);
  launch(to_rows_kernel, {dim3(tiles(rows.N), 1, 1), block}, View<const float>{a.kernel, 0, 0, 1}, kernel, a.L, 1,
         rows.N, rows.pitch);
  plans.forward(data);
  launch(product_kernel, {unsigned((rows.count * rows.frequencies - 1) / kThreads + 1), kThreads},
         reinterpret_cast<float2*>(data), reinterpret_cast<const float2*>(kernel), rows.count, rows.frequencies,
         1.0f / float(rows.N));
  plans.back(data);
  launch(from_rows_kernel, {dim3(tiles(a.L), tiles(a.D), unsigned(a.B)), block}, data, a.y, a.L, a.D, rows.pitch);
}

std::string by_cufft_unsupported(const Arguments& a) {
  if ((std::int64_t(a.B) * a.D + 1) * (padded_length(a.L) + 2) > INT_MAX) {
    return "(B D + 1) (N + 2) > 2^31 - 1 numbers in the padded rows: cuFFT counts them in int";
  }
  if (a.B > 65535) return "B > 65535: the grid";
  return a.D > 65535 * kTile ? "D > 65535 tiles of 32: the grid" : "";
}

std::int64_t by_cufft_memory(const Arguments& a) {
  const Rows rows(a);
  return std::int64_t(sizeof(float)) * (rows.count + 1) * rows.pitch + std::int64_t(Plans::of(rows).bytes());
}

}  // namespace tutorial::convolution

#else

namespace tutorial::convolution {

void by_cufft(const Arguments&) {}

std::string by_cufft_unsupported(const Arguments&) {
  return "cuFFT is for GPUs: build with the backend cuda";
}

std::int64_t by_cufft_memory(const Arguments&) {
  return 0;
}

}  // namespace tutorial::convolution

#endif
