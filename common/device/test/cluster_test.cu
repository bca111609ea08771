/// @file
/// Clusters: ranks, the barrier, and everything by which blocks reach into each other's shared memory.

#include "common/device/cluster.cuh"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "common/device/buffer.hpp"
#include "common/device/bulk_copy.cuh"
#include "common/device/device.hpp"
#include "common/device/error.hpp"
#include "common/device/launch.cuh"
#include "common/device/mbarrier.cuh"
#include "common/device/memory.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/push_shared.cuh"

namespace tutorial {
namespace {

class Cluster : public testing::Test {
 protected:
  void SetUp() override {
    if (compute_capability() < 90) GTEST_SKIP() << "needs a GPU of compute capability 9.0";
  }
};

/// What launches with clusters need.
LaunchConfig clusters(dim3 cluster, dim3 grid, dim3 block, std::size_t shared_bytes = 0,
                      std::source_location where = std::source_location::current()) {
  LaunchConfig config(grid, block, shared_bytes, where);
  config.cluster = cluster;
  return config;
}

// --- ranks ---

__global__ void tell_ranks(unsigned* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  if (threadIdx.x == 0) out[block] = 10 * cluster_rank() + cluster_size();
}

TEST_F(Cluster, CountsItsBlocksAlongXFirst) {
  for (const dim3 cluster : {dim3(1), dim3(2), dim3(1, 3), dim3(4, 1, 2), dim3(2, 3, 1)}) {
    const dim3 grid(4, 3, 2);
    DeviceBuffer<unsigned> out(24);
    launch(tell_ranks, clusters(cluster, grid, 32), out.data());
    const std::vector<unsigned> result = out.download();
    for (unsigned z = 0; z < grid.z; ++z) {
      for (unsigned y = 0; y < grid.y; ++y) {
        for (unsigned x = 0; x < grid.x; ++x) {
          const unsigned rank = x % cluster.x + cluster.x * (y % cluster.y + cluster.y * (z % cluster.z));
          EXPECT_EQ(result[x + grid.x * (y + grid.y * z)], 10 * rank + cluster.x * cluster.y * cluster.z)
              << x << "," << y << "," << z;
        }
      }
    }
  }
}

// --- launches ---

__global__ void do_nothing() {}

/// What the launch is refused with.
std::string refusal(const LaunchConfig& config) {
  try {
    launch(do_nothing, config);
  } catch (const CudaError& error) {
    return error.what();
  }
  return "";
}

TEST_F(Cluster, DividesTheGridAndHasAtMost8Blocks) {
  launch(do_nothing, clusters(8, 16, 32));
  launch(do_nothing, clusters({2, 2, 2}, {2, 4, 6}, 32));
  EXPECT_NE(refusal(clusters(2, 3, 32)).find("launch of 3 x 1 x 1 blocks in clusters of 2 x 1 x 1"), std::string::npos);
  EXPECT_NE(refusal(clusters({1, 2}, {2, 3}, 32)), "");
  EXPECT_NE(refusal(clusters(16, 16, 32)), "");
  EXPECT_NE(refusal(clusters({3, 3}, {3, 3}, 32)), "");
  launch(do_nothing, clusters(2, 4, 32));  // works after an error
}

// --- the barrier, and ordinary loads and stores ---

constexpr unsigned kThreads = 96;

/// Each block stores to the next one, and reads from the one after that, several times over.
__global__ void pass_round(int* out, int rounds) {
  int* values = dynamic_shared<int>();
  const unsigned size = cluster_size(), rank = cluster_rank(), i = threadIdx.x;
  cluster_sync();
  int* next = peer_shared(values, (rank + 1) % size);
  const int* after_next = peer_shared(values, (rank + 2) % size);
  int sum = 0;
  for (int n = 0; n < rounds; ++n) {
    next[i] = static_cast<int>(1000 * rank + i) + n;
    cluster_sync();
    sum += after_next[kThreads - 1 - i];
    cluster_sync();
  }
  out[blockIdx.x * kThreads + i] = sum;
}

TEST_F(Cluster, StoresToOtherBlocksAndLoadsFromThem) {
  constexpr int kRounds = 4;
  for (const unsigned size : {1u, 2u, 4u, 8u}) {
    DeviceBuffer<int> out(16 * kThreads);
    launch(pass_round, clusters(size, 16, kThreads, kThreads * sizeof(int)), out.data(), kRounds);
    const std::vector<int> result = out.download();
    for (unsigned block = 0; block < 16; ++block) {
      for (unsigned i = 0; i < kThreads; ++i) {
        const unsigned writer = (block % size + 1) % size;
        const int expected = kRounds * static_cast<int>(1000 * writer + kThreads - 1 - i) + 6;
        ASSERT_EQ(result[block * kThreads + i], expected) << "block " << block << " of clusters of " << size;
      }
    }
  }
}

/// Lanes of a warp arrive from different lines, and some wait later than others.
__global__ void arrive_apart(int* out) {
  int* values = dynamic_shared<int>();
  const unsigned i = threadIdx.x;
  cluster_sync();
  values[i] = static_cast<int>(100 * cluster_rank() + i);
  if (i % 2 == 0) {
    cluster_arrive();
    cluster_wait();
  } else {
    cluster_arrive();
    out[blockIdx.x * kThreads + i] = -1;
    cluster_wait();
  }
  out[blockIdx.x * kThreads + i] = peer_shared(values, 1 - cluster_rank())[i / 2 * 2];
  cluster_sync();
}

TEST_F(Cluster, ItsBarrierIsForLanesThatDiverge) {
  DeviceBuffer<int> out(2 * kThreads);
  launch(arrive_apart, clusters(2, 2, kThreads, kThreads * sizeof(int)), out.data());
  const std::vector<int> result = out.download();
  for (unsigned i = 0; i < 2 * kThreads; ++i) {
    const unsigned lane = i % kThreads;
    EXPECT_EQ(result[i], static_cast<int>((i < kThreads ? 100 : 0) + lane / 2 * 2)) << i;
  }
}

// --- arrivals at barriers of other blocks ---

constexpr int kStages = 2;

struct Relay {
  Barrier full[kStages];   ///< of the block that reads
  Barrier empty[kStages];  ///< of the block that writes
  int values[kStages][32];
};

/// Block 0 writes the squares of 0, 1, 2, ... into a ring in block 1, which adds them up with weights that tell the
/// order.
__global__ void relay(int* out, int count) {
  auto& shared = *dynamic_shared<Relay>();
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      shared.full[i].init(32);
      shared.empty[i].init(32);
    }
    fence_barrier_init();
  }
  cluster_sync();
  if (cluster_rank() == 0) {
    Relay* reader = peer_shared(&shared, 1);
    auto ring = Ring<kStages>::producer();
    for (int n = 0; n < count; ++n) {
      ring.wait_cluster(shared.empty);
      reader->values[ring.stage()][threadIdx.x] = n * n;
      shared.full[ring.stage()].arrive_at(1);
      ring.advance();
    }
  } else {
    auto ring = Ring<kStages>::consumer();
    int sum = 0;
    for (int n = 0; n < count; ++n) {
      ring.wait_cluster(shared.full);
      sum += (n + 1) * shared.values[ring.stage()][(threadIdx.x + 5) % 32];
      shared.empty[ring.stage()].arrive_at(0);
      ring.advance();
    }
    out[blockIdx.x / 2 * 32 + threadIdx.x] = sum;
  }
  cluster_sync();
}

