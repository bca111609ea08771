#pragma once
/// @file
/// Barriers in shared memory that count arrivals and bytes: PTX's mbarrier.
///
/// The emulator keeps the state of a barrier beside its 8 bytes, which hold nothing but a mark that says "initialised".
/// The mark is written and read here, in the kernel's own code, so that ThreadSanitizer sees whether something orders
/// init() before the first use. To be called in kernels only.

#include <cstdint>
#include <source_location>

#include "emulator/cluster.hpp"

namespace emulator {

/// What the 8 bytes of an initialised barrier hold.
inline constexpr std::uint64_t kBarrierMark = 0x6D62617272696572;

/// See mbarrier_init().
void create_mbarrier(const std::uint64_t* barrier, unsigned count, std::source_location where);
/// See mbarrier_arrive(). @param mark what the 8 bytes hold
void arrive_at_mbarrier(const std::uint64_t* barrier, std::uint64_t mark, unsigned bytes, std::source_location where);
/// See mbarrier_wait(). @param mark what the 8 bytes hold
void wait_for_mbarrier(const std::uint64_t* barrier, std::uint64_t mark, unsigned parity, bool of_cluster,
                       std::source_location where);

/// Begins phase 0 of a barrier. Each phase ends when `count` threads have arrived and all expected bytes are there.
/// A count outside of 1 to 2^20 - 1 and a second initialisation end the launch with a report.
inline void mbarrier_init(std::uint64_t* barrier, unsigned count, std::source_location where) {
  *barrier = kBarrierMark;
  create_mbarrier(barrier, count, where);
}

/// Makes the barriers that this thread has initialised known to all others. Stricter than a GPU: without it each use of
/// such a barrier ends the launch with a report.
void mbarrier_fence_init(std::source_location where);

/// Arrives once at the current phase, which has to wait for `bytes` more bytes. More arrivals than the count, or 2^20
/// bytes and more, end the launch with a report, and so does a barrier that is not initialised.
inline void mbarrier_arrive(const std::uint64_t* barrier, unsigned bytes, std::source_location where) {
  arrive_at_mbarrier(barrier, *barrier, bytes, where);
}

/// Arrives once at the barrier that block `rank` of the cluster has at the same offset. Ends the launch with a report
/// where mbarrier_arrive() and peer_address() do.
inline void mbarrier_arrive_at(const std::uint64_t* barrier, unsigned rank, std::source_location where) {
  mbarrier_arrive(peer_address(barrier, rank, where), 0, where);
}

/// Waits until the current phase is not the one of this parity: phase n has parity n % 2. What threads did before they
/// arrived at the phase that has ended is visible afterwards. If threads of another block have arrived at that phase,
/// or have pushed data into it, the launch ends with a report: that takes mbarrier_wait_cluster().
inline void mbarrier_wait(const std::uint64_t* barrier, unsigned parity, std::source_location where) {
  wait_for_mbarrier(barrier, *barrier, parity, false, where);
}

/// mbarrier_wait() for what threads of all blocks of the cluster have done.
inline void mbarrier_wait_cluster(const std::uint64_t* barrier, unsigned parity, std::source_location where) {
  wait_for_mbarrier(barrier, *barrier, parity, true, where);
}

}  // namespace emulator
