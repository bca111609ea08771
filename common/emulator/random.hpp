#pragma once
/// @file
/// Numbers that look random and are the same on every machine.

#include <cstdint>

namespace emulator {

/// A permutation of the 64-bit numbers whose output looks random: the finaliser of SplitMix64 (Steele, Lea and Flood,
/// "Fast splittable pseudorandom number generators", 2014).
inline std::uint64_t scramble(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

/// The next number of the sequence that `state` stands for.
inline std::uint64_t next_random(std::uint64_t& state) {
  return scramble(state += 0x9E3779B97F4A7C15u);
}

}  // namespace emulator
