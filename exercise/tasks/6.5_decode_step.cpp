#include <cmath>

#include "exercise/checker.hpp"
#include "exercise/reference.hpp"

namespace exercise {
namespace {

void check(Check& check, void (*run)(Global<const float> q, Global<const float> k, Global<const float> v,
                                     Global<const float> g, Global<float> S, Global<float> o, int key_dim)) {
  for (const std::size_t key_dim : check.sizes<std::size_t>({1, 17, 64}, 4096)) {
    check.problem("key_dim = " + std::to_string(key_dim));
    const auto q = check.input("q", key_dim);
    const auto k = check.input("k", key_dim);
    const auto v = check.input("v", 32);
    const std::vector<double> logarithms = check.uniform(key_dim, -2, 0);
    const auto g = check.input("g", logarithms);
    const std::vector<double> initial = check.uniform(key_dim * 32, -1, 1);
    const auto s = check.in_out("S", initial, 32);
    const auto o = check.output("o", 32);
    std::vector<double> gates;
    for (const double value : logarithms) gates.push_back(std::exp(value));
    const Sequence expected = gated_product(q, k, v, gates, key_dim, 32, initial);
    check.run([&] { run(q, k, v, g, s, o, static_cast<int>(key_dim)); });
    check.expect(s, expected.state);
    check.expect(o, expected.outputs);
    for (const auto* input : {&q, &k, &g}) check.reads_at_most(*input, 32);
    check.reads_at_most(s, 1);
    check.writes_at_most(s, 1);
    check.writes_at_most(o, 1);
    check.counts_at_most({.launches = 1, .barriers_per_block = 1});
  }
}

const Exercise exercise("6.5", check);

}  // namespace
}  // namespace exercise
