/// @file
/// The chunks that are left when some heads have been walked: all of them, each once.

#include "common/device/walked_heads.cuh"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/device/buffer.hpp"
#include "common/device/launch.cuh"

namespace tutorial {
namespace {

/// Counts how often each chunk comes. @param visits [count, N]
__global__ void visit_left(WalkedHeads heads, int count, int N, int* visits) {
  for_each_chunk_left(heads, count, N, [&](int head, int n) {
    if (threadIdx.x == 0) ++visits[head * N + n];
  });
}

TEST(WalkedHeads, EachChunkThatIsLeftComesOnce) {
  constexpr int kMostSegments = 5;
  for (const int count : {1, 31, 32, 33, 70}) {
    for (const int N : {1, 7}) {
      for (const unsigned blocks : {1u, 4u, 600u}) {
        for (const int segments : {1, kMostSegments}) {
          SCOPED_TRACE(std::to_string(count) + " heads of " + std::to_string(N) + " chunks, " + std::to_string(blocks) +
                       " blocks, " + std::to_string(segments) + " segments");
          std::vector<int> walked(std::size_t(count * segments), 1);
          const auto is_left = [&](int head) { return head % 3 == 1 || head == count - 1; };
          for (int head = 0; head < count; ++head) {
            if (is_left(head)) walked[std::size_t(head * segments + head % segments)] = 0;
          }
          DeviceBuffer<int> flags(walked), visits(std::vector<int>(std::size_t(count * N), 0));
          launch(visit_left, {blocks, 64}, WalkedHeads{flags.data(), segments}, count, N, visits.data());
          const std::vector<int> found = visits.download();
          for (int i = 0; i < count * N; ++i) ASSERT_EQ(found[std::size_t(i)], int(is_left(i / N))) << "chunk " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tutorial
