#include "exercise/checker.hpp"
#include "exercise/reference.hpp"

namespace exercise {
namespace {

void check(Check& check, void (*run)(Global<const float> T, Global<const float> beta, Global<const float> K,
                                     Global<const float> V, Global<float> W, Global<float> U)) {
  for (const char* name : {"a chunk", "another chunk"}) {
    check.problem(name);
    const std::vector<double> keys = unit_rows(check.uniform(16 * 16, -1, 1), 16);
    const std::vector<double> values = check.uniform(16 * 16, -1, 1);
    const std::vector<double> beta = check.uniform(16, 0.1, 1);
    const std::vector<double> inverse = unit_lower_inverse(overlaps(keys, beta, 16), 16);
    const auto t = check.input("T", inverse);
    const auto b = check.input("beta", beta);
    const auto k = check.input("K", keys);
    const auto v = check.input("V", values);
    const auto w = check.output("W", 16 * 16, 16);
    const auto u = check.output("U", 16 * 16, 16);
    std::vector<double> expected_w;
    std::vector<double> expected_u;
    for (std::size_t i = 0; i < 16; ++i) {
      std::vector<double> row = row_of(inverse, i, 16);
      for (std::size_t p = 0; p < 16; ++p) row[p] *= beta[p];
      for (const double value : product(row, keys, 16)) expected_w.push_back(value);
      for (const double value : product(row, values, 16)) expected_u.push_back(value);
    }
    check.run([&] { run(t, b, k, v, w, u); });
    check.expect(w, expected_w);
    check.expect(u, expected_u);
    for (const auto* input : {&t, &k, &v}) check.reads_at_most(*input, 1);
    check.reads_at_most(b, 16);
    check.writes_at_most(w, 1);
    check.writes_at_most(u, 1);
    check.counts_at_most({.launches = 1, .barriers_per_block = 1});
  }
}

const Exercise exercise("5.5", check);

}  // namespace
}  // namespace exercise
