#include "exercise/checker.hpp"
#include "exercise/reference.hpp"

namespace exercise {
namespace {

void check(Check& check, void (*run)(Global<const float> K, Global<const float> V, Global<float> S, int length)) {
  for (const std::size_t length : check.sizes<std::size_t>({16, 37}, 65536)) {
    check.problem("length = " + std::to_string(length));
    const auto k = check.input("K", length * 32);
    const auto v = check.input("V", length * 8);
    const std::vector<double> initial = check.uniform(32 * 8, -1, 1);
    const auto s = check.in_out("S", initial, 8);
    check.run([&] { run(k, v, s, static_cast<int>(length)); });
    check.expect(s, gated_product(k, k, v, {}, 32, 8, initial).state);
    check.reads_at_most(k, 1);
    check.reads_at_most(v, 1);
    check.reads_at_most(s, 1);
    check.writes_at_most(s, 1);
    check.counts_at_most({.launches = 1, .barriers_per_block = static_cast<int>((length + 15) / 16 * 2)});
  }
}

const Exercise exercise("2.2", check);

}  // namespace
}  // namespace exercise
