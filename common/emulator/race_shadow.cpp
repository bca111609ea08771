#include "race_shadow.hpp"

namespace emulator::races {

void Shadow::add(Cell& cell, const Reads& reads) {
  std::uint32_t number = unused_;
  if (number != 0) {
    unused_ = reads_[number].next;
  } else {
    number = static_cast<std::uint32_t>(reads_.size());
    reads_.emplace_back();
  }
  reads_[number] = reads;
  reads_[number].next = cell.reads;
  cell.reads = number;
}

void Shadow::remove_after(Cell& cell, std::uint32_t previous) {
  std::uint32_t& link = previous == 0 ? cell.reads : reads_[previous].next;
  const std::uint32_t number = link;
  link = reads_[number].next;
  reads_[number].next = unused_;
  unused_ = number;
}

void Shadow::clear_reads(Cell& cell) {
  while (cell.reads != 0) remove_after(cell, 0);
}

Shadow::Page& Shadow::find_page(std::uintptr_t number) {
  std::unique_ptr<Page>& page = pages_[number];
  if (!page) page = std::make_unique<Page>();
  return *page;
}

void Shadow::split(Page& page, std::size_t word) {
  if (!page.halves) {
    page.halves_memory = std::make_unique<std::array<Cell, kPageBytes / 2>>();
    page.halves = page.halves_memory->data();
  }
  page.is_split[word] = true;
  Cell& whole = page.words[word];
  Cell& low = page.halves[2 * word];
  Cell& high = page.halves[2 * word + 1];
  low.write = high.write = whole.write;
  for (std::uint32_t i = whole.reads; i != 0; i = reads_[i].next) {
    const Reads copy = reads_[i];
    add(low, copy);
    add(high, copy);
  }
  clear_reads(whole);
  whole.write = {};
}

void Shadow::forget(const void* address, std::size_t bytes) {
  visit(address, bytes, [this](Cell& cell, const void*) {
    clear_reads(cell);
    cell.write = {};
  });
}

}  // namespace emulator::races
