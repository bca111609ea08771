// Kernels that are wrong on purpose, and some that only look wrong: runtime_faults NAME runs one of them. The tests run
// it as a child process and look for the sanitizers' reports; a comment "fault: NAME" marks the line that they name.

#include <cuda_runtime.h>
#include <emulator/launch.hpp>
#include <emulator/shared.hpp>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>

#include "common/device/bulk_copy.cuh"
#include "common/device/cluster.cuh"
#include "common/device/mbarrier.cuh"
#include "common/device/memory.cuh"
#include "common/device/named_barrier.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/wgmma.cuh"

#undef NDEBUG  // the assertion is to fail in every build
#include <cassert>

namespace {

// --- stray accesses ---

__global__ void write_beyond_global(float* out, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i <= count) out[i] = 1.0f;  // fault: global
}

__global__ void read_before_global(const float* in, float* out) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  out[i] = in[i - 1];  // fault: before_global
}

__global__ void write_beyond_dynamic(int count) {
  auto* values = static_cast<float*>(emulator::dynamic_shared());
  const int i = static_cast<int>(threadIdx.x);
  if (i <= count) values[i] = 1.0f;  // fault: dynamic
}

// Through a pointer the compiler does not see the array's size, so only its red zone helps.
[[gnu::noinline]] __device__ void store(float* values, int i) {
  values[i] = 1.0f;  // fault: static
}

__global__ void write_beyond_static(float* out) {
  __shared__ float values[37];
  store(values, static_cast<int>(threadIdx.x));
  __syncthreads();
  out[0] = values[0];
}

template <int kCount>
__global__ void write_beyond_static_of_template(float* out) {
  __shared__ float values[kCount];
  store(values, static_cast<int>(threadIdx.x));
  __syncthreads();
  out[0] = values[0];
}

__global__ void index_beyond_static(float* out) {
  __shared__ float values[37];
  values[threadIdx.x] = 1.0f;  // fault: index
  __syncthreads();
  out[0] = values[0];
}

__global__ void use_after_free(float* out, bool last) {
  if (last && threadIdx.x == 5) out[threadIdx.x] = 1.0f;  // fault: freed
}

// --- races ---

__global__ void swap_halves(float* out, bool wait) {
  __shared__ float values[64];
  values[threadIdx.x] = 1.0f;
  if (wait) __syncthreads();
  out[blockIdx.x * 64 + threadIdx.x] = values[63 - threadIdx.x];  // fault: threads
}

// The second barrier is missing: a fast thread overwrites what a slow one still has to read.
__global__ void rotate(float* out, bool wait) {
  auto* values = static_cast<float*>(emulator::dynamic_shared());
  float mine = static_cast<float>(threadIdx.x);
  for (int i = 0; i < 3; ++i) {
    values[threadIdx.x] = mine;
    __syncthreads();
    mine = values[(threadIdx.x + 1) % 64];  // fault: rotate
    if (wait) __syncthreads();
  }
  out[blockIdx.x * 64 + threadIdx.x] = mine;
}

__global__ void sum_blocks(float* out, bool atomic) {
  if (threadIdx.x != 0) return;
  if (atomic) {
    atomicAdd(out, 1.0f);
  } else {
    *out += 1.0f;  // fault: blocks
  }
}

__global__ void swap_lanes(float* out, bool wait) {
  __shared__ float values[64];
  values[threadIdx.x] = 1.0f;
  if (wait) __syncwarp();
  out[blockIdx.x * 64 + threadIdx.x] = values[threadIdx.x ^ 1];  // fault: lanes
}

// A warp's barrier does not order it with the other warp.
__global__ void swap_warps(float* out, bool wait) {
  __shared__ float values[64];
  values[threadIdx.x] = 1.0f;
  __syncwarp();
  if (wait) __syncthreads();
  out[blockIdx.x * 64 + threadIdx.x] = values[threadIdx.x ^ 32];  // fault: warps
}

