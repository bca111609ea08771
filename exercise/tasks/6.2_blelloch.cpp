#include "exercise/checker.hpp"

namespace exercise {
namespace {

void check(Check& check, void (*run)(Global<const float> x, Global<float> y)) {
  for (const char* name : {"64 numbers", "64 other numbers"}) {
    check.problem(name);
    const auto x = check.input("x", 64);
    const auto y = check.output("y", 64);
    std::vector<double> expected(64);
    for (std::size_t t = 1; t < 64; ++t) expected[t] = expected[t - 1] + x[t - 1];
    check.run([&] { run(x, y); });
    check.expect(y, expected);
    check.reads_at_most(x, 1);
    check.writes_at_most(y, 1);
    check.meetings_at_least(5, "threads add up pairs, level by level");
    check.counts_at_most({.launches = 1, .barriers_per_block = 14});
  }
}

const Exercise exercise("6.2", check);

}  // namespace
}  // namespace exercise
