#pragma once
/// @file
/// The updates of states that `replay` keeps beside them.

#include <cstdint>

#include "06_scan/decode.hpp"

namespace tutorial::decode {

inline constexpr int kMostKept = 15;  ///< the next token writes the state

/// The updates since the state was written, the oldest first: S = gate S + k^T value each.
struct KeptUpdates {
  std::int64_t heads;  ///< B H
  int Dk, Dv, width;   ///< width of gates: Dk, or 1
  float* memory;       ///< values [15, B H, Dv], keys [15, B H, Dk], gates [15, B H, width]
  int count = 0;       ///< how many there are

  /// The values of update i of a head.
  TUTORIAL_HOST_DEVICE float* value(int i, int head) const { return memory + (i * heads + head) * Dv; }
  /// Its key.
  TUTORIAL_HOST_DEVICE float* key(int i, int head) const {
    return memory + kMostKept * heads * Dv + (i * heads + head) * Dk;
  }
  /// Its gates.
  TUTORIAL_HOST_DEVICE float* gate(int i, int head) const {
    return memory + kMostKept * heads * (Dk + Dv) + (i * heads + head) * width;
  }
};

/// Those of a rule. @param memory kept_count() elements, aligned to 16 bytes
inline KeptUpdates kept_updates(Rule rule, const Bf16Arguments& a, float* memory) {
  return {std::int64_t(a.B) * a.H, a.Dk, a.Dv, has_row_gates(rule) ? a.Dk : 1, memory};
}

/// Elements of memory for them.
inline std::int64_t kept_count(Rule rule, const Bf16Arguments& a) {
  const KeptUpdates kept = kept_updates(rule, a, nullptr);
  return kMostKept * kept.heads * (kept.Dk + kept.Dv + kept.width);
}

}  // namespace tutorial::decode
