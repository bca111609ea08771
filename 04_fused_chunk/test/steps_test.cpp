/// @file
/// Each of the five steps by itself: the kernel gets what it needs from a computation in double on the CPU, and what it
/// leaves is compared with a computation of that.

#include <array>
#include <cmath>
#include <vector>

#include "04_fused_chunk/gla/five_steps.hpp"
#include "04_fused_chunk/test/stages.hpp"
#include "common/half.hpp"

namespace tutorial::fused_gla {
namespace {

constexpr std::int64_t W = kWindow;

/// A tensor in device memory, and the numbers in it.
template <class T>
class Array {
 public:
  explicit Array(std::vector<double> numbers) : numbers_(std::move(numbers)), device_(numbers_.size()) {
    std::vector<T> elements(numbers_.size());
    for (std::size_t i = 0; i < elements.size(); ++i) {
      elements[i] = T(float(numbers_[i]));
      numbers_[i] = double(float(elements[i]));
    }
    device_.upload(std::span<const T>(elements));
  }

  double operator[](std::int64_t i) const { return numbers_[std::size_t(i)]; }
  T* device() { return device_.data(); }

  /// Poisons the memory, so that only what a kernel writes is found there.
  void poison() { device_.fill_bytes(0xFF); }
  /// Expects that memory has these numbers again.
  void expect_computed(const char* name, double tolerance) const {
    const std::vector<T> elements = device_.download();
    double error = 0, norm = 0;
    for (std::size_t i = 0; i < elements.size(); ++i) {
      const double difference = double(float(elements[i])) - numbers_[i];
      ASSERT_TRUE(std::isfinite(difference)) << name << " at " << i;
      error += difference * difference;
      norm += numbers_[i] * numbers_[i];
    }
    EXPECT_LE(std::sqrt(error), tolerance * std::sqrt(norm)) << name;
    EXPECT_GT(norm, 0) << name;
  }

 private:
  std::vector<double> numbers_;
  DeviceBuffer<T> device_;
};
using Half = Array<__nv_bfloat16>;
using Float = Array<float>;

/// A problem and what the five steps make of it, as defined in the comment of 2_five_steps.cu.
class Steps {
 public:
  const std::int64_t B, H, L, Dk, Dv, heads = B * H, N = windows(int(L)), NK = slices(int(Dk));
  const double scale = 0.3;

  Steps(std::int64_t length, std::int64_t keys, std::int64_t values)
      : B(2),
        H(2),
        L(length),
        Dk(keys),
        Dv(values),
        q(drawn("q", L * Dk)),
        k(drawn("k", L * Dk)),
        v(drawn("v", L * Dv)),
        initial_state(drawn("S", Dk * Dv)),
        g(gates()),
        sums(cumulative()),
        q_g(decayed_q()),
        k_g(decayed_k()),
        scores(pairs()),
        partials(walk()),
        o(combined()) {}

  HalfArguments arguments() {
    const auto of_keys = [&](auto& array) { return packed(array.device(), H, L, Dk); };
    HalfArguments a{};
    a.B = int(B), a.H = int(H), a.L = int(L), a.Dk = int(Dk), a.Dv = int(Dv), a.C = 64;
    a.scale = float(scale);
    const auto as_const = [](auto view) {
      return View<const std::remove_pointer_t<decltype(view.data)>>{view.data, view.stride_b, view.stride_h,
                                                                    view.stride_l};
    };
    a.q = as_const(of_keys(q)), a.k = as_const(of_keys(k)), a.g = as_const(of_keys(g));
    a.v = as_const(packed(v.device(), H, L, Dv));
    a.initial_state = as_const(packed(initial_state.device(), H, Dk, Dv));
    a.o = packed(o.device(), H, L, Dv);
    a.final_state = packed(final_state->device(), H, Dk, Dv);
    return a;
  }
  Intermediates intermediates() {
    const auto of_keys = [&](auto& array) { return packed(array.device(), H, L, Dk); };
    return {of_keys(sums), of_keys(q_g), of_keys(k_g), partials.device(), scores.device()};
  }

