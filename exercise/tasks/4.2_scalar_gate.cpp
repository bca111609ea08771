#include <cmath>

#include "exercise/checker.hpp"

namespace exercise {
namespace {

void check(Check& check, void (*run)(Global<const float> g, Global<float> P)) {
  for (const double lowest : {-0.5, -50.0}) {
    check.problem("gates down to exp(" + std::to_string(static_cast<int>(std::floor(lowest))) + ")");
    const std::vector<double> logarithms = check.uniform(32, lowest, 0);
    const auto g = check.input("g", logarithms);
    const std::vector<double> scores = check.uniform(32 * 32, -1, 1);
    const auto p = check.in_out("P", scores, 32);
    std::vector<double> expected(32 * 32);
    for (std::size_t i = 0; i < 32; ++i) {
      double sum = 0;
      for (std::size_t j = i + 1; j-- > 0;) {
        expected[i * 32 + j] = std::exp(sum) * scores[i * 32 + j];
        sum += logarithms[j];
      }
    }
    check.run([&] { run(g, p); });
    check.expect(p, expected, 1e-4);  // fp32 sums of the logarithms up to 800
    check.reads_at_most(g, 32);
    check.reads_at_most(p, 1);
    check.writes_at_most(p, 1);
    check.counts_at_most({.launches = 1, .barriers_per_block = 0});
  }
}

const Exercise exercise("4.2", check);

}  // namespace
}  // namespace exercise