// All lanes have come, but a shuffle does not make their writes visible.
__global__ void swap_by_shuffle(float* out) {
  __shared__ float values[64];
  values[threadIdx.x] = 1.0f;
  const float other = __shfl_xor_sync(~0u, 1.0f, 1);
  out[blockIdx.x * 64 + threadIdx.x] = values[threadIdx.x ^ 1] + other;  // fault: shuffle
}

// Stacks and shared memory are used again by later blocks, and what a launch wrote is read by the next: no races.
__global__ void reuse(const float* in, float* out) {
  __shared__ float values[64];
  auto* dynamic = static_cast<float*>(emulator::dynamic_shared());
  float local[64];
  for (int i = 0; i < 64; ++i) local[i] = in[64 * blockIdx.x + (threadIdx.x + static_cast<unsigned>(i)) % 64];
  for (unsigned i = 0; i < 4; ++i) {
    values[threadIdx.x] = local[(threadIdx.x + i) % 64];
    dynamic[threadIdx.x] = values[threadIdx.x];
    __syncthreads();
    local[i] += values[63 - threadIdx.x] + dynamic[(threadIdx.x + 1) % 64];
    __syncthreads();
  }
  out[64 * blockIdx.x + threadIdx.x] = local[3] + __shfl_down_sync(~0u, local[2], 3);
}

// --- barriers in shared memory ---

using tutorial::Barrier;
using tutorial::Ring;

enum class RingFault { none, no_full, no_empty, parity };

// A ring of two stages between warp 0, which writes, and warp 1, which reads.
__global__ void hand_on(float* out, RingFault fault) {
  __shared__ Barrier full[2], empty[2];
  __shared__ float values[2][32];
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) {
      full[i].init(32);
      empty[i].init(32);
    }
    tutorial::fence_barrier_init();
  }
  __syncthreads();
  float sum = 0;
  if (threadIdx.x < 32) {
    auto ring = fault == RingFault::parity ? Ring<2>::consumer() : Ring<2>::producer();
    for (int n = 0; n < 5; ++n) {
      if (fault != RingFault::no_empty) ring.wait(empty);         // fault: ring_parity
      values[ring.stage()][threadIdx.x] = static_cast<float>(n);  // fault: ring_no_empty
      full[ring.stage()].arrive();
      ring.advance();
    }
  } else {
    auto ring = Ring<2>::consumer();
    for (int n = 0; n < 5; ++n) {
      if (fault != RingFault::no_full) ring.wait(full);
      sum += values[ring.stage()][63 - threadIdx.x];  // fault: ring_no_full
      empty[ring.stage()].arrive();
      ring.advance();
    }
  }
  out[blockIdx.x * 64 + threadIdx.x] = sum;
}

// Nothing orders init() before warp 1 arrives.
__global__ void use_while_initialised(bool wait) {
  __shared__ Barrier barrier;
  if (threadIdx.x == 0) {
    barrier.init(32);
    tutorial::fence_barrier_init();
  }
  if (wait) __syncthreads();
  if (threadIdx.x >= 32) barrier.arrive();  // fault: init_unordered
}

// A barrier for 128 threads lets each half of 256 threads pass without the other.
__global__ void swap_warpgroups(float* out, unsigned threads) {
  __shared__ float values[256];
  values[threadIdx.x] = 1.0f;
  tutorial::wait_at_named_barrier(1, threads);
  out[threadIdx.x] = values[threadIdx.x ^ 128];  // fault: named_half
}

// --- bulk copies ---

using tutorial::TensorMap;

// Thread 0 fills one tile again and again, and warp 1 reads it.
__global__ void reload(const TensorMap map, float* out, bool wait) {
  __shared__ Barrier full[1], empty[1];
  auto* tile = tutorial::dynamic_shared<float, tutorial::kTileAlignment>();
  if (threadIdx.x == 0) {
    full[0].init(1);
    empty[0].init(32);
    tutorial::fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    auto ring = Ring<1>::producer();
    for (int n = 0; n < 3; ++n) {
      if (wait) ring.wait(empty);
      full[0].arrive_expect(tutorial::tile_bytes(8));
      tutorial::load_tile(map, tile, full[0], {});  // fault: refill
      ring.advance();
      if (!wait) full[0].wait(static_cast<unsigned>(n % 2));
    }
  } else if (threadIdx.x >= 32) {
    auto ring = Ring<1>::consumer();
    float sum = 0;
    for (int n = 0; n < (wait ? 3 : 1); ++n) {
      ring.wait(full);
      sum += tile[threadIdx.x];
      if (wait) empty[0].arrive();
      ring.advance();
    }
    out[blockIdx.x * 64 + threadIdx.x] = sum;
  }
}

