#include "exercise/checker.hpp"
#include "exercise/reference.hpp"

namespace exercise {
namespace {

void check(Check& check, void (*run)(Global<const float> A, Global<const float> V, Global<float> T, Global<float> U)) {
  for (const double largest : {0.2, 1.0}) {
    check.problem(largest < 1 ? "keys that differ" : "keys that are alike");
    const std::vector<double> matrix = strictly_lower(check.uniform(16 * 16, largest / 2, largest), 16);
    const auto a = check.input("A", matrix);
    const auto v = check.input("V", 16 * 16);
    const auto t = check.output("T", 16 * 16, 16);
    const auto u = check.output("U", 16 * 16, 16);
    const std::vector<double> inverse = unit_lower_inverse(matrix, 16);
    std::vector<double> solved;
    for (std::size_t i = 0; i < 16; ++i) {
      for (const double value : product(row_of(inverse, i, 16), row_of(v, 0, v.size()), 16)) solved.push_back(value);
    }
    check.run([&] { run(a, v, t, u); });
    check.expect(t, inverse);
    check.expect(u, solved);
    for (const auto* input : {&a, &v}) check.reads_at_most(*input, 1);
    for (const auto* output : {&t, &u}) check.writes_at_most(*output, 1);
    check.counts_at_most({.launches = 1, .barriers_per_block = 1});
  }
}

const Exercise exercise("5.3", check);

}  // namespace
}  // namespace exercise
