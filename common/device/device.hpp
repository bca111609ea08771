#pragma once
/// @file
/// What a launcher asks about the device that it runs on: how large it is, and which instructions it has beyond those of
/// compute capability 8.0. Each requirement of a stage is one of the functions ..._missing(), so that all stages mean the
/// same by it and say it in the same words. Functions that ask the device throw CudaError if there is none.
///
/// | | A100 8.0, RTX 30 8.6, RTX 40 8.9 | H100, H200 9.0 | B200 10.0, RTX 50 12.0 |
/// | --- | --- | --- | --- |
/// | bulk copies, barriers in shared memory, clusters | no | yes | yes |
/// | products of warpgroups; registers that change hands and multicast as compiled here | no | yes | no |
///
/// On the emulator EMULATOR_DEVICE chooses the device.

#include <cstddef>
#include <string>

namespace tutorial {

/// The number of multiprocessors of the current device. On the emulator EMULATOR_MULTIPROCESSORS sets it, too.
int multiprocessor_count();

/// The compute capability of the current device as one number: 90 for 9.0.
int compute_capability();

/// The most shared memory that a block may have, in bytes: 227 KB on an H200, 163 KB on an A100, 99 KB on RTX cards.
int shared_memory_per_block();

/// The shared memory that all blocks of a multiprocessor share, in bytes. The system takes 1 KB of it for each block.
int shared_memory_per_multiprocessor();

/// Clocks of a multiprocessor in a microsecond, at its highest rate: 1980 on an H200.
double clocks_per_microsecond();

/// Bytes that the memory moves in a microsecond at most, by its clock and the width of its bus: 4.9e6 on an H200. A copy
/// reaches 85 to 93 % of it.
double memory_bytes_per_microsecond();

/// How many clusters of so many blocks run at a time if each block needs a multiprocessor for itself: 66 clusters of two on
/// an H200, and 39 of three, because the blocks of a cluster are neighbours. 0 where there are no clusters.
int clusters_at_a_time(int blocks);

/// Whether a kernel can start before the previous one has ended (early_start.cuh). If not, it starts after that one.
bool has_early_start();

/// Why kernels with bulk copies, barriers in shared memory, clusters or stmatrix cannot run, as a sentence; empty if they
/// can. They need compute capability 9.0 or later.
std::string bulk_copies_missing();

/// The same for kernels with products of warpgroups (wgmma), setmaxnreg or multicast. wgmma exists on 9.0 alone; the
/// other two exist on later cards, too, but here they are compiled for 9.0 only.
std::string warpgroup_products_missing();

/// The same for kernels whose blocks need this many bytes of shared memory.
std::string shared_memory_missing(std::size_t bytes);

/// From now on the functions above, and with them all that chooses a kernel, see a card of another compute capability: 80,
/// 86, 89, 90, 100 or 120, with its shared memory. What the card at hand lacks cannot be added. On a GPU launch() also limits
/// the blocks of a multiprocessor to as many as would fit on one of that card. The number of multiprocessors and all
/// speeds stay those of the card at hand. Called once, before anything else.
/// @return why the device cannot pass for such a card, as a sentence; empty if it can
std::string pass_for(int capability);

/// The compute capability that pass_for() was called with; 0 if it was not.
int passes_for();

/// "9.0" for 90.
std::string capability_text(int capability);

}  // namespace tutorial
