#include "common/units.hpp"

#include <gtest/gtest.h>

namespace tutorial {
namespace {

TEST(Units, Time) {
  EXPECT_EQ(format_time(0.0000123), "12.30 ns");
  EXPECT_EQ(format_time(0.001), "1.000 us");
  EXPECT_EQ(format_time(0.99994), "999.9 us");
  EXPECT_EQ(format_time(0.99996), "1.000 ms");
  EXPECT_EQ(format_time(12.345), "12.35 ms");
  EXPECT_EQ(format_time(123.45), "123.5 ms");
  EXPECT_EQ(format_time(999.96), "1.000 s");
  EXPECT_EQ(format_time(754321), "754.3 s");
  EXPECT_EQ(format_time(0.0123, "µ"), "12.30 µs");
}

TEST(Units, Quantity) {
  EXPECT_EQ(format_quantity(0, "B"), "0 B");
  EXPECT_EQ(format_quantity(999, "B"), "999 B");
  EXPECT_EQ(format_quantity(1000, "B"), "1.00 kB");
  EXPECT_EQ(format_quantity(537e6, "B"), "537 MB");
  EXPECT_EQ(format_quantity(4.25e12, "B/s"), "4.25 TB/s");
  EXPECT_EQ(format_quantity(999.6e9, "B"), "1.00 TB");
}

TEST(Units, Number) {
  EXPECT_EQ(format_number(0.0123), "0.012");
  EXPECT_EQ(format_number(1), "1.00");
  EXPECT_EQ(format_number(12.34), "12.3");
  EXPECT_EQ(format_number(1234.4), "1234");
}

TEST(Units, Error) {
  EXPECT_EQ(format_error(0), "0");
  EXPECT_EQ(format_error(3.14e-8), "3.1e-08");
  EXPECT_EQ(format_error(std::stod("nan")), "nan");
}

}  // namespace
}  // namespace tutorial
