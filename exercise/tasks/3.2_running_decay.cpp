#include "exercise/checker.hpp"

namespace exercise {
namespace {

void check(Check& check, void (*run)(Global<const float> G, Global<float> B, Global<float> R, int length, int width)) {
  using Size = std::pair<std::size_t, std::size_t>;
  for (const auto& [length, width] : check.sizes<Size>({{1, 32}, {16, 8}, {33, 40}, {64, 64}}, {4096, 1024})) {
    check.problem("length = " + std::to_string(length) + ", width = " + std::to_string(width));
    const auto g = check.input("G", check.uniform(length * width, -1, 0));
    const auto b = check.output("B", length * width, width);
    const auto r = check.output("R", length * width, width);
    std::vector<double> expected(length * width);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expected[i] = g[i] + (i / width % 16 > 0 ? expected[i - width] : 0);
    }
    std::vector<double> rests(length * width);
    for (std::size_t i = rests.size() - width; i-- > 0;) {
      if (i / width % 16 < 15) rests[i] = rests[i + width] + g[i + width];
    }
    check.run([&] { run(g, b, r, static_cast<int>(length), static_cast<int>(width)); });
    check.expect(b, expected);
    check.expect(r, rests);
    check.reads_at_most(g, 1);
    for (const auto* output : {&b, &r}) {
      check.reads_at_most(*output, 0);
      check.writes_at_most(*output, 1);
    }
    check.counts_at_most({.launches = 1, .barriers_per_block = 0});
  }
}

const Exercise exercise("3.2", check);

}  // namespace
}  // namespace exercise
