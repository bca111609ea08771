/// @file
/// One kernel for each way in which threads hand data to each other, under the detector of races or a sanitizer. A sample
/// of what their presets run: it links these kernels alone, so that it is built in minutes. Results are not looked at here;
/// the chapters' tests do that. A sanitizer ends the program with a status of its own where it has found something; that
/// it does, the emulator's tests of faults tell.

#include <cuda_bf16.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <emulator/launch.hpp>

#include "01_linear_attention/causal_dot_product.hpp"
#include "02_chunkwise/linear_attention.hpp"
#include "02_chunkwise/linear_attention_packed/dispatch/walks.hpp"
#include "03_gla/gla.hpp"
#include "04_fused_chunk/fused_gla.hpp"
#include "04_fused_chunk/gla/launch_plan.hpp"
#include "05_deltanet_wy/delta_rule.hpp"
#include "05_deltanet_wy/kda.hpp"
#include "06_scan/scan.hpp"
#include "common/device/buffer.hpp"

namespace tutorial {
namespace {

constexpr int kHeads = 2, kLength = 200, kWidth = 64;

/// Tensors of a call: they live as long as this.
class Tensors {
 public:
  /// [1, kHeads, length, width], with numbers in (-scale, scale), or (-scale, 0) for logarithms of gates.
  template <class T>
  View<T> make(int width, double scale = 1, bool negative = false, int length = kLength) {
    std::vector<T> values(static_cast<std::size_t>(kHeads) * static_cast<std::size_t>(length * width));
    for (T& value : values) {
      state_ = state_ * 1664525u + 1013904223u;
      const double part = state_ / 4294967296.0;
      value = static_cast<T>(static_cast<float>(scale * (negative ? -part : 2 * part - 1)));
    }
    const auto buffer = std::make_shared<DeviceBuffer<T>>(values);
    alive_.push_back(buffer);
    return packed(buffer->data(), kHeads, length, width);
  }

