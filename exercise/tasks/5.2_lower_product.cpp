#include "exercise/checker.hpp"
#include "exercise/reference.hpp"

namespace exercise {
namespace {

void check(Check& check, void (*run)(Global<const float> K, Global<const float> beta, Global<float> A)) {
  for (const char* name : {"a chunk", "another chunk"}) {
    check.problem(name);
    const std::vector<double> keys = unit_rows(check.uniform(16 * 32, -1, 1), 32);
    const std::vector<double> beta = check.uniform(16, 0, 1);
    const auto k = check.input("K", keys);
    const auto b = check.input("beta", beta);
    const auto a = check.output("A", 16 * 16);
    check.run([&] { run(k, b, a); });
    check.expect(a, overlaps(keys, beta, 32));
    check.reads_at_most(k, 1);
    check.reads_at_most(b, 16);
    check.writes_at_most(a, 1);
    check.counts_at_most({.launches = 1, .barriers_per_block = 1});
  }
}

const Exercise exercise("5.2", check);

}  // namespace
}  // namespace exercise
