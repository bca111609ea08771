/// @file
/// The host's side of a trace on a GPU: it hands out the buffer, and turns what kernels have stored into events.

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/device/buffer.hpp"
#include "common/device/error.hpp"
#include "common/device/stream.hpp"
#include "common/device/trace.hpp"
#include "common/device/trace_target.hpp"

namespace tutorial::trace {
namespace {

/// An event as it was stored, and the number of the part of the buffer where it was.
struct Stored {
  uint4 words;
  unsigned part;
};

constexpr unsigned kMost = 1u << 22;  // events

/// Copies what is there of a buffer that is almost empty.
__global__ void collect(const uint4* slots, std::size_t count, Stored* events, unsigned* found) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const uint4 words = slots[i];
    if (words.y == 0) continue;  // each place has a line
    const unsigned number = atomicAdd(found, 1);
    if (number < kMost) events[number] = {words, unsigned(i >> kLogSlots)};
  }
}

/// The GPU counts launches: the number of this one.
__global__ void tell_number(unsigned* out) {
  unsigned long long grid;
  asm("mov.u64 %0, %%gridid;" : "=l"(grid));
  *out = unsigned(grid);
}

/// Reads the clock and the timer now, and again after some 300 us.
__global__ void compare_clocks(std::uint64_t* out) {
  const auto read = [&](int i) {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(out[2 * i]));
    out[2 * i + 1] = std::uint64_t(clock64());
  };
  read(0);
  std::uint64_t now = out[0];
  while (now < out[0] + 300000) asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  read(1);
}

std::vector<cudaError_t (*)(const Target&)>& setters() {
  static std::vector<cudaError_t (*)(const Target&)> all;
  return all;
}

struct State {
  DeviceBuffer<uint4> slots;
  Target target{};
  unsigned number = 0;          ///< that the GPU gave the last launch before
  bool counts_launches = true;  ///< whether it counts them one by one
  std::size_t forgotten = 0;    ///< launches before restart()
  std::vector<Launch> launches;
  std::map<std::pair<std::string, unsigned>, std::uint32_t> places;
  std::vector<Place> place_list;
};
State& state() {
  static State one;
  return one;
}

std::array<std::uint32_t, 3> three(dim3 size) {
  return {size.x, size.y, size.z};
}

std::uint32_t place_of(const Place& place) {
  const std::string name = place.file.empty() ? std::to_string(place.hash) : place.file;
  const auto [found, is_new] = state().places.try_emplace({name, place.line}, std::uint32_t(state().place_list.size()));
  if (is_new) state().place_list.push_back(place);
  return found->second;
}

double clock_ghz() {
  DeviceBuffer<std::uint64_t> out(4);
  compare_clocks<<<1, 1, 0, current_stream()>>>(out.data());
  const std::vector<std::uint64_t> read = out.download();
  return double(read[3] - read[1]) / double(read[2] - read[0]);
}

bool is_wait(Kind kind) {
  switch (kind) {
    case Kind::wait:
    case Kind::wait_stores:
    case Kind::wait_copies:
    case Kind::wait_products:
    case Kind::named_wait:
    case Kind::block_wait:
    case Kind::cluster_wait:
    case Kind::registers:
    case Kind::previous_kernel:
      return true;
    default:
      return false;
  }
}

/// The event that was stored, with clocks relative to `base`. A load into several blocks becomes one event for each.
void append(std::vector<Event>& events, const uint4& words, unsigned warp, std::uint32_t base) {
  const auto bits = [&](unsigned word, unsigned first, unsigned count) { return word >> first & ((1u << count) - 1); };
  Event event;
  event.warp = warp;
  event.kind = Kind(words.z >> Packed::kKindShift);
  event.place = place_of({.file = {}, .hash = words.y >> 12, .line = words.y & 0xFFF});
  event.end = std::int32_t(words.x - base);
  event.begin = event.end;
  event.object = bits(words.z, 0, Packed::kObjectBits);
  event.value = words.w;
  if (is_wait(event.kind)) {
    event.begin -= bits(words.w, 0, Packed::kSmallShift);
    event.value = words.w >> Packed::kSmallShift;
  }
  if (event.kind == Kind::registers) event.value *= 8;
  if (event.kind == Kind::named_wait || event.kind == Kind::named_arrive) event.value *= 32;
  if (event.kind == Kind::wait) event.phase = bits(words.z, Packed::kParityShift, 1);
  const unsigned peer = bits(words.z, Packed::kPeerShift, 4);
  if (peer != kOwnBlock) event.peer = int(peer);
  if (event.kind != Kind::load || event.value == 0) return events.push_back(event);
  const std::int64_t mask = std::exchange(event.value, 0);
  for (event.peer = 0; mask >> event.peer != 0; ++event.peer) {
    if (mask >> event.peer & 1) events.push_back(event);
  }
}

dim3 block_index(unsigned number, const std::array<std::uint32_t, 3>& grid) {
  return {number % grid[0], number / grid[0] % grid[1], number / grid[0] / grid[1]};
}

}  // namespace

bool register_target(cudaError_t (*set)(const Target&)) {
  setters().push_back(set);
  return true;
}

