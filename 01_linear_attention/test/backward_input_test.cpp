/// @file
/// What is wrong with the inputs of `--backward` is one line, and exit status 2.

#include <algorithm>
#include <cmath>

#include "01_linear_attention/test/stages.hpp"
#include "common/safetensors.hpp"
#include "common/test/process.hpp"
#include "common/test/temporary_folder.hpp"

namespace tutorial {
namespace {

constexpr const char* kOperators[] = {"causal_dot_product", "causal_attention", "bidirectional_attention"};

class BackwardInputTest : public testing::Test {
 protected:
  /// Writes q, k, v and one tensor more, and runs an operator's gradients on them.
  ProcessResult run(const std::string& operator_name, const std::string& name, const Shape& shape, float value = 1) {
    Tensor key(Dtype::fp32, {1, 2, 7, 4}), extra(Dtype::fp32, shape);
    fill(key, 1);
    fill(extra, value);
    const std::filesystem::path path = folder_ / "in.safetensors";
    std::vector<NamedTensor> tensors;
    for (const char* input : {"q", "k", "v"}) tensors.push_back({input, &key});
    tensors.push_back({name, &extra});
    write_safetensors(path, tensors, {});
    return run_process({CHAPTER_EXECUTABLE, "--operator", operator_name, "--backward", "--cpu-only", "--repeat", "1",
                        "--input", path.string()});
  }

 private:
  TemporaryFolder folder_;
};

TEST_F(BackwardInputTest, WhatDoesNotFitIsOneLine) {
  for (const char* name : kOperators) {
    const auto expect_refused = [&](const std::string& tensor, const Shape& shape, float value,
                                    const std::string& message) {
      const ProcessResult result = run(name, tensor, shape, value);
      EXPECT_EQ(result.status, 2) << name << " " << tensor;
      EXPECT_NE(result.error.find(message), std::string::npos) << result.error;
      EXPECT_EQ(std::count(result.error.begin(), result.error.end(), '\n'), 1) << result.error;
      EXPECT_EQ(result.out, "");
    };
    EXPECT_EQ(run(name, "do", {1, 2, 7, 4}).status, 0) << name;
    expect_refused("do", {1, 2, 6, 4}, 1, "do [1, 2, 6, 4] has L = 6, but q has 7");
    expect_refused("do", {1, 2, 7, 5}, 1, "do [1, 2, 7, 5] has Dv = 5, but v has 4");
    expect_refused("do", {1, 7, 4}, 1, "do [1, 7, 4] has 3 dimensions, not the 4 of [B, H, L, Dv]");
    expect_refused("do", {1, 2, 7, 4}, NAN, "do[0, 0, 0, 0] = nan: is not finite");
    expect_refused("do", {1, 2, 7, 4}, INFINITY, "do[0, 0, 0, 0] = inf: is not finite");
    expect_refused("dfinal_state", {1, 2, 4, 4}, 1,
                   "dfinal_state is of no use to " + std::string(name) + " --backward: it has no final state");
  }
}

}  // namespace
}  // namespace tutorial
