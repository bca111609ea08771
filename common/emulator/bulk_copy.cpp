#include "emulator/bulk_copy.hpp"

#include <cstring>
#include <string>
#include <utility>

#include "bulk_copies.hpp"
#include "cluster.hpp"
#include "emulator/push_shared.hpp"
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
    if (store.is_early) continue;
    source = {store.shared, store.tile.data(), store.tile.size()};
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

void BulkStores::clear() {
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
                  .is_early = block.next_copy_is_early(),
                  .where = where};
  block.read_async_image(shared, store.tile.data(), store.tile.size());
  if (store.is_early) store.write();
  block.bulk_stores().push(std::move(store));
}

void commit_bulk_stores(std::source_location where) {
  Block& block = *Block::current();
  if (!block.skips(where)) block.bulk_stores().commit();
}

bool next_bulk_store(unsigned pending, BulkStoreSource& source, std::source_location where) {
  Block& block = *Block::current();
  return !block.skips(where) && block.bulk_stores().next_unread(pending, source);
}

void keep_bulk_store(const BulkStoreSource& source) {
  const sanitizer::Unwatched unwatched;
  Block::current()->read_async_image(source.shared, source.tile, source.bytes);
}

void write_bulk_stores(unsigned pending, std::source_location where) {
  const sanitizer::Unwatched unwatched;
  Block& block = *Block::current();
  if (!block.skips(where)) block.bulk_stores().write(pending);
}

// --- loads ---

void push_bulk_load(void* shared, const std::byte* tile, std::size_t bytes, const std::uint64_t* barrier,
                    std::uint64_t mark, std::source_location where) {
  Block& block = *Block::current();
  MBarrier& counting = block.usable_mbarrier(barrier, mark, where);
  block.check_reads_before(counting, shared, bytes, where);
  const sanitizer::Unwatched unwatched;
  block.issue_load({.shared = shared,
                    .tile = {tile, tile + bytes},
                    .barrier = &counting,
                    .phase = counting.phase,
                    .thread = &block.thread(),
                    .where = where});
}

void push_shared_copy(void* there, const void* source, std::size_t bytes, const std::uint64_t* barrier,
                      std::uint64_t mark, std::source_location where) {
  Block& block = *Block::current();
  MBarrier& counting = block.usable_mbarrier(barrier, mark, where);
  if (!block.is_fenced(source, bytes)) {
    block.trap("a push would miss what threads have stored: no store_for_copies() or no fence_async_proxy()", where);
  }
  block.check_reads_before(counting, there, bytes, where);
  const sanitizer::Unwatched unwatched;
  block.issue_load({.shared = there,
                    .tile = std::vector<std::byte>(bytes),
                    .source = source,
                    .source_block = &block,
                    .barrier = &counting,
                    .phase = counting.phase,
                    .thread = &block.thread(),
                    .where = where});
}

std::uint64_t Cluster::next_async_random() {
  return next_random(async_random_);
}

bool Block::next_copy_is_early() {
  switch (launch_.async_order.when) {
    case AsyncOrder::When::late:
      return false;
    case AsyncOrder::When::early:
      return true;
    case AsyncOrder::When::random:
      break;
  }
  return cluster_.next_async_random() % 2 == 0;
}

void Block::check_reads_before(const MBarrier& barrier, const void* address, std::size_t bytes,
                               std::source_location where) {
  const SharedRead* read = barrier.block->unfenced_read(address, bytes, *running_);
  if (!read) return;
  {
    const sanitizer::Unwatched unwatched;
    const std::string what = "a copy may overwrite this tile before thread " + describe(read->reader->index) +
                             " has read it at " + describe(read->where) +
                             ": neither that thread nor this one has called fence_async_proxy() since";
    fail(what.c_str(), where, *running_);
  }
  pause();  // next() picks no thread any more
}

void Block::issue_load(BulkLoad load) {
  MBarrier& barrier = *load.barrier;
  barrier.points[barrier.parity()].release();  // the poison comes before what those that wait will read
  const sanitizer::Unwatched unwatched;
  const std::vector<std::byte> poison(load.tile.size(), static_cast<std::byte>(kPoison));
  barrier.block->write_async_image(load.shared, poison.data(), poison.size());
  if (next_copy_is_early()) {
    barrier.block->finish_load(load);
  } else {
    cluster_.bulk_loads().push_back(std::move(load));
  }
}

void Block::finish_load(BulkLoad& load) {
  MBarrier& barrier = *load.barrier;
  load.is_finished = true;
  if (load.source) {
    load.source_block->read_async_image(load.source, load.tile.data(), load.tile.size());
    if (load.source_block != this) barrier.is_from_cluster[barrier.parity()] = true;
  }
  std::memcpy(load.shared, load.tile.data(), load.tile.size());
  write_async_image(load.shared, load.tile.data(), load.tile.size());
  barrier.bytes_left -= static_cast<std::int64_t>(load.tile.size());
  if (barrier.arrivals_left == 0 && barrier.bytes_left < 0) {
    fail("this phase of the barrier expects fewer bytes than its copies bring: this copy comes on top", load.where,
         *load.thread);
    return;
  }
  end_phase_if_complete(barrier);
}

bool Block::is_awaited(const BulkLoad& load) const {
  if (load.barrier->arrivals_left > 0) return false;
  for (const KernelThread& thread : threads_) {
    if (thread.state == KernelThread::State::at_mbarrier && thread.mbarrier == load.barrier) return true;
  }
  return false;
}

void Cluster::finish_awaited_loads() {
  const sanitizer::Unwatched unwatched;
  const std::size_t count = bulk_loads_.size();
  const unsigned ready = ready_.size();
  // Loads may finish in any order.
  const std::size_t first = launch_.async_order.when == AsyncOrder::When::random && count > 0
                                ? static_cast<std::size_t>(next_async_random() % count)
                                : 0;
  for (std::size_t i = 0; i < count && ready_.size() == ready && failure_.empty(); ++i) {
    BulkLoad& load = bulk_loads_[(first + i) % count];
    Block& block = *load.barrier->block;
    if (load.is_finished || !block.is_awaited(load)) continue;
    block.finish_load(load);
  }
  std::erase_if(bulk_loads_, [](const BulkLoad& load) { return load.is_finished; });
}

void Cluster::check_copies_at_end() {
  if (!bulk_loads_.empty()) {
    const BulkLoad& load = bulk_loads_.front();
    load.barrier->block->fail("the block has ended, but nobody has waited for a bulk load into its shared memory",
                              load.where, *load.thread);
  }
  for (const auto& block : blocks_) {
    if (const MBarrier* barrier = block->mbarriers().find_overfull()) {
      block->fail("the phases of this barrier expect fewer bytes than its copies have brought", barrier->where,
                  block->threads_[barrier->creator]);
    }
  }
}

void Block::finish_stores() {
  const sanitizer::Unwatched unwatched;
  if (const BulkStore* store = running_->bulk_stores.finish()) {
    fail("the thread has ended, but has not waited until its bulk store has read shared memory", store->where,
         *running_);
  }
}

}  // namespace emulator
