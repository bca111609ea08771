#include "common/device/device.hpp"
#include "exercise/checker.hpp"

namespace exercise {
namespace {

void check(Check& check, void (*run)(Global<const float> x, Global<float> y, int tiles)) {
  check.needs(tutorial::warpgroup_products_missing());  // what moves registers comes with them
  for (const std::size_t tiles : check.sizes<std::size_t>({1, 2, 13}, 4096)) {
    check.problem(std::to_string(tiles) + " tiles");
    const auto x = check.input("x", tiles * 128);
    const auto y = check.output("y", 2 * 128, 128);
    std::vector<double> expected(2 * 128);
    for (std::size_t i = 0; i < x.size(); ++i) expected[i % 256] += x[i];
    check.run([&] { run(x, y, static_cast<int>(tiles)); });
    check.expect(y, expected);
    check.reads_at_most(x, 1);
    check.writes_at_most(y, 1);
    check.arrivals_at_least(32 * tiles, "the producer's 32 lanes say of each tile that its slot is full");
    check.counts_at_most({.launches = 1, .barriers_per_block = 1});
    check.changes_registers(12);
  }
}

const Exercise exercise("2.8", check);

}  // namespace
}  // namespace exercise
