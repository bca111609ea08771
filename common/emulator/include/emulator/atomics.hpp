#pragma once
/// @file
/// CUDA's atomic functions. Blocks run on several OS threads, so these are real atomic operations; as on a GPU they are
/// relaxed: they order nothing but themselves. Each returns the value from before. Types are those that CUDA takes;
/// addresses are aligned to them, which is not checked here.

#include <atomic>
#include <concepts>
#include <type_traits>

#include "emulator/counters.hpp"
#include "emulator/math.hpp"
#include "emulator/small_float.hpp"

namespace emulator {

template <class T, class... Choices>
concept OneOf = (std::same_as<T, Choices> || ...);
template <class T>
concept AtomicInteger = OneOf<T, int, unsigned, unsigned long long>;
template <class T>
concept AtomicExtremum = AtomicInteger<T> || std::same_as<T, long long>;
template <class T>
concept AtomicAddend = AtomicInteger<T> || OneOf<T, float, double> || is_small_float<T>;
template <class T>
concept AtomicExchange = AtomicInteger<T> || std::same_as<T, float>;
template <class T>
concept AtomicCompare = AtomicInteger<T> || std::same_as<T, unsigned short>;

/// A parameter that takes its type from the address, so that atomicAdd(&x, 1) converts the 1 for a float x.
template <class T>
using Operand = std::type_identity_t<T>;

/// Replaces *address by update(*address) in one step.
template <class T, class Update>
T atomic_update(T* address, Update update) {
  count_atomic();
  const std::atomic_ref<T> cell(*address);
  T before = cell.load(std::memory_order_relaxed);
  while (!cell.compare_exchange_weak(before, update(before), std::memory_order_relaxed)) continue;
  return before;
}

/// A sum; integers wrap around.
template <class T>
T wrapping_sum(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
  } else {
    return a + b;
  }
}

}  // namespace emulator

// NOLINTBEGIN(readability-identifier-naming): the names are CUDA's

/// Adds; integers wrap around.
template <emulator::AtomicAddend T>
T atomicAdd(T* address, emulator::Operand<T> addend) {
  return emulator::atomic_update(address, [=](T before) { return emulator::wrapping_sum(before, addend); });
}
/// Subtracts; wraps around.
template <emulator::OneOf<int, unsigned> T>
T atomicSub(T* address, emulator::Operand<T> subtrahend) {
  return atomicAdd(address, static_cast<T>(0u - static_cast<unsigned>(subtrahend)));
}
/// Keeps the smaller one.
template <emulator::AtomicExtremum T>
T atomicMin(T* address, emulator::Operand<T> value) {
  return emulator::atomic_update(address, [=](T before) { return min(before, value); });
}
/// Keeps the larger one.
template <emulator::AtomicExtremum T>
T atomicMax(T* address, emulator::Operand<T> value) {
  return emulator::atomic_update(address, [=](T before) { return max(before, value); });
}
/// Keeps the bits that both have.
template <emulator::AtomicInteger T>
T atomicAnd(T* address, emulator::Operand<T> value) {
  return emulator::atomic_update(address, [=](T before) { return before & value; });
}
/// Keeps the bits that either has.
template <emulator::AtomicInteger T>
T atomicOr(T* address, emulator::Operand<T> value) {
  return emulator::atomic_update(address, [=](T before) { return before | value; });
}
/// Keeps the bits that exactly one has.
template <emulator::AtomicInteger T>
T atomicXor(T* address, emulator::Operand<T> value) {
  return emulator::atomic_update(address, [=](T before) { return before ^ value; });
}
/// Stores `replacement`.
template <emulator::AtomicExchange T>
T atomicExch(T* address, emulator::Operand<T> replacement) {
  return emulator::atomic_update(address, [=](T) { return replacement; });
}
/// Stores `replacement` if `expected` stands there.
template <emulator::AtomicCompare T>
T atomicCAS(T* address, emulator::Operand<T> expected, emulator::Operand<T> replacement) {
  return emulator::atomic_update(address, [=](T before) { return before == expected ? replacement : before; });
}
/// Counts up to `last`, then starts again at 0.
inline unsigned atomicInc(unsigned* address, unsigned last) {
  return emulator::atomic_update(address, [=](unsigned before) { return before >= last ? 0 : before + 1; });
}
/// Counts down to 0, then starts again at `last`.
inline unsigned atomicDec(unsigned* address, unsigned last) {
  return emulator::atomic_update(address,
                                 [=](unsigned before) { return before == 0 || before > last ? last : before - 1; });
}

// NOLINTEND(readability-identifier-naming)
