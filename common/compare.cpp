#include "common/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <mutex>
#include <stdexcept>

#include "common/parallel.hpp"

namespace tutorial {
namespace {

// What is known of a range of elements.
struct Part {
  double difference = 0;  // sums of squares
  double reference = 0;
  double out = 0;
  double largest = -1;
  std::int64_t worst = -1;       // where the largest deviation is
  std::int64_t non_finite = -1;  // the first one

  void add(double value, double expected, std::int64_t i) {
    if (!std::isfinite(value) || !std::isfinite(expected)) {
      // A number beyond fp32 becomes infinite in the reference, and should in a stage.
      if (value != expected && non_finite < 0) non_finite = i;
      return;
    }
    difference += (value - expected) * (value - expected);
    reference += expected * expected;
    out += value * value;
    if (std::abs(value - expected) > largest) {
      largest = std::abs(value - expected);
      worst = i;
    }
  }

  void merge(const Part& other) {
    difference += other.difference;
    reference += other.reference;
    out += other.out;
    if (other.largest > largest || (other.largest == largest && other.worst < worst)) {
      largest = other.largest;
      worst = other.worst;
    }
    if (other.non_finite >= 0 && (non_finite < 0 || other.non_finite < non_finite)) non_finite = other.non_finite;
  }
};

}  // namespace

Comparison compare(const Tensor& out, const Tensor& reference, const Tensor* subtracted) {
  if (out.shape() != reference.shape()) {
    throw std::logic_error("compare: shapes " + to_string(out.shape()) + " and " + to_string(reference.shape()));
  }
  const auto values = out.elements<float>();
  const auto expected = reference.elements<float>();
  Part whole;
  std::mutex mutex;
  parallel_for(out.size(), [&](std::int64_t begin, std::int64_t end) {
    Part part;
    for (std::int64_t i = begin; i < end; ++i) part.add(values[i], expected[i], i);
    const std::lock_guard lock(mutex);
    whole.merge(part);
  });

  if (subtracted != nullptr) {
    for (const float x : subtracted->elements<float>()) whole.reference += double(x) * double(x);
  }

  Comparison result;
  const bool finite = whole.non_finite < 0;
  // Below the smallest normal number, 1.2e-38, fp32 has fewer digits: 1e-40 is a multiple of 1.4e-45, and no closer
  // than 1e-5 to what it stands for. So the reference counts as one of normal numbers.
  constexpr double kNormal = std::numeric_limits<float>::min();
  const double least = static_cast<double>(out.size()) * kNormal * kNormal;
  result.error = !finite               ? std::numeric_limits<double>::quiet_NaN()
                 : whole.reference > 0 ? std::sqrt(whole.difference / std::max(whole.reference, least))
                                       : std::sqrt(whole.out);
  const std::int64_t worst = finite ? whole.worst : whole.non_finite;
  if (worst >= 0) {
    result.worst = index_of(out.shape(), worst);
    result.value = values[worst];
    result.expected = expected[worst];
    // No arithmetic makes this NaN: processors give 0x7FC00000 or 0xFFC00000, GPUs 0x7FFFFFFF. But a processor hands it on
    // from a factor to a product, and the emulator's memory is full of it before it is written.
    result.unwritten = std::bit_cast<std::uint32_t>(values[worst]) >> 16 == 0xFFFFu;
  }
  return result;
}

std::string describe(const Comparison& comparison, const std::string& name) {
  const std::string where = name + to_string(comparison.worst);
  if (comparison.unwritten) {
#if TUTORIAL_EMULATOR
    return where + " was never written, or computed from memory that was not";
#else
    return where + " was never written";
#endif
  }
  return fmt::format("{} is {:.7g}, not {:.7g}", where, comparison.value, comparison.expected);
}

}  // namespace tutorial
