#include "common/units.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace tutorial {
namespace {

// A number of at least `digits` digits, with as many after the point as that takes, at most `digits`.
std::string with_digits(double number, int digits) {
  if (!std::isfinite(number)) return fmt::format("{}", number);
  const double rounded =
      std::stod(fmt::format("{:.{}e}", number, digits - 1));  // 999.96 has four digits before the point
  const int before = rounded == 0 ? 1 : static_cast<int>(std::floor(std::log10(std::abs(rounded)))) + 1;
  return fmt::format("{:.{}f}", number, std::clamp(digits - before, 0, digits));
}

}  // namespace

std::string format_time(double milliseconds, const std::string& micro) {
  if (milliseconds >= 999.95) return with_digits(milliseconds / 1e3, 4) + " s";
  if (milliseconds >= 0.99995) return with_digits(milliseconds, 4) + " ms";
  if (milliseconds >= 0.99995e-3) return with_digits(milliseconds * 1e3, 4) + " " + micro + "s";
  return with_digits(milliseconds * 1e6, 4) + " ns";
}

std::string format_quantity(double number, std::string_view unit) {
  constexpr std::array<std::string_view, 6> kPrefixes{"", "k", "M", "G", "T", "P"};
  std::size_t prefix = 0;
  while (number >= 999.5 && prefix + 1 < kPrefixes.size()) {  // which rounds to four digits
    number /= 1000;
    ++prefix;
  }
  return fmt::format("{} {}{}", prefix == 0 ? fmt::format("{:.0f}", number) : with_digits(number, 3), kPrefixes[prefix],
                     unit);
}

std::string format_number(double number) {
  return with_digits(number, 3);
}

std::string format_error(double error) {
  return error == 0 ? "0" : fmt::format("{:.1e}", error);
}

}  // namespace tutorial
