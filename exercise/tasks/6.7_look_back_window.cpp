#include <cmath>

#include "exercise/checker.hpp"

namespace exercise {
namespace {

void check(Check& check, void (*run)(Global<const float> x, Global<float> y, Global<float> own, Global<float> ends,
                                     Global<unsigned> flags, Global<unsigned> counter, int first, int tiles)) {
  struct Problem {
    std::size_t tiles;
    std::size_t first;               // that the launch takes
    std::vector<std::size_t> whole;  // tiles before it that have announced the sum up to their end; the others have not
  };
  for (const auto& [tiles, first, whole] : check.sizes<Problem>(
           {{1, 0, {}}, {40, 0, {}}, {6, 5, {2}}, {43, 40, {0, 30}}, {103, 100, {0}}, {100, 98, {}}}, {4096, 0, {}})) {
    std::string name = std::to_string(tiles) + " tiles";
    if (first > 0) {
      name += " of which " + std::to_string(first) + " are under way, ";
      for (const std::size_t n : whole) name += std::to_string(n) + ", ";
      name += whole.empty() ? "none with its end" : "with their ends";
    }
    check.problem(name);
    // Whole numbers: the order of sums makes no difference.
    std::vector<double> numbers = check.uniform(tiles * 32, -9, 9);
    for (double& number : numbers) number = std::round(number);
    std::vector<double> expected(tiles * 32);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = numbers[i] + (i > 0 ? expected[i - 1] : 0);
    std::vector<double> own_sums(tiles);
    std::vector<double> sums(tiles);
    for (std::size_t n = 0; n < tiles; ++n) {
      sums[n] = expected[n * 32 + 31];
      own_sums[n] = sums[n] - (n > 0 ? sums[n - 1] : 0);
    }
    // What the tiles before have announced, and elsewhere what no sum is.
    std::vector<double> y_before(tiles * 32, NAN);
    std::vector<double> own_before(tiles, NAN);
    std::vector<double> ends_before(tiles, NAN);
    std::vector<unsigned> flags_before(tiles);
    for (std::size_t n = 0; n < first; ++n) {
      own_before[n] = own_sums[n];
      ends_before[n] = 0.5;
      flags_before[n] = 1;
      for (std::size_t i = 0; i < 32; ++i) y_before[n * 32 + i] = expected[n * 32 + i];
    }
    for (const std::size_t n : whole) {
      ends_before[n] = sums[n];
      flags_before[n] = 2;
    }
    for (std::size_t n = 0; n < first; ++n) sums[n] = ends_before[n];  // nobody changes these
    const auto x = check.input("x", numbers);
    const auto y = check.in_out("y", y_before);
    const auto own = check.in_out("own", own_before);
    const auto ends = check.in_out("ends", ends_before);
    const auto flags = check.words("flags", flags_before);
    const auto counter = check.words("counter", 1, static_cast<unsigned>(first));
    check.run([&] { run(x, y, own, ends, flags, counter, static_cast<int>(first), static_cast<int>(tiles)); });
    check.expect(y, expected);
    check.expect(own, own_sums);
    check.expect(ends, sums);
    check.stores_at_least(flags, 2 * (tiles - first));
    check.reads_at_most(x, static_cast<double>(tiles - first) / static_cast<double>(tiles));
    check.writes_at_most(y, static_cast<double>(tiles - first) / static_cast<double>(tiles));
    check.counts_at_most(
        {.launches = 1, .barriers_per_block = 0, .atomics = static_cast<int>((tiles - first + 3) / 4 * 4)});
  }
}

const Exercise exercise("6.7", check);

}  // namespace
}  // namespace exercise
