#include "exercise/checker.hpp"
#include "exercise/reference.hpp"

namespace exercise {
namespace {

void check(Check& check, void (*run)(Global<const float> Q, Global<const float> K, Global<const float> V,
                                     Global<const float> S, Global<float> O)) {
  for (const char* name : {"a chunk", "another chunk"}) {
    check.problem(name);
    const auto q = check.input("Q", 16 * 16);
    const auto k = check.input("K", 16 * 16);
    const auto v = check.input("V", 16 * 16);
    const std::vector<double> initial = check.uniform(16 * 16, -1, 1);
    const auto s = check.input("S", initial);
    const auto o = check.output("O", 16 * 16, 16);
    check.run([&] { run(q, k, v, s, o); });
    check.expect(o, gated_product(q, k, v, {}, 16, 16, initial).outputs);
    for (const auto* input : {&q, &k, &v, &s}) check.reads_at_most(*input, 1);
    check.writes_at_most(o, 1);
    check.counts_at_most({.launches = 1, .barriers_per_block = 2});
  }
}

const Exercise exercise("2.3", check);

}  // namespace
}  // namespace exercise
