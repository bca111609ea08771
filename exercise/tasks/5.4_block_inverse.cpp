#include "exercise/checker.hpp"
#include "exercise/reference.hpp"

namespace exercise {
namespace {

void check(Check& check,
           void (*run)(Global<const float> T11, Global<const float> T22, Global<const float> L21, Global<float> T)) {
  for (const double largest : {0.2, 1.0}) {
    check.problem(largest < 1 ? "keys that differ" : "keys that are alike");
    const std::vector<double> matrix = strictly_lower(check.uniform(16 * 16, largest / 2, largest), 16);
    const std::vector<double> whole = unit_lower_inverse(matrix, 16);
    const auto block = [](const std::vector<double>& of, std::size_t row, std::size_t column) {
      std::vector<double> elements;
      for (std::size_t i = 0; i < 64; ++i) elements.push_back(of[(row + i / 8) * 16 + column + i % 8]);
      return elements;
    };
    const auto t11 = check.input("T11", block(whole, 0, 0));
    const auto t22 = check.input("T22", block(whole, 8, 8));
    const auto l21 = check.input("L21", block(matrix, 8, 0));
    const auto t = check.output("T", 16 * 16, 16);
    check.run([&] { run(t11, t22, l21, t); });
    check.expect(t, whole);
    for (const auto* input : {&t11, &t22, &l21}) check.reads_at_most(*input, 1);
    check.writes_at_most(t, 1);
    check.counts_at_most({.launches = 1, .barriers_per_block = 2});
  }
}

const Exercise exercise("5.4", check);

}  // namespace
}  // namespace exercise
