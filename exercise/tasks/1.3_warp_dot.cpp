#include "exercise/checker.hpp"

namespace exercise {
namespace {

void check(Check& check,
           void (*run)(Global<const float> A, Global<const float> B, Global<float> y, int rows, int width)) {
  const std::size_t rows = 3;
  for (const std::size_t width : {1, 31, 32, 33, 100}) {
    check.problem("width = " + std::to_string(width));
    const auto a = check.input("A", rows * width);
    const auto b = check.input("B", rows * width);
    const auto y = check.output("y", rows);
    std::vector<double> expected(rows);
    for (std::size_t i = 0; i < rows * width; ++i) expected[i / width] += a[i] * b[i];
    check.run([&] { run(a, b, y, static_cast<int>(rows), static_cast<int>(width)); });
    check.expect(y, expected);
    check.reads_at_most(a, 1);
    check.reads_at_most(b, 1);
    check.writes_at_most(y, 1);
    check.counts_at_most({.launches = 1, .barriers_per_block = 0});
  }
}

const Exercise exercise("1.3", check);

}  // namespace
}  // namespace exercise