// Thread 0 stores what all threads have written.
__global__ void store_shared(const TensorMap map, bool wait) {
  auto* tile = tutorial::dynamic_shared<float, tutorial::kTileAlignment>();
  for (unsigned i = 0; i < 4; ++i) tutorial::store_for_copies(&tile[i * 64 + threadIdx.x], 1.0f);
  tutorial::fence_async_proxy();
  if (wait) __syncthreads();
  if (threadIdx.x != 0) return;
  tutorial::store_tile(map, tile, {.head = static_cast<int>(blockIdx.x)});  // fault: store_unordered
  tutorial::commit_stores();
  tutorial::wait_stores_read<0>();
}

// Thread 1 writes a tile again while it may still be read by the store.
__global__ void overwrite_stored(const TensorMap map, bool wait) {
  auto* tile = tutorial::dynamic_shared<float, tutorial::kTileAlignment>();
  if (threadIdx.x == 0) {
    tutorial::store_tile(map, tile, {.head = static_cast<int>(blockIdx.x)});
    tutorial::commit_stores();
    if (wait) tutorial::wait_stores_read<0>();
  }
  __syncthreads();
  if (threadIdx.x == 1) tile[0] = 1.0f;  // fault: overwrite_stored
  if (threadIdx.x == 0) tutorial::wait_stores_read<0>();
}

// Two blocks store to the same place.
__global__ void store_over(const TensorMap map, bool apart) {
  auto* tile = tutorial::dynamic_shared<float, tutorial::kTileAlignment>();
  if (threadIdx.x != 0) return;
  for (unsigned i = 0; i < 256; ++i) tutorial::store_for_copies(&tile[i], 1.0f);
  tutorial::fence_async_proxy();
  const int head = apart ? static_cast<int>(blockIdx.x) : 0;
  tutorial::store_tile(map, tile, {.head = head});  // fault: store_over
  tutorial::commit_stores();
  tutorial::wait_stores<0>();
}

// --- products of warpgroups ---

enum class ProductFault { none, no_full, released };

// Warps 0 to 3 multiply a tile that warp 4 writes, and then writes again.
__global__ void multiply_written(ProductFault fault) {
  __shared__ Barrier full, empty;
  auto* tile = tutorial::dynamic_shared<std::uint64_t, tutorial::kTileAlignment>();
  if (threadIdx.x == 0) {
    full.init(32);
    empty.init(128);
    tutorial::fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x >= 128) {
    for (unsigned i = threadIdx.x - 128; i < 1024; i += 32) tutorial::store_for_copies(&tile[i], 0);
    tutorial::fence_async_proxy();
    full.arrive();
    empty.wait(0);
    tutorial::store_for_copies(&tile[threadIdx.x - 128], 1);  // fault: product_released
  } else {
    const tutorial::SharedFactor<tutorial::Major::kK> factor(reinterpret_cast<__nv_bfloat16*>(tile), 8192);
    float sums[8];
    if (fault != ProductFault::no_full) full.wait(0);
    tutorial::wgmma_fence(sums);
    tutorial::wgmma<16>(sums, factor, factor, false);  // fault: product_no_full
    tutorial::wgmma_commit();
    if (fault == ProductFault::released) empty.arrive();
    tutorial::wgmma_wait<0>(sums);
    if (fault != ProductFault::released) empty.arrive();
  }
}

// --- clusters ---

// Each block of a pair stores to the other one.
__global__ void swap_blocks(float* out, bool wait) {
  auto* values = tutorial::dynamic_shared<float>();
  tutorial::cluster_sync();
  float* theirs = tutorial::peer_shared(values, 1 - tutorial::cluster_rank());
  theirs[threadIdx.x] = 1.0f;
  if (wait) tutorial::cluster_sync();
  out[blockIdx.x * 64 + threadIdx.x] = values[63 - threadIdx.x];  // fault: peers
  tutorial::cluster_sync();
}

