#include <cmath>

#include "exercise/checker.hpp"
#include "exercise/reference.hpp"

namespace exercise {
namespace {

void check(Check& check, void (*run)(Global<const float> K, Global<const float> V, Global<const float> B,
                                     Global<float> S, int chunks)) {
  using Problem = std::pair<double, std::size_t>;
  for (const auto& [lowest, chunks] : check.sizes<Problem>({{-0.1, 1}, {-0.1, 3}, {-60, 3}}, {-0.1, 1024})) {
    check.problem("gates down to exp(" + std::to_string(static_cast<int>(std::floor(lowest))) + "), " +
                  std::to_string(chunks) + " chunks");
    const std::size_t length = chunks * 16;
    const auto k = check.input("K", length * 32);
    const auto v = check.input("V", length * 8);
    const std::vector<double> logarithms = check.uniform(length * 32, lowest, 0);
    std::vector<double> gates;
    std::vector<double> sums = logarithms;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      gates.push_back(std::exp(logarithms[i]));
      if (i / 32 % 16 > 0) sums[i] += sums[i - 32];
    }
    const auto b = check.input("B", sums);
    const std::vector<double> initial = check.uniform(32 * 8, -1, 1);
    const auto s = check.in_out("S", initial, 8);
    check.run([&] { run(k, v, b, s, static_cast<int>(chunks)); });
    check.expect(s, gated_product(k, k, v, gates, 32, 8, initial).state, 5e-5);  // b has lost digits in fp32
    check.reads_at_most(k, 1);
    check.reads_at_most(v, 1);
    check.reads_at_most(b, 2);
    check.reads_at_most(s, 1);
    check.writes_at_most(s, 1);
    check.counts_at_most({.launches = 1, .barriers_per_block = static_cast<int>(2 * chunks)});
  }
}

const Exercise exercise("3.4", check);

}  // namespace
}  // namespace exercise
