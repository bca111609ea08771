#include "exercise/findings.hpp"

namespace exercise {

std::string short_path(std::string text) {
  const std::string root = EXERCISE_ROOT "/";
  for (std::size_t at = text.find(root); at != std::string::npos; at = text.find(root)) text.erase(at, root.size());
  return text;
}

}  // namespace exercise

#if TUTORIAL_EMULATOR

#include <emulator/builtins.hpp>
#include <emulator/thread_place.hpp>

#include <algorithm>
#include <cctype>
#include <fstream>

namespace exercise {
namespace {

Findings found;

/// A line of a source file.
std::string source_line(const char* file, unsigned line) {
  std::ifstream stream(file);
  std::string text;
  for (unsigned i = 0; i < line; ++i) {
    if (!std::getline(stream, text)) return "";
  }
  return text;
}

/// The name of the array whose index stands here: the compiler tells the column of the bracket that closes it.
std::string name_at(const std::source_location& where) {
  const std::string text = source_line(where.file_name(), where.line());
  std::size_t end = where.column();
  if (end == 0 || end > text.size() || text[end - 1] != ']') return "the array";
  while (end > 0 && text[end - 1] == ']') {
    int depth = 0;
    do {
      --end;
      depth += text[end] == ']' ? 1 : text[end] == '[' ? -1 : 0;
    } while (end > 0 && depth > 0);
  }
  std::size_t begin = end;
  while (begin > 0 && (std::isalnum(static_cast<unsigned char>(text[begin - 1])) || text[begin - 1] == '_')) --begin;
  return begin == end ? "the array" : text.substr(begin, end - begin);
}

std::string name_of(const Place& place) {
  return place.record ? place.record->name : name_at(place.index.where);
}

/// "tile[33]", or "tile[2][33]".
std::string describe(const Place& place) {
  std::string text = name_of(place);
  if (place.row >= 0) text += "[" + std::to_string(place.row) + "]";
  return text + "[" + std::to_string(place.index.value) + "]";
}

std::string describe(uint3 index) {
  return "(" + std::to_string(index.x) + "," + std::to_string(index.y) + "," + std::to_string(index.z) + ")";
}

std::string this_thread() {
  return "thread " + describe(threadIdx) + " of block " + describe(blockIdx);
}

std::string line_of(const Place& place) {
  const std::source_location& where = place.index.where;
  return short_path(where.file_name()) + ":" + std::to_string(where.line());
}

bool is_inside(const Place& place, const char* verb) {
  if (place.index.value >= 0 && place.index.value < place.size) return true;
  if (found.stray.empty()) {
    found.stray = "your kernel " + std::string(verb) + " " + describe(place) + " of " + std::to_string(place.size) +
                  " at " + line_of(place) + ", " + this_thread();
  }
  return false;
}

/// The launch of an access that is atomic: no other access has it.
constexpr std::uint32_t kAtomic = 0xFFFFFFFEu;

bool is_someone(const Access& access) {
  return access.launch != 0 && access.launch != 0xFFFFFFFFu;
}

bool is_of(const Access& access, const emulator::ThreadPlace& now) {
  return access.launch == now.launch && access.block == now.block;
}

/// Whether nothing orders the access before what the thread does now.
bool races(const Access& access, const emulator::ThreadPlace& now, bool is_shared) {
  if (!is_someone(access) || access.launch != now.launch) return false;
  if (access.block != now.block) return !is_shared;  // each block has shared memory of its own
  if (access.thread == now.thread || access.block_barriers < now.block_barriers) return false;
  return access.thread / 32 != now.thread / 32 || access.warp_barriers >= now.warp_barriers;
}

/// "thread (3,0,0)" of a block whose threads are counted.
std::string name_thread(std::uint32_t thread) {
  const unsigned x = thread % blockDim.x;
  const unsigned y = thread / blockDim.x % blockDim.y;
  return describe(uint3{x, y, thread / blockDim.x / blockDim.y});
}

void report_race(const Place& place, const char* verb, const Access& other, const char* other_verb,
                 const emulator::ThreadPlace& now) {
  if (!found.race.empty()) return;
  const unsigned line = place.index.where.line();
  const std::string element = describe(place);
  if (other.block != now.block) {
    found.race = "block " + describe(blockIdx) + " " + verb + " " + element + " at " + line_of(place) +
                 ", and another block " + other_verb + " it at line " + std::to_string(other.line) +
                 ": blocks of a launch have no order";
    return;
  }
  found.race = "thread " + describe(threadIdx) + " " + verb + " " + element + " at " + line_of(place) + ", thread " +
               name_thread(other.thread) + " " + other_verb + " it at line " + std::to_string(other.line) +
               ", and no barrier lies between: ";
  const std::string first = std::to_string(std::min(line, other.line));
  const std::string second = std::to_string(std::max(line, other.line));
  const bool is_after_barrier =
      std::min(line, other.line) < now.barrier_line && now.barrier_line < std::max(line, other.line);
  found.race += line == other.line ? "each round needs one"
                : is_after_barrier ? "is one missing after line " + second + ", before line " + first + " comes again?"
                                   : "is one missing between lines " + first + " and " + second + "?";
}

Access access_of(const Place& place, const emulator::ThreadPlace& now) {
  return {.launch = now.launch,
          .block = now.block,
          .thread = now.thread,
          .block_barriers = now.block_barriers,
          .warp_barriers = now.warp_barriers,
          .line = place.index.where.line()};
}

}  // namespace

bool note_read(const Place& place) {
  if (!is_inside(place, "reads")) return false;
  const emulator::ThreadPlace now = emulator::thread_place();
  Cell& cell = place.cells[place.index.value];
  const bool is_shared = place.record == nullptr;
  const bool is_written = is_shared ? is_of(cell.write, now) : place.record->is_input || is_someone(cell.write);
  if (!is_written && found.unwritten.empty()) {
    found.unwritten =
        this_thread() + " reads " + describe(place) + " at " + line_of(place) + " before anything writes it";
  }
  if (races(cell.write, now, is_shared)) report_race(place, "reads", cell.write, "writes", now);
  if (cell.read.thread != now.thread || !is_of(cell.read, now)) cell.other_read = cell.read;
  cell.read = access_of(place, now);
  if (place.record) ++place.record->reads;
  return true;
}

bool note_write(const Place& place) {
  if (!is_inside(place, "writes")) return false;
  const emulator::ThreadPlace now = emulator::thread_place();
  Cell& cell = place.cells[place.index.value];
  const bool is_shared = place.record == nullptr;
  if (races(cell.write, now, is_shared)) {
    report_race(place, "writes", cell.write, "writes", now);
  } else if (races(cell.read, now, is_shared)) {
    report_race(place, "writes", cell.read, "reads", now);
  } else if (races(cell.other_read, now, is_shared)) {
    report_race(place, "writes", cell.other_read, "reads", now);
  }
  cell.write = access_of(place, now);
  if (place.record) ++place.record->writes;
  return true;
}

bool note_address(const Place& place) {
  if (!is_inside(place, "takes the address of")) return false;
  if (place.record) {
    // Written, and in no order with anything else.
    Access& write = place.cells[place.index.value].write;
    write = access_of(place, emulator::thread_place());
    write.launch = kAtomic;
    ++place.record->writes;
  } else {
    Cell& cell = place.cells[place.index.value];
    if (!is_of(cell.write, emulator::thread_place())) cell.write = access_of(place, emulator::thread_place());
  }
  return true;
}

const Findings& findings() {
  return found;
}

void forget_findings() {
  found = {};
}

}  // namespace exercise

#endif
