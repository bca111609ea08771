#include "exercise/checker.hpp"

namespace exercise {
namespace {

void check(Check& check, void (*run)(Global<const float> x, Global<float> y, int length)) {
  for (const std::size_t length : check.sizes<std::size_t>({1, 2, 31, 33, 100, 128, 129, 300}, 65536)) {
    check.problem("length = " + std::to_string(length));
    const auto x = check.input("x", length);
    const auto y = check.output("y", length);
    std::vector<double> expected(length);
    for (std::size_t t = 0; t < length; ++t) expected[t] = x[t] + (t > 0 ? expected[t - 1] : 0);
    check.run([&] { run(x, y, static_cast<int>(length)); });
    check.expect(y, expected);
    check.reads_at_most(x, 1);
    check.writes_at_most(y, 1);
    check.meetings_at_least(length / 128, "threads show each other their sums");
    check.counts_at_most({.launches = 1, .barriers_per_block = static_cast<int>((length + 127) / 128 * 16)});
  }
}

const Exercise exercise("1.1", check);

}  // namespace
}  // namespace exercise
