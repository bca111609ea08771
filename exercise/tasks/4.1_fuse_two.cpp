#include <algorithm>
#include <cmath>

#include "exercise/checker.hpp"
#include "exercise/reference.hpp"

namespace exercise {
namespace {

void check(Check& check, void (*run)(Global<const float> Q, Global<const float> B, Global<const float> S,
                                     Global<float> O, float scale, int length)) {
  for (const std::size_t length : check.sizes<std::size_t>({1, 16, 23}, 65536)) {
    check.problem("length = " + std::to_string(length));
    const auto q = check.input("Q", length * 32);
    const auto b = check.input("B", check.uniform(length * 32, -3, 0));
    const auto s = check.input("S", 32 * 32);
    const auto o = check.output("O", length * 32, 32);
    std::vector<double> expected;
    for (std::size_t t = 0; t < length; ++t) {
      std::vector<double> row(32);
      for (std::size_t d = 0; d < 32; ++d) row[d] = 0.25 * q[t * 32 + d] * std::exp(b[t * 32 + d]);
      for (const double value : product(row, row_of(s, 0, s.size()), 32)) expected.push_back(value);
    }
    check.run([&] { run(q, b, s, o, 0.25f, static_cast<int>(length)); });
    check.expect(o, expected);
    check.reads_at_most(q, 1);
    check.reads_at_most(b, 1);
    check.reads_at_most(s, static_cast<double>((length + 7) / 8));
    check.writes_at_most(o, 1);
    check.counts_at_most({.launches = 1, .barriers_per_block = static_cast<int>(2 * std::min<std::size_t>(length, 8))});
  }
}

const Exercise exercise("4.1", check);

}  // namespace
}  // namespace exercise