// Block 0 hands values to block 1, whose arrivals say that it has read them.
__global__ void hand_to_block(float* out, bool wait) {
  struct Shared {
    Barrier full, empty;
    float values[64];
  };
  auto& shared = *tutorial::dynamic_shared<Shared>();
  if (threadIdx.x == 0) {
    shared.full.init(64);
    shared.empty.init(64);
    tutorial::fence_barrier_init();
  }
  tutorial::cluster_sync();
  Shared* theirs = tutorial::peer_shared(&shared, 1);
  for (unsigned n = 0; n < 3; ++n) {
    if (tutorial::cluster_rank() == 0) {
      if (n > 0 && wait) shared.empty.wait_cluster((n - 1) % 2);
      theirs->values[threadIdx.x] = static_cast<float>(n);  // fault: peers_no_empty
      shared.full.arrive_at(1);
      if (!wait) shared.empty.wait_cluster(n % 2);
    } else {
      shared.full.wait_cluster(n % 2);
      if (!wait) shared.empty.arrive_at(0);  // too early
      out[threadIdx.x] = shared.values[63 - threadIdx.x];
      if (wait) shared.empty.arrive_at(0);
    }
  }
  tutorial::cluster_sync();
}

// A load goes to both blocks of a pair, and the other one may still use the tile.
__global__ void share_load(const TensorMap map, float* out, bool wait) {
  auto* tile = tutorial::dynamic_shared<float, tutorial::kTileAlignment>();
  auto& full = *reinterpret_cast<Barrier*>(tile + 256);
  if (threadIdx.x == 0) {
    full.init(1);
    tutorial::fence_barrier_init();
    full.arrive_expect(tutorial::tile_bytes(8));
  }
  tutorial::cluster_sync();
  tile[threadIdx.x] = 2.0f;
  out[blockIdx.x * 64 + threadIdx.x] = tile[threadIdx.x];
  if (wait) tutorial::cluster_sync();
  if (tutorial::cluster_rank() == 0 && threadIdx.x == 0) {
    tutorial::load_tile_multicast(map, tile, full, {}, 3);  // fault: multicast
  }
  full.wait(0);
  tutorial::cluster_sync();
}

// Block 1 ends while block 0 still has its address.
__global__ void write_to_other_block(bool wait) {
  auto* values = tutorial::dynamic_shared<float>();
  tutorial::cluster_sync();
  float* theirs = tutorial::peer_shared(values, 1 - tutorial::cluster_rank());  // fault: address_of_ended
  if (!wait && tutorial::cluster_rank() == 1) return;
  for (int i = 0; i < 200; ++i) __nanosleep(1);
  theirs[threadIdx.x] = 1.0f;  // fault: ended
  tutorial::cluster_sync();
}

// --- barriers and crashes ---

// Threads without work return too early.
__global__ void sum_neighbours(const float* in, float* out, int count) {
  __shared__ float values[64];
  const int i = static_cast<int>(threadIdx.x);
  if (i >= count) return;
  values[i] = in[i];
  __syncthreads();  // fault: early_return
  out[i] = values[i] + (i > 0 ? values[i - 1] : 0.0f);
}

__global__ void fail_assertion() {
  assert(threadIdx.x != 7 || blockIdx.x != 2);  // fault: assertion
}

__global__ void write_to_null(float* null) {
  if (threadIdx.x == 3 && blockIdx.x == 1) *null = 1.0f;  // fault: null
}

[[gnu::noinline]] __device__ int recurse(int depth) {
  volatile char frame[3000];
  frame[depth % 3000] = 1;
  return depth < 1000 ? recurse(depth + 1) + frame[depth % 3000] : 0;
}

__global__ void overflow_stack(float* out) {
  if (threadIdx.x == 5) out[0] = static_cast<float>(recurse(0));
}

__global__ void overflow_integer(int* out) {
  if (threadIdx.x == 9) out[0] += 2147483647;  // fault: integer
}

// --- the program ---

