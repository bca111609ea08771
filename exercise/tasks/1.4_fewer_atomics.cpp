#include "exercise/checker.hpp"
#include "exercise/reference.hpp"

namespace exercise {
namespace {

void check(Check& check, void (*run)(Global<const float> q, Global<const float> S, Global<float> o, int key_dim)) {
  for (const std::size_t key_dim : check.sizes<std::size_t>({1, 8, 17, 64, 150}, 65536)) {
    check.problem("key_dim = " + std::to_string(key_dim));
    const auto q = check.input("q", key_dim);
    const auto s = check.input("S", key_dim * 32);
    const auto o = check.in_out("o", std::vector<double>(32));
    check.run([&] { run(q, s, o, static_cast<int>(key_dim)); });
    check.expect(o, product(row_of(q, 0, key_dim), row_of(s, 0, s.size()), 32));
    check.reads_at_most(q, 32);
    check.reads_at_most(s, 1);
    check.meetings_at_least(key_dim / 64, "the parts of a block add up their sums");
    check.counts_at_most(
        {.launches = 1, .barriers_per_block = 4, .atomics = static_cast<int>((key_dim + 63) / 64 * 32)});
  }
}

const Exercise exercise("1.4", check);

}  // namespace
}  // namespace exercise
