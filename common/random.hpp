#pragma once
/// @file
/// Random numbers that are the same on every machine for the same seed.

#include <cstdint>
#include <string_view>

namespace tutorial {

/// A stream of random numbers with random access: number i is a function of seed, name and i alone, so that threads
/// can draw parts of a tensor in any order, and one input of an operator does not depend on how many others there are.
/// The generator is SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014) with its
/// counter given from outside. (The distributions of the standard library differ between implementations.)
class Random {
 public:
  /// Different names have different numbers for the same seed.
  Random(std::uint64_t seed, std::string_view name);

  /// 64 random bits.
  std::uint64_t bits(std::uint64_t i) const;
  /// Uniform in the open interval (0, 1).
  double uniform(std::uint64_t i) const;
  /// Standard normal (Box and Muller, 1958): numbers 2 i and 2 i + 1 share two uniform ones.
  double normal(std::uint64_t i) const;

 private:
  std::uint64_t start_;
};

/// A seed that no one has chosen, of 32 bits.
std::uint64_t fresh_seed();

}  // namespace tutorial
