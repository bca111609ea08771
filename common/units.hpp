#pragma once
/// @file
/// Measured quantities as people read them.

#include <string>
#include <string_view>

namespace tutorial {

/// Four digits and a unit: "1.234 ms", "56.78 us". `micro` is the sign for 10^-6, "u" where the terminal has no other.
std::string format_time(double milliseconds, const std::string& micro = "u");
/// Three digits, a prefix for a power of 1000 up to P, and the unit: "12.3 MB", "4.25 TB/s".
std::string format_quantity(double number, std::string_view unit);
/// Three digits without a unit: "0.012", "1.23", "12.3", "1230"; "inf" and "nan" as they are.
std::string format_number(double number);
/// "0" or two digits and an exponent: "3.1e-08".
std::string format_error(double error);

}  // namespace tutorial
