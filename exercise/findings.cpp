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
#include <emulator/races.hpp>

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

std::string describe(uint3 index) {
  return "(" + std::to_string(index.x) + "," + std::to_string(index.y) + "," + std::to_string(index.z) + ")";
}

}  // namespace

void note_stray(const char* name, std::int64_t size, const Index& index, std::int64_t row) {
  if (!found.stray.empty()) return;
  std::string element = name ? name : name_at(index.where);
  if (row >= 0) element += "[" + std::to_string(row) + "]";
  found.stray = "your kernel uses " + element + "[" + std::to_string(index.value) + "] of " + std::to_string(size) +
                " at " + short_path(index.where.file_name()) + ":" + std::to_string(index.where.line()) + ", thread " +
                describe(threadIdx) + " of block " + describe(blockIdx);
}

void note_stray_pointer(const char* does, const std::string& where, std::uint64_t bytes) {
  if (!found.stray.empty()) return;
  found.stray =
      std::string("your kernel ") + does + " " + std::to_string(bytes) + " bytes of " + where + ", by a pointer";
  // Where it reads, the detector has seen that nobody has written there.
  if (found.unwritten.starts_with(where)) found.stray += ": " + found.unwritten.substr(found.unwritten.find(": ") + 2);
  if (found.unwritten.starts_with("the memory ")) found.unwritten.clear();
}

const Findings& findings() {
  return found;
}

void forget_findings() {
  found = {};
}

void add_findings() {
  for (const emulator::Finding& one : emulator::take_findings()) {
    std::string& text = one.kind == emulator::Finding::Kind::unwritten ? found.unwritten : found.race;
    if (text.empty()) text = short_path(one.text);
  }
}

}  // namespace exercise

#endif
