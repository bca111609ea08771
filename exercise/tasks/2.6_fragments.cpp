#include <cmath>

#include "exercise/checker.hpp"
#include "exercise/reference.hpp"

namespace exercise {
namespace {

void check(Check& check, void (*run)(Global<const float> A, Global<const float> B, Global<float> D)) {
  for (const char* name : {"a product", "another product"}) {
    check.problem(name);
    // Small whole numbers, which bf16 holds without an error.
    std::vector<double> whole_a = check.uniform(16 * 16, -9, 9);
    std::vector<double> whole_b = check.uniform(16 * 8, -9, 9);
    for (double& value : whole_a) value = std::round(value);
    for (double& value : whole_b) value = std::round(value);
    const auto a = check.input("A", whole_a);
    const auto b = check.input("B", whole_b);
    const auto d = check.output("D", 16 * 8, 8);
    std::vector<double> expected;
    for (std::size_t i = 0; i < 16; ++i) {
      for (const double value : product(row_of(whole_a, i, 16), whole_b, 8)) expected.push_back(value);
    }
    check.run([&] { run(a, b, d); });
    check.expect(d, expected);
    check.reads_at_most(a, 1);
    check.reads_at_most(b, 1);
    check.writes_at_most(d, 1);
    check.collectives_at_least(1, "mma_m16n8k16 multiplies");
    check.counts_at_most({.launches = 1, .barriers_per_block = 0});
  }
}

const Exercise exercise("2.6", check);

}  // namespace
}  // namespace exercise