TEST_F(Cluster, ARingHandsOnValuesFromBlockToBlock) {
  for (const int count : {0, 1, 2, 5, 20}) {
    DeviceBuffer<int> out(3 * 32);
    launch(relay, clusters(2, 6, 32, sizeof(Relay)), out.data(), count);
    int expected = 0;
    for (int n = 0; n < count; ++n) expected += (n + 1) * n * n;
    EXPECT_EQ(out.download(), std::vector<int>(3 * 32, expected)) << count << " values";
  }
}

// --- multicast ---

constexpr int kRows = 8;
constexpr unsigned kTile = kRows * kTileColumns;  // elements
constexpr int kTiles = 12;                        // of the tensor

/// Element i of memory has the bits i + 1.
std::vector<std::uint16_t> numbered() {
  std::vector<std::uint16_t> memory(kTiles * kTile);
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::uint16_t>(i + 1);
  return memory;
}

/// Tiles one below the other.
TensorMap map_of(DeviceBuffer<std::uint16_t>& memory) {
  return tile_map(packed(reinterpret_cast<__nv_bfloat16*>(memory.data()), 1, kTiles * kRows, kTileColumns),
                  {.B = 1, .H = 1, .L = kTiles * kRows, .D = kTileColumns}, kRows);
}

/// The tile is the first thing in shared memory, as aligned as that is.
struct Inbox {
  std::uint16_t tiles[4][kTile];
  Barrier full, empty;
};

