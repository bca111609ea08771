#pragma once
/// @file
/// Copies of whole tiles between global and shared memory that one thread issues: PTX's cp.async.bulk.tensor.
///
/// A load reads the tensor and poisons its destination when it is issued. Its data come when a thread waits for the
/// barrier and cannot go on without them. A store poisons its destination when it is issued, and reads shared memory
/// when its thread waits for that. EMULATOR_ASYNC can let both happen at once instead.
///
/// The tensor is read, shared memory is read and both are poisoned here, in the kernel's own code, so that sanitizers
/// see these accesses as the thread's. To be called in kernels only; alignment is the caller's to check (bulk_copy.cuh
/// does).

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>

#include "emulator/cluster.hpp"
#include "emulator/counters.hpp"
#include "emulator/races.hpp"
#include "emulator/require.hpp"
#include "emulator/trap.hpp"

namespace emulator {

/// The widest row of a tile in shared memory, in bytes.
inline constexpr std::size_t kTileRowBytes = 128;
/// The most rows of a tile.
inline constexpr unsigned kTileRows = 256;

/// A tensor of 16-bit elements and the size of the tiles that are copied: what a tensor map says. A tile is 64 elements
/// of dimension 0 and `rows` of dimension 1.
struct TileMap {
  std::byte* base;
  std::int64_t sizes[4];    ///< elements; a row of dimension 0 is packed
  std::int64_t strides[3];  ///< bytes from one index of dimensions 1, 2 and 3 to the next
  unsigned rows;            ///< of a tile
};

/// Where a tile begins in the tensor, in elements of each dimension. It may lie outside. For loads
/// dimensions 0 and 1 may be negative, too.
using TileStart = std::array<std::int64_t, 4>;
/// A tile as shared memory has it: rows of 128 bytes, whose units of 16 bytes are permuted.
using TileBytes = std::byte[kTileRows * kTileRowBytes];

/// Adds a load that was issued. @param mark what the barrier's 8 bytes hold @param tile what will be in shared memory
void push_bulk_load(void* shared, const std::byte* tile, std::size_t bytes, const std::uint64_t* barrier,
                    std::uint64_t mark, std::source_location where);
/// Adds a store to those that this thread has not committed yet.
void push_bulk_store(const TileMap& map, const TileStart& start, const void* shared, std::source_location where);
/// Makes these a group of their own, even if there are none.
void commit_bulk_stores(std::source_location where);

/// A store whose thread waits until it has read shared memory.
struct BulkStoreSource {
  const void* shared;
  std::byte* tile;  ///< where the emulator keeps what was read
  std::size_t bytes;
  std::source_location where;  ///< of the store
};
/// The next store of this thread that still has to read shared memory, of all groups but the `pending` newest. Returns
/// false if there is none.
bool next_bulk_store(unsigned pending, BulkStoreSource& source, std::source_location where);
/// Keeps what shared memory holds now, as bulk copies see it (async_proxy.hpp).
void keep_bulk_store(const BulkStoreSource& source);
/// Writes what the stores of all groups but the `pending` newest have read.
void write_bulk_stores(unsigned pending, std::source_location where);

/// The part of a tile's row that lies within the tensor.
struct TileRow {
  std::byte* global;  ///< its first byte in device memory; nullptr if no part lies within
  std::size_t first;  ///< its first byte in the row
  std::size_t bytes;
};

/// Row `row` of a tile.
inline TileRow tile_row(const TileMap& map, const TileStart& start, unsigned row) {
  const std::int64_t index[] = {start[0], start[1] + row, start[2], start[3]};
  std::byte* global = map.base;
  for (int i = 1; i < 4; ++i) {
    if (index[i] < 0 || index[i] >= map.sizes[i]) return {nullptr, 0, 0};
    global += index[i] * map.strides[i - 1];
  }
  const std::int64_t first = std::max<std::int64_t>(start[0], 0);
  const std::int64_t last = std::min<std::int64_t>(start[0] + 64, map.sizes[0]);
  if (first >= last) return {nullptr, 0, 0};
  return {global + 2 * first, static_cast<std::size_t>(2 * (first - start[0])),
          static_cast<std::size_t>(2 * (last - first))};
}

/// Where unit `unit` of 16 bytes of row `row` lies in the tile: eight rows have each unit in eight different places.
inline std::size_t unit_offset(unsigned row, unsigned unit) {
  return row * kTileRowBytes + (unit ^ row % 8) * 16;
}

/// Reads a tile from the tensor. Elements outside of it are zeros.
inline void read_tile(const TileMap& map, const TileStart& start, TileBytes& tile, std::source_location where) {
  std::size_t read = 0;
  for (unsigned r = 0; r < map.rows; ++r) {
    std::byte row[kTileRowBytes] = {};
    const TileRow part = tile_row(map, start, r);
    if (part.global) {
      std::memcpy(row + part.first, part.global, part.bytes);
      note_read(part.global, part.bytes, where);
    }
    read += part.bytes;
    for (unsigned unit = 0; unit < 8; ++unit) std::memcpy(tile + unit_offset(r, unit), row + unit * 16, 16);
  }
  count_global_read(read);
}

/// Starts a load. Elements outside of the tensor become zeros, and count as bytes that have come.
inline void issue_bulk_load(const TileMap& map, const TileStart& start, void* shared, const std::uint64_t* barrier,
                            std::source_location where) {
  TileBytes tile;
  const std::size_t bytes = map.rows * kTileRowBytes;
  read_tile(map, start, tile, where);
  std::memset(shared, 0xFF, bytes);
  push_bulk_load(shared, tile, bytes, barrier, *barrier, where);
}

/// Starts a load that goes to the same offset in several blocks of the cluster, where the barrier at the same offset
/// counts its bytes. The tensor is read once. Ends the launch with a report where peer_address() does.
/// @param mask bit r stands for the block of rank r
inline void issue_bulk_multicast(const TileMap& map, const TileStart& start, void* shared, const std::uint64_t* barrier,
                                 unsigned mask, std::source_location where) {
  require(Feature::warpgroup_products, "cp.async.bulk with .multicast::cluster", where);
  TileBytes tile;
  const std::size_t bytes = map.rows * kTileRowBytes;
  read_tile(map, start, tile, where);
  for (unsigned rank = 0; mask >> rank != 0; ++rank) {
    if (!(mask >> rank & 1)) continue;
    void* there = peer_address(shared, rank, where);
    const std::uint64_t* counting = peer_address(barrier, rank, where);
    std::memset(there, 0xFF, bytes);
    push_bulk_load(there, tile, bytes, counting, *counting, where);
  }
}

/// Whether a sanitizer wants to see what a thread reads.
#if defined(EMULATOR_ASAN) || defined(EMULATOR_TSAN)
inline constexpr bool kReadsForSanitizers = true;
#else
inline constexpr bool kReadsForSanitizers = false;
#endif

/// Reads a tile that is aligned to 8 bytes, and forgets it. A store takes its data from the image of shared memory, and
/// that access would be the emulator's, not the thread's.
inline void read_for_sanitizers(const void* shared, std::size_t bytes) {
  if constexpr (!kReadsForSanitizers) return;
  const auto* words = static_cast<const volatile std::uint64_t*>(shared);
  for (std::size_t i = 0; i < bytes / 8; ++i) (void)words[i];
}

/// Starts a store. Elements outside of the tensor are not written. Ends the launch with a report if the tile begins
/// before the first element of dimension 0 or 1, which an H200 refuses as an illegal instruction.
inline void issue_bulk_store(const TileMap& map, const TileStart& start, const void* shared,
                             std::source_location where) {
  if (start[0] < 0 || start[1] < 0) {
    trap("illegal instruction: a bulk store, unlike a load, may not begin before the tensor's first column or position",
         where);
  }
  read_for_sanitizers(shared, map.rows * kTileRowBytes);
  note_proxy_read(shared, map.rows * kTileRowBytes, where);
  std::size_t written = 0;
  for (unsigned r = 0; r < map.rows; ++r) {
    const TileRow part = tile_row(map, start, r);
    if (part.global) {
      std::memset(part.global, 0xFF, part.bytes);
      note_write(part.global, part.bytes, where);
    }
    written += part.bytes;
  }
  count_global_write(written);
  push_bulk_store(map, start, shared, where);
}

/// Waits until all stores but those of the `pending` newest groups have read shared memory.
inline void read_bulk_stores(unsigned pending, std::source_location where) {
  BulkStoreSource source;
  while (next_bulk_store(pending, source, where)) {
    read_for_sanitizers(source.shared, source.bytes);
    note_proxy_read(source.shared, source.bytes, source.where);
    keep_bulk_store(source);
  }
}

}  // namespace emulator
