#include <algorithm>
#include <bit>

#include "exercise/checker.hpp"

namespace exercise {
namespace {

void check(Check& check, void (*run)(Global<const float> g, Global<const float> x, Global<float> y, int length)) {
  for (const std::size_t length : {1u, 2u, 33u, 64u}) {
    check.problem("length = " + std::to_string(length));
    const auto g = check.input("g", length);
    const auto x = check.input("x", length);
    const auto y = check.output("y", length);
    std::vector<double> expected(length);
    for (std::size_t t = 0; t < length; ++t) expected[t] = t == 0 ? x[0] : std::max(expected[t - 1] + g[t], x[t]);
    check.run([&] { run(g, x, y, static_cast<int>(length)); });
    check.expect(y, expected);
    check.reads_at_most(g, 1);
    check.reads_at_most(x, 1);
    check.writes_at_most(y, 1);
    check.meetings_at_least(std::bit_width(length - 1), "each round composes the threads' maps");
    check.counts_at_most({.launches = 1, .barriers_per_block = 12});
  }
}

const Exercise exercise("6.3", check);

}  // namespace
}  // namespace exercise
