#include "warpgroups.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "cluster.hpp"
#include "hopper_counters.hpp"
#include "latencies.hpp"
#include "place.hpp"
#include "race_places.hpp"
#include "report.hpp"

namespace emulator {
namespace {

constexpr unsigned kWarps = 4;          // of a warpgroup
constexpr unsigned kRows = 16;          // of the sums, for each warp
constexpr unsigned kMostColumns = 128;  // of the sums
constexpr unsigned kGroupThreads = kWarps * kWarpSize;

using Rows = float[kRows][kMostColumns];

bool overlap(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
  const auto first_a = reinterpret_cast<std::uintptr_t>(a), first_b = reinterpret_cast<std::uintptr_t>(b);
  return first_a < first_b + b_bytes && first_b < first_a + a_bytes;
}

bool contains(const void* outer, std::size_t outer_bytes, const void* inner, std::size_t inner_bytes) {
  const auto first_outer = reinterpret_cast<std::uintptr_t>(outer),
             first_inner = reinterpret_cast<std::uintptr_t>(inner);
  return first_outer <= first_inner && first_inner + inner_bytes <= first_outer + outer_bytes;
}

bool is_same_call(const WgmmaCall& a, const WgmmaCall& b) {
  return a.kind == b.kind && a.pending == b.pending && a.product.n == b.product.n && a.product.a == b.product.a &&
         a.product.b == b.product.b && a.product.accumulate == b.product.accumulate &&
         !a.product.a_registers == !b.product.a_registers;
}

std::string name_of(const WgmmaCall& call) {
  switch (call.kind) {
    case WgmmaCall::Kind::fence:
      return "a fence";
    case WgmmaCall::Kind::commit:
      return "a commit";
    case WgmmaCall::Kind::wait:
      return "a wait";
    case WgmmaCall::Kind::product:
      break;
  }
  return "a product of width " + std::to_string(call.product.n);
}

float from_bf16(std::uint32_t bits) {
  return std::bit_cast<float>(bits << 16);
}

/// The first row of the warp's sums among those of its warpgroup.
unsigned first_row(unsigned warp) {
  return warp % kWarps * kRows;
}
/// values[k][mn - first]
template <std::size_t kColumns>
void load(const std::byte* image, const WgmmaFactor& factor, unsigned first, unsigned count,
          float (&values)[kWgmmaDepth][kColumns]) {
  using Unit = std::uint16_t[8];
  if (factor.is_mn_major) {
    factor.for_each_unit(first, count, [&](std::size_t place, unsigned mn, unsigned k) {
      Unit unit;
      std::memcpy(unit, image + place, sizeof unit);
      for (unsigned i = 0; i < 8; ++i) values[k][mn - first + i] = from_bf16(unit[i]);
    });
    return;
  }
  Unit units[kWgmmaDepth / 8][kColumns];
  factor.for_each_unit(first, count, [&](std::size_t place, unsigned mn, unsigned k) {
    std::memcpy(units[k / 8][mn - first], image + place, sizeof(Unit));
  });
  for (unsigned k = 0; k < kWgmmaDepth; ++k) {
    for (unsigned i = 0; i < count; ++i) values[k][i] = from_bf16(units[k / 8][i][k % 8]);
  }
}

/// Adds to eight columns of four rows at a time, which stay in registers: an array of them would be in memory.
void multiply(const float (&a)[kWgmmaDepth][kRows], const float (&b)[kWgmmaDepth][kMostColumns], Rows& sums,
              unsigned columns) {
  using Part = float __attribute__((vector_size(8 * sizeof(float))));
  const auto load = [](const float* from) {
    Part part;
    std::memcpy(&part, from, sizeof part);
    return part;
  };
  for (unsigned n = 0; n < columns; n += 8) {
    for (unsigned m = 0; m < kRows; m += 4) {
      float *to0 = &sums[m][n], *to1 = to0 + kMostColumns, *to2 = to1 + kMostColumns, *to3 = to2 + kMostColumns;
      Part sum0 = load(to0), sum1 = load(to1), sum2 = load(to2), sum3 = load(to3);
      for (unsigned k = 0; k < kWgmmaDepth; ++k) {
        const Part row = load(&b[k][n]);
        sum0 += a[k][m] * row;
        sum1 += a[k][m + 1] * row;
        sum2 += a[k][m + 2] * row;
        sum3 += a[k][m + 3] * row;
      }
      std::memcpy(to0, &sum0, sizeof sum0);
      std::memcpy(to1, &sum1, sizeof sum1);
      std::memcpy(to2, &sum2, sizeof sum2);
      std::memcpy(to3, &sum3, sizeof sum3);
    }
  }
}

/// What sums hold while a product is under way: a signalling NaN. An operation would hand a quiet one on as it is, so that
/// `sum *= 0.5f` before the wait would leave no trace; of this one it makes a quiet one.
constexpr std::uint32_t kPoisonedSum = 0xFFBFFFFFu;

}  // namespace

// --- sums and registers of a thread ---

bool WgmmaSums::is_untouched() const {
  if (is_shown) return std::memcmp(address, values.data(), bytes()) == 0;
  const auto is_poison = [](const float& sum) {
    std::uint32_t bits;
    std::memcpy(&bits, &sum, sizeof bits);  // as a number it might become quiet on the way
    return bits == kPoisonedSum;
  };
  return std::all_of(address, address + values.size(), is_poison);
}

void WgmmaSums::show() {
  std::memcpy(address, values.data(), bytes());
  is_shown = true;
}

void WgmmaSums::poison() {
  for (std::size_t i = 0; i < values.size(); ++i) std::memcpy(address + i, &kPoisonedSum, sizeof kPoisonedSum);
  is_shown = false;
}

WgmmaSums* ThreadProducts::find_sums(const float* address) {
  const auto found = std::ranges::find(sums, address, &WgmmaSums::address);
  return found == sums.end() ? nullptr : &*found;
}

bool ThreadProducts::is_fenced(const void* address, std::size_t bytes, bool& is_same) const {
  for (const FencedRegisters& registers : fenced) {
    if (!contains(registers.address, registers.bytes.size(), address, bytes)) continue;
    const auto* first = static_cast<const std::byte*>(address);
    is_same = std::memcmp(first, registers.bytes.data() + (first - registers.address), bytes) == 0;
    return true;
  }
  return false;
}

void ThreadProducts::fence(const RegisterRange& registers) {
  unfence(registers.address, registers.bytes);
  auto place = std::ranges::find(fenced, nullptr, &FencedRegisters::address);
  if (place == fenced.end()) place = fenced.emplace(place);
  const auto* first = static_cast<const std::byte*>(registers.address);
  place->address = first;
  place->bytes.assign(first, first + registers.bytes);
}

void ThreadProducts::unfence(const void* address, std::size_t bytes) {
  for (FencedRegisters& registers : fenced) {
    if (overlap(registers.address, registers.bytes.size(), address, bytes)) registers.address = nullptr;
  }
}

const char* ThreadProducts::find_fault(const WgmmaProduct& product) {
  const std::size_t bytes = product.n / 2 * sizeof(float);
  bool is_same = true;
  if (const WgmmaSums* known = find_sums(product.sums); known && known->bytes() == bytes) {
    if (!known->is_untouched())
      return "the sums of this product were written while another product of them was under way";
  } else if (std::ranges::any_of(sums, [&](const WgmmaSums& other) {
               return overlap(other.address, other.bytes(), product.sums, bytes);
             })) {
    return "the sums of this product overlap those of another width that is under way";
  } else if (!is_fenced(product.sums, bytes, is_same)) {
    return "no wgmma_fence() has named the sums of this product since the last wait for them";
  } else if (!is_same) {
    return "the sums of this product were written after the wgmma_fence() that names them";
  }
  if (!product.a_registers) return nullptr;
  if (!is_fenced(product.a_registers, 4 * sizeof(std::uint32_t), is_same)) {
    return "no wgmma_fence() has named the registers of A of this product";
  }
  return is_same ? nullptr : "the registers of A of this product were written after the wgmma_fence() that names them";
}

void ThreadProducts::begin(const WgmmaProduct& product) {
  WgmmaSums* mine = find_sums(product.sums);
  if (!mine) {
    mine = find_sums(nullptr);
    if (!mine) mine = &sums.emplace_back();
    mine->address = product.sums;
    mine->values.assign(product.sums, product.sums + product.n / 2);
  }
  ++mine->products;
  mine->poison();
}

void ThreadProducts::reset() {
  call = nullptr;
  fenced.clear();
  sums.clear();
}

void WarpProducts::reset() {
  under_way.clear();
  groups = 0;
  clocks.reset();
  lines.clear();
  last_end = 0;
}

// --- calls of a warpgroup ---

const WarpgroupCalls::Made* WarpgroupCalls::add(unsigned warp, const WgmmaCall& call, std::source_location where) {
  const std::uint64_t number = count_[warp]++ - forgotten_;
  if (number == made_.size()) made_.push_back({call, where});
  const Made& made = made_[number];
  if (!is_same_call(call, made.call) || !is_same_place(where, made.where)) return &made;
  if (number == 0 && std::ranges::all_of(count_, [&](std::uint64_t count) { return count > forgotten_; })) {
    made_.pop_front();
    ++forgotten_;
  }
  return nullptr;
}

const WarpgroupCalls::Made* WarpgroupCalls::find_missing(unsigned& warp) const {
  if (made_.empty()) return nullptr;
  warp = static_cast<unsigned>(std::ranges::find(count_, forgotten_) - count_.begin());
  return &made_.front();
}

// --- what a warp does once all of its lanes have come ---

void Warpgroups::reset() {
  warps_.resize(block_.warp_count());
  for (WarpProducts& products : warps_) products.reset();
  groups_.assign((warps_.size() + kWarps - 1) / kWarps, {});
}

KernelThread* Warpgroups::lanes_of(unsigned warp) const {
  return &block_.threads()[warp * kWarpSize];
}

void Warpgroups::call(const WgmmaCall& call, std::source_location where) {
  const unsigned warp = block_.thread().number / kWarpSize;
  if ((warp / kWarps + 1) * kGroupThreads > block_.threads().size()) {
    block_.trap("a product is for four whole warps, and the first one's number is a multiple of 4", where);
  }
  WarpProducts& products = warps_[warp];
  block_.thread().products.call = &call;
  const bool is_wait = call.kind == WgmmaCall::Kind::wait;
  if (is_wait && block_.thread().number % kWarpSize == 0)
    products.reads.release();  // this lane has read for all of them
  block_.warps().exchange(~0u, nullptr, 0, nullptr, where);
  if (is_wait) products.reads.acquire();
  if (!block_.thread().products.call) return;  // another lane has done it

  make_call(warp, call, where);
  if (block_.cluster().has_failed()) block_.pause();  // next() picks no thread any more
}

// Not inlined, as with Warps::finish().
[[gnu::noinline]] void Warpgroups::make_call(unsigned warp, const WgmmaCall& call, std::source_location where) {
  const sanitizer::Unwatched unwatched;
  WarpProducts& products = warps_[warp];
  KernelThread* lanes = lanes_of(warp);
  for (unsigned lane = 0; lane < kWarpSize; ++lane) {
    if (is_same_call(*lanes[lane].products.call, call)) continue;
    return block_.fail("the lanes of a warp call wgmma with different factors or numbers", where, lanes[lane]);
  }
  if (const auto* other = groups_[warp / kWarps].add(warp % kWarps, call, where)) {
    const std::string text = "the warps of a warpgroup differ: " + name_of(other->call) + " at " +
                             describe(other->where) + ", and " + name_of(call) +
                             (call.kind == other->call.kind ? " with other factors, numbers or line" : "");
    return block_.fail(text.c_str(), where, block_.thread());
  }
  switch (call.kind) {
    case WgmmaCall::Kind::fence:
      for (unsigned lane = 0; lane < kWarpSize; ++lane) {
        for (const RegisterRange& registers : lanes[lane].products.call->registers) {
          if (registers.bytes > 0) lanes[lane].products.fence(registers);
        }
      }
      break;
    case WgmmaCall::Kind::product:
      ++product_count;
      issue(warp, where);
      break;
    case WgmmaCall::Kind::commit:
      ++products.groups;
      break;
    case WgmmaCall::Kind::wait:
      wait(warp, call.pending, where);
      break;
  }
  if (Recorder* recorder = Recorder::active()) note(*recorder, warp, call, where);
  for (unsigned lane = 0; lane < kWarpSize; ++lane) lanes[lane].products.call = nullptr;
}

void Warpgroups::note(Recorder& recorder, unsigned warp, const WgmmaCall& call, std::source_location where) {
  using Kind = Recorder::Kind;
  WarpProducts& products = warps_[warp];
  KernelThread& first = lanes_of(warp)[0];
  // They have just met, which a call of products does not take.
  first.clock -= latencies::kCollective;
  const std::int64_t begin = first.clock;
  switch (call.kind) {
    case WgmmaCall::Kind::fence:
      recorder.note(first, Kind::fence_products, where, begin);
      break;
    case WgmmaCall::Kind::product: {
      const std::int64_t start = std::max(begin, products.last_end);
      products.last_end =
          start + latencies::product(call.product.n) + (call.product.a_registers ? latencies::kRegisterFactor : 0);
      products.clocks.add(products.last_end);
      if (products.lines.empty() || !is_same_place(products.lines.back().where, where)) {
        products.lines.push_back({where, start, products.last_end});
      }
      products.lines.back().end = products.last_end;
      first.clock += latencies::kStep;
      break;
    }
    case WgmmaCall::Kind::commit:
      products.clocks.commit();
      for (const WarpProducts::Line& line : products.lines) {
        recorder.note_until(first, Kind::product, line.where, line.begin, line.end, {});
      }
      products.lines.clear();
      recorder.note(first, Kind::commit_products, where, begin);
      break;
    case WgmmaCall::Kind::wait:
      first.clock = std::max(first.clock, products.clocks.end_of_all_but(call.pending));
      recorder.note(first, Kind::wait_products, where, begin, {.value = call.pending});
      break;
  }
  for (unsigned lane = 1; lane < kWarpSize; ++lane) lanes_of(warp)[lane].clock = first.clock;
}

void Warpgroups::issue(unsigned warp, std::source_location where) {
  WarpProducts& products = warps_[warp];
  KernelThread* lanes = lanes_of(warp);
  ProductUnderWay issued{.product = block_.thread().products.call->product, .where = where, .group = products.groups};
  if (!has_its_factors(issued.product)) {
    return block_.fail("a factor of this product reaches beyond the block's dynamic shared memory", where,
                       block_.thread());
  }
  for (unsigned lane = 0; lane < kWarpSize; ++lane) {
    ThreadProducts& thread = lanes[lane].products;
    const WgmmaProduct& product = thread.call->product;
    if (const char* fault = thread.find_fault(product)) return block_.fail(fault, where, lanes[lane]);
    thread.begin(product);
    issued.sums[lane] = product.sums;
    issued.a_registers[lane] = product.a_registers;
    if (product.a_registers) std::copy_n(product.a_registers, 4, issued.a[lane].begin());
  }
  note_reads(warp, issued);
  products.under_way.push_back(issued);
  if (!block_.cluster().loads().next_is_early()) return;
  for (ProductUnderWay& product : products.under_way) multiply_warp(warp, product);  // they happen in order
  for (unsigned lane = 0; lane < kWarpSize; ++lane) {
    for (WgmmaSums& sums : lanes[lane].products.sums) {
      if (sums.address) sums.show();
    }
  }
}

bool Warpgroups::has_its_factors(const WgmmaProduct& product) const {
  bool result = true;
  const auto check = [&](std::size_t place, unsigned, unsigned) {
    result = result && place + 16 <= block_.dynamic_shared().bytes();
  };
  if (!product.a_registers) product.a.for_each_unit(0, kWarps * kRows, check);
  product.b.for_each_unit(0, product.n, check);
  return result;
}

void Warpgroups::note_reads(unsigned warp, const ProductUnderWay& under_way) const {
  races::Detector* detector = races::active();
  if (!detector) return;
  const WgmmaProduct& product = under_way.product;
  const auto* shared = static_cast<const std::byte*>(block_.dynamic_shared().data());
  const races::Place place = races::place_of(under_way.where);
  const auto note = [&](std::size_t at, unsigned, unsigned) {
    detector->proxy_read(*lanes_of(warp), shared + at, 16, place);
  };
  if (!product.a_registers) product.a.for_each_unit(first_row(warp), kRows, note);
  product.b.for_each_unit(0, product.n, note);
}

void Warpgroups::multiply_warp(unsigned warp, ProductUnderWay& under_way) {
  if (under_way.is_done) return;
  under_way.is_done = true;
  const WgmmaProduct& product = under_way.product;
  KernelThread* lanes = lanes_of(warp);
  DynamicSharedMemory& memory = block_.dynamic_shared();
  const std::byte* image = block_.async_proxy().image(memory.data(), memory.bytes());

  float a[kWgmmaDepth][kRows];
  if (!product.a_registers) {
    load(image, product.a, first_row(warp), kRows, a);
  } else {
    for (unsigned lane = 0; lane < kWarpSize; ++lane) {
      for (unsigned i = 0; i < 4; ++i) {
        const unsigned m = lane / 4 + i % 2 * 8, k = lane % 4 * 2 + i / 2 * 8;
        a[k][m] = from_bf16(under_way.a[lane][i] & 0xFFFF);
        a[k + 1][m] = from_bf16(under_way.a[lane][i] >> 16);
      }
    }
  }
  float b[kWgmmaDepth][kMostColumns];
  load(image, product.b, 0, product.n, b);

  // A lane's sums lie in pairs beside each other: two of its upper row, then two of the row eight below it. The next four
  // lie eight columns further.
  Rows sums;
  const auto for_each_pair = [&](auto visit) {
    for (unsigned lane = 0; lane < kWarpSize; ++lane) {
      float* mine = lanes[lane].products.find_sums(under_way.sums[lane])->values.data();
      float *upper = &sums[lane / 4][lane % 4 * 2], *lower = upper + 8 * kMostColumns;
      for (unsigned column = 0; column < product.n; column += 8, mine += 4) {
        visit(upper + column, mine);
        visit(lower + column, mine + 2);
      }
    }
  };
  constexpr std::size_t kPairBytes = 2 * sizeof(float);
  if (product.accumulate) {
    for_each_pair([](float* pair, const float* mine) { std::memcpy(pair, mine, kPairBytes); });
  } else {
    for (auto& row : sums) std::fill_n(row, product.n, 0.0f);
  }
  multiply(a, b, sums, product.n);
  for_each_pair([](const float* pair, float* mine) { std::memcpy(mine, pair, kPairBytes); });
}

void Warpgroups::wait(unsigned warp, unsigned pending, std::source_location where) {
  WarpProducts& products = warps_[warp];
  KernelThread* lanes = lanes_of(warp);
  while (!products.under_way.empty() && products.is_awaited(products.under_way.front(), pending)) {
    ProductUnderWay& product = products.under_way.front();
    note_reads(warp, product);
    multiply_warp(warp, product);
    for (unsigned lane = 0; lane < kWarpSize; ++lane) {
      ThreadProducts& thread = lanes[lane].products;
      if (product.a_registers[lane] &&
          !std::equal(product.a[lane].begin(), product.a[lane].end(), product.a_registers[lane])) {
        return block_.fail("the registers of A of this product were written before the wait for it", product.where,
                           lanes[lane]);
      }
      WgmmaSums& sums = *thread.find_sums(product.sums[lane]);
      if (--sums.products > 0) continue;
      if (!sums.is_untouched()) {
        return block_.fail("the sums of this product were written before the wait for it", product.where, lanes[lane]);
      }
      const bool is_named = std::ranges::any_of(thread.call->registers, [&](const RegisterRange& registers) {
        return contains(registers.address, registers.bytes, sums.address, sums.bytes());
      });
      if (!is_named) {
        const std::string text = "the compiler may read the sums of the product at " + describe(product.where) +
                                 " too early: the wait for it does not name them,";
        return block_.fail(text.c_str(), where, lanes[lane]);
      }
      sums.show();
      thread.unfence(sums.address, sums.bytes());
      sums.address = nullptr;
    }
    products.under_way.pop_front();
  }
}

void Warpgroups::check_at_end() {
  for (unsigned group = 0; group < groups_.size(); ++group) {
    unsigned warp = 0;
    const auto* missing = groups_[group].find_missing(warp);
    if (!missing) continue;
    warp += group * kWarps;
    const std::string text = "the block has ended, but warp " + std::to_string(warp) + " has not come to " +
                             name_of(missing->call) + " of its warpgroup";
    return block_.fail(text.c_str(), missing->where, *lanes_of(warp));
  }
  for (unsigned warp = 0; warp < warps_.size(); ++warp) {
    const WarpProducts& products = warps_[warp];
    if (products.under_way.empty()) continue;
    const ProductUnderWay& first = products.under_way.front();
    block_.fail(first.group < products.groups ? "the block has ended, but nobody has waited for this product"
                                              : "the block has ended, but no wgmma_commit() has followed this product",
                first.where, *lanes_of(warp));
  }
}

bool Warpgroups::find_awaited(unsigned i, unsigned pending, WgmmaProduct& product) const {
  const WarpProducts& products = warps_[block_.thread().number / kWarpSize];
  if (i >= products.under_way.size() || !products.is_awaited(products.under_way[i], pending)) return false;
  product = products.under_way[i].product;
  return true;
}

bool awaited_wgmma(unsigned i, unsigned pending, WgmmaProduct& product, std::source_location where) {
  const sanitizer::Unwatched unwatched;
  Block& block = *Block::current();
  if (block.is_weaker(where)) ++pending;
  return !block.skips(where) && block.warpgroups().find_awaited(i, pending, product);
}

unsigned first_wgmma_row() {
  return first_row(Block::current()->thread().number / kWarpSize);
}

[[gnu::flatten]] void meet_at_wgmma(const WgmmaCall& call, std::source_location where) {
  Block& block = *Block::current();
  block.require(Feature::warpgroup_products, "wgmma", where);
  if (block.skips(where)) return;
  WgmmaCall asked = call;
  if (call.kind == WgmmaCall::Kind::wait && block.is_weaker(where)) ++asked.pending;
  block.warpgroups().call(asked, where);
}

}  // namespace emulator
