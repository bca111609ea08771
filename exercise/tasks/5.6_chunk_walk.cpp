#include "exercise/checker.hpp"
#include "exercise/reference.hpp"

namespace exercise {
namespace {

void check(Check& check, void (*run)(Global<const float> W, Global<const float> U, Global<const float> K,
                                     Global<float> R, Global<float> S, int chunks)) {
  for (const std::size_t chunks : check.sizes<std::size_t>({1, 3}, 1024)) {
    check.problem(std::to_string(chunks) + " chunks");
    const std::size_t size = chunks * 16 * 16;
    const std::vector<double> small_w = check.uniform(size, -0.2, 0.2);
    const auto w = check.input("W", small_w);
    const auto u = check.input("U", size);
    const auto k = check.input("K", unit_rows(check.uniform(size, -1, 1), 16));
    const auto r = check.output("R", size, 16);
    const auto s = check.output("S", 16 * 16, 16);
    std::vector<double> residuals(size);
    std::vector<double> state(16 * 16);
    for (std::size_t n = 0; n < chunks; ++n) {
      for (std::size_t i = n * 16; i < n * 16 + 16; ++i) {
        const std::vector<double> held = product(row_of(w, i, 16), state, 16);
        for (std::size_t j = 0; j < 16; ++j) residuals[i * 16 + j] = u[i * 16 + j] - held[j];
      }
      for (std::size_t e = 0; e < 256; ++e) {
        for (std::size_t i = n * 16; i < n * 16 + 16; ++i) state[e] += k[i * 16 + e / 16] * residuals[i * 16 + e % 16];
      }
    }
    check.run([&] { run(w, u, k, r, s, static_cast<int>(chunks)); });
    check.expect(r, residuals);
    check.expect(s, state);
    for (const auto* input : {&w, &u, &k}) check.reads_at_most(*input, 1);
    check.writes_at_most(r, 1);
    check.writes_at_most(s, 1);
    check.counts_at_most({.launches = 1, .barriers_per_block = static_cast<int>(3 * chunks)});
  }
}

const Exercise exercise("5.6", check);

}  // namespace
}  // namespace exercise
