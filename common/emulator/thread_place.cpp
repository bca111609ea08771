#include "emulator/thread_place.hpp"

#include "cluster.hpp"

namespace emulator {

ThreadPlace thread_place() {
  const Block& block = *Block::current();
  const KernelThread& thread = block.thread();
  const dim3 grid = block.launch().grid;
  const uint3 index = block.index();
  return {.launch = block.launch().number,
          .block = (index.z * grid.y + index.y) * grid.x + index.x,
          .thread = thread.number,
          .block_barriers = thread.block_barriers,
          .warp_barriers = thread.warp_barriers,
          .barrier_line = thread.barrier_line};
}

}  // namespace emulator
