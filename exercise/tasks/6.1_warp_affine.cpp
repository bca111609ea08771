#include "exercise/checker.hpp"
#include "exercise/reference.hpp"

namespace exercise {
namespace {

void check(Check& check, void (*run)(Global<const float> a, Global<const float> x, Global<float> y, int sequences)) {
  for (const std::size_t sequences : check.sizes<std::size_t>({1, 3}, 65536)) {
    check.problem(std::to_string(sequences) + " sequences");
    const std::vector<double> gates = check.uniform(sequences * 32, 0.5, 1);
    const auto a = check.input("a", gates);
    const auto x = check.input("x", sequences * 32);
    const auto y = check.output("y", sequences * 32, 32);
    check.run([&] { run(a, x, y, static_cast<int>(sequences)); });
    check.expect(y, affine_scan(gates, x, 32));
    check.reads_at_most(a, 1);
    check.reads_at_most(x, 1);
    check.writes_at_most(y, 1);
    check.collectives_at_least(5 * sequences, "five rounds of shuffles compose the lanes' maps");
    check.counts_at_most({.launches = 1, .barriers_per_block = 0});
  }
}

const Exercise exercise("6.1", check);

}  // namespace
}  // namespace exercise
