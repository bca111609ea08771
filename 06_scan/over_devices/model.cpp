#include "06_scan/over_devices/model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <utility>

namespace tutorial::over_devices {
namespace {

constexpr double kHeads = 8, kWidth = 128;
constexpr double kState = 4 * kHeads * kWidth * kWidth;  // bytes

// One H200, 2026-11-23: `dispatch` in a CUDA graph, for 8 heads of 2^14 positions, and for 8 heads of 2^20.
struct Measured {
  double short_ms, long_ms;
};
constexpr double kShort = 1 << 14, kLong = 1 << 20;
constexpr std::array<Measured, 3> kMeasured = {{{0.0545, 2.872}, {0.0669, 3.673}, {0.1342, 7.416}}};  // by rule

// Two H200 of one host, NCCL 2.28 without NVLink multicast: a message of 1 KB, and one of 256 MB.
constexpr double kMessageMs = 0.016, kLinkBytesPerMs = 353e6;

// One H200: copies, and multiply-adds in fp32.
constexpr double kCopyBytesPerMs = 4.2e9, kFlopsPerMs = 58.7e9;

const char* name_of(Rule rule) {
  constexpr std::array kNames = {"linear_attention", "simple_gla", "delta_rule"};
  return kNames[std::size_t(rule)];
}

}  // namespace

double pass_ms(Rule rule, double positions) {
  const Measured& m = kMeasured[std::size_t(rule)];
  const double per_position = (m.long_ms - m.short_ms) / (kLong - kShort);
  return std::max(0.0, m.short_ms - per_position * kShort) + per_position * positions;
}

double message_ms(double bytes) {
  return kMessageMs + bytes / kLinkBytesPerMs;
}

double relay_ms(Rule rule, double N, double L) {
  return N * pass_ms(rule, L / N) + (N - 1) * message_ms(kState);
}

double all_gather_ms(Rule rule, double N, double L) {
  if (N == 1) return pass_ms(rule, L);
  const bool is_matrix = rule == Rule::delta_rule;
  const double map = is_matrix ? 2 * kState : kState;
  // N = 2: the first device alone has a first pass, which is its only one.
  const double first = is_matrix && N > 2 ? 2 * pass_ms(rule, L / N) : pass_ms(rule, L / N);
  const double gather = (N - 1) * message_ms(map);
  const double products = is_matrix ? (N - 2) * 2 * kHeads * kWidth * kWidth * kWidth / kFlopsPerMs : 0;
  return first + gather + (N - 1) * map / kCopyBytesPerMs + products + pass_ms(rule, L / N);
}

double states_alone_ms(Rule rule, double N, double L) {
  if (N == 1) return pass_ms(rule, L);
  constexpr double kFirstPass = 0.5;  // of a pass with outputs: k and v of q, k, v and o
  return (kFirstPass + 1) * pass_ms(rule, L / N) + (N - 1) * (message_ms(kState) + kState / kCopyBytesPerMs);
}

double head_by_head_ms(Rule rule, double N, double L) {
  // A pass over 8 heads of L / 8 positions has as many bytes and operations as one over a head of L.
  const double head = pass_ms(rule, L / N / kHeads);
  const double transfers = N == 1 ? 0 : (N == 2 ? 1 : 2) * message_ms(kState / kHeads);  // to receive and to send
  return (kHeads + N - 1) * (head + transfers);
}

Demonstration model() {
  constexpr std::array kDevices = {1, 2, 3, 4, 8, 16, 64, 256, 1024};
  constexpr std::array kLogLengths = {16, 20, 25, 30};
  std::string text =
      "A model, not a measurement: milliseconds on N H200, bf16, B = 1, H = 8, Dk = Dv = 128, from times of one "
      "device\n"
      "and of one link within a host (docs/notebook/06_over_devices.md has the assumptions).\n";
  for (const Rule rule : {Rule::linear_attention, Rule::simple_gla, Rule::delta_rule}) {
    text += fmt::format("\n{}\n{:<6}{:<13}N =", name_of(rule), "L", "");
    for (const int N : kDevices) text += fmt::format("{:>{}}", N, N == 1 ? 6 : 9);
    text += "\n";
    for (const int log_length : kLogLengths) {
      const double L = double(std::size_t{1} << log_length);
      for (const auto& [stage, time] : {std::pair("relay", &relay_ms),
                                        {"all_gather", &all_gather_ms},
                                        {"states_alone", &states_alone_ms},
                                        {"head_by_head", &head_by_head_ms}}) {
        if (rule == Rule::delta_rule && time == &states_alone_ms) continue;
        text += fmt::format("{:<6}{:<13}", fmt::format("2^{}", log_length), stage);
        for (const int N : kDevices) {
          const double ms = time(rule, N, L);
          text += ms < 1e4 ? fmt::format("{:>9.4g}", ms) : fmt::format("{:>9.0f}", ms);
        }
        text += "\n";
      }
    }
  }
  return {.text = text, .passed = true};
}

}  // namespace tutorial::over_devices
