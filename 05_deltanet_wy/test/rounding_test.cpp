/// @file
/// The figures of docs/notebook/05_delta_rule.md on rounding: what each way to (I + A)^-1 loses in each arithmetic, and
/// which factors of a chunk bf16 may hold. The README has some of them.

#include "05_deltanet_wy/test/rounding.hpp"

#include <gtest/gtest.h>

#include <iostream>

namespace tutorial::delta_rule {
namespace {

constexpr int kSeeds = 5;

/// The largest error of a few seeds.
template <class Error>
double worst(Error error) {
  double most = 0;
  for (int seed = 0; seed < kSeeds; ++seed) most = std::max(most, error(seed));
  return most;
}

using Way = Matrix (*)(const Matrix&, Factors);

Matrix nilpotent_merged(const Matrix& A, Factors factors) {
  return merged(A, factors, nilpotent);
}
Matrix substitution_merged(const Matrix& A, Factors factors) {
  return merged(A, factors, substitution);
}

/// Of a chunk of C keys with this cosine, Dk = 128.
double error_of(Way way, Eigen::Index C, double cosine, double beta, Factors factors) {
  return worst([=](int seed) {
    const Matrix A = rounded(lower_products(keys_with(cosine, seed, C, 128), Vector::Constant(C, beta)), Factors::fp32);
    return relative_error(way(A, factors), substitution(A, Factors::fp64));
  });
}

/// A figure of the notebook: right to a factor of 2.
void expect_about(double figure, double measured, const char* what) {
  std::cout << what << ": " << measured << "\n";
  EXPECT_GE(measured, figure / 2) << what;
  EXPECT_LE(measured, figure * 2) << what;
}

constexpr double kFresh = 0, kAlike = 0.9, kRepeated = 1;  // cosines

TEST(RoundingTest, TheShortcutLosesWhatItsPowersGain) {
  const auto of_16 = [](double cosine, double beta, Factors f) { return error_of(nilpotent, 16, cosine, beta, f); };
  const auto of_64 = [](double cosine, double beta, Factors f) { return error_of(nilpotent, 64, cosine, beta, f); };
  expect_about(2.2e-8, of_16(kFresh, 0.9, Factors::fp32), "16, fresh keys, fp32");
  expect_about(2.7e-5, of_16(kAlike, 0.9, Factors::fp32), "16, cosine 0.9, fp32");
  expect_about(9.1e-5, of_16(kRepeated, 0.99, Factors::fp32), "16, one key, fp32");
  expect_about(6.5e-4, of_16(kFresh, 0.9, Factors::bf16), "16, fresh keys, bf16");
  EXPECT_GT(of_16(kAlike, 0.9, Factors::bf16), 0.3);
  EXPECT_GT(of_16(kRepeated, 0.99, Factors::bf16), 0.3);
  EXPECT_LT(of_64(kFresh, 0.9, Factors::fp32), 1e-6);
  EXPECT_GT(of_64(kAlike, 0.9, Factors::fp32), 1e6);
  EXPECT_GT(of_64(kAlike, 0.9, Factors::fp64), 1e-3);  // not even double is enough
  EXPECT_GT(of_64(kRepeated, 0.99, Factors::fp64), 0.1);
}

TEST(RoundingTest, SubstitutionAndMergeLoseNothing) {
  for (const auto& [cosine, beta] : {std::pair(kFresh, 0.9), {kAlike, 0.9}, {kRepeated, 0.99}}) {
    EXPECT_LT(error_of(substitution, 64, cosine, beta, Factors::fp32), 1e-7);
    EXPECT_LT(error_of(substitution_merged, 64, cosine, beta, Factors::fp32), 1e-7);
    EXPECT_LT(error_of(substitution_merged, 64, cosine, beta, Factors::split), 2e-5);
  }
  expect_about(1.0e-3, error_of(substitution_merged, 64, kFresh, 0.9, Factors::bf16), "merged in bf16, fresh keys");
  expect_about(7.2e-3, error_of(substitution_merged, 64, kAlike, 0.9, Factors::bf16), "merged in bf16, cosine 0.9");
  expect_about(3.3e-3, error_of(substitution_merged, 64, kRepeated, 0.99, Factors::bf16), "merged in bf16, one key");
  // What the shortcut has lost, merging does not bring back.
  expect_about(3.1e-5, error_of(nilpotent_merged, 64, kAlike, 0.9, Factors::fp32), "shortcut merged, cosine 0.9, fp32");
  expect_about(1.5e-4, error_of(nilpotent_merged, 64, kRepeated, 0.99, Factors::fp32),
               "shortcut merged, one key, fp32");
  expect_about(1.2e-3, error_of(nilpotent_merged, 64, kFresh, 0.9, Factors::bf16), "shortcut merged, fresh keys, bf16");
  EXPECT_GT(error_of(nilpotent_merged, 64, kAlike, 0.9, Factors::bf16), 1);
}

/// The larger of the errors of o and of the final state.
double error_in_chunks(double cosine, double beta, const Roundings& to) {
  return worst([=](int seed) {
    const Sequence x(cosine, beta, seed);
    const Matrix found = in_chunks(x, to), truth = in_steps(x);
    const Eigen::Index L = x.K.rows(), Dk = x.K.cols();
    return std::max(relative_error(found.topRows(L), truth.topRows(L)),
                    relative_error(found.bottomRows(Dk), truth.bottomRows(Dk)));
  });
}

TEST(RoundingTest, ChunksInDoubleAreExact) {
  for (const bool beta_apart : {false, true}) {
    EXPECT_LT(error_in_chunks(kAlike, 0.9, {.beta_apart = beta_apart}), 1e-14);
    EXPECT_LT(error_in_chunks(kRepeated, 0.99, {.beta_apart = beta_apart}), 1e-13);
  }
}

constexpr Factors kBf16 = Factors::bf16, kSplit = Factors::split;

TEST(RoundingTest, WhichFactorItIs) {
  struct Row {
    const char* name;
    Roundings to;
    double fresh, alike, repeated;  // the notebook's figures
  };
  const Row rows[] = {
      {"S", {.S = kBf16}, 1.6e-3, 1.5e-3, 1.6e-3},
      {"T", {.T = kBf16}, 3.8e-3, 1.6e-2, 1.5e-1},
      {"T, beta apart", {.T = kBf16, .beta_apart = true}, 1.6e-3, 2.6e-3, 1.5e-1},
      {"V - K S", {.residual = kBf16}, 2.2e-3, 2.1e-3, 2.8e-3},
      {"v_new", {.v_new = kBf16}, 2.8e-3, 3.4e-3, 2.3e-2},
      {"P", {.P = kBf16}, 1.7e-3, 2.4e-3, 2.3e-3},
      {"all", {kBf16, kBf16, kBf16, kBf16, kBf16, false}, 5.4e-3, 1.7e-2, 1.5e-1},
      {"all, beta apart", {kBf16, kBf16, kBf16, kBf16, kBf16, true}, 4.3e-3, 5.2e-3, 1.5e-1},
      {"all, beta apart, T split", {kBf16, kSplit, kBf16, kBf16, kBf16, true}, 4.1e-3, 4.9e-3, 2.2e-2},
      {"all, beta apart, T and v_new split", {kBf16, kSplit, kBf16, kSplit, kBf16, true}, 3.2e-3, 3.5e-3, 3.5e-3},
      {"all split", {kSplit, kSplit, kSplit, kSplit, kSplit, true}, 6.4e-6, 7.6e-6, 1.9e-4},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    expect_about(row.fresh, error_in_chunks(kFresh, 0.9, row.to), row.name);
    expect_about(row.alike, error_in_chunks(kAlike, 0.9, row.to), row.name);
    expect_about(row.repeated, error_in_chunks(kRepeated, 0.99, row.to), row.name);
  }
}

}  // namespace
}  // namespace tutorial::delta_rule
