/// @file
/// What five_steps and intra_fused leave in memory between their kernels, tensor by tensor, against a
/// computation in double on the CPU.

#include <array>
#include <cmath>
#include <vector>

#include "04_fused_chunk/gla/intermediates.hpp"
#include "04_fused_chunk/test/stages.hpp"
#include "common/small_float.hpp"

namespace tutorial::fused_gla {
namespace {

constexpr std::int64_t c = kSubChunk;

/// A tensor: numbers as they are after rounding to T, and device memory of its own with them.
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

  /// Expects these numbers in device memory.
  void expect_at(const T* memory, const char* name, double tolerance) const {
    std::vector<T> elements(numbers_.size());
    check(cudaMemcpyAsync(elements.data(), memory, elements.size() * sizeof(T), cudaMemcpyDeviceToHost,
                          current_stream()));
    check(cudaStreamSynchronize(current_stream()));
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
  /// Fills as much memory with NaN, so that only what a kernel writes is found there.
  void poison(T* memory) const { check(cudaMemsetAsync(memory, 0xFF, numbers_.size() * sizeof(T), current_stream())); }

 private:
  std::vector<double> numbers_;
  DeviceBuffer<T> device_;
};
using Bf16 = Array<__nv_bfloat16>;
using Float = Array<float>;

/// A problem and what the five steps make of it, as defined in the comment of 1_five_steps.cu.
class Steps {
 public:
  const std::int64_t B, H, L, Dk, Dv, heads = B * H, R = sub_chunks(int(L)), NK = slices(int(Dk));
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

  Bf16Arguments arguments() {
    const auto of_keys = [&](auto& array) { return packed(array.device(), H, L, Dk); };
    Bf16Arguments a{};
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

  std::int64_t start(std::int64_t t) const { return t / c * c; }
  std::int64_t last(std::int64_t t) const { return std::min(start(t) + c, L) - 1; }
  std::int64_t key(std::int64_t head, std::int64_t t, std::int64_t d) const { return (head * L + t) * Dk + d; }
  std::int64_t value(std::int64_t head, std::int64_t t, std::int64_t j) const { return (head * L + t) * Dv + j; }
  std::int64_t score(std::int64_t slice, std::int64_t head, std::int64_t t, std::int64_t i) const {
    return (((slice * heads + head) * R + t / c) * c + t % c) * c + i % c;
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
      for (std::int64_t i = start(t); i <= t; ++i) sum += std::max(g[key(head, i, d)] / std::log(2.0), -127.0);
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
    std::vector<double> numbers(std::size_t(NK * heads * R * c * c));
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
  Bf16 q, k, v;
  Float initial_state, g, sums;
  Bf16 q_g, k_g, scores;
  Float partials;
  Bf16 o;
};

struct Case {
  const char* name;
  void (*run)(const Bf16Arguments&);
  bool has_outputs;  // scores and partials
};

class StepsTest : public testing::TestWithParam<std::tuple<Case, std::array<std::int64_t, 3>>> {};

// Tolerances: fp32 sums of 16 near -640; bf16 that is rounded once, of which few differ; a state or a sum of scores
// that is rounded on its way into a product.
constexpr double kFloat = 1e-6, kFewDiffer = 2e-4, kThroughProduct = 4e-3;

TEST_P(StepsTest, LeaveInMemoryWhatTheyShould) {
  const auto& [stage, sizes] = GetParam();
  Steps steps(sizes[0], sizes[1], sizes[2]);
  const Bf16Arguments a = steps.arguments();
  const Intermediates x = intermediates(a, stage.has_outputs);
  steps.sums.poison(x.sums.data);
  steps.q_g.poison(x.q_g.data);
  steps.k_g.poison(x.k_g.data);
  steps.o.poison(a.o.data);
  steps.final_state->poison(a.final_state.data);
  if (stage.has_outputs) steps.scores.poison(x.scores);
  if (stage.has_outputs) steps.partials.poison(x.partials);

  stage.run(a);

  steps.sums.expect_at(x.sums.data, "sums", kFloat);
  steps.q_g.expect_at(x.q_g.data, "q_g", kFewDiffer);
  steps.k_g.expect_at(x.k_g.data, "k_g", kFewDiffer);
  if (stage.has_outputs) steps.scores.expect_at(x.scores, "scores", kFewDiffer);
  if (stage.has_outputs) steps.partials.expect_at(x.partials, "partials", kThroughProduct);
  steps.o.expect_at(a.o.data, "o", kThroughProduct);
  steps.final_state->expect_at(a.final_state.data, "final_state", kFewDiffer);
}

constexpr Case kCases[] = {{"five_steps", five_steps, true}, {"intra_fused", intra_fused, false}};

std::string name_of(const testing::TestParamInfo<StepsTest::ParamType>& info) {
  const auto& [stage, sizes] = info.param;
  return std::string(stage.name) + "_" + std::to_string(sizes[0]) + "_" + std::to_string(sizes[1]) + "_" +
         std::to_string(sizes[2]);
}

INSTANTIATE_TEST_SUITE_P(
    Stages, StepsTest,
    testing::Combine(testing::ValuesIn(kCases),
                     testing::Values(std::array<std::int64_t, 3>{1, 16, 16}, std::array<std::int64_t, 3>{15, 64, 64},
                                     std::array<std::int64_t, 3>{16, 32, 48}, std::array<std::int64_t, 3>{37, 80, 144},
                                     std::array<std::int64_t, 3>{100, 256, 80})),
    name_of);

}  // namespace
}  // namespace tutorial::fused_gla
