#include <cmath>

#include "exercise/checker.hpp"
#include "exercise/reference.hpp"

namespace exercise {
namespace {

double feature(double x) {
  return x > 0 ? x + 1 : std::exp(x);
}

void check(Check& check, void (*run)(Global<const float> Q, Global<const float> K, Global<const float> V,
                                     Global<float> O, int length, int keys)) {
  using Size = std::pair<std::size_t, std::size_t>;
  for (const auto& [length, keys] : check.sizes<Size>({{20, 20}, {20, 7}, {20, 0}}, {4096, 4096})) {
    check.problem("length = " + std::to_string(length) + ", keys = " + std::to_string(keys));
    const auto q = check.input("Q", length * 32);
    const auto k = check.input("K", length * 32);
    const auto v = check.input("V", length * 32);
    const auto o = check.output("O", length * 32, 32);
    std::vector<double> phi_q(q.size());
    std::vector<double> phi_k(k.size());
    for (std::size_t i = 0; i < q.size(); ++i) {
      phi_q[i] = feature(q[i]);
      phi_k[i] = i < keys * 32 ? feature(k[i]) : 0;
    }
    std::vector<double> expected = causal_product(phi_q, phi_k, row_of(v, 0, v.size()), 32, 32).outputs;
    const std::vector<double> ones(length, 1.0);
    const std::vector<double> sums = causal_product(phi_q, phi_k, ones, 32, 1).outputs;
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] /= sums[i / 32] + 1e-6;
    check.run([&] { run(q, k, v, o, static_cast<int>(length), static_cast<int>(keys)); });
    check.expect(o, expected);
    for (const auto* input : {&q, &k, &v}) check.reads_at_most(*input, 1);
    check.counts_at_most({.launches = 1});
  }
}

const Exercise exercise("1.6", check);

}  // namespace
}  // namespace exercise
