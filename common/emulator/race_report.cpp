#include "race_report.hpp"

#include <regex.h>

#include <algorithm>
#include <fstream>
#include <mutex>

#include "race_shadow.hpp"

namespace emulator::races {
namespace {

/// All matches of a POSIX extended expression, which takes the compiler no time: each with the text of its groups.
std::vector<std::vector<std::string>> matches(const std::string& text, const std::string& expression) {
  std::vector<std::vector<std::string>> found;
  regex_t compiled;
  if (regcomp(&compiled, expression.c_str(), REG_EXTENDED) != 0) return found;
  std::vector<regmatch_t> groups(compiled.re_nsub + 1);
  const char* from = text.c_str();
  while (*from != '\0' && regexec(&compiled, from, groups.size(), groups.data(), 0) == 0 && groups[0].rm_eo > 0) {
    std::vector<std::string>& one = found.emplace_back();
    for (const regmatch_t& group : groups) {
      one.emplace_back(group.rm_so < 0 ? "" : std::string(from + group.rm_so, from + group.rm_eo));
    }
    from += groups[0].rm_eo;
  }
  regfree(&compiled);
  return found;
}

/// The numbers in "[2][kColumns]", or none if one of them is not known. @param source in which constants are looked for
std::vector<std::size_t> sizes_in(const std::string& text, const std::string& source) {
  std::vector<std::size_t> sizes;
  for (const auto& word : matches(text, "[A-Za-z_0-9]+")) {
    std::string size = word[0];
    if (!std::isdigit(static_cast<unsigned char>(size[0]))) {
      const auto constants = matches(source, "const\\w*\\s+\\w+\\s+" + size + "\\s*=\\s*([0-9]+)\\s*;");
      if (constants.empty()) return {};
      size = constants.front()[1];
    }
    sizes.push_back(std::stoul(size));
  }
  return sizes;
}

/// The sizes of a __shared__ array, as the source declares it last before a line.
std::vector<std::size_t> sizes_of(const Line& line, const std::string& name) {
  std::ifstream stream(line.file);
  std::string source, text;
  for (unsigned i = 0; i < line.number && std::getline(stream, text); ++i) source += text + "\n";
  const std::string here = "\\b" + name + "\\s*";
  const auto declarations =
      matches(source, "__shared__[^;]*" + here + "((\\[[^]]+\\])+)|Shared<[^,>]+,([^>]+)>[^;]*" + here + "[;,]");
  if (declarations.empty()) return {};
  const std::vector<std::string>& last = declarations.back();
  return sizes_in(!last[1].empty() ? last[1] : last[3], source);
}

/// Whether both are names of one file: the compiler's commands may have it relative to another folder.
bool is_same_file(std::string a, std::string b) {
  for (std::string* file : {&a, &b}) {
    while (file->starts_with("../") || file->starts_with("./")) file->erase(0, file->find('/') + 1);
  }
  return a == b || a.ends_with("/" + b) || b.ends_with("/" + a);
}

std::string index(std::size_t i) {
  return "[" + std::to_string(i) + "]";
}

/// "x.cu:31", or ":31" in the same file as before.
std::string place(const Line& line, const std::string& before = "") {
  if (line.number == 0) return "an unknown line";
  return (is_same_file(line.file, before) ? "" : line.file) + ":" + std::to_string(line.number);
}

std::string verb(const Seen& seen) {
  return seen.is_write ? "written" : "read";
}

std::string by(const Seen& seen, bool names_block) {
  if (seen.kind & kBulkCopy) return " by a bulk copy";
  if (seen.kind & kStreamCopy) return " by a copy";
  if (seen.name.index.empty()) return " by a kernel before";
  const std::string text = seen.kind & kUnfinished ? " by a copy of thread " : " by thread ";
  return text + seen.name.index + (names_block ? " of block " + seen.name.block : "");
}

}  // namespace

std::string Memory::text(const Line& line, std::size_t bytes) const {
  if (named) {
    const auto offset =
        static_cast<std::size_t>(static_cast<const char*>(address) - static_cast<const char*>(named->address));
    return named->name + index(offset / named->element_bytes);
  }
  if (variable.name.empty()) return other;
  const auto offset =
      static_cast<std::size_t>(static_cast<const char*>(address) - static_cast<const char*>(variable.address));
  const std::vector<std::size_t> sizes = sizes_of(line, variable.name);
  std::size_t elements = 1;
  for (const std::size_t size : sizes) elements *= size;
  if (sizes.empty() || elements == 0 || variable.bytes % elements != 0) {
    return variable.name + (variable.bytes > bytes ? index(offset / bytes) : "");
  }
  std::size_t i = offset / (variable.bytes / elements);
  std::string text;
  for (auto size = sizes.rbegin(); size != sizes.rend(); ++size) {
    text = index(i % *size) + text;
    i /= *size;
  }
  return variable.name + text;
}

std::string sentence_of(const Found& found) {
  const std::vector<Line> lines = lines_of({found.first.place, found.second.place, found.hint});
  const Line &first = lines[0], &second = lines[1], &hint = lines[2];
  const std::string name = found.memory.text(second, found.bytes);
  const bool names_blocks = found.first.run != found.second.run || found.first.name.block != found.second.name.block;
  const std::string reader = by(found.second, names_blocks);
  if (found.why == Found::Why::unwritten) {
    return name + ": read at " + place(second) + by(found.second, true) + " before anything writes it";
  }
  std::string text = name + ": " + verb(found.first) + " at " + place(first) + by(found.first, names_blocks) + ", " +
                     verb(found.second) + " at " + place(second, first.file) + reader + "; ";
  const std::string flag = found.hint_memory.address ? found.hint_memory.text(hint, 4) : "";
  const std::string at = " at " + place(hint, first.file);
  const std::string what = found.first.is_write ? "write" : "read";
  switch (found.why) {
    case Found::Why::plain_access: {
      const Seen& plain = found.first.kind & kAtomic ? found.second : found.first;
      const Line& line = found.first.kind & kAtomic ? second : first;
      return text + "the flag is " + verb(plain) + " plainly at " + place(line, first.file) + ": use " +
             (plain.is_write ? "store_release" : "load_acquire");
    }
    case Found::Why::announced_before:
      if (flag.empty()) return text + "the fence" + at + " comes before the " + what;
      return text + "it is announced by " + flag + at + ", but " + verb(found.first) + " after it at " +
             place(first, first.file);
    case Found::Why::not_released:
      return text + flag + " is stored" + at + " without release: use store_release";
    case Found::Why::load_relaxed:
      return text + flag + " is read" + at + " without acquire: use load_acquire";
    case Found::Why::not_acquired:
      return text + "nothing orders them: " + flag + " announces it" + at + ", and the " +
             (found.second.is_write ? "write" : "read") + " comes before an acquire of that";
    case Found::Why::release_before:
      return text + "nothing orders them: the arrival" + at + " comes before the " + what;
    case Found::Why::not_awaited:
      return text + "nothing orders them: the arrival" + at + " follows the " + what + ", but " +
             (found.second.name.index.empty() ? "the thread that issues the copy"
                                              : "thread " + found.second.name.index) +
             " has not waited for it";
    case Found::Why::copies_race:
      return text + "another bulk copy has written there, too, and nothing orders the two copies";
    case Found::Why::copy_under_way:
      return text + "nothing orders them: the copy is not waited for in between";
    case Found::Why::not_fenced:
      return text + "the second looks at memory through the async proxy, and fence_async_proxy() is missing: thread " +
             found.first.name.index + " has to call it after " + place(first, first.file) +
             ", before the barrier that follows";
    case Found::Why::early_start:
      return text +
             "the second kernel starts before the first has ended: it has to call wait_for_previous_kernel() first";
    case Found::Why::other_stream:
      return text +
             "nothing orders them: the two are work of different streams, and the second stream has to wait for an "
             "event "
             "that is recorded in the first behind its work";
    case Found::Why::no_order:
      text += "nothing orders them: blocks of a launch have no order but by store_release and load_acquire";
      if (first.number != second.number || found.first.is_write == found.second.is_write) return text;
      return text + "; where several blocks add to one number, use atomicAdd";
    case Found::Why::unwritten:
    case Found::Why::no_barrier:
      break;
  }
  text += "nothing orders them: ";
  if (found.first.place == found.second.place && found.first.is_write && found.first.clock == found.second.clock) {
    return text + "several threads write it at once, and one alone may";
  }
  text += "no barrier lies between: ";
  if (!is_same_file(first.file, second.file)) return text + "is one missing?";
  const auto [low, high] = std::minmax(first.number, second.number);
  const std::string low_text = std::to_string(low), high_text = std::to_string(high);
  if (low == high && found.first.is_write != found.second.is_write) {
    return text + "line " + low_text +
           " reads and writes: a barrier belongs between the reads of all threads and their "
           "writes, and another one before the next round";
  }
  if (low == high) return text + "each round needs one";
  if (low < found.barrier_line && found.barrier_line < high) {
    if (found.is_warps_barrier && found.first.thread / 32 != found.second.thread / 32) {
      return text + "the __syncwarp() at :" + std::to_string(found.barrier_line) +
             " orders the lanes of a warp, and these two threads are of two warps: use __syncthreads()";
    }
    return text + "is one missing after line " + high_text + ", before line " + low_text + " comes again?";
  }
  return text + "is one missing between lines " + low_text + " and " + high_text + "?";
}

}  // namespace emulator::races