/// Every block brings each fourth tile to all four blocks, and all blocks add up what they get:
/// sums[block][element], the n-th tile n + 1 times.
__global__ void share_loads(const __grid_constant__ TensorMap map, unsigned* sums) {
  auto& shared = *dynamic_shared<Inbox, kTileAlignment>();
  const unsigned rank = cluster_rank();
  if (threadIdx.x == 0) {
    shared.full.init(1);
    shared.empty.init(4 * kThreads);
    fence_barrier_init();
  }
  cluster_sync();
  for (unsigned i = threadIdx.x; i < kTile; i += kThreads) sums[blockIdx.x * kTile + i] = 0;
  for (unsigned n = 0; n < kTiles / 4; ++n) {
    if (threadIdx.x == 0) {
      shared.full.arrive_expect(4 * tile_bytes(kRows));
      if (n > 0) shared.empty.wait_cluster((n - 1) % 2);
      load_tile_multicast(map, shared.tiles[rank], shared.full, {.position = static_cast<int>(4 * n + rank) * kRows},
                          0xF);
    }
    shared.full.wait(n % 2);
    for (unsigned i = threadIdx.x; i < kTile; i += kThreads) {
      for (unsigned from = 0; from < 4; ++from) {
        sums[blockIdx.x * kTile + i] += (4 * n + from + 1) * shared.tiles[from][i];
      }
    }
    for (unsigned to = 0; to < 4; ++to) shared.empty.arrive_at(to);
  }
  cluster_sync();
}

/// Where element i of the tensor's tiles lies in a tile of shared memory.
std::size_t place(std::size_t i) {
  const std::size_t row = i / kTileColumns, column = i % kTileColumns;
  return row * kTileColumns + (column / 8 ^ row % 8) * 8 + column % 8;
}

TEST_F(Cluster, AMulticastGoesToAllBlocks) {
  if (compute_capability() != 90) GTEST_SKIP() << "multicasts are for GPUs of compute capability 9.0";
  DeviceBuffer<std::uint16_t> memory(numbered());
  DeviceBuffer<unsigned> sums(8 * kTile);
  launch(share_loads, clusters(4, 8, kThreads, sizeof(Inbox)), map_of(memory), sums.data());
  const std::vector<unsigned> result = sums.download();
  for (std::size_t i = 0; i < kTile; ++i) {
    unsigned expected = 0;
    for (unsigned tile = 0; tile < kTiles; ++tile) expected += (tile + 1) * static_cast<unsigned>(tile * kTile + i + 1);
    for (std::size_t block = 0; block < 8; ++block) {
      ASSERT_EQ(result[block * kTile + place(i)], expected) << "element " << i << " of block " << block;
    }
  }
}

