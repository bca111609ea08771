/// @file
/// How many clocks Hopper's instructions take: products of a warpgroup, waits, bulk copies, barriers, and the ways from
/// one multiprocessor to another. They are what chapter 02's stages on warpgroups are planned with.
///
///     build/cuda/tools/instructions/instruction_times
///
/// One block, or one cluster of two, has the GPU to itself. A figure is the median of nine launches. Where many blocks
/// work at once, copies from memory take longer.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "common/device/buffer.hpp"
#include "common/device/bulk_copy.cuh"
#include "common/device/cluster.cuh"
#include "common/device/device.hpp"
#include "common/device/launch.cuh"
#include "common/device/mbarrier.cuh"
#include "common/device/memory.cuh"
#include "common/device/named_barrier.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/push_shared.cuh"
#include "common/device/wgmma.cuh"

namespace tutorial {
namespace {

constexpr int kWarpgroup = 128;       // threads
constexpr int kRows = 64;             // of a tile of 128 columns, which is two panels
constexpr unsigned kTile = 2 * 8192;  // its bytes
constexpr int kRounds = 64;

/// Thread 0 of block 0 writes what a kernel has measured.
__device__ void report(long long* clocks, long long count) {
  if (blockIdx.x == 0 && threadIdx.x == 0) store_global(clocks, count);
}

/// Zeros, as products see them.
__device__ void clear(unsigned char* memory, unsigned bytes) {
  for (unsigned i = threadIdx.x * 16; i < bytes; i += blockDim.x * 16) {
    store_for_copies(reinterpret_cast<uint4*>(memory + i), uint4{});
  }
  fence_async_proxy();
  __syncthreads();
}

// --- products ---

/// kCount products m64 nkN k16, one after the other into the same sums, from the first start to the end of the wait.
/// All warpgroups of the block do the same.
template <int kN, bool kFromRegisters, int kCount>
__global__ void __launch_bounds__(2 * kWarpgroup) products_kernel(long long* clocks) {
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  clear(memory, kTile + 8192);
  auto* panel = reinterpret_cast<__nv_bfloat16*>(memory);
  const SharedFactor<Major::kK> a(panel, 8192), b(panel + 4096, kTile);
  std::uint32_t registers[4][4] = {};
  float sums[kN / 2] = {};
  long long elapsed = 0;
#pragma unroll 1
  for (int pass = 0; pass < 2; ++pass) {  // the first one fills the cache of instructions
    __syncthreads();
    const long long start = clock64();
    wgmma_fence(sums, registers);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if constexpr (kFromRegisters) {
        wgmma<kN>(sums, registers[i % 4], b.along_k(i % 4 * 16), true);
      } else {
        wgmma<kN>(sums, a.along_k(i % 4 * 16), b.along_k(i % 4 * 16), true);
      }
    }
    wgmma_commit();
    wgmma_wait<0>(sums, registers);
    elapsed = clock64() - start;
  }
  report(clocks, elapsed + (sums[0] > 0));
}

/// Links of a chain: four products m64n64k16, the wait, and their sums packed to be the A of the next four.
__global__ void __launch_bounds__(kWarpgroup) chain_kernel(long long* clocks) {
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  clear(memory, 8192);
  const SharedFactor<Major::kK> b(reinterpret_cast<__nv_bfloat16*>(memory), 8192);
  std::uint32_t a[4][4] = {};
  float sums[32] = {};
  const long long start = clock64();
#pragma unroll 1
  for (int n = 0; n < kRounds; ++n) {
    wgmma_fence(sums, a);
#pragma unroll
    for (int i = 0; i < 4; ++i) wgmma<64>(sums, a[i], b.along_k(i * 16), i > 0);
    wgmma_commit();
    wgmma_wait<0>(sums, a);
#pragma unroll
    for (int i = 0; i < 4; ++i) wgmma_fragment(a[i], sums, i * 16);
  }
  report(clocks, (clock64() - start) / kRounds + (a[0][0] > 0));
}

// --- inside a block ---

/// A store of 16 bytes, with or without the fence that shows it to copies and products.
template <bool kFenced>
__global__ void stores_kernel(long long* clocks) {
  auto* own = dynamic_shared<uint4>() + threadIdx.x;
  const long long start = clock64();
#pragma unroll 1
  for (unsigned n = 0; n < kRounds; ++n) {
    store_for_copies(own, uint4{n, n, n, n});
    if constexpr (kFenced) fence_async_proxy();
  }
  report(clocks, (clock64() - start) / kRounds);
}

__global__ void named_barrier_kernel(long long* clocks) {
  const long long start = clock64();
#pragma unroll 1
  for (int n = 0; n < kRounds; ++n) wait_at_named_barrier(1, kWarpgroup);
  report(clocks, (clock64() - start) / kRounds);
}

/// Two warps hand a turn to each other; one way.
__global__ void hand_over_kernel(long long* clocks) {
  __shared__ Barrier turns[2];
  if (threadIdx.x == 0) {
    for (Barrier& turn : turns) turn.init(1);
    fence_barrier_init();
  }
  __syncthreads();
  const int warp = int(threadIdx.x) / 32;
  const long long start = clock64();
  if (threadIdx.x % 32 == 0) {
#pragma unroll 1
    for (unsigned n = 0; n < kRounds; ++n) {
      if (warp == 0) turns[1].arrive();
      turns[warp].wait(n % 2);
      if (warp == 1) turns[0].arrive();
    }
  }
  report(clocks, (clock64() - start) / (2 * kRounds));
}

/// Waits for a barrier whose phase has ended.
__global__ void passed_wait_kernel(long long* clocks) {
  __shared__ Barrier barrier;
  if (threadIdx.x == 0) {
    barrier.init(1);
    fence_barrier_init();
  }
  __syncthreads();
  const long long start = clock64();
#pragma unroll 1
  for (int n = 0; n < kRounds; ++n) barrier.wait(1);
  report(clocks, (clock64() - start) / kRounds);
}

// --- bulk loads ---

/// From asking for a tile of 16 KB to the end of the wait for it: clocks[i] for tile i.
__global__ void load_kernel(const __grid_constant__ TensorMap map, long long* clocks) {
  __shared__ Barrier full;
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  full.init(1);
  fence_barrier_init();
  for (int n = 0; n < kRounds; ++n) {
    const long long start = clock64();
    full.arrive_expect(kTile);
    load_tile(map, memory, full, {.position = n * kRows});
    load_tile(map, memory + kTile / 2, full, {.column = 64, .position = n * kRows});
    full.wait(n % 2);
    store_global(clocks + n, clock64() - start);
  }
}

// --- from one multiprocessor to another ---

/// What two blocks of a cluster share, each with its own copy.
struct Inbox {
  unsigned char outgoing[24576], incoming[24576];
  Barrier full;
};

/// The block's own, with its barrier; afterwards all blocks of the cluster run.
__device__ Inbox& inbox(unsigned arrivals) {
  auto& own = *dynamic_shared<Inbox>();
  if (threadIdx.x == 0) {
    own.full.init(arrivals);
    fence_barrier_init();
  }
  cluster_sync();
  return own;
}

__global__ void cluster_barrier_kernel(long long* clocks) {
  cluster_sync();
  const long long start = clock64();
#pragma unroll 1
  for (int n = 0; n < kRounds; ++n) cluster_sync();
  report(clocks, (clock64() - start) / kRounds);
}

/// Two blocks send something to each other in turn. `send` sends to the other block and leads to an end of a phase of
/// its barrier; `prepare` comes before each wait. One way.
template <class Prepare, class Send>
__device__ void ping_pong(long long* clocks, Inbox& own, Prepare prepare, Send send) {
  const unsigned rank = cluster_rank();
  const long long start = clock64();
#pragma unroll 1
  for (unsigned n = 0; n < kRounds; ++n) {
    prepare();
    if (rank == 0) send();
    own.full.wait_cluster(n % 2);
    if (rank == 1) send();
  }
  report(clocks, (clock64() - start) / (2 * kRounds));
  cluster_sync();
}

__global__ void remote_arrive_kernel(long long* clocks) {
  Inbox& own = inbox(1);
  ping_pong(
      clocks, own, [] {},
      [&] {
        if (threadIdx.x == 0) own.full.arrive_at(1 - cluster_rank());
      });
}

/// 8 KB by the ordinary stores of 128 threads, and an arrival of each warp.
__global__ void remote_stores_kernel(long long* clocks) {
  Inbox& own = inbox(kWarpgroup / 32);
  const unsigned other = 1 - cluster_rank();
  auto* theirs = reinterpret_cast<uint4*>(peer_shared(own.incoming, other)) + threadIdx.x;
  ping_pong(
      clocks, own, [] {},
      [&] {
        for (unsigned i = 0; i < 4; ++i) theirs[i * kWarpgroup] = uint4{i, i, i, i};
        __syncwarp();
        if (threadIdx.x % 32 == 0) own.full.arrive_at(other);
      });
}

/// `bytes` by one bulk copy.
__global__ void push_kernel(long long* clocks, unsigned bytes) {
  Inbox& own = inbox(1);
  clear(own.outgoing, sizeof own.outgoing);
  ping_pong(
      clocks, own,
      [&] {
        if (threadIdx.x == 0) own.full.arrive_expect(bytes);
      },
      [&] {
        if (threadIdx.x == 0) push_shared(own.incoming, own.outgoing, bytes, own.full, 1 - cluster_rank());
      });
}

/// 16 KB by one load into both blocks, from the second-level cache: from block 0's asking to the end of its wait.
__global__ void multicast_kernel(const __grid_constant__ TensorMap map, long long* clocks) {
  __shared__ Barrier full;
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  if (threadIdx.x == 0) {
    full.init(1);
    fence_barrier_init();
  }
  cluster_sync();
  long long sum = 0;
  for (unsigned n = 0; n < kRounds; ++n) {
    if (threadIdx.x == 0) full.arrive_expect(kTile);
    cluster_sync();
    const long long start = clock64();
    if (cluster_rank() == 0 && threadIdx.x == 0) {
      const int position = int(n) * kRows;
      load_tile_multicast(map, memory, full, {.position = position}, 0b11);
      load_tile_multicast(map, memory + kTile / 2, full, {.column = 64, .position = position}, 0b11);
    }
    full.wait(n % 2);
    sum += clock64() - start;
    cluster_sync();
  }
  report(clocks, sum / kRounds);
}

// --- the table ---

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// The median of nine launches of a kernel that leaves one figure.
template <class... Parameters, class... Arguments>
double clocks_of(void (*kernel)(Parameters...), LaunchConfig config, Arguments... arguments) {
  DeviceBuffer<long long> clocks(1);
  std::vector<double> figures;
  for (int i = 0; i < 9; ++i) {
    if constexpr (sizeof...(Arguments) > 0 && sizeof...(Parameters) == sizeof...(Arguments) + 1) {
      launch(kernel, config, arguments..., clocks.data());
    } else {
      launch(kernel, config, clocks.data());
    }
    figures.push_back(double(clocks.download()[0]));
  }
  return median(figures);
}

LaunchConfig pair(unsigned threads, std::size_t bytes) {
  LaunchConfig config(2, threads, bytes);
  config.cluster = 2;
  return config;
}

void row(const std::string& what, double clocks) {
  std::printf("| %-70s | %6.0f |\n", what.c_str(), clocks);
}

/// Clocks of one product, from the difference of two counts.
template <int kN, bool kFromRegisters>
double clocks_of_product(unsigned warpgroups) {
  const LaunchConfig config(1, warpgroups * kWarpgroup, kTile + 8192);
  return (clocks_of(products_kernel<kN, kFromRegisters, 40>, config) -
          clocks_of(products_kernel<kN, kFromRegisters, 8>, config)) /
         32;
}

void print_table() {
  std::printf("| %-70s | %6s |\n| --- | ---: |\n", "instruction", "clocks");
  row("product m64n64k16, A from registers", clocks_of_product<64, true>(1));
  row("the same, A from shared memory", clocks_of_product<64, false>(1));
  row("product m64n128k16, A from registers", clocks_of_product<128, true>(1));
  row("the same, A from shared memory", clocks_of_product<128, false>(1));
  row("two warpgroups at once, each m64n64k16 from registers", clocks_of_product<64, true>(2));
  row("two warpgroups at once, each m64n64k16 from shared memory", clocks_of_product<64, false>(2));
  row("two warpgroups at once, each m64n128k16 from registers", clocks_of_product<128, true>(2));
  row("one product m64n64k16 with its fence, commit and wait",
      clocks_of(products_kernel<64, true, 1>, {1, kWarpgroup, kTile + 8192}));
  row("four products m64n64k16, wait, sums packed as the next A", clocks_of(chain_kernel, {1, kWarpgroup, 8192}));
  row("store of 16 bytes per thread, 128 threads", clocks_of(stores_kernel<false>, {1, kWarpgroup, 2048}));
  row("the same with fence.proxy.async", clocks_of(stores_kernel<true>, {1, kWarpgroup, 2048}));
  row("named barrier of 128 threads", clocks_of(named_barrier_kernel, {1, kWarpgroup}));
  row("wait for a phase that has ended", clocks_of(passed_wait_kernel, {1, 32}));
  row("arrival until the other warp's wait has ended, same block", clocks_of(hand_over_kernel, {1, 64}));
  row("the same, other block of the cluster", clocks_of(remote_arrive_kernel, pair(32, sizeof(Inbox))));
  row("barrier of a cluster of 2 x 128 threads", clocks_of(cluster_barrier_kernel, pair(kWarpgroup, 0)));

  constexpr std::int64_t L = kRounds * kRows;
  DeviceBuffer<__nv_bfloat16> tensor(std::size_t(L) * 128);
  tensor.fill_bytes(0);
  const TensorMap map = tile_map(View<const __nv_bfloat16>{tensor.data(), 0, 0, 128}, {.L = L, .D = 128}, kRows);
  DeviceBuffer<unsigned char> flushed(std::size_t(512) << 20);
  DeviceBuffer<long long> clocks(kRounds);
  std::vector<double> memory, cache;
  for (int i = 0; i < 9; ++i) {
    flushed.fill_bytes(0);
    for (std::vector<double>* figures : {&memory, &cache}) {
      launch(load_kernel, {1, 1, kTile}, map, clocks.data());
      const std::vector<long long> tiles = clocks.download();
      figures->push_back(median({tiles.begin(), tiles.end()}));
    }
  }
  row("bulk load of 16 KB from memory", median(memory));
  row("bulk load of 16 KB from the second-level cache", median(cache));
  row("the same into two blocks at once (multicast)", clocks_of(multicast_kernel, pair(32, kTile), map));
  row("8 KB to the other block by stores of 128 threads, until it has them",
      clocks_of(remote_stores_kernel, pair(kWarpgroup, sizeof(Inbox))));
  std::fflush(stdout);  // see push_shared.cuh: what follows may fail
  for (unsigned bytes : {8192u, 24576u}) {
    DeviceBuffer<long long> one(1);
    std::vector<double> figures;
    for (int i = 0; i < 9; ++i) {
      launch(push_kernel, pair(kWarpgroup, sizeof(Inbox)), one.data(), bytes);
      figures.push_back(double(one.download()[0]));
    }
    row(std::to_string(bytes / 1024) + " KB to the other block by one bulk copy, until it has them", median(figures));
  }
}

}  // namespace
}  // namespace tutorial

int main() {
  try {
    if (const std::string reason = tutorial::warpgroup_products_missing(); !reason.empty()) {
      std::fprintf(stderr, "error: %s\n", reason.c_str());
      return 2;
    }
    tutorial::print_table();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
