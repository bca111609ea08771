#include "exercise/checker.hpp"
#include "exercise/reference.hpp"

namespace exercise {
namespace {

void check(Check& check, void (*run)(Global<const float> Q, Global<const float> K, Global<const float> V,
                                     Global<const float> g, Global<const float> initial, Global<float> O, int length)) {
  struct Problem {
    std::size_t length;
    bool is_worst;  // all gates are 1/2, and nothing cancels: S stays 2, and o 16
  };
  for (const auto& [length, is_worst] :
       check.sizes<Problem>({{1, false}, {16, false}, {75, false}, {75, true}}, {65536, false})) {
    check.problem("length = " + std::to_string(length) + (is_worst ? ", each gate 1/2" : ""));
    const auto numbers = [&](std::size_t size, double most) {
      return is_worst ? std::vector<double>(size, most) : check.uniform(size, -most, most);
    };
    const std::vector<double> gates = is_worst ? std::vector<double>(length, 0.5) : check.uniform(length, 0, 0.5);
    const auto q = check.input("Q", numbers(length * 8, 1));
    const auto k = check.input("K", numbers(length * 8, 1));
    const auto v = check.input("V", numbers(length * 32, 1));
    const auto g = check.input("g", gates);
    const std::vector<double> initial_state = numbers(8 * 32, 2);
    const auto initial = check.input("initial", initial_state);
    const auto o = check.output("O", length * 32, 32);
    std::vector<double> gates_of_rows;
    for (std::size_t i = 0; i < length * 8; ++i) gates_of_rows.push_back(gates[i / 8]);
    check.run([&] { run(q, k, v, g, initial, o, static_cast<int>(length)); });
    // The worst problem tells how early a walk starts: 20 positions miss half of this, and 18 twice this.
    check.expect(o, gated_product(q, k, v, gates_of_rows, 8, 32, initial_state).outputs, is_worst ? 1e-6 : 1e-5);
    check.reads_at_most(v, 36.0 / 16);
    check.writes_at_most(o, 1);
    check.counts_at_most({.launches = 1});
  }
}

const Exercise exercise("4.7", check);

}  // namespace
}  // namespace exercise
