#include <cmath>

#include "exercise/checker.hpp"

namespace exercise {
namespace {

void check(Check& check, void (*run)(Global<const float> O, Global<const float> Z, Global<const float> weight,
                                     Global<float> Y, int rows, int width)) {
  using Size = std::pair<std::size_t, std::size_t>;
  for (const auto& [rows, width] : check.sizes<Size>({{1, 32}, {5, 100}, {4, 128}}, {16384, 128})) {
    check.problem(std::to_string(rows) + " rows of " + std::to_string(width));
    const auto o = check.input("O", rows * width);
    std::vector<double> gates = check.uniform(rows * width, -3, 3);
    gates[0] = -200;  // exp(200) is infinity in fp32
    const auto z = check.input("Z", gates);
    const auto weight = check.input("weight", width);
    const auto y = check.output("Y", rows * width, width);
    std::vector<double> expected(rows * width);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      double squares = 0;
      for (std::size_t d = 0; d < width; ++d) squares += o[i / width * width + d] * o[i / width * width + d];
      const double norm = std::sqrt(squares / static_cast<double>(width) + 1e-5);
      expected[i] = o[i] / norm * weight[i % width] * gates[i] / (1 + std::exp(-gates[i]));
    }
    check.run([&] { run(o, z, weight, y, static_cast<int>(rows), static_cast<int>(width)); });
    check.expect(y, expected);
    check.reads_at_most(o, 1);
    check.reads_at_most(z, 1);
    check.writes_at_most(y, 1);
    check.collectives_at_least(5 * rows, "five rounds of shuffles add up the lanes' squares");
    check.counts_at_most({.launches = 1, .barriers_per_block = 0});
  }
}

const Exercise exercise("3.6", check);

}  // namespace
}  // namespace exercise