void start(unsigned blocks, unsigned threads, std::size_t shared_bytes, std::function<void()> body, dim3 cluster = 1,
           std::source_location where = std::source_location::current()) {
  const cudaError_t error =
      emulator::launch(blocks, threads, shared_bytes, nullptr, where, std::move(body), nullptr, cluster);
  std::puts(cudaGetErrorName(error));
}

/// Starts four blocks of 64 threads in clusters of two.
void start_pairs(std::size_t shared_bytes, std::function<void()> body,
                 std::source_location where = std::source_location::current()) {
  start(4, 64, shared_bytes, std::move(body), 2, where);
}

/// Device memory of `count` zeros.
float* floats(std::size_t count) {
  float* values = nullptr;
  if (cudaMalloc(&values, count * sizeof(float)) != cudaSuccess) std::abort();
  if (cudaMemset(values, 0, count * sizeof(float)) != cudaSuccess) std::abort();
  return values;
}

/// The map of device memory of [1, 2, 8, 64], for tiles of 8 rows.
TensorMap small_map() {
  auto* data = reinterpret_cast<__nv_bfloat16*>(floats(2 * 8 * 32));
  return tutorial::tile_map(tutorial::packed(data, 2, 8, 64), {.B = 1, .H = 2, .L = 8, .D = 64}, 8);
}

void reuse_everything() {
  float* a = floats(64 * 8);
  float* b = floats(64 * 8);
  for (int i = 0; i < 3; ++i) {
    start(8, 64, 256, [=] { reuse(a, b); });
    start(8, 64, 256, [=] { reuse(b, a); });
  }
}

void free_then_use() {
  float* values = floats(64);
  start(1, 64, 0, [=] { use_after_free(values, false); });
  (void)cudaFree(values);
  start(1, 64, 0, [=] { use_after_free(values, true); });
}

