#include "exercise/checker.hpp"

namespace exercise {
namespace {

void check(Check& check, void (*run)(Global<const float> Q, Global<const float> K, Global<float> P, int width)) {
  for (const std::size_t width : check.sizes<std::size_t>({16, 40, 48}, 4096)) {
    check.problem("width = " + std::to_string(width));
    const auto q = check.input("Q", 16 * width);
    const auto k = check.input("K", 16 * width);
    const auto p = check.output("P", 16 * 16, 16);
    std::vector<double> expected(16 * 16);
    for (std::size_t i = 0; i < 16; ++i) {
      for (std::size_t j = 0; j <= i; ++j) {
        for (std::size_t d = 0; d < width; ++d) expected[i * 16 + j] += q[i * width + d] * k[j * width + d];
      }
    }
    check.run([&] { run(q, k, p, static_cast<int>(width)); });
    check.expect(p, expected);
    check.reads_at_most(q, 1);
    check.reads_at_most(k, 1);
    check.writes_at_most(p, 1);
    check.counts_at_most({.launches = 1, .barriers_per_block = static_cast<int>((width + 15) / 16 * 2)});
  }
}

const Exercise exercise("2.1", check);

}  // namespace
}  // namespace exercise
