#include "environment.hpp"

#include <charconv>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace emulator {

std::optional<std::uint64_t> number_from_environment(const char* name) {
  const char* variable = std::getenv(name);
  if (!variable) return std::nullopt;
  const std::string text = variable;
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number == 0) {
    throw std::invalid_argument(std::string(name) + " is '" + text + "': a whole number from 1 on expected");
  }
  return number;
}

}  // namespace emulator
