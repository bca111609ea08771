/// @file
/// Every GPU stage of a chapter with more batch entries, heads or both together than the second and the third axis of a
/// grid have blocks, 65535: the stage says that it does not support them, or each of its launches is one that a GPU takes.
/// Kernels are launched and do not run.

#include <gtest/gtest.h>

#include <cstdint>
#include <emulator/kernels_run.hpp>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "common/chapter/chapter.hpp"
#include "common/chapter/problem.hpp"
#include "common/chapter/stage_tensors.hpp"

namespace tutorial {
namespace {

constexpr double kMostBytes = 2e9;  // of the tensors of a problem

double bytes_of(const Operator& definition, const Sizes& sizes) {
  double bytes = 0;
  const auto add = [&](const Dims& dims) {
    double elements = 1;
    for (const std::int64_t size : shape_of(dims, sizes)) elements *= double(size);
    bytes += 4 * elements;
  };
  for (const Input& input : definition.inputs()) add(input.dims);
  for (const Output& output : definition.outputs()) add(output.dims);
  return bytes;
}

// A problem, made when the first stage supports its sizes.
class Zeros {
 public:
  Zeros(const Operator& definition, Problem planned) : definition_(definition), problem_(std::move(planned)) {}

  Call sizes() const { return {problem_.sizes, problem_.scale, problem_.parameters}; }
  Call tensors(Dtype dtype) {
    if (problem_.inputs.empty()) {
      for (const Input& input : definition_.inputs()) {
        Tensor tensor(input.dtype, shape_of(input.dims, problem_.sizes));
        tensor.fill_bytes(0);
        problem_.inputs.insert_or_assign(input.name, std::move(tensor));
      }
    }
    const auto found = tensors_.try_emplace(dtype, definition_, problem_, Processor::gpu, dtype, Dtype::fp32).first;
    return found->second.call();
  }

 private:
  const Operator& definition_;
  Problem problem_;
  std::map<Dtype, StageTensors> tensors_;
};

// How many stages ran.
int launch_stages(const Operator& definition, Sizes sizes) {
  if (definition.form().find("lengths") != std::string::npos)
    sizes["N"] = std::exchange(sizes["B"], 1);  // many sequences for many entries
  Problem planned = plan_problem(definition, {.sizes = sizes, .seed = 1, .modest = true});
  if (bytes_of(definition, planned.sizes) > kMostBytes) return 0;
  Zeros zeros(definition, std::move(planned));
  int ran = 0;
  for (const Stage& stage : definition.stages()) {
    if (stage.processor != Processor::gpu) continue;
    if (stage.unsupported && !stage.unsupported(zeros.sizes()).empty()) continue;
    const Call call = zeros.tensors(storage_of(stage));
    if (stage.unsupported && !stage.unsupported(call).empty()) continue;
    try {
      if (stage.share_out) stage.share_out(call);
      stage.run(call);
      ++ran;
    } catch (const std::exception& error) {
      ADD_FAILURE() << definition.label() << " " << stage.name << " of B = " << sizes.at("B")
                    << ", H = " << sizes.at("H") << ", Dk = Dv = " << sizes.at("Dk") << ": " << error.what();
    }
  }
  return ran;
}

class GridsTest : public testing::Test {
 protected:
  GridsTest() { emulator::set_kernels_run(false); }
  ~GridsTest() override { emulator::set_kernels_run(true); }

  static void launch_all(std::int64_t B, std::int64_t H) {
    const Chapter contents = chapter();
    int ran = 0;
    for (const Operator& definition : contents.operators()) {
      for (const std::int64_t width : {3, 16}) {
        ran += launch_stages(definition,
                             {{"B", B}, {"H", H}, {"L", 2}, {"P", 1}, {"Dk", width}, {"Dv", width}, {"D", width}});
      }
    }
    EXPECT_GT(ran, 0);
  }
};

TEST_F(GridsTest, ManyHeads) {
  launch_all(1, 65536);
}

TEST_F(GridsTest, ManyBatchEntries) {
  launch_all(65536, 1);
}

TEST_F(GridsTest, ManyOfBoth) {
  launch_all(2, 33000);
}

}  // namespace
}  // namespace tutorial
