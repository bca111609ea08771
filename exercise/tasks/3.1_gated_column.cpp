#include <cmath>

#include "exercise/checker.hpp"
#include "exercise/reference.hpp"

namespace exercise {
namespace {

void check(Check& check, void (*run)(Global<const float> Q, Global<const float> K, Global<const float> V,
                                     Global<const float> G, Global<const float> initial, Global<float> O, int length)) {
  for (const std::size_t length : check.sizes<std::size_t>({1, 9, 33}, 4096)) {
    check.problem("length = " + std::to_string(length));
    const auto q = check.input("Q", length * 32);
    const auto k = check.input("K", length * 32);
    const auto v = check.input("V", length * 32);
    std::vector<double> logarithms = check.uniform(length * 32, -2, 0);
    if (length > 1) logarithms[40] = -INFINITY;  // a gate of 0
    const auto g = check.input("G", logarithms);
    const std::vector<double> first = check.uniform(32 * 32, -1, 1);
    const auto initial = check.input("initial", first);
    const auto o = check.output("O", length * 32, 32);
    std::vector<double> gates;
    for (const double value : logarithms) gates.push_back(std::exp(value));
    check.run([&] { run(q, k, v, g, initial, o, static_cast<int>(length)); });
    check.expect(o, gated_product(q, k, v, gates, 32, 32, first).outputs);
    for (const auto* input : {&q, &k, &v, &g, &initial}) check.reads_at_most(*input, 1);
    check.counts_at_most({.launches = 1, .barriers_per_block = 2 * static_cast<int>(length)});
  }
}

const Exercise exercise("3.1", check);

}  // namespace
}  // namespace exercise
