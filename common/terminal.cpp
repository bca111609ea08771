#include "common/terminal.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace tutorial {
namespace {

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view{} : value;
}

bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string_view value = environment(name);
    if (value.empty()) continue;  // the first that is set decides
    return value.find("UTF-8") != value.npos || value.find("utf8") != value.npos || value.find("UTF8") != value.npos;
  }
  return false;
}

}  // namespace

Terminal::Terminal(std::FILE* file)
    : file_(file),
      interactive_(isatty(fileno(file)) == 1 && environment("TERM") != "dumb" && !environment("TERM").empty()),
      colour_(interactive_ && environment("NO_COLOR").empty()),
      unicode_(interactive_ && locale_is_utf8()) {}

std::string Terminal::paint(Paint paint, std::string_view text) const {
  if (!colour_ || paint == Paint::none || text.empty()) return std::string(text);
  const char* code = "";
  switch (paint) {
    case Paint::none:
      break;
    case Paint::bold:
      code = "1";
      break;
    case Paint::dim:
      code = "2";
      break;
    case Paint::red:
      code = "31";
      break;
    case Paint::green:
      code = "32";
      break;
    case Paint::cyan:
      code = "36";
      break;
  }
  return std::string("\x1b[") + code + "m" + std::string(text) + "\x1b[0m";
}

std::string Terminal::sign(std::string_view unicode, std::string_view ascii) const {
  return std::string(unicode_ ? unicode : ascii);
}

void Terminal::write(std::string_view text) const {
  std::fwrite(text.data(), 1, text.size(), file_);
  std::fflush(file_);
}

void Terminal::line(std::string_view text) const {
  write(std::string(text) + '\n');
}

std::size_t width_of(std::string_view text) {
  // Every byte but those that continue a character.
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace tutorial
