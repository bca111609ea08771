#include "exercise/checker.hpp"
#include "exercise/reference.hpp"

namespace exercise {
namespace {

void check(Check& check, void (*run)(Global<const float> K, Global<const float> V, Global<const float> dO,
                                     Global<float> dQ, int length)) {
  for (const std::size_t length : check.sizes<std::size_t>({1, 2, 33}, 4096)) {
    check.problem("length = " + std::to_string(length));
    const auto k = check.input("K", length * 32);
    const auto v = check.input("V", length * 32);
    const auto d_o = check.input("dO", length * 32);
    const auto dq = check.output("dQ", length * 32, 32);
    check.run([&] { run(k, v, d_o, dq, static_cast<int>(length)); });
    // do_t S_t^T is the causal product with keys and values exchanged.
    check.expect(dq, causal_product(d_o, v, k, 32, 32).outputs);
    for (const auto* input : {&k, &v, &d_o}) check.reads_at_most(*input, 1);
    check.writes_at_most(dq, 1);
    check.counts_at_most({.launches = 1, .barriers_per_block = 2 * static_cast<int>(length), .atomics = 0});
  }
}

const Exercise exercise("4.6", check);

}  // namespace
}  // namespace exercise
