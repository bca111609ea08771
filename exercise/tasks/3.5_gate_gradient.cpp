#include <cmath>

#include "exercise/checker.hpp"

namespace exercise {
namespace {

void check(Check& check, void (*run)(Global<const float> G, Global<const float> Y, Global<const float> initial,
                                     Global<const float> dY, Global<float> dX, Global<float> dG,
                                     Global<float> d_initial, int length)) {
  for (const std::size_t length : check.sizes<std::size_t>({1, 2, 33}, 4096)) {
    check.problem("length = " + std::to_string(length));
    const std::size_t size = length * 32;
    std::vector<double> logarithms = check.uniform(size, -1, 0);
    if (length > 2) logarithms[10 * 32] = -INFINITY;  // channel 0 forgets all at position 10
    const std::vector<double> x = check.uniform(size, -1, 1);
    const auto initial = check.input("initial", 32);
    std::vector<double> y(size);
    for (std::size_t i = 0; i < size; ++i) {
      y[i] = static_cast<float>(x[i] + std::exp(logarithms[i]) * (i >= 32 ? y[i - 32] : initial[i]));
    }
    const auto g = check.input("G", logarithms);
    const auto forward = check.input("Y", y);
    const auto dy = check.input("dY", size);
    const auto dx = check.output("dX", size, 32);
    const auto dg = check.output("dG", size, 32);
    const auto d_initial = check.output("d_initial", 32);
    std::vector<double> expected_dx(size);
    std::vector<double> expected_dg(size);
    for (std::size_t i = size; i-- > 0;) {
      const bool is_last = i + 32 >= size;
      expected_dx[i] = dy[i] + (is_last ? 0 : std::exp(logarithms[i + 32]) * expected_dx[i + 32]);
      expected_dg[i] = expected_dx[i] * std::exp(logarithms[i]) * (i >= 32 ? y[i - 32] : initial[i]);
    }
    std::vector<double> expected_d_initial(32);
    for (std::size_t d = 0; d < 32; ++d) expected_d_initial[d] = std::exp(logarithms[d]) * expected_dx[d];
    check.run([&] { run(g, forward, initial, dy, dx, dg, d_initial, static_cast<int>(length)); });
    check.expect(dx, expected_dx);
    check.expect(dg, expected_dg);
    check.expect(d_initial, expected_d_initial);
    for (const auto* input : {&g, &forward, &initial, &dy}) check.reads_at_most(*input, 1);
    for (const auto* output : {&dx, &dg, &d_initial}) check.writes_at_most(*output, 1);
    check.counts_at_most({.launches = 1, .barriers_per_block = 0});
  }
}

const Exercise exercise("3.5", check);

}  // namespace
}  // namespace exercise
