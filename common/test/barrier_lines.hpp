#pragma once
/// @file
/// The lines of a kernel that the emulator can take out with EMULATOR_SKIP_BARRIER, because threads wait there for each
/// other or for what happens asynchronously, or say that they have finished.

#include <algorithm>
#include <istream>
#include <iterator>
#include <string>
#include <vector>

namespace tutorial {

/// A line that can be taken out.
struct BarrierLine {
  unsigned number = 0;  ///< from 1
  /// Whether it is a barrier for all threads of the block. Without it threads race. Without another one a copy or a
  /// product may also be wrong, or the kernel may never end.
  bool is_block_barrier = false;
  std::string code;  ///< without its comment
};

/// All such lines of a source. A call over several lines counts as the line that it begins on.
/// Arrivals that expect bytes are not among them: without one its barrier never opens.
/// @param with_counts also lines that say how many arrivals a barrier in shared memory counts
/// @param kernel if not empty, the name of the one kernel that is meant, or of a function of the device that is all of
/// a kernel but its head; with the functions between it and the next kernel
inline std::vector<BarrierLine> barrier_lines(std::istream& source, const std::string& kernel,
                                              bool with_counts = false) {
  constexpr const char* kCalls[] = {"__syncthreads()",  // first, as is_block_barrier has it
                                    // cp_async.cuh
                                    "cp_async_commit(", "cp_async_wait<",
                                    // mbarrier.cuh
                                    ".wait(", "wait_cluster(", ".arrive(", "arrive_at(", "fence_barrier_init(",
                                    // cluster.cuh
                                    "cluster_sync(", "cluster_arrive(", "cluster_wait(",
                                    // bulk_copy.cuh and proxy_fence.cuh
                                    "commit_stores(", "wait_stores<", "wait_stores_read<", "fence_async_proxy(",
                                    // named_barrier.cuh
                                    "wait_at_named_barrier(", "arrive_at_named_barrier(",
                                    // wgmma.cuh
                                    "wgmma_fence(", "wgmma_commit(", "wgmma_wait<"};
  std::vector<BarrierLine> lines;
  std::string text;
  bool is_meant = kernel.empty(), is_head = false;  // between __global__ and the kernel's body
  for (unsigned number = 1; std::getline(source, text); ++number) {
    if (!kernel.empty() && text.starts_with("__global__")) is_meant = false, is_head = true;
    if (!kernel.empty() && text.starts_with("__device__") && text.find(kernel + "(") != std::string::npos)
      is_meant = true;
    if (is_head && text.find(kernel) != std::string::npos) is_meant = true;
    if (text.ends_with("{")) is_head = false;
    const std::string code = text.substr(0, text.find("//"));
    const auto stands_here = [&](const char* call) { return code.find(call) != std::string::npos; };
    const auto call = std::ranges::find_if(kCalls, stands_here);
    if (!is_meant || !(call != std::end(kCalls) || (with_counts && stands_here(".init(")))) continue;
    lines.push_back({number, call == kCalls, code});
  }
  return lines;
}

}  // namespace tutorial
