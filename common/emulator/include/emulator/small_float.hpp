#pragma once
/// @file
/// 16-bit floating-point numbers, from which cuda_bf16.h and cuda_fp16.h make CUDA's types. A format says how its bits
/// become a float and back; everything else is done in float and rounded once.

#include <bit>
#include <compare>
#include <cstdint>

namespace emulator {

/// Rounds a double to a float with its last bit set if anything was lost ("round to odd"). Rounding that once more to
/// 16 bits then gives what rounding the double at once would have given. Source: Boldo and Melquiond, "Emulation of a
/// FMA and correctly rounded sums: proved algorithms using rounding to odd", IEEE Transactions on Computers 57(4),
/// 2008.
constexpr float round_to_odd(double exact) {
  const auto nearest = static_cast<float>(exact);
  if (static_cast<double>(nearest) == exact || exact != exact) return nearest;
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  const bool away_from_zero = (exact < 0) ? nearest < exact : nearest > exact;
  if (away_from_zero) --bits;  // the bits of a float are ordered as its magnitude, so this is the next one towards zero
  return std::bit_cast<float>(bits | 1);
}

/// A number of 16 bits. The result of an operator is the exact one rounded to nearest, ties to even: float has more
/// than twice the digits of either format, so that rounding to float on the way changes nothing.
template <class Format>
class SmallFloat {
 public:
  /// Not initialised.
  SmallFloat() = default;
  // Rounded once, to nearest, ties to even; what is too large becomes infinity.
  constexpr SmallFloat(float value) : bits_(Format::encode(value)) {}
  constexpr SmallFloat(double value) : bits_(Format::encode(round_to_odd(value))) {}
  constexpr SmallFloat(int value) : SmallFloat(static_cast<double>(value)) {}
  constexpr SmallFloat(unsigned value) : SmallFloat(static_cast<double>(value)) {}
  constexpr operator float() const { return Format::decode(bits_); }

  /// The number that has these bits.
  static constexpr SmallFloat from_bits(std::uint16_t bits) {
    SmallFloat result(0.0f);
    result.bits_ = bits;
    return result;
  }
  constexpr std::uint16_t bits() const { return bits_; }

  // Computed in float, rounded once.
  friend constexpr SmallFloat operator+(SmallFloat a, SmallFloat b) { return decoded(a) + decoded(b); }
  friend constexpr SmallFloat operator-(SmallFloat a, SmallFloat b) { return decoded(a) - decoded(b); }
  friend constexpr SmallFloat operator*(SmallFloat a, SmallFloat b) { return decoded(a) * decoded(b); }
  friend constexpr SmallFloat operator/(SmallFloat a, SmallFloat b) { return decoded(a) / decoded(b); }
  friend constexpr SmallFloat operator+(SmallFloat a) { return a; }
  friend constexpr SmallFloat operator-(SmallFloat a) { return from_bits(a.bits_ ^ 0x8000); }
  constexpr SmallFloat& operator+=(SmallFloat other) { return *this = *this + other; }
  constexpr SmallFloat& operator-=(SmallFloat other) { return *this = *this - other; }
  constexpr SmallFloat& operator*=(SmallFloat other) { return *this = *this * other; }
  constexpr SmallFloat& operator/=(SmallFloat other) { return *this = *this / other; }
  friend constexpr bool operator==(SmallFloat a, SmallFloat b) { return decoded(a) == decoded(b); }
  friend constexpr auto operator<=>(SmallFloat a, SmallFloat b) { return decoded(a) <=> decoded(b); }

 private:
  static constexpr float decoded(SmallFloat value) { return Format::decode(value.bits_); }

  std::uint16_t bits_;
};

/// Two of them in one 32-bit register, x in the lower half.
template <class Format>
struct alignas(4) SmallFloatPair {
  SmallFloat<Format> x, y;

  SmallFloatPair() = default;
  constexpr SmallFloatPair(SmallFloat<Format> low, SmallFloat<Format> high) : x(low), y(high) {}

  // Each for itself.
  friend constexpr SmallFloatPair operator+(SmallFloatPair a, SmallFloatPair b) { return {a.x + b.x, a.y + b.y}; }
  friend constexpr SmallFloatPair operator-(SmallFloatPair a, SmallFloatPair b) { return {a.x - b.x, a.y - b.y}; }
  friend constexpr SmallFloatPair operator*(SmallFloatPair a, SmallFloatPair b) { return {a.x * b.x, a.y * b.y}; }
  friend constexpr SmallFloatPair operator/(SmallFloatPair a, SmallFloatPair b) { return {a.x / b.x, a.y / b.y}; }
  friend constexpr SmallFloatPair operator-(SmallFloatPair a) { return {-a.x, -a.y}; }
  constexpr SmallFloatPair& operator+=(SmallFloatPair other) { return *this = *this + other; }
  constexpr SmallFloatPair& operator-=(SmallFloatPair other) { return *this = *this - other; }
  constexpr SmallFloatPair& operator*=(SmallFloatPair other) { return *this = *this * other; }
  constexpr SmallFloatPair& operator/=(SmallFloatPair other) { return *this = *this / other; }
  friend constexpr bool operator==(SmallFloatPair a, SmallFloatPair b) { return a.x == b.x && a.y == b.y; }
};

/// Whether T is one of the 16-bit numbers or a pair of them.
template <class T>
inline constexpr bool is_small_float = false;
template <class Format>
inline constexpr bool is_small_float<SmallFloat<Format>> = true;
template <class Format>
inline constexpr bool is_small_float<SmallFloatPair<Format>> = true;

}  // namespace emulator