const std::map<std::string, std::function<void()>> kFaults = {
    {"global", [] { start(2, 64, 0, [p = floats(100)] { write_beyond_global(p, 100); }); }},
    {"before_global", [] { start(2, 32, 0, [p = floats(100), q = floats(100)] { read_before_global(p, q); }); }},
    {"dynamic", [] { start(1, 64, 37 * sizeof(float), [] { write_beyond_dynamic(37); }); }},
    {"static", [] { start(1, 38, 0, [p = floats(1)] { write_beyond_static(p); }); }},
    {"static_of_template", [] { start(1, 38, 0, [p = floats(1)] { write_beyond_static_of_template<37>(p); }); }},
    {"index", [] { start(1, 38, 0, [p = floats(1)] { index_beyond_static(p); }); }},
    {"freed", free_then_use},
    {"threads", [] { start(2, 64, 0, [p = floats(128)] { swap_halves(p, false); }); }},
    {"threads_right", [] { start(2, 64, 0, [p = floats(128)] { swap_halves(p, true); }); }},
    {"rotate", [] { start(2, 64, 256, [p = floats(128)] { rotate(p, false); }); }},
    {"rotate_right", [] { start(2, 64, 256, [p = floats(128)] { rotate(p, true); }); }},
    {"blocks", [] { start(4, 32, 0, [p = floats(1)] { sum_blocks(p, false); }); }},
    {"blocks_right", [] { start(4, 32, 0, [p = floats(1)] { sum_blocks(p, true); }); }},
    {"lanes", [] { start(2, 64, 0, [p = floats(128)] { swap_lanes(p, false); }); }},
    {"lanes_right", [] { start(2, 64, 0, [p = floats(128)] { swap_lanes(p, true); }); }},
    {"warps", [] { start(2, 64, 0, [p = floats(128)] { swap_warps(p, false); }); }},
    {"warps_right", [] { start(2, 64, 0, [p = floats(128)] { swap_warps(p, true); }); }},
    {"shuffle", [] { start(2, 64, 0, [p = floats(128)] { swap_by_shuffle(p); }); }},
    {"reuse_right", reuse_everything},
    {"ring_no_full", [] { start(2, 64, 0, [p = floats(128)] { hand_on(p, RingFault::no_full); }); }},
    {"ring_no_empty", [] { start(2, 64, 0, [p = floats(128)] { hand_on(p, RingFault::no_empty); }); }},
    {"ring_parity", [] { start(2, 64, 0, [p = floats(128)] { hand_on(p, RingFault::parity); }); }},
    {"ring_right", [] { start(2, 64, 0, [p = floats(128)] { hand_on(p, RingFault::none); }); }},
    {"init_unordered", [] { start(2, 64, 0, [] { use_while_initialised(false); }); }},
    {"init_right", [] { start(2, 64, 0, [] { use_while_initialised(true); }); }},
    {"refill", [] { start(2, 64, 1024, [m = small_map(), p = floats(128)] { reload(m, p, false); }); }},
    {"refill_right", [] { start(2, 64, 1024, [m = small_map(), p = floats(128)] { reload(m, p, true); }); }},
    {"store_unordered", [] { start(2, 64, 1024, [m = small_map()] { store_shared(m, false); }); }},
    {"store_right", [] { start(2, 64, 1024, [m = small_map()] { store_shared(m, true); }); }},
    {"overwrite_stored", [] { start(2, 64, 1024, [m = small_map()] { overwrite_stored(m, false); }); }},
    {"overwrite_right", [] { start(2, 64, 1024, [m = small_map()] { overwrite_stored(m, true); }); }},
    {"store_over", [] { start(2, 64, 1024, [m = small_map()] { store_over(m, false); }); }},
    {"store_apart_right", [] { start(2, 64, 1024, [m = small_map()] { store_over(m, true); }); }},
    {"named_half", [] { start(1, 256, 0, [p = floats(256)] { swap_warpgroups(p, 128); }); }},
    {"named_right", [] { start(1, 256, 0, [p = floats(256)] { swap_warpgroups(p, 256); }); }},
    {"product_no_full", [] { start(2, 160, 8192, [] { multiply_written(ProductFault::no_full); }); }},
    {"product_released", [] { start(2, 160, 8192, [] { multiply_written(ProductFault::released); }); }},
    {"product_right", [] { start(2, 160, 8192, [] { multiply_written(ProductFault::none); }); }},
    {"peers", [] { start_pairs(256, [p = floats(256)] { swap_blocks(p, false); }); }},
    {"peers_right", [] { start_pairs(256, [p = floats(256)] { swap_blocks(p, true); }); }},
    {"peers_no_empty",
     [] { start_pairs(512, [p = floats(256)] { hand_to_block(p + 64 * (blockIdx.x / 2), false); }); }},
    {"peers_ring_right",
     [] { start_pairs(512, [p = floats(256)] { hand_to_block(p + 64 * (blockIdx.x / 2), true); }); }},
    {"multicast", [] { start_pairs(1032, [m = small_map(), p = floats(256)] { share_load(m, p, false); }); }},
    {"multicast_right", [] { start_pairs(1032, [m = small_map(), p = floats(256)] { share_load(m, p, true); }); }},
    {"ended", [] { start_pairs(256, [] { write_to_other_block(false); }); }},
    {"ended_right", [] { start_pairs(256, [] { write_to_other_block(true); }); }},
    {"early_return", [] { start(2, 64, 0, [p = floats(50), q = floats(50)] { sum_neighbours(p, q, 50); }); }},
    {"assertion", [] { start(4, 32, 0, [] { fail_assertion(); }); }},
    {"null",
     [] {
       float* volatile nowhere = nullptr;  // a compiler that knows it leaves the store out
       start(4, 32, 0, [p = nowhere] { write_to_null(p); });
     }},
    {"stack", [] { start(1, 32, 0, [p = floats(1)] { overflow_stack(p); }); }},
    {"integer",
     [] {
       int* one = reinterpret_cast<int*>(floats(1));
       *one = 1;
       start(1, 32, 0, [=] { overflow_integer(one); });
     }},
};

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IONBF, 0);
  const auto fault = kFaults.find(argc == 2 ? argv[1] : "");
  if (fault == kFaults.end()) {
    for (const auto& [name, function] : kFaults) std::puts(name.c_str());
    return 2;
  }
  fault->second();
}
