#include "06_scan/decode/tokens.hpp"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "06_scan/decode.hpp"
#include "06_scan/decode/requirements.hpp"
#include "common/chapter/machine.hpp"
#include "common/device/buffer.hpp"
#include "common/roofline.hpp"
#include "common/timing.hpp"
#include "common/units.hpp"

namespace tutorial::decode {
namespace {

constexpr int kHeads = 8, kWidth = 128;
constexpr std::array kBatches = {1, 4, 16, 64, 256, 1024};

const char* name_of(Rule rule) {
  constexpr std::array kNames = {"simple_gla", "gla", "delta_rule", "normalized", "gated_delta_rule", "kda"};
  return kNames[std::size_t(rule)];
}

std::int64_t bytes_of(Rule rule, int B) {
  return token_bytes(rule, std::int64_t(B) * kHeads, kWidth, kWidth);
}

#if TUTORIAL_CUDA

/// The tensors of one token. All numbers are small, so that nothing grows however often it comes.
class Token {
 public:
  explicit Token(int B)
      : B_(B),
        keys_(std::size_t(B) * kHeads * kWidth),
        rows_(2 * keys_),
        out_(keys_),
        gates_(keys_),
        betas_(keys_),
        states_(2 * keys_ * kWidth),
        z_(2 * keys_) {
    rows_.fill_bytes(0x3C);   // 0.011, in bf16 and in fp32
    gates_.fill_bytes(0xBC);  // -0.011
    betas_.fill_bytes(0x3C);
    states_.fill_bytes(0x3C);
    z_.fill_bytes(0x3C);
  }

  /// A token that finds the states in one place and leaves them in another, as the first one after a prompt does.
  Bf16Arguments first(Rule rule) {
    const auto rows = packed<const __nv_bfloat16>(rows_.data(), kHeads, 1, kWidth);
    Bf16Arguments a{};
    a.B = B_, a.H = kHeads, a.L = 1, a.Dk = a.Dv = kWidth;
    a.scale = 1, a.eps = 1e-6f;
    a.q = a.v = rows;
    a.k = packed<const __nv_bfloat16>(rows_.data() + keys_, kHeads, 1, kWidth);
    a.g = packed<const float>(gates_.data(), kHeads, 1, has_row_gates(rule) ? kWidth : 1);
    a.beta = packed<const float>(betas_.data(), kHeads, 1, 1);
    a.initial_state = packed<const float>(states_.data() + keys_ * kWidth, kHeads, kWidth, kWidth);
    a.initial_z = z_.data() + keys_;
    a.o = packed(out_.data(), kHeads, 1, kWidth);
    a.final_state = packed(states_.data(), kHeads, kWidth, kWidth);
    a.final_z = z_.data();
    return a;
  }

  /// A token that updates the state in place, as all others do.
  Bf16Arguments next(Rule rule) {
    Bf16Arguments a = first(rule);
    a.initial_state = packed<const float>(states_.data(), kHeads, kWidth, kWidth);
    return a;
  }

 private:
  int B_;
  std::size_t keys_;  // elements of k
  DeviceBuffer<__nv_bfloat16> rows_, out_;
  DeviceBuffer<float> gates_, betas_, states_, z_;
};

template <Rule kRule>
std::string line(GpuTimer& timer, int B, double copy_bytes_s) {
  constexpr int kLoop = 100;
  const auto bytes = double(bytes_of(kRule, B));
  const std::string start = fmt::format("{:<17}{:>6}{:>12}", name_of(kRule), B, format_quantity(bytes, "B"));
  if (2 * bytes > double(available_gpu_memory())) return start + "  not enough memory\n";
  Token token(B);
  const Bf16Arguments first = token.first(kRule), next = token.next(kRule);
  const auto launch_next = [&] { dispatch<kRule>(next); };
  const TimingPlan plan{.warmup = 3, .least = 20, .most = 50, .budget_s = 0.5};
  const double flushed = timer.time({.call = [&] { dispatch<kRule>(first); }}, plan).median;
  const double loop = timer
                          .time({.call =
                                     [&] {
                                       for (int i = 0; i < kLoop; ++i) launch_next();
                                     }},
                                plan)
                          .median /
                      kLoop;
  const double graph = timer.time_in_graph(launch_next, loop);
  const double rate = bytes / (1e-3 * flushed);
  return start + fmt::format("{:>11.2f}{:>11.2f}{:>11.2f}{:>9.0f}{:>8.0f}%\n", 1e3 * flushed, 1e3 * loop, 1e3 * graph,
                             1e-9 * rate, 100 * rate / copy_bytes_s);
}

#endif

}  // namespace

Demonstration tokens() {
  std::string text = fmt::format("One token, {} heads, Dk = Dv = {}, state in fp32. ", kHeads, kWidth);
#if TUTORIAL_CUDA
  GpuTimer timer;
  const double copy = measure_gpu_roofline({}).copy_bytes_s;
  text += fmt::format(
      "Microseconds per token: flushed, with the L2 cache full of\nother data; in a loop of launches; in a CUDA graph. "
      "GB/s and the share of the copy's {}: flushed.\n\n{:<17}{:>6}{:>12}{:>11}{:>11}{:>11}{:>9}{:>9}\n",
      format_quantity(copy, "B/s"), "rule", "B", "bytes", "flushed", "loop", "graph", "GB/s", "of copy");
  const auto lines = [&]<Rule kRule>() {
    for (const int B : kBatches) text += line<kRule>(timer, B, copy);
  };
  lines.operator()<Rule::simple_gla>();
  lines.operator()<Rule::gla>();
  lines.operator()<Rule::delta_rule>();
  lines.operator()<Rule::normalized>();
  lines.operator()<Rule::gated_delta_rule>();
  lines.operator()<Rule::kda>();
#else
  text += fmt::format("There is nothing to time without a GPU.\n\n{:<17}{:>6}{:>12}\n", "rule", "B", "bytes");
  for (const Rule rule :
       {Rule::simple_gla, Rule::gla, Rule::delta_rule, Rule::normalized, Rule::gated_delta_rule, Rule::kda}) {
    for (const int B : kBatches) {
      text += fmt::format("{:<17}{:>6}{:>12}\n", name_of(rule), B, format_quantity(double(bytes_of(rule, B)), "B"));
    }
  }
#endif
  return {.text = text, .passed = true};
}

}  // namespace tutorial::decode