 private:
  unsigned state_ = 1;
  std::vector<std::shared_ptr<void>> alive_;
};

template <class Arguments>
Arguments with_q_k_v(Tensors& tensors) {
  Arguments a{};
  a.B = 1, a.H = kHeads, a.L = kLength, a.Dk = kWidth, a.Dv = kWidth;
  using T = std::remove_pointer_t<decltype(a.o.data)>;
  a.q = read_only(tensors.make<T>(kWidth));
  a.k = read_only(tensors.make<T>(kWidth, 0.2));
  a.v = read_only(tensors.make<T>(kWidth));
  a.o = tensors.make<T>(kWidth);
  return a;
}

struct Sample {
  const char* name;
  std::function<void()> run;
  const char* file;
  const char* hand_over;  ///< the first line of it that has this text is weakened
};

void PrintTo(const Sample& sample, std::ostream* stream) {
  *stream << sample.name;
}

void run_lmha() {
  Tensors tensors;
  causal_dot_product::lmha(with_q_k_v<causal_dot_product::Arguments>(tensors));
}

void run_linear_attention(void (*stage)(const linear_attention::Bf16Arguments&)) {
  Tensors tensors;
  auto a = with_q_k_v<linear_attention::Bf16Arguments>(tensors);
  a.scale = 1;
  stage(a);
}

void run_packed(void (*walk)(const linear_attention::PackedBf16Arguments&, tile::PackedPlan)) {
  Tensors tensors;
  auto a = with_q_k_v<linear_attention::Bf16Arguments>(tensors);
  a.scale = 1;
  const std::vector<std::int32_t> offsets{0, 37, 37, 150, kLength};
  const DeviceBuffer<std::int32_t> cu_seqlens(offsets);
  constexpr int kSegment = 64;
  walk({a, cu_seqlens.data(), 4}, {kWidth, kSegment, (kLength - 1) / kSegment, 4});
  cudaDeviceSynchronize();  // cu_seqlens is in use until then; what went wrong, launch_of() tells
}

void run_gla(void (*stage)(const gla::Bf16Arguments&)) {
  Tensors tensors;
  auto a = with_q_k_v<gla::Bf16Arguments>(tensors);
  a.scale = 1;
  a.g = read_only(tensors.make<std::remove_const_t<std::remove_pointer_t<decltype(a.g.data)>>>(kWidth, 0.5, true));
  stage(a);
}

void walk_segments_early(const gla::Bf16Arguments& a) {
  tile::LaunchPlan plan = tile::make_launch_plan(a.L, 64, 2);
  plan.starts_early = true;
  fused_gla::walk_segments(a, plan);
}

void run_delta_rule(void (*stage)(const delta_rule::Bf16Arguments&)) {
  Tensors tensors;
  auto a = with_q_k_v<delta_rule::Bf16Arguments>(tensors);
  a.scale = 1;
  a.beta = read_only(tensors.make<float>(1));
  stage(a);
}

void run_kda() {
  Tensors tensors;
  auto a = with_q_k_v<kda::Bf16Arguments>(tensors);
  a.scale = 1;
  a.g = read_only(tensors.make<float>(kWidth, 0.5, true));
  a.beta = read_only(tensors.make<float>(1));
  kda::one_anchor(a);
}

void run_scan() {
  constexpr int kSteps = 3000, kChannels = 3;
  Tensors tensors;
  scan::Arguments a{};
  a.B = 1, a.H = kHeads, a.L = kSteps, a.D = kChannels, a.Dg = kChannels;
  a.x = read_only(tensors.make<float>(kChannels, 1, false, kSteps));
  a.log_decay = read_only(tensors.make<float>(kChannels, 0.5, true, kSteps));
  a.y = tensors.make<float>(kChannels, 1, false, kSteps);
  scan::warp_look_back(a);
}

const Sample kSamples[] = {
    {"BlockBarrier", run_lmha, "01_linear_attention/causal_dot_product/5_lmha.cu", "__syncthreads()"},
    {"AsynchronousCopy", [] { run_linear_attention(linear_attention::pipelined); },
     "02_chunkwise/linear_attention/8_pipelined.cu", "__syncthreads()"},
    {"BulkCopy", [] { run_linear_attention(linear_attention::bulk_copies); },
     "02_chunkwise/linear_attention/10_bulk_copies.cu", "ring.wait(full)"},
    {"Roles", [] { run_linear_attention(linear_attention::queued_products); },
     "02_chunkwise/linear_attention/14_queued_products.cu", "scores_full[score_ring.stage()].arrive()"},
    {"AsyncProxy", [] { run_linear_attention(linear_attention::queued_products); },
     "02_chunkwise/linear_attention/14_queued_products.cu", "fence_async_proxy()"},
    {"PackedByWarps", [] { run_packed(linear_attention::packed_walk); }, "common/tile/packed_segments.cuh",
     "__syncthreads()"},
    {"PackedByWarpgroups", [] { run_packed(linear_attention::hopper_packed); }, "common/tile/rows_of_sequence.cuh",
     "fence_async_proxy()"},
    {"WarpgroupWalk", [] { run_gla(gla::warpgroup_walk); }, "03_gla/gla/9_warpgroup_walk.cu",
     "output_ring.wait(output_full)"},
    {"NamedBarrierAndEarlyStart", [] { run_gla(walk_segments_early); }, "04_fused_chunk/gla/segment_starts.cuh",
     "wait_at_named_barrier("},
    {"Cluster", [] { run_delta_rule(delta_rule::three_blocks); }, "05_deltanet_wy/delta_rule/12_three_blocks.cu",
     "wait_cluster("},
    {"TwoChains", [] { run_delta_rule(delta_rule::one_block); }, "05_deltanet_wy/chunk/one_block.cuh",
     "ring.wait(barriers.output_full)"},
    {"PreparedByWarpgroups", run_kda, "05_deltanet_wy/kda/5_one_anchor.cu", "__syncthreads()"},
    {"LookBack", run_scan, "06_scan/scan/8_warp_look_back.cu", "__syncthreads()"},
};

cudaError_t launch_of(const Sample& sample) {
  try {
    sample.run();
  } catch (const CudaError& error) {
    return error.code();
  }
  return cudaDeviceSynchronize();
}

class HandOversTest : public testing::TestWithParam<Sample> {};

TEST_P(HandOversTest, AreInOrder) {
#if defined(EMULATOR_TSAN)
  if (std::string(GetParam().name).starts_with("Packed")) GTEST_SKIP() << "takes minutes with ThreadSanitizer";
#endif
  // One order is enough for what all orders run. In another one a block may take another branch.
  for (const char* schedule : {"forward", "warps", "random:1"}) {
    setenv("EMULATOR_SCHEDULE", schedule, 1);
    EXPECT_EQ(launch_of(GetParam()), cudaSuccess) << schedule << ": " << emulator::last_report();
  }
  unsetenv("EMULATOR_SCHEDULE");
}

#if defined(EMULATOR_RACES_BUILD)
/// "FILE:LINE" of the hand-over; empty if the file does not have it.
std::string place_of(const Sample& sample) {
  std::ifstream stream(std::string(PROJECT_FOLDER "/") + sample.file);
  std::string text;
  for (int line = 1; std::getline(stream, text); ++line) {
    if (text.find(sample.hand_over) != std::string::npos) return std::string(sample.file) + ":" + std::to_string(line);
  }
  return "";
}

TEST_P(HandOversTest, AreARaceWhereOneHandsOverNothing) {
  const std::string place = place_of(GetParam());
  ASSERT_FALSE(place.empty()) << GetParam().file << " has no line with " << GetParam().hand_over;
  setenv("EMULATOR_SKIP_BARRIER", (place + ":relaxed").c_str(), 1);
  const cudaError_t result = launch_of(GetParam());
  unsetenv("EMULATOR_SKIP_BARRIER");
  EXPECT_EQ(result, cudaErrorLaunchFailure) << place;
  EXPECT_THAT(emulator::last_report(),
              testing::ContainsRegex("nothing orders them|fence_async_proxy\\(\\) is missing"));
}
#endif

INSTANTIATE_TEST_SUITE_P(Each, HandOversTest, testing::ValuesIn(kSamples),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tutorial
