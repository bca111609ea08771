#include "common/trace/trace.hpp"

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <stdexcept>
#include <utility>

namespace tutorial::trace {
namespace {

constexpr const char* kNames[] = {"none",
                                  "start",
                                  "end",
                                  "init",
                                  "arrive",
                                  "expect",
                                  "wait",
                                  "load",
                                  "push",
                                  "store",
                                  "commit_stores",
                                  "wait_stores",
                                  "commit_copies",
                                  "wait_copies",
                                  "fence_products",
                                  "product",
                                  "commit_products",
                                  "wait_products",
                                  "named_arrive",
                                  "named_wait",
                                  "block_wait",
                                  "cluster_arrive",
                                  "cluster_wait",
                                  "registers",
                                  "next_kernel",
                                  "previous_kernel",
                                  "collective"};
static_assert(std::size(kNames) == std::size_t(Kind::count));

/// A string of JSON.
std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    char code[8];
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < ' ') {
      std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(c));
      result += code;
    } else {
      result += c;
    }
  }
  return result + '"';
}

void write(std::FILE* out, const char* name, const std::array<std::uint32_t, 3>& three) {
  std::fprintf(out, "\"%s\": [%u, %u, %u]", name, three[0], three[1], three[2]);
}

void write(std::FILE* out, const Trace& trace) {
  char date[16] = "";
  const std::time_t now = std::time(nullptr);
  std::strftime(date, sizeof date, "%Y-%m-%d", std::gmtime(&now));
  std::fprintf(out, "{\"format\": 1, \"clock\": %s, \"device\": %s, \"clock_ghz\": %.6g, \"date\": \"%s\",\n",
               quoted(trace.clock).c_str(), quoted(trace.device).c_str(), trace.clock_ghz, date);
  std::fprintf(out, " \"stuck\": %s,\n", quoted(trace.stuck).c_str());
  const char* separator = "";
  std::fputs(" \"places\": [", out);
  for (const Place& place : trace.places) {
    const std::string file = place.file.empty() ? std::to_string(place.hash) : quoted(place.file);
    std::fprintf(out, "%s\n  [%s, %u]", std::exchange(separator, ","), file.c_str(), place.line);
  }
  separator = "";
  std::fputs("],\n \"launches\": [", out);
  for (const Launch& launch : trace.launches) {
    std::fprintf(out, "%s\n  {\"place\": %u, ", std::exchange(separator, ","), launch.place);
    write(out, "grid", launch.grid), std::fputs(", ", out);
    write(out, "block", launch.block), std::fputs(", ", out);
    write(out, "cluster", launch.cluster);
    std::fprintf(out, ", \"starts_early\": %s}", launch.starts_early ? "true" : "false");
  }
  std::fputs("],\n \"events\": \"warp, kind, place, begin, end, object, phase, value, peer\",\n \"blocks\": [", out);
  separator = "";
  for (const Block& block : trace.blocks) {
    std::fprintf(out, "%s\n  {\"launch\": %d, ", std::exchange(separator, ","), block.launch);
    write(out, "index", block.index);
    std::fprintf(out, ", \"shift\": %" PRId64 ", \"events\": [", block.shift);
    const char* between = "";
    for (const Event& event : block.events) {
      std::fprintf(out, "%s\n   [%u, \"%s\", %u, %" PRId64 ", %" PRId64 ", %" PRIu64 ", %" PRId64 ", %" PRId64 ", %d]",
                   std::exchange(between, ","), event.warp, name_of(event.kind), event.place, event.begin, event.end,
                   event.object, event.phase, event.value, event.peer);
    }
    std::fputs("]}", out);
  }
  std::fputs("]}\n", out);
}

}  // namespace

const char* name_of(Kind kind) {
  return kNames[std::size_t(kind)];
}

void write(const Trace& trace, const std::string& file) {
  const auto fail = [&] { throw std::runtime_error(file + ": " + std::strerror(errno)); };
  const std::string unfinished = file + ".part";
  std::FILE* out = std::fopen(unfinished.c_str(), "w");
  if (!out) fail();
  write(out, trace);
  const bool is_written = std::fflush(out) == 0 && std::ferror(out) == 0;
  if ((std::fclose(out) != 0) || !is_written || std::rename(unfinished.c_str(), file.c_str()) != 0) {
    const int reason = errno;
    std::remove(unfinished.c_str());
    errno = reason;
    fail();
  }
}

}  // namespace tutorial::trace
