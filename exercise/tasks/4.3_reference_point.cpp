#include <cmath>

#include "exercise/checker.hpp"

namespace exercise {
namespace {

void check(Check& check, void (*run)(Global<const float> Q, Global<const float> BQ, Global<const float> K,
                                     Global<const float> BK, Global<const float> r, Global<float> P)) {
  for (const double lowest : {-0.1, -30.0}) {
    check.problem("gates down to exp(" + std::to_string(static_cast<int>(std::floor(lowest))) + ")");
    std::vector<double> sums = check.uniform(32 * 16, lowest, 0);  // both sub-chunks
    for (std::size_t e = 16; e < sums.size(); ++e) sums[e] = static_cast<float>(sums[e] + sums[e - 16]);
    const auto q = check.input("Q", 16 * 16);
    const auto bq = check.input("BQ", std::vector<double>(sums.begin() + 256, sums.end()));
    const auto k = check.input("K", 16 * 16);
    const auto bk = check.input("BK", std::vector<double>(sums.begin(), sums.begin() + 256));
    const auto r = check.input("r", std::vector<double>(sums.begin() + 240, sums.begin() + 256));
    const auto p = check.output("P", 16 * 16);
    std::vector<double> expected(16 * 16);
    for (std::size_t e = 0; e < 256 * 16; ++e) {
      const std::size_t i = e / 256;
      const std::size_t j = e / 16 % 16;
      const std::size_t d = e % 16;
      expected[i * 16 + j] += q[i * 16 + d] * k[j * 16 + d] * std::exp(bq[i * 16 + d] - bk[j * 16 + d]);
    }
    check.run([&] { run(q, bq, k, bk, r, p); });
    check.expect(p, expected, 1e-4);  // fp32 differences of sums up to 480
    for (const auto* input : {&q, &bq, &k, &bk}) check.reads_at_most(*input, 1);
    check.reads_at_most(r, 32);
    check.writes_at_most(p, 1);
    check.counts_at_most({.launches = 1, .barriers_per_block = 1});
  }
}

const Exercise exercise("4.3", check);

}  // namespace
}  // namespace exercise
