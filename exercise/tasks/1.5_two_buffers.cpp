#include "exercise/checker.hpp"
#include "exercise/reference.hpp"

namespace exercise {
namespace {

void check(Check& check, void (*run)(Global<const float> Q, Global<const float> K, Global<const float> V,
                                     Global<float> O, int length)) {
  for (const std::size_t length : check.sizes<std::size_t>({1, 2, 33}, 4096)) {
    check.problem("length = " + std::to_string(length));
    const auto q = check.input("Q", length * 32);
    const auto k = check.input("K", length * 32);
    const auto v = check.input("V", length * 32);
    const auto o = check.output("O", length * 32, 32);
    check.run([&] { run(q, k, v, o, static_cast<int>(length)); });
    check.expect(o, causal_product(q, k, v, 32, 32).outputs);
    for (const auto* input : {&q, &k, &v}) check.reads_at_most(*input, 1);
    check.writes_at_most(o, 1);
    check.counts_at_most({.launches = 1, .barriers_per_block = static_cast<int>(length)});
  }
}

const Exercise exercise("1.5", check);

}  // namespace
}  // namespace exercise
