#include "emulator/bulk_copy.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "bulk_copies.hpp"
#include "cluster.hpp"
#include "emulator/push_shared.hpp"
#include "latencies.hpp"
#include "race_places.hpp"
#include "random.hpp"
#include "report.hpp"
#include "sanitizer.hpp"

namespace emulator {

// --- stores ---

void BulkStore::write() {
  if (is_written) return;
  is_written = true;
  for (unsigned r = 0; r < map.rows; ++r) {
    const TileRow part = tile_row(map, start, r);
    if (!part.global) continue;
    std::byte row[kTileRowBytes];
    for (unsigned unit = 0; unit < 8; ++unit) std::memcpy(row + unit * 16, tile.data() + unit_offset(r, unit), 16);
    std::memcpy(part.global, row + part.first, part.bytes);
    note_write(part.global, part.bytes, where);
  }
}

void BulkStores::push(BulkStore store) {
  store.group = groups_;
  stores_.push_back(std::move(store));
}

bool BulkStores::next_unread(unsigned pending, BulkStoreSource& source) {
  for (BulkStore& store : stores_) {
    if (store.is_waited_for || !belongs_to_older(store, pending)) continue;
    store.is_waited_for = true;
    if (races::Detector* detector = races::active()) detector->end_store(store.shared, store.tile.size());
    if (store.is_early) continue;
    source = {store.shared, store.tile.data(), store.tile.size(), store.where};
    return true;
  }
  return false;
}

void BulkStores::write(unsigned pending) {
  for (BulkStore& store : stores_) {
    if (belongs_to_older(store, pending)) store.write();
  }
  std::erase_if(stores_, [](const BulkStore& store) { return store.is_waited_for && store.is_written; });
}

const BulkStore* BulkStores::finish() {
  for (BulkStore& store : stores_) {
    if (!store.is_waited_for) return &store;
    store.write();
  }
  return nullptr;
}

void BulkStores::reset() {
  stores_.clear();
  groups_ = 0;
}

void push_bulk_store(const TileMap& map, const TileStart& start, const void* shared, std::source_location where) {
  Block& block = *Block::current();
  block.require(Feature::bulk_copies, "cp.async.bulk", where);
  const sanitizer::Unwatched unwatched;
  BulkStore store{.map = map,
                  .start = start,
                  .shared = shared,
                  .tile = std::vector<std::byte>(map.rows * kTileRowBytes),
                  .group = 0,
                  .is_early = block.cluster().loads().next_is_early(),
                  .where = where};
  block.async_proxy().read(shared, store.tile.data(), store.tile.size());
  if (races::Detector* detector = races::active()) {
    detector->begin_store(shared, store.tile.size(), races::place_of(where));
  }
  if (store.is_early) store.write();
  if (Recorder* recorder = Recorder::active()) {
    KernelThread& thread = block.thread();
    const std::int64_t begin = thread.clock;
    thread.store_clocks.add(thread.clock + latencies::kStoreRead);
    thread.clock += latencies::kStep;
    recorder->note_until(thread, Recorder::Kind::store, where, begin, begin + latencies::kStore,
                         {.value = static_cast<std::int64_t>(store.tile.size())});
  }
  block.thread().bulk_stores.push(std::move(store));
}

void commit_bulk_stores(std::source_location where) {
  Block& block = *Block::current();
  if (block.skips(where)) return;
  KernelThread& thread = block.thread();
  thread.bulk_stores.commit();
  if (Recorder* recorder = Recorder::active()) {
    thread.store_clocks.commit();
    recorder->note(thread, Recorder::Kind::commit_stores, where, thread.clock);
  }
}

bool next_bulk_store(unsigned pending, BulkStoreSource& source, std::source_location where) {
  Block& block = *Block::current();
  if (block.skips(where)) return false;
  if (block.is_weaker(where)) ++pending;
  KernelThread& thread = block.thread();
  if (thread.bulk_stores.next_unread(pending, source)) return true;
  if (Recorder* recorder = Recorder::active()) {  // the wait is over
    const std::int64_t begin = thread.clock;
    thread.clock = std::max(thread.clock, thread.store_clocks.end_of_all_but(pending));
    recorder->note(thread, Recorder::Kind::wait_stores, where, begin, {.value = pending});
  }
  return false;
}

void keep_bulk_store(const BulkStoreSource& source) {
  const sanitizer::Unwatched unwatched;
  Block::current()->async_proxy().read(source.shared, source.tile, source.bytes);
}

void write_bulk_stores(unsigned pending, std::source_location where) {
  const sanitizer::Unwatched unwatched;
  Block& block = *Block::current();
  if (block.skips(where)) return;
  if (block.is_weaker(where)) ++pending;
  KernelThread& thread = block.thread();
  thread.bulk_stores.write(pending);
  if (Recorder* recorder = Recorder::active()) {
    const std::int64_t begin = thread.clock;
    const std::int64_t read = thread.store_clocks.end_of_all_but(pending);
    if (read > 0) thread.clock = std::max(thread.clock, read - latencies::kStoreRead + latencies::kStore);
    recorder->note(thread, Recorder::Kind::wait_stores, where, begin, {.value = pending});
  }
}

// --- loads ---

namespace {

/// Ends the launch with a report if a copy that is issued now may be faster than a thread's read.
/// @param barrier of the block to which the copy goes
void check_reads_before(Block& block, const MBarrier& barrier, const void* address, std::size_t bytes,
                        std::source_location where) {
  const SharedRead* read = barrier.block->async_proxy().unfenced_read(address, bytes, block.thread());
  if (!read) return;
  {
    const sanitizer::Unwatched unwatched;
    const std::string what = "a copy may overwrite this tile before thread " + describe(read->reader->index) +
                             " has read it at " + describe(read->where) +
                             ": neither that thread nor this one has called fence_async_proxy() since";
    block.fail(what.c_str(), where, block.thread());
  }
  block.pause();  // next() picks no thread any more
}

}  // namespace

void push_bulk_load(void* shared, const std::byte* tile, std::size_t bytes, const std::uint64_t* barrier,
                    std::uint64_t mark, std::source_location where) {
  Block& block = *Block::current();
  MBarrier& counting = block.mbarriers().usable(barrier, mark, where);
  check_reads_before(block, counting, shared, bytes, where);
  const sanitizer::Unwatched unwatched;
  block.cluster().loads().issue({.shared = shared,
                                 .tile = {tile, tile + bytes},
                                 .barrier = &counting,
                                 .phase = counting.phase,
                                 .thread = &block.thread(),
                                 .where = where});
}

void push_shared_copy(void* there, const void* source, std::size_t bytes, const std::uint64_t* barrier,
                      std::uint64_t mark, std::source_location where) {
  Block& block = *Block::current();
  MBarrier& counting = block.mbarriers().usable(barrier, mark, where);
  if (!block.async_proxy().is_fenced(source, bytes)) {
    block.trap("a push would miss what threads have stored: no store_for_copies() or no fence_async_proxy()", where);
  }
  check_reads_before(block, counting, there, bytes, where);
  const sanitizer::Unwatched unwatched;
  block.cluster().loads().issue({.shared = there,
                                 .tile = std::vector<std::byte>(bytes),
                                 .source = source,
                                 .source_block = &block,
                                 .barrier = &counting,
                                 .phase = counting.phase,
                                 .thread = &block.thread(),
                                 .where = where});
}

void BulkLoads::reset(std::uint64_t number) {
  loads_.clear();
  random_ = scramble(cluster_.launch().async_order.seed) ^ scramble(~number);
}

bool BulkLoads::next_is_early() {
  switch (cluster_.launch().async_order.when) {
    case AsyncOrder::When::late:
      return false;
    case AsyncOrder::When::early:
      return true;
    case AsyncOrder::When::random:
      break;
  }
  return next_random(random_) % 2 == 0;
}

const BulkLoad* BulkLoads::find(const MBarrier& barrier) const {
  for (const BulkLoad& load : loads_) {
    if (load.barrier == &barrier && load.phase == barrier.phase && !load.is_finished) return &load;
  }
  return nullptr;
}

void BulkLoads::issue(BulkLoad load) {
  MBarrier& barrier = *load.barrier;
  barrier.points[barrier.parity()].release(load.where);  // the poison comes before what those that wait will read
  if (races::Detector* detector = races::active()) {
    const races::Place place = races::place_of(load.where);
    detector->bulk_write(load.shared, load.tile.size(), place, barrier.number, load.phase);
    if (load.source) detector->bulk_read(load.source, load.tile.size(), place, barrier.number, load.phase);
  }
  const sanitizer::Unwatched unwatched;
  const std::vector<std::byte> poison(load.tile.size(), static_cast<std::byte>(kPoison));
  barrier.block->async_proxy().write(load.shared, poison.data(), poison.size());
  if (Recorder* recorder = Recorder::active()) {
    const bool is_push = load.source != nullptr;
    const std::int64_t begin = load.thread->clock;
    load.thread->clock += latencies::kStep;
    load.arrival = recorder->arrival_of_load(*load.thread, load.tile.size(), is_push);
    recorder->note_until(*load.thread, is_push ? Recorder::Kind::push : Recorder::Kind::load, load.where, begin,
                         load.arrival,
                         {.object = barrier.address,
                          .phase = static_cast<std::int64_t>(load.phase),
                          .value = static_cast<std::int64_t>(load.tile.size()),
                          .of = barrier.block});
  }
  if (next_is_early()) {
    finish(load);
  } else {
    loads_.push_back(std::move(load));
  }
}

void BulkLoads::finish(BulkLoad& load) {
  MBarrier& barrier = *load.barrier;
  Block& block = *barrier.block;
  load.is_finished = true;
  std::int64_t& last = barrier.clocks[barrier.parity()];
  last = std::max(last, load.arrival);
  if (load.source) {
    load.source_block->async_proxy().read(load.source, load.tile.data(), load.tile.size());
    if (load.source_block != &block) barrier.is_from_cluster[barrier.parity()] = true;
  }
  std::memcpy(load.shared, load.tile.data(), load.tile.size());
  block.async_proxy().write(load.shared, load.tile.data(), load.tile.size());
  barrier.bytes_left -= static_cast<std::int64_t>(load.tile.size());
  if (barrier.arrivals_left == 0 && barrier.bytes_left < 0) {
    block.fail("this phase of the barrier expects fewer bytes than its copies bring: this copy comes on top",
               load.where, *load.thread);
    return;
  }
  block.mbarriers().end_phase_if_complete(barrier);
}

bool BulkLoads::is_awaited(const BulkLoad& load) {
  if (load.barrier->arrivals_left > 0) return false;
  for (const KernelThread& thread : load.barrier->block->threads()) {
    if (thread.on == load.barrier) return true;
  }
  return false;
}

void BulkLoads::finish_awaited() {
  const sanitizer::Unwatched unwatched;
  const std::size_t count = loads_.size();
  const unsigned ready = cluster_.ready_count();
  // Loads may finish in any order.
  const bool is_random = cluster_.launch().async_order.when == AsyncOrder::When::random && count > 0;
  const std::size_t first = is_random ? static_cast<std::size_t>(next_random(random_) % count) : 0;
  for (std::size_t i = 0; i < count && cluster_.ready_count() == ready && !cluster_.has_failed(); ++i) {
    BulkLoad& load = loads_[(first + i) % count];
    if (!load.is_finished && is_awaited(load)) finish(load);
  }
  std::erase_if(loads_, [](const BulkLoad& load) { return load.is_finished; });
}

void BulkLoads::check_at_end() {
  if (loads_.empty()) return;
  const BulkLoad& load = loads_.front();
  load.barrier->block->fail("the block has ended, but nobody has waited for a bulk load into its shared memory",
                            load.where, *load.thread);
}

void BulkLoads::check_at_end_of(const Block& block) {
  for (const BulkLoad& load : loads_) {
    if (load.source_block != &block) continue;
    load.source_block->fail("the block has ended, but nothing has told it that this copy has read its shared memory",
                            load.where, *load.thread);
  }
}

}  // namespace emulator
