#include <cmath>

#include "exercise/checker.hpp"

namespace exercise {
namespace {

void check(Check& check, void (*run)(Global<const float> Q, Global<const float> K, Global<const float> B,
                                     Global<float> P, int positions)) {
  using Problem = std::pair<double, std::size_t>;
  for (const auto& [lowest, positions] : {Problem(-0.1, 16), Problem(-5, 16), Problem(-60, 16), Problem(-0.1, 5)}) {
    check.problem("gates down to exp(" + std::to_string(static_cast<int>(std::floor(lowest))) + "), " +
                  std::to_string(positions) + " positions");
    const auto q = check.input("Q", positions * 16);
    const auto k = check.input("K", positions * 16);
    std::vector<double> sums = check.uniform(positions * 16, lowest, 0);
    for (std::size_t i = 16; i < sums.size(); ++i) sums[i] = static_cast<float>(sums[i] + sums[i - 16]);
    const auto b = check.input("B", sums);
    const auto p = check.output("P", 16 * 16, 16);
    std::vector<double> expected(16 * 16);
    for (std::size_t i = 0; i < positions; ++i) {
      for (std::size_t j = 0; j <= i; ++j) {
        for (std::size_t d = 0; d < 16; ++d) {
          expected[i * 16 + j] += q[i * 16 + d] * k[j * 16 + d] * std::exp(sums[i * 16 + d] - sums[j * 16 + d]);
        }
      }
    }
    check.run([&] { run(q, k, b, p, static_cast<int>(positions)); });
    check.expect(p, expected);
    for (const auto* input : {&q, &k, &b}) check.reads_at_most(*input, 1);
    check.writes_at_most(p, 1);
    check.counts_at_most({.launches = 1, .barriers_per_block = 1});
  }
}

const Exercise exercise("3.3", check);

}  // namespace
}  // namespace exercise