void begin(unsigned blocks) {
  State& now = state();
  const std::size_t size = std::size_t{kLaunches} * blocks * kWarps << kLogSlots;
  if (now.target.blocks != blocks) now.slots = DeviceBuffer<uint4>(size);
  check(cudaMemset(now.slots.data(), 0, now.slots.bytes()));
  now.target = {.slots = now.slots.data(), .blocks = blocks};
  for (const auto set : setters()) check(set(now.target));
  check(cudaDeviceSynchronize());
  unsigned before = 0;
  DeviceBuffer<unsigned> number(1);
  for (int i = 0; i < 2; ++i) {
    tell_number<<<1, 1, 0, current_stream()>>>(number.data());
    before = std::exchange(now.number, number.download()[0]);
  }
  now.counts_launches = now.number == before + 1;
  now.forgotten = 0;
  now.launches.clear();
  now.places.clear();
  now.place_list.clear();
}

void restart() {
  State& now = state();
  if (now.counts_launches) {
    now.forgotten = now.launches.size();
  } else {
    begin(now.target.blocks);
  }
}

void note_launch(const LaunchConfig& config) {
  state().launches.push_back(
      {.place = place_of({.file = config.where.file_name(), .hash = 0, .line = config.where.line()}),
       .grid = three(config.grid),
       .block = three(config.block),
       .cluster = three(config.cluster),
       .starts_early = config.starts_early});
}

Trace end() {
  State& now = state();
  check(cudaDeviceSynchronize());
  DeviceBuffer<Stored> events(kMost);
  DeviceBuffer<unsigned> found(std::vector<unsigned>{0});
  collect<<<1024, 256, 0, current_stream()>>>(now.slots.data(), now.slots.bytes() / sizeof(uint4), events.data(),
                                              found.data());
  const unsigned count = found.download()[0];
  if (count > kMost) throw std::runtime_error("--timeline: too many events; trace fewer blocks or a shorter sequence");
  std::vector<Stored> stored = events.download();
  stored.resize(count);

  Trace trace;
  trace.clock = "multiprocessor";
  int device = 0;
  cudaDeviceProp properties{};
  check(cudaGetDevice(&device));
  check(cudaGetDeviceProperties(&properties, device));
  trace.device = properties.name;
  trace.clock_ghz = clock_ghz();

  if (stored.empty()) throw std::runtime_error("--timeline: no event was written down");
  // By the number of the launch, modulo kLaunches, and block.
  std::map<std::pair<unsigned, unsigned>, std::vector<Stored>> by_block;
  for (const Stored& one : stored) {
    const unsigned block = one.part / kWarps % now.target.blocks, launch = one.part / kWarps / now.target.blocks;
    by_block[{launch, block}].push_back(one);
  }
  // What the timer of all says about each block's clock.
  struct Times {
    bool is_known = false;
    std::uint32_t clock = 0, nanoseconds = 0;
  };
  const auto times_of = [](const std::vector<Stored>& block) {
    Times times{.clock = block.front().words.x};
    for (const Stored& one : block) {
      if (Kind(one.words.z >> Packed::kKindShift) != Kind::start || times.is_known) continue;
      times = {.is_known = true, .clock = one.words.x, .nanoseconds = one.words.w};
    }
    return times;
  };
  // Parts in the order of their launches, which the GPU counts. Where it counts other things, too, those that remain of the
  // call that is kept are its last ones.
  const int all = int(now.launches.size()), forgotten = int(now.forgotten), kept = all - forgotten;
  if (all > int(kLaunches)) throw std::runtime_error("--timeline: the stage starts more kernels than a trace holds");
  std::map<unsigned, unsigned> parts;  // by what they come after the last launch before
  for (const auto& [key, block] : by_block) parts[(key.first - now.number - 1) % kLaunches] = key.first;
  const bool are_counted = int(parts.rbegin()->first) < all;
  const int calls = forgotten > 0 ? 2 : 1, of_call = int(parts.size()) / calls;
  std::map<unsigned, int> number_of;
  int left = int(parts.size());
  for (const auto& [after, part] : parts) {
    number_of[part] = are_counted ? int(after) - forgotten : left <= of_call ? kept - left : -1;
    --left;
  }
  if (!now.counts_launches) number_of = {{by_block.begin()->first.first, kept - 1}};
  trace.launches.assign(now.launches.begin() + std::ptrdiff_t(now.forgotten), now.launches.end());
  bool has_reference = false;
  Times reference;
  for (const auto& [key, block] : by_block) {
    const Times times = times_of(block);
    const auto number = number_of.find(key.first);
    if (number == number_of.end() || number->second < 0) continue;
    const int launch = number->second;
    if (!std::exchange(has_reference, true)) reference = times;
    Block result;
    const dim3 index = block_index(key.second, trace.launches[std::size_t(launch)].grid);
    result.index = three(index);
    result.launch = launch;
    if (times.is_known && reference.is_known) {
      result.shift = std::int64_t(double(std::int32_t(times.nanoseconds - reference.nanoseconds)) * trace.clock_ghz);
    }
    for (const Stored& one : block) append(result.events, one.words, one.part % kWarps, times.clock);
    std::sort(result.events.begin(), result.events.end(),
              [](const Event& a, const Event& b) { return a.begin != b.begin ? a.begin < b.begin : a.warp < b.warp; });
    trace.blocks.push_back(std::move(result));
  }
  trace.places = now.place_list;
  return trace;
}

}  // namespace tutorial::trace
