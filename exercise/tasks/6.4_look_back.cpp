#include "exercise/checker.hpp"

namespace exercise {
namespace {

void check(Check& check, void (*run)(Global<const float> x, Global<float> y, Global<float> ends, Global<unsigned> flags,
                                     Global<unsigned> counter, int tiles)) {
  for (const std::size_t tiles : check.sizes<std::size_t>({1, 2, 9}, 4096)) {
    check.problem(std::to_string(tiles) + " tiles");
    const auto x = check.input("x", tiles * 32);
    const auto y = check.output("y", tiles * 32);
    const auto ends = check.output("ends", tiles);
    const auto flags = check.words("flags", tiles);
    const auto counter = check.words("counter", 1);
    std::vector<double> expected(tiles * 32);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = x[i] + (i > 0 ? expected[i - 1] : 0);
    check.run([&] { run(x, y, ends, flags, counter, static_cast<int>(tiles)); });
    check.expect(y, expected);
    check.reads_at_most(x, 1);
    check.writes_at_most(y, 1);
    check.counts_at_most({.launches = 1, .barriers_per_block = 0, .atomics = static_cast<int>(tiles)});
  }
}

const Exercise exercise("6.4", check);

}  // namespace
}  // namespace exercise
