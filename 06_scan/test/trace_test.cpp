/// @file
/// `--trace` shows the tree.

#include <cstdio>
#include <stdexcept>

#include "06_scan/scan/trace.hpp"
#include "06_scan/test/stages.hpp"

namespace tutorial::scan {
namespace {

std::string run_chapter(const std::string& options) {
  FILE* pipe = popen(("'" CHAPTER_EXECUTABLE "' " + options + " 2>&1").c_str(), "r");
  if (!pipe) throw std::runtime_error("cannot run the chapter");
  std::string text;
  for (int c; (c = std::fgetc(pipe)) != EOF;) text += char(c);
  pclose(pipe);
  return text;
}

TEST(TraceTest, ShowsEveryLevel) {
  const Demonstration shown = blelloch_tree();
  EXPECT_TRUE(shown.passed);
  const std::string tree = R"(
steps             1        2        3        4        5        6        7        8
                  1        2        3        4        5        6        7        8
up                1      1-2        3      3-4        5      5-6        7      7-8
                  1      2.5        3      5.5        5      8.5        7     11.5
up                1      1-2        3      1-4        5      5-6        7      5-8
                  1      2.5        3    6.125        5      8.5        7   13.625
up                1      1-2        3      1-4        5      5-6        7      1-8
                  1      2.5        3    6.125        5      8.5        7  14.0078
root = id         1      1-2        3      1-4        5      5-6        7       id
                  1      2.5        3    6.125        5      8.5        7        0
down              1      1-2        3       id        5      5-6        7      1-4
                  1      2.5        3        0        5      8.5        7    6.125
down              1       id        3      1-2        5      1-4        7      1-6
                  1        0        3      2.5        5    6.125        7  10.0312
down             id        1      1-2      1-3      1-4      1-5      1-6      1-7
                  0        1      2.5     4.25    6.125   8.0625  10.0312  12.0156
then step         1      1-2      1-3      1-4      1-5      1-6      1-7      1-8
                  1      2.5     4.25    6.125   8.0625  10.0312  12.0156  14.0078
)";
  EXPECT_NE(shown.text.find(tree), std::string::npos) << shown.text;
}

TEST(TraceTest, IsAnOption) {
  const std::string stage = "--operator scan --stage blelloch -L 8 --repeat 1 --cpu-only";
  EXPECT_NE(run_chapter(stage + " --trace").find("root = id"), std::string::npos);
  EXPECT_EQ(run_chapter(stage).find("root = id"), std::string::npos);
}

}  // namespace
}  // namespace tutorial::scan