 private:
  std::vector<double> drawn(const char* name, std::int64_t per_head) const {
    const Random random(5, name);
    std::vector<double> numbers(std::size_t(heads * per_head));
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = random.normal(i);
    return numbers;
  }
  /// Weak ones, none, and strong ones.
  std::vector<double> gates() const {
    const Random random(5, "g");
    std::vector<double> numbers(std::size_t(heads * L * Dk));
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const double u = random.uniform(i);
      numbers[i] = u < 0.05 ? -1e4 : u < 0.1 ? 0 : -u;
    }
    return numbers;
  }

  std::int64_t start(std::int64_t t) const { return t / W * W; }
  std::int64_t last(std::int64_t t) const { return std::min(start(t) + W, L) - 1; }
  std::int64_t key(std::int64_t head, std::int64_t t, std::int64_t d) const { return (head * L + t) * Dk + d; }
  std::int64_t value(std::int64_t head, std::int64_t t, std::int64_t j) const { return (head * L + t) * Dv + j; }
  std::int64_t score(std::int64_t slice, std::int64_t head, std::int64_t t, std::int64_t i) const {
    return (((slice * heads + head) * N + t / W) * W + t % W) * W + i % W;
  }
  /// Calls f(head, t, d) for every element of a [B, H, L, D] tensor in its order.
  template <class F>
  void each(std::int64_t D, F f) const {
    for (std::int64_t head = 0; head < heads; ++head) {
      for (std::int64_t t = 0; t < L; ++t) {
        for (std::int64_t d = 0; d < D; ++d) f(head, t, d);
      }
    }
  }

  std::vector<double> cumulative() const {
    std::vector<double> numbers;
    each(Dk, [&](auto head, auto t, auto d) {
      double sum = 0;
      for (std::int64_t i = start(t); i <= t; ++i) sum += std::max(g[key(head, i, d)] / std::log(2.0), -40.0);
      numbers.push_back(sum);
    });
    return numbers;
  }
  std::vector<double> decayed_q() const {
    std::vector<double> numbers;
    each(Dk, [&](auto head, auto t, auto d) {
      numbers.push_back(q[key(head, t, d)] * std::exp2(sums[key(head, t, d)]) * scale);
    });
    return numbers;
  }
  std::vector<double> decayed_k() const {
    std::vector<double> numbers;
    each(Dk, [&](auto head, auto t, auto d) {
      const double to_end = sums[key(head, last(t), d)] - sums[key(head, t, d)];
      numbers.push_back(k[key(head, t, d)] * std::exp2(to_end));
    });
    return numbers;
  }
  std::vector<double> pairs() const {
    std::vector<double> numbers(std::size_t(NK * heads * N * W * W));
    each(Dk, [&](auto head, auto t, auto d) {
      for (std::int64_t i = start(t); i <= t; ++i) {
        const double decay = std::exp2(sums[key(head, t, d)] - sums[key(head, i, d)]);
        numbers[std::size_t(score(d / kSlice, head, t, i))] += scale * q[key(head, t, d)] * k[key(head, i, d)] * decay;
      }
    });
    return numbers;
  }
  /// The partials, and on the way the final state.
  std::vector<double> walk() {
    std::vector<double> numbers(std::size_t(NK * heads * L * Dv)), S(std::size_t(heads * Dk * Dv));
    for (std::size_t i = 0; i < S.size(); ++i) S[i] = initial_state[std::int64_t(i)];
    for (std::int64_t head = 0; head < heads; ++head) {
      for (std::int64_t t = 0; t < L; ++t) {
        for (std::int64_t d = 0; d < Dk; ++d) {
          double* partial = &numbers[std::size_t(d / kSlice * heads * L * Dv + value(head, t, 0))];
          const double* row = &S[std::size_t((head * Dk + d) * Dv)];
          for (std::int64_t j = 0; j < Dv; ++j) partial[j] += q_g[key(head, t, d)] * row[j];
        }
        if (t != last(t)) continue;
        for (std::int64_t d = 0; d < Dk; ++d) {
          double* row = &S[std::size_t((head * Dk + d) * Dv)];
          for (std::int64_t j = 0; j < Dv; ++j) {
            row[j] *= std::exp2(sums[key(head, t, d)]);
            for (std::int64_t i = start(t); i <= t; ++i) row[j] += k_g[key(head, i, d)] * v[value(head, i, j)];
          }
        }
      }
    }
    final_state = std::make_unique<Float>(S);
    return numbers;
  }
  std::vector<double> combined() const {
    std::vector<double> numbers;
    each(Dv, [&](auto head, auto t, auto j) {
      double sum = 0;
      for (std::int64_t slice = 0; slice < NK; ++slice) {
        sum += partials[slice * heads * L * Dv + value(head, t, j)];
        for (std::int64_t i = start(t); i <= t; ++i) sum += scores[score(slice, head, t, i)] * v[value(head, i, j)];
      }
      numbers.push_back(sum);
    });
    return numbers;
  }

