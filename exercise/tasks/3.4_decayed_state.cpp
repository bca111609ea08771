#include <cmath>

#include "exercise/checker.hpp"
#include "exercise/reference.hpp"

namespace exercise {
namespace {

void check(Check& check,
           void (*run)(Global<const float> K, Global<const float> V, Global<const float> B, Global<float> S)) {
  for (const double lowest : {-0.1, -60.0}) {
    check.problem("gates down to exp(" + std::to_string(static_cast<int>(std::floor(lowest))) + ")");
    const auto k = check.input("K", 16 * 32);
    const auto v = check.input("V", 16 * 8);
    const std::vector<double> logarithms = check.uniform(16 * 32, lowest, 0);
    std::vector<double> gates;
    std::vector<double> sums = logarithms;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      gates.push_back(std::exp(logarithms[i]));
      if (i >= 32) sums[i] += sums[i - 32];
    }
    const auto b = check.input("B", sums);
    const std::vector<double> initial = check.uniform(32 * 8, -1, 1);
    const auto s = check.in_out("S", initial);
    check.run([&] { run(k, v, b, s); });
    check.expect(s, gated_product(k, k, v, gates, 32, 8, initial).state, 5e-5);  // b has lost digits in fp32
    check.reads_at_most(k, 1);
    check.reads_at_most(v, 1);
    check.reads_at_most(b, 2);
    check.reads_at_most(s, 1);
    check.counts_at_most({.launches = 1, .barriers_per_block = 1});
  }
}

const Exercise exercise("3.4", check);

}  // namespace
}  // namespace exercise
