#include <cmath>

#include "exercise/checker.hpp"

namespace exercise {
namespace {

void check(Check& check, void (*run)(Global<const float> Q, Global<const float> BQ, Global<const float> K,
                                     Global<const float> BK, Global<const float> r, Global<float> P, int earlier)) {
  using Problem = std::pair<double, std::size_t>;
  for (const auto& [lowest, earlier] : check.sizes<Problem>({{-0.1, 1}, {-0.1, 3}, {-30, 3}}, {-0.1, 1024})) {
    check.problem("gates down to exp(" + std::to_string(static_cast<int>(std::floor(lowest))) + "), " +
                  std::to_string(earlier) + " earlier");
    const std::size_t columns = earlier * 16;
    std::vector<double> sums = check.uniform((columns + 16) * 16, lowest, 0);  // of all sub-chunks
    for (std::size_t e = 16; e < sums.size(); ++e) sums[e] = static_cast<float>(sums[e] + sums[e - 16]);
    const auto q = check.input("Q", 16 * 16);
    const auto bq = check.input("BQ", std::vector<double>(sums.end() - 256, sums.end()));
    const auto k = check.input("K", columns * 16);
    const auto bk = check.input("BK", std::vector<double>(sums.begin(), sums.end() - 256));
    const auto r = check.input("r", std::vector<double>(sums.end() - 272, sums.end() - 256));
    const auto p = check.output("P", 16 * columns, columns);
    std::vector<double> expected(16 * columns);
    for (std::size_t e = 0; e < expected.size() * 16; ++e) {
      const std::size_t i = e / 16 / columns;
      const std::size_t j = e / 16 % columns;
      const std::size_t d = e % 16;
      expected[i * columns + j] += q[i * 16 + d] * k[j * 16 + d] * std::exp(bq[i * 16 + d] - bk[j * 16 + d]);
    }
    check.run([&] { run(q, bq, k, bk, r, p, static_cast<int>(earlier)); });
    check.expect(p, expected, 1e-4);  // fp32 differences of sums of many gates
    for (const auto* input : {&q, &bq, &k, &bk}) check.reads_at_most(*input, 1);
    check.reads_at_most(r, 16);
    check.writes_at_most(p, 1);
    check.counts_at_most({.launches = 1, .barriers_per_block = static_cast<int>(2 * earlier)});
  }
}

const Exercise exercise("4.3", check);

}  // namespace
}  // namespace exercise
