#include "race_places.hpp"

#include <cxxabi.h>
#include <elf.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <sstream>
#include <string_view>
#include <tuple>

extern "C" const char __executable_start, data_start;  // of the linker, and of what starts a program

namespace emulator::races {
namespace {

constexpr Place kNamed = 0x80000000u;  // the others are distances from the beginning of the program

std::vector<std::source_location>& named_places() {
  static std::vector<std::source_location> places;
  return places;
}

/// Whether readers of a report look for their mistake elsewhere.
bool is_wrapper(std::string_view file) {
  for (const char* part :
       {"common/device/", "common/emulator/include/", "exercise/kernel.cuh", "/include/c++/", "/usr/"}) {
    if (file.find(part) != std::string_view::npos) return true;
  }
  return false;
}

std::string program_path() {
  std::array<char, 4096> path{};
  const ssize_t size = readlink("/proc/self/exe", path.data(), path.size());
  return size > 0 ? std::string(path.data(), static_cast<std::size_t>(size)) : std::string();
}

/// 'it''s' for a shell.
std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

int find_load_bias(dl_phdr_info* module, std::size_t, void* bias) {
  *static_cast<std::uintptr_t*>(bias) = module->dlpi_addr;
  return 1;  // the executable is the first module
}

/// The beginning of the program as its file counts addresses: 0 if it may be loaded anywhere.
std::uintptr_t first_address() {
  std::uintptr_t bias = 0;
  dl_iterate_phdr(find_load_bias, &bias);
  return reinterpret_cast<std::uintptr_t>(&__executable_start) - bias;
}

/// "file:12 (discriminator 3)"
Line parse_line(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return {};
  const std::filesystem::path file = text.substr(0, colon);
  return {file.lexically_normal().string(), static_cast<unsigned>(std::strtoul(text.c_str() + colon + 1, nullptr, 10))};
}

}  // namespace

Place place_of(const void* return_address) {
  return static_cast<Place>(static_cast<const char*>(return_address) - &__executable_start) - 1;
}

Place place_of(const std::source_location& where) {
  static std::map<std::tuple<const char*, unsigned>, Place> known;
  auto& places = named_places();
  const auto [entry, is_new] = known.try_emplace({where.file_name(), where.line()}, kNamed + places.size());
  if (is_new) places.push_back(where);
  return entry->second;
}

bool is_constant(const void* address) {
  const auto* byte = static_cast<const char*>(address);
  return byte >= &__executable_start && byte < &data_start;
}

std::vector<Line> lines_of(const std::vector<Place>& places) {
  std::vector<Line> lines(places.size());
  std::string command = "addr2line -a -i -e " + quoted(program_path());
  bool asks = false;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (places[i] >= kNamed) {
      const std::source_location& where = named_places()[places[i] - kNamed];
      lines[i] = {where.file_name(), where.line()};
    } else if (places[i] != 0) {
      char address[24];
      std::snprintf(address, sizeof address, " 0x%zx", std::size_t{places[i]} + first_address());
      command += address;
      asks = true;
    }
  }
  if (!asks) return lines;
  std::FILE* pipe = popen((command + " 2>/dev/null").c_str(), "r");
  if (!pipe) return lines;
  std::array<char, 4096> buffer{};
  std::size_t at = places.size();  // of the place that the output is about
  std::size_t next = 0;
  while (std::fgets(buffer.data(), buffer.size(), pipe)) {
    std::string text = buffer.data();
    while (!text.empty() && text.back() == '\n') text.pop_back();
    if (text.starts_with("0x")) {
      while (next < places.size() && (places[next] >= kNamed || places[next] == 0)) ++next;
      at = next++;
      continue;
    }
    if (at >= lines.size()) continue;
    const Line line = parse_line(text);
    if (lines[at].number == 0 || is_wrapper(lines[at].file)) {
      if (line.number != 0) lines[at] = line;
    }
  }
  pclose(pipe);
  return lines;
}

namespace {

/// The variables of each thread that the program's table of symbols names, by their distance from the first.
struct ThreadVariables {
  struct Symbol {
    std::uint64_t offset, bytes;
    std::string name;  ///< as the compiler has it
  };
  std::vector<Symbol> symbols;

  ThreadVariables() {
    std::ifstream file(program_path(), std::ios::binary);
    const auto read = [&](std::uint64_t offset, void* to, std::size_t bytes) {
      file.seekg(static_cast<std::streamoff>(offset));
      file.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes));
      return file.good();
    };
    Elf64_Ehdr header;
    if (!read(0, &header, sizeof header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return;
    std::vector<Elf64_Shdr> sections(header.e_shnum);
    if (!read(header.e_shoff, sections.data(), sections.size() * sizeof(Elf64_Shdr))) return;
    for (const Elf64_Shdr& section : sections) {
      if (section.sh_type != SHT_SYMTAB) continue;
      std::vector<Elf64_Sym> table(section.sh_size / sizeof(Elf64_Sym));
      const Elf64_Shdr& text = sections[section.sh_link];
      std::vector<char> names(text.sh_size);
      if (!read(section.sh_offset, table.data(), section.sh_size) ||
          !read(text.sh_offset, names.data(), names.size())) {
        return;
      }
      for (const Elf64_Sym& symbol : table) {
        if (ELF64_ST_TYPE(symbol.st_info) != STT_TLS || symbol.st_size == 0) continue;
        symbols.push_back({symbol.st_value, symbol.st_size, &names[symbol.st_name]});
      }
    }
  }
};

/// "tile" of "_ZZL6kernelPfE4tile".
std::string short_name(const std::string& mangled) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), &std::free);
  std::string name = status == 0 ? text.get() : mangled;
  const std::size_t colon = name.rfind("::");
  return colon == std::string::npos ? name : name.substr(colon + 2);
}

int find_thread_block(dl_phdr_info* module, std::size_t, void* begin) {
  *static_cast<char**>(begin) = static_cast<char*>(module->dlpi_tls_data);
  return 1;  // the executable is the first module
}

}  // namespace

Variable shared_variable_at(const void* address) {
  static const ThreadVariables variables;
  char* begin = nullptr;
  dl_iterate_phdr(find_thread_block, &begin);
  if (!begin) return {};
  const auto offset = static_cast<std::uint64_t>(static_cast<const char*>(address) - begin);
  for (const auto& symbol : variables.symbols) {
    if (offset < symbol.offset || offset >= symbol.offset + symbol.bytes) continue;
    return {short_name(symbol.name), begin + symbol.offset, symbol.bytes};
  }
  return {};
}

}  // namespace emulator::races
