#include "exercise/checker.hpp"
#include "exercise/reference.hpp"

namespace exercise {
namespace {

void check(Check& check, void (*run)(Global<const float> A, Global<float> T)) {
  for (const double largest : {0.2, 1.0}) {
    check.problem(largest < 1 ? "keys that differ" : "keys that are alike");
    const std::vector<double> matrix = strictly_lower(check.uniform(16 * 16, largest / 2, largest), 16);
    const auto a = check.input("A", matrix);
    const auto t = check.output("T", 16 * 16);
    check.run([&] { run(a, t); });
    check.expect(t, unit_lower_inverse(matrix, 16));
    check.reads_at_most(a, 1);
    check.writes_at_most(t, 1);
    check.counts_at_most({.launches = 1, .barriers_per_block = 1});
  }
}

const Exercise exercise("5.3", check);

}  // namespace
}  // namespace exercise
