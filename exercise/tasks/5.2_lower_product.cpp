#include "exercise/checker.hpp"
#include "exercise/reference.hpp"

namespace exercise {
namespace {

void check(Check& check, void (*run)(Global<const float> Q, Global<const float> K, Global<const float> beta,
                                     Global<float> A, Global<float> P)) {
  for (const char* name : {"a chunk", "another chunk"}) {
    check.problem(name);
    const std::vector<double> keys = unit_rows(check.uniform(16 * 32, -1, 1), 32);
    const std::vector<double> beta = check.uniform(16, 0, 1);
    const auto q = check.input("Q", 16 * 32);
    const auto k = check.input("K", keys);
    const auto b = check.input("beta", beta);
    const auto a = check.output("A", 16 * 16, 16);
    const auto p = check.output("P", 16 * 16, 16);
    std::vector<double> scores(16 * 16);
    for (std::size_t i = 0; i < 16; ++i) {
      for (std::size_t j = 0; j <= i; ++j) {
        for (std::size_t d = 0; d < 32; ++d) scores[i * 16 + j] += q[i * 32 + d] * keys[j * 32 + d];
      }
    }
    check.run([&] { run(q, k, b, a, p); });
    check.expect(a, overlaps(keys, beta, 32));
    check.expect(p, scores);
    check.reads_at_most(q, 1);
    check.reads_at_most(k, 1);
    check.reads_at_most(b, 16);
    check.writes_at_most(a, 1);
    check.writes_at_most(p, 1);
    check.counts_at_most({.launches = 1, .barriers_per_block = 1});
  }
}

const Exercise exercise("5.2", check);

}  // namespace
}  // namespace exercise
