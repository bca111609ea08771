#pragma once
/// @file
/// Barriers of a block and of a warp. The default argument tells the emulator which barrier of the source a thread
/// waits at: a block whose threads wait at different ones is reported instead of hanging.

#include <source_location>
#include <string>

/// Waits until every thread of the block has come to this barrier. Stricter than a GPU: a thread that has returned from
/// the kernel does not count as having come, and threads at different lines do not meet. A block that gets stuck so
/// ends the launch with a report and cudaErrorLaunchFailure; this holds for all barriers here.
void __syncthreads(std::source_location where = std::source_location::current());
/// __syncthreads() that returns how many threads of the block gave a predicate other than zero.
int __syncthreads_count(int predicate, std::source_location where = std::source_location::current());
/// __syncthreads() that returns whether all threads of the block gave a predicate other than zero.
int __syncthreads_and(int predicate, std::source_location where = std::source_location::current());
/// __syncthreads() that returns whether any thread of the block gave a predicate other than zero.
int __syncthreads_or(int predicate, std::source_location where = std::source_location::current());
/// Waits for the lanes in `mask` and makes what they wrote before visible to each other. The calling lane is one of
/// them, and all name the same mask.
void __syncwarp(unsigned mask = 0xFFFFFFFFu, std::source_location where = std::source_location::current());

/// Lets the other threads of the block go on, whatever the time: a loop that waits for another thread needs it, because
/// threads take turns only where they wait.
void __nanosleep(unsigned nanoseconds);

namespace emulator {

/// Fault injection for tests: from the next launch on the block barrier at this line does nothing, and neither does an
/// arrival, a wait or a fence of a barrier in shared memory, an arrival or a wait at a named barrier or at a cluster's,
/// a commit or a wait of bulk stores, a fence of the async proxy, or a fence, a commit or a wait of products of a
/// warpgroup. The environment variable EMULATOR_SKIP_BARRIER=file.cu:LINE does the same.
/// @param file the end of the source file's path, such as "5_lmha.cu"
void skip_barrier(const std::string& file, unsigned line);
/// Ends skip_barrier(); the environment variable holds again.
void skip_no_barrier();

}  // namespace emulator
