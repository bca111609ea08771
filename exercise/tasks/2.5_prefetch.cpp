#include "exercise/checker.hpp"

namespace exercise {
namespace {

void check(Check& check, void (*run)(Global<const float> x, Global<float> y, int tiles)) {
  for (const std::size_t tiles : check.sizes<std::size_t>({1, 2, 5}, 4096)) {
    check.problem(std::to_string(tiles) + " tiles");
    const auto x = check.input("x", tiles * 128);
    const auto y = check.output("y", 128);
    std::vector<double> expected(128);
    for (std::size_t i = 0; i < x.size(); ++i) expected[i % 128] += x[i] * x[i];
    check.run([&] { run(x, y, static_cast<int>(tiles)); });
    check.expect(y, expected);
    check.copied_at_most(x, 1);
    check.copied_at_least(x, 1, "cp_async brings the next tile while this one is used");
    check.counts_at_most({.launches = 1, .barriers_per_block = static_cast<int>(2 * tiles)});
  }
}

const Exercise exercise("2.5", check);

}  // namespace
}  // namespace exercise
