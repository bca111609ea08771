#include "exercise/checker.hpp"
#include "exercise/reference.hpp"

namespace exercise {
namespace {

/// The rows of a head, of the positions from `begin` to `end`.
std::vector<double> rows_of(const Array<float>& packed, std::size_t begin, std::size_t end, std::size_t heads,
                            std::size_t head, std::size_t columns) {
  std::vector<double> rows;
  for (std::size_t t = begin; t < end; ++t) {
    for (const double value : row_of(packed, t * heads + head, columns)) rows.push_back(value);
  }
  return rows;
}

void check(Check& check, void (*run)(Global<const float> K, Global<const float> V, Global<const unsigned> cu_seqlens,
                                     Global<float> S, int sequences, int heads)) {
  const std::vector<unsigned> many(256, 1024);
  using Lengths = std::vector<unsigned>;
  for (const Lengths& lengths : check.sizes<Lengths>({{16}, {5}, {32, 16, 48}, {5, 33, 0, 1, 16}}, many)) {
    const std::size_t heads = lengths.size() == 1 ? 1 : 2;
    std::vector<unsigned> bounds{0};
    std::size_t chunks = 0;  // of all sequences of a head
    std::string name;
    for (const unsigned length : lengths) {
      bounds.push_back(bounds.back() + length);
      chunks += (length + 15) / 16;
      if (lengths.size() < 256) name += (name.empty() ? "" : ", ") + std::to_string(length);
    }
    check.problem("lengths " + (name.empty() ? "256 times 1024" : name));
    const auto k = check.input("K", bounds.back() * heads * 32);
    const auto v = check.input("V", bounds.back() * heads * 8);
    const auto cu_seqlens = check.words("cu_seqlens", bounds);
    const auto s = check.output("S", lengths.size() * heads * 32 * 8, 8);
    std::vector<double> expected;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      for (std::size_t h = 0; h < heads; ++h) {
        const auto keys = rows_of(k, bounds[i], bounds[i + 1], heads, h, 32);
        const auto values = rows_of(v, bounds[i], bounds[i + 1], heads, h, 8);
        for (const double value : causal_product(keys, keys, values, 32, 8).state) expected.push_back(value);
      }
    }
    check.run([&] { run(k, v, cu_seqlens, s, static_cast<int>(lengths.size()), static_cast<int>(heads)); });
    check.expect(s, expected);
    check.reads_at_most(k, 1);
    check.reads_at_most(v, 1);
    check.writes_at_most(s, 1);
    // The mean over all blocks: their numbers of chunks differ.
    check.counts_at_most({.launches = 1, .barriers_per_block = static_cast<int>(2 * chunks / lengths.size())});
  }
}

const Exercise exercise("2.9", check);

}  // namespace
}  // namespace exercise
