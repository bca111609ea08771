#include <cmath>

#include "common/device/device.hpp"
#include "exercise/checker.hpp"
#include "exercise/reference.hpp"

namespace exercise {
namespace {

constexpr std::size_t kSize = 64;

/// Whole numbers, so that bf16 holds them, and the scores, without an error.
std::vector<double> whole(Check& check, double most) {
  std::vector<double> values = check.uniform(kSize * kSize, -most, most);
  for (double& value : values) value = std::round(value);
  return values;
}

void check(Check& check,
           void (*run)(Global<const float> Q, Global<const float> K, Global<const float> V, Global<float> O)) {
  check.needs(tutorial::warpgroup_products_missing());
  for (const char* name : {"a chunk", "another chunk"}) {
    check.problem(name);
    const std::vector<double> queries = whole(check, 1);
    const std::vector<double> keys = whole(check, 1);
    const std::vector<double> values = whole(check, 9);
    const auto q = check.input("Q", queries);
    const auto k = check.input("K", keys);
    const auto v = check.input("V", values);
    const auto o = check.output("O", kSize * kSize, kSize);
    std::vector<double> transposed(kSize * kSize);
    for (std::size_t i = 0; i < transposed.size(); ++i) transposed[i] = keys[i % kSize * kSize + i / kSize];
    std::vector<double> expected;
    for (std::size_t t = 0; t < kSize; ++t) {
      const std::vector<double> scores = product(row_of(queries, t, kSize), transposed, kSize);
      for (const double value : product(scores, values, kSize)) expected.push_back(value);
    }
    check.run([&] { run(q, k, v, o); });
    check.expect(o, expected);
    check.reads_at_most(q, 1);
    check.reads_at_most(k, 1);
    check.reads_at_most(v, 1);
    check.writes_at_most(o, 1);
    check.products_at_least(32, "four warps multiply twice, each time in four steps of 16 values of k");
    check.counts_at_most({.launches = 1, .barriers_per_block = 1});
  }
}

const Exercise exercise("2.7", check);

}  // namespace
}  // namespace exercise
