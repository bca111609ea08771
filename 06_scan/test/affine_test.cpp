/// @file
/// The operator of the scan is associative, has an identity and does not commute; and the tree keeps its order.

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "06_scan/affine.hpp"
#include "06_scan/scan/tree.hpp"
#include "06_scan/test/stages.hpp"
#include "common/random.hpp"

namespace tutorial::scan {
namespace {

/// A gate from weak to vanishing, some of them 0 and -1e4, and a value.
template <class T>
Affine<T> drawn_map(std::uint64_t n) {
  const Random gates(5, "gates"), values(5, "values");
  constexpr T kGates[] = {0, -10000, T(-0.001), -1, -30};
  const T gate = n % 3 == 0 ? kGates[n / 3 % 5] : T(-std::exp(3 * gates.normal(n)));
  return {gate, T(values.normal(n))};
}

template <class T>
void expect_associative() {
  const T rounding = 64 * std::numeric_limits<T>::epsilon();
  for (std::uint64_t n = 0; n < 3000; ++n) {
    const Affine<T> f = drawn_map<T>(3 * n), g = drawn_map<T>(5 * n + 1), h = drawn_map<T>(7 * n + 2);
    const Affine<T> left = compose(compose(f, g), h), right = compose(f, compose(g, h));
    const T size = std::abs(f.value) + std::abs(g.value) + std::abs(h.value);
    EXPECT_NEAR(left.log_decay, right.log_decay, rounding * std::abs(left.log_decay));
    EXPECT_NEAR(left.value, right.value, rounding * size);
    const T y = T(n % 7) - 3;
    EXPECT_NEAR(apply(left, y), apply(h, apply(g, apply(f, y))), rounding * (size + std::abs(y)));
  }
}

TEST(AffineTest, CompositionIsAssociative) {
  expect_associative<double>();
  expect_associative<float>();
}

TEST(AffineTest, IdentityChangesNothing) {
  for (std::uint64_t n = 0; n < 100; ++n) {
    const auto map = drawn_map<float>(n);
    for (const Affine<float>& same : {compose({}, map), compose(map, {})}) {
      EXPECT_EQ(same.log_decay, map.log_decay);
      EXPECT_EQ(same.value, map.value);
    }
  }
}

TEST(AffineTest, OrderMatters) {
  const Affine<double> halve{std::log(0.5), 0}, add{0, 1};
  EXPECT_DOUBLE_EQ(compose(halve, add).value, 1);
  EXPECT_DOUBLE_EQ(compose(add, halve).value, 0.5);
}

// What the tree makes of letters, whose composition is to write one after the other.
TEST(TreeTest, PrefixesAreInOrder) {
  for (const std::size_t leaves : {1, 2, 4, 8, 32}) {
    std::vector<std::string> tree(leaves);
    for (std::size_t i = 0; i < leaves; ++i) tree[i] = std::string(1, char('A' + i));
    const auto join = [](const std::string& first, const std::string& second) { return first + second; };
    up_sweep(tree, join);
    EXPECT_EQ(tree.back().size(), leaves);
    tree.back().clear();
    down_sweep(tree, join);
    std::string before;
    for (std::size_t i = 0; i < leaves; ++i) {
      EXPECT_EQ(tree[i], before);
      before += char('A' + i);
    }
  }
}

TEST(TreeTest, SizeIsAPowerOfTwo) {
  EXPECT_EQ(tree_size(1), 1u);
  EXPECT_EQ(tree_size(5), 8u);
  EXPECT_EQ(tree_size(64), 64u);
  EXPECT_EQ(tree_size(65), 128u);
}

}  // namespace
}  // namespace tutorial::scan