/// Block 2 of four loads a tile for blocks 1 and 3.
__global__ void load_for_some(const __grid_constant__ TensorMap map, std::uint16_t* out) {
  auto& shared = *dynamic_shared<Inbox, kTileAlignment>();
  const unsigned rank = cluster_rank();
  for (unsigned i = threadIdx.x; i < kTile; i += kThreads) shared.tiles[0][i] = 0;
  fence_async_proxy();
  if (threadIdx.x == 0) {
    shared.full.init(1);
    fence_barrier_init();
    if (rank % 2 == 1) shared.full.arrive_expect(tile_bytes(kRows));
  }
  cluster_sync();
  if (rank == 2 && threadIdx.x == 0) load_tile_multicast(map, shared.tiles[0], shared.full, {}, 0b1010);
  if (rank % 2 == 1) shared.full.wait(0);
  cluster_sync();
  for (unsigned i = threadIdx.x; i < kTile; i += kThreads) out[blockIdx.x * kTile + i] = shared.tiles[0][i];
}

TEST_F(Cluster, AMulticastGoesToTheBlocksOfItsMaskAlone) {
  if (compute_capability() != 90) GTEST_SKIP() << "multicasts are for GPUs of compute capability 9.0";
  DeviceBuffer<std::uint16_t> memory(numbered());
  DeviceBuffer<std::uint16_t> out(4 * kTile);
  launch(load_for_some, clusters(4, 4, kThreads, sizeof(Inbox)), map_of(memory), out.data());
  const std::vector<std::uint16_t> result = out.download();
  for (std::size_t block = 0; block < 4; ++block) {
    for (std::size_t i = 0; i < kTile; ++i) {
      ASSERT_EQ(result[block * kTile + place(i)], block % 2 == 1 ? i + 1 : 0) << "element " << i << ", block " << block;
    }
  }
}

// --- pushes ---

struct Outbox {
  int outgoing[kThreads];
  int incoming[kThreads];
  Barrier full, empty;
};

/// Each block pushes numbers to the next one, several times over: out[block][thread] is a sum of what has come.
__global__ void push_round(int* out, int rounds) {
  auto& shared = *dynamic_shared<Outbox>();
  const unsigned size = cluster_size(), rank = cluster_rank(), i = threadIdx.x;
  if (i == 0) {
    shared.full.init(1);
    shared.empty.init(kThreads);
    fence_barrier_init();
  }
  cluster_sync();
  int sum = 0;
  for (int n = 0; n < rounds; ++n) {
    const unsigned parity = static_cast<unsigned>(n) % 2;
    // The next block has read what was pushed in the round before, so the copy has read `outgoing`, too.
    if (n > 0) shared.empty.wait_cluster(1 - parity);
    store_for_copies(&shared.outgoing[i], static_cast<int>(1000 * rank + i) * (n + 1));
    fence_async_proxy();
    __syncthreads();
    if (i == 0) {
      shared.full.arrive_expect(sizeof shared.incoming);
      push_shared(shared.incoming, shared.outgoing, sizeof shared.outgoing, shared.full, (rank + 1) % size);
    }
    shared.full.wait_cluster(parity);
    sum += shared.incoming[kThreads - 1 - i];
    shared.empty.arrive_at((rank + size - 1) % size);
  }
  out[blockIdx.x * kThreads + i] = sum;
  cluster_sync();
}

/// Expects what comes of pushes in clusters of `size` blocks.
void expect_pushes(unsigned size) {
  constexpr int kRounds = 4;
  DeviceBuffer<int> out(16 * kThreads);
  launch(push_round, clusters(size, 16, kThreads, sizeof(Outbox)), out.data(), kRounds);
  const std::vector<int> result = out.download();
  for (unsigned block = 0; block < 16; ++block) {
    for (unsigned i = 0; i < kThreads; ++i) {
      const unsigned sender = (block % size + size - 1) % size;
      ASSERT_EQ(result[block * kThreads + i], 10 * static_cast<int>(1000 * sender + kThreads - 1 - i))
          << "block " << block << " of clusters of " << size;
    }
  }
}

TEST_F(Cluster, PushesToTheNextBlock) {
  expect_pushes(2);
  expect_pushes(8);
}

}  // namespace
}  // namespace tutorial
