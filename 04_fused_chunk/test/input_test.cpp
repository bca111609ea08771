/// @file
/// Gates above 1 are refused, with the first of them named.

#include "04_fused_chunk/test/stages.hpp"
#include "common/error.hpp"
#include "common/safetensors.hpp"
#include "common/test/temporary_folder.hpp"

namespace tutorial {
namespace {

/// What is said of a file with these gates.
std::string refusal(const Operator& definition, const Tensor& g) {
  const TemporaryFolder folder;
  const std::string path = folder / "g.safetensors";
  Tensor zeros(Dtype::fp32, {1, 2, 3, 4});  // for q, k and v
  zeros.fill_bytes(0);
  write_safetensors(path, {{"q", &zeros}, {"k", &zeros}, {"v", &zeros}, {"g", &g}}, {});
  std::string said;
  try {
    make_problem(definition, {.input_file = path});
  } catch (const UsageError& error) {
    said = error.what();
  }
  return said;
}

TEST(InputTest, PositiveGatesAreRefused) {
  for (const bool scalar : {false, true}) {
    const Operator& definition = find_operator(scalar ? "simple_gla" : "gla");
    Tensor g(Dtype::fp32, scalar ? Shape{1, 2, 3} : Shape{1, 2, 3, 4});
    for (float& x : g.elements<float>()) x = -0.5f;
    EXPECT_EQ(refusal(definition, g), "");
    g.elements<float>().back() = 0;  // a gate of 1
    EXPECT_EQ(refusal(definition, g), "");
    g.elements<float>().back() = 0.25f;
    const std::string expected = std::string("g[0, 1, 2") + (scalar ? "" : ", 3") + "] = 0.25: must be at most 0";
    EXPECT_NE(refusal(definition, g).find(expected), std::string::npos) << refusal(definition, g);
  }
}

}  // namespace
}  // namespace tutorial
