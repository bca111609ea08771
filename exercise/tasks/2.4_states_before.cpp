#include "exercise/checker.hpp"

namespace exercise {
namespace {

void check(Check& check,
           void (*run)(Global<float> A, Global<const float> initial, Global<float> last, int chunks, int size)) {
  using Size = std::pair<std::size_t, std::size_t>;
  for (const auto& [chunks, size] : check.sizes<Size>({{1, 64}, {5, 100}, {9, 128}}, {64, 65536})) {
    check.problem(std::to_string(chunks) + " chunks of " + std::to_string(size));
    const std::vector<double> addends = check.uniform(chunks * size, -1, 1);
    const auto a = check.in_out("A", addends, size);
    const auto initial = check.input("initial", size);
    const auto last = check.output("last", size);
    std::vector<double> before(chunks * size);
    std::vector<double> state(size);
    for (std::size_t i = 0; i < size; ++i) {
      state[i] = initial[i];
      for (std::size_t n = 0; n < chunks; ++n) {
        before[n * size + i] = state[i];
        state[i] += addends[n * size + i];
      }
    }
    check.run([&] { run(a, initial, last, static_cast<int>(chunks), static_cast<int>(size)); });
    check.expect(a, before);
    check.expect(last, state);
    check.reads_at_most(a, 1);
    check.writes_at_most(a, 1);
    check.counts_at_most({.launches = 1, .barriers_per_block = 0});
  }
}

const Exercise exercise("2.4", check);

}  // namespace
}  // namespace exercise
