#pragma once
/// @file
/// What the events of a trace are. For kernels, too.

#include <cstdint>

namespace tutorial::trace {

/// What an event is. The names of the file are those of name_of().
enum class Kind : std::uint8_t {
  none,
  start,            ///< of a warp, or of a block's first barrier; value: nanoseconds of the GPU's timer
  end,              ///< of a warp
  init,             ///< of a barrier; value: its count
  arrive,           ///< at a barrier; value: lanes that do, or 0
  expect,           ///< an arrival; value: bytes that are to come
  wait,             ///< at a barrier, for a phase
  load,             ///< a bulk load, from its request to its arrival where that is known; object: the barrier
  push,             ///< a bulk copy to another block, the same
  store,            ///< a bulk store
  commit_stores,    ///< closes a group of them
  wait_stores,      ///< value: groups that stay under way
  commit_copies,    ///< of cp.async
  wait_copies,      ///< value: groups that stay under way
  fence_products,   ///< before products of a warpgroup
  product,          ///< products of a group from one line, from their start to their end; the emulator alone has them
  commit_products,  ///< closes a group
  wait_products,    ///< value: groups that stay under way
  named_arrive,     ///< object: the number of the barrier
  named_wait,       ///< the same
  block_wait,       ///< __syncthreads()
  cluster_arrive,   ///< at the cluster's barrier
  cluster_wait,     ///< there
  registers,        ///< setmaxnreg; value: registers of a thread from now on
  next_kernel,      ///< let_next_kernel_start()
  previous_kernel,  ///< wait_for_previous_kernel()
  collective,       ///< lanes of a warp wait for each other; only where they wait forever
  count,
};

}  // namespace tutorial::trace
