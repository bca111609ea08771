#include <cmath>

#include "exercise/checker.hpp"

namespace exercise {
namespace {

void check(Check& check,
           void (*run)(Global<const float> A, Global<const float> B, Global<float> y, int rows, int width)) {
  using Size = std::pair<std::size_t, std::size_t>;
  for (const auto& [rows, width] : check.sizes<Size>({{3, 1}, {3, 31}, {3, 32}, {3, 33}, {3, 100}}, {8192, 1024})) {
    check.problem(std::to_string(rows) + " rows of " + std::to_string(width));
    const auto a = check.input("A", rows * width);
    const auto b = check.input("B", rows * width);
    const auto y = check.output("y", rows);
    std::vector<double> expected(rows);
    for (std::size_t r = 0; r < rows; ++r) {
      double squares = 0;
      for (std::size_t i = r * width; i < (r + 1) * width; ++i) {
        expected[r] += a[i] * b[i];
        squares += b[i] * b[i];
      }
      expected[r] /= std::sqrt(squares);
    }
    check.run([&] { run(a, b, y, static_cast<int>(rows), static_cast<int>(width)); });
    check.expect(y, expected);
    check.reads_at_most(a, 1);
    check.reads_at_most(b, 1);
    check.writes_at_most(y, 1);
    check.collectives_at_least(5 * rows, "five rounds of shuffles add up the lanes' sums");
    check.counts_at_most({.launches = 1, .barriers_per_block = 0});
  }
}

const Exercise exercise("1.3", check);

}  // namespace
}  // namespace exercise
