#include "exercise/checker.hpp"
#include "exercise/reference.hpp"

namespace exercise {
namespace {

void check(Check& check, void (*run)(Global<const float> a, Global<const float> x, Global<float> y)) {
  for (const double lowest : {0.0, 0.9}) {
    check.problem(lowest > 0 ? "gates near 1" : "all gates");
    const std::vector<double> gates = check.uniform(128, lowest, 1);
    const auto a = check.input("a", gates);
    const auto x = check.input("x", 128);
    const auto y = check.output("y", 128);
    check.run([&] { run(a, x, y); });
    check.expect(y, affine_scan(gates, x, 128));
    check.reads_at_most(a, 1);
    check.reads_at_most(x, 1);
    check.writes_at_most(y, 1);
    check.collectives_at_least(5, "five rounds of shuffles in scan() compose the lanes' maps");
    check.counts_at_most({.launches = 1, .barriers_per_block = 0});
  }
}

const Exercise exercise("6.6", check);

}  // namespace
}  // namespace exercise
