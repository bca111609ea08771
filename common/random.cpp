#include "common/random.hpp"

#include <cmath>
#include <numbers>
#include <random>

namespace tutorial {
namespace {

constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15u;  // 2^64 / golden ratio, odd: SplitMix64's step

// SplitMix64's output function: a bijection of 64 bits that looks random.
std::uint64_t mix(std::uint64_t z) {
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

}  // namespace

Random::Random(std::uint64_t seed, std::string_view name) : start_(mix(seed + kGolden)) {
  for (const char c : name) start_ = mix((start_ ^ static_cast<unsigned char>(c)) + kGolden);
}

std::uint64_t Random::bits(std::uint64_t i) const {
  return mix(start_ + (i + 1) * kGolden);
}

double Random::uniform(std::uint64_t i) const {
  return (static_cast<double>(bits(i) >> 11) + 0.5) * 0x1p-53;
}

double Random::normal(std::uint64_t i) const {
  // Two uniform numbers make two normal ones: a pair shares radius and angle, one takes the cosine, one the sine.
  const std::uint64_t pair = i & ~std::uint64_t{1};
  const double radius = std::sqrt(-2 * std::log(uniform(pair)));
  const double angle = 2 * std::numbers::pi * uniform(pair + 1);
  return radius * (i == pair ? std::cos(angle) : std::sin(angle));
}

std::uint64_t fresh_seed() {
  return std::random_device{}();  // 32 bits: enough to never repeat, few enough to type again
}

}  // namespace tutorial
