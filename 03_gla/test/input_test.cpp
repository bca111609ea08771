/// @file
/// Gates above 1 are refused, with the first of them named.

#include "03_gla/test/stages.hpp"
#include "common/error.hpp"
#include "common/safetensors.hpp"
#include "common/test/temporary_folder.hpp"

namespace tutorial {
namespace {

/// What is said of a file with this g [1, 2, 3, 4].
std::string refusal(const Tensor& g) {
  const TemporaryFolder folder;
  const std::string path = folder / "g.safetensors";
  Tensor ones(Dtype::fp32, {1, 2, 3, 4});  // for q, k and v
  fill(ones, 1.0f);
  write_safetensors(path, {{"q", &ones}, {"k", &ones}, {"v", &ones}, {"g", &g}}, {});
  try {
    make_problem(gla_operator(), {.input_file = path});
    return "";
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(InputTest, GatesAboveOneAreRefused) {
  Tensor g(Dtype::fp32, {1, 2, 3, 4});
  fill(g, -0.5f);
  EXPECT_EQ(refusal(g), "");
  g.elements<float>()[1 * 12 + 2 * 4 + 3] = 0;  // a gate of 1
  EXPECT_EQ(refusal(g), "");
  g.elements<float>()[1 * 12 + 2 * 4 + 3] = 0.25f;
  EXPECT_NE(refusal(g).find("g[0, 1, 2, 3] = 0.25: must be at most 0"), std::string::npos) << refusal(g);
  g.elements<float>()[5] = 1e-30f;
  EXPECT_NE(refusal(g).find("g[0, 0, 1, 1] = 1"), std::string::npos) << refusal(g);
}

}  // namespace
}  // namespace tutorial
