#include "03_gla/gla/products_of_gates.hpp"
#include "03_gla/gla/requirements.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace tutorial::gla {
namespace {

using Float = std::numeric_limits<float>;  // min() is the smallest normal number

/// The first position at which a product of gates becomes useless, and how close the numbers before it come.
struct Breakage {
  int t = std::numeric_limits<int>::max(), b = 0, h = 0, d = 0;  // t: beyond every sequence where nothing breaks
  float product = 1;                                             // there
  const char* why = nullptr;                                     // it is of no use
  float least = 1, largest = 0;  // |elements| of G and Q . G, and of K / G, of all heads; zeros left out
};

/// Why a product of gates G is of no use to q and k, or null.
const char* reason(float G, float q, float k) {
  if (!std::isfinite(k / G)) return "makes K / G overflow";
  if (G < Float::min()) return "loses its digits";
  if (q != 0 && std::abs(q * G) < Float::min()) return "makes Q . G lose its digits";
  return nullptr;
}

/// Looks at one head up to the first position at which any head breaks.
void look_at_head(const FloatArguments& a, int b, int h, Breakage& first) {
  std::vector<float> G(std::size_t(a.Dk), 1.0f);
  for (int t = 0; t < a.L && t < first.t; ++t) {
    for (int d = 0; d < a.Dk; ++d) {
      const float product = G[std::size_t(d)] *= std::exp(a.g.row(b, h, t)[d]);
      const float q = a.q.row(b, h, t)[d], k = a.k.row(b, h, t)[d];
      if (const char* why = reason(product, q, k)) {
        first = {t, b, h, d, product, why, first.least, first.largest};
        return;
      }
      first.least = std::min(first.least, q != 0 ? std::min(product, std::abs(q * product)) : product);
      first.largest = std::max(first.largest, std::abs(k / product));
    }
  }
}

Breakage first_breakage(const FloatArguments& a) {
  Breakage first;
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) look_at_head(a, b, h, first);
  }
  return first;
}

}  // namespace

std::string what_breaks(const FloatArguments& a) {
  if (a.g.data == nullptr) return "";
  const Breakage first = first_breakage(a);
  if (first.t >= a.L) return "";
  return fmt::format("meant to break, it holds up to L = {} here: G[{}, {}, {}, {}] = {:.2g} {}", first.t, first.b,
                     first.h, first.t, first.d, first.product, first.why);
}

std::string parallel_unstable_unsupported(const FloatArguments& a) {
  const std::string reason = parallel_log_unsupported(a);
  return reason.empty() ? what_breaks(a) : reason;
}

std::string parallel_unstable_note(const FloatArguments& a) {
  const Breakage none = first_breakage(a);
  return fmt::format("holds: G and Q . G fall to {:.2g} (it breaks at {:.2g}), K / G grows to {:.2g} (at {:.2g})",
                     none.least, Float::min(), none.largest, Float::max());
}

}  // namespace tutorial::gla