 public:
  std::unique_ptr<Float> final_state;  // computed with partials
  Half q, k, v;
  Float initial_state, g, sums;
  Half q_g, k_g, scores;
  Float partials;
  Half o;
};

class StepsTest : public testing::TestWithParam<std::array<std::int64_t, 3>> {
 protected:
  Steps steps_{GetParam()[0], GetParam()[1], GetParam()[2]};
};

// Tolerances: fp32 sums of 16 near -640; a rounding to bf16 of what is stored; another on the way
// into a product, of the state or of the sum of scores.
constexpr double kFloat = 1e-6, kRounded = 2e-3, kThroughProduct = 4e-3;

TEST_P(StepsTest, DecayCumsum) {
  steps_.sums.poison();
  decay_cumsum(steps_.arguments(), steps_.intermediates());
  steps_.sums.expect_computed("sums", kFloat);
}

TEST_P(StepsTest, PrepareQgKg) {
  steps_.q_g.poison();
  steps_.k_g.poison();
  prepare_qg_kg(steps_.arguments(), steps_.intermediates());
  steps_.q_g.expect_computed("q_g", kRounded / 10);  // both are rounded: few differ
  steps_.k_g.expect_computed("k_g", kRounded / 10);
}

TEST_P(StepsTest, FusedChunk) {
  steps_.partials.poison();
  steps_.final_state->poison();
  fused_chunk(steps_.arguments(), steps_.intermediates());
  steps_.partials.expect_computed("partials", kThroughProduct);
  steps_.final_state->expect_computed("final_state", kFloat);
}

TEST_P(StepsTest, InnerChunk) {
  steps_.scores.poison();
  inner_chunk(steps_.arguments(), steps_.intermediates());
  steps_.scores.expect_computed("scores", kRounded / 10);
}

TEST_P(StepsTest, Combine) {
  steps_.o.poison();
  combine(steps_.arguments(), steps_.intermediates());
  steps_.o.expect_computed("o", kThroughProduct);
}

TEST_P(StepsTest, PrepareIsTheFirstTwo) {
  steps_.sums.poison();
  steps_.q_g.poison();
  steps_.k_g.poison();
  prepare(steps_.arguments(), steps_.intermediates());
  steps_.sums.expect_computed("sums", kFloat);
  steps_.q_g.expect_computed("q_g", kRounded / 10);
  steps_.k_g.expect_computed("k_g", kRounded / 10);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, StepsTest,
    testing::Values(std::array<std::int64_t, 3>{1, 16, 16}, std::array<std::int64_t, 3>{15, 64, 64},
                    std::array<std::int64_t, 3>{16, 32, 48}, std::array<std::int64_t, 3>{37, 80, 144},
                    std::array<std::int64_t, 3>{100, 256, 80}),
    [](const auto& info) {
      return std::to_string(info.param[0]) + "_" + std::to_string(info.param[1]) + "_" + std::to_string(info.param[2]);
    });

}  // namespace
}  // namespace tutorial::fused_gla
