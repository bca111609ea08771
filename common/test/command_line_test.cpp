/// @file
/// A chapter's executable as a user runs it.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "common/chapter/machine.hpp"
#include "common/compare.hpp"
#include "common/safetensors.hpp"
#include "common/test/files.hpp"
#include "common/test/process.hpp"

namespace tutorial {
namespace {

using Json = nlohmann::json;

const Environment kPlain{{"TERM", "xterm-256color"}, {"LC_ALL", "C.UTF-8"}, {"NO_COLOR", ""}};

std::vector<std::string> command(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), TOY_CHAPTER);
  return arguments;
}

// The operator whose stages all pass, on the smallest of problems.
std::vector<std::string> passing(std::vector<std::string> more = {}) {
  std::vector<std::string> arguments{"--operator", "running_sum",   "-B1",      "-H2",
                                     "-L5",        "--value-dim=3", "--seed=1", "--repeat=1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

ProcessResult run(const std::vector<std::string>& arguments) {
  return run_process(command(arguments), kPlain);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// Exit status 2, nothing on standard output, one line on standard error: the message behind the program's name.
std::string usage_error(const std::vector<std::string>& arguments) {
  const ProcessResult result = run(arguments);
  EXPECT_EQ(result.status, 2) << result.out << result.error;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(std::count(result.error.begin(), result.error.end(), '\n'), 1) << result.error;
  const std::string name = "toy_chapter: ";
  EXPECT_TRUE(result.error.starts_with(name)) << result.error;
  return result.error.substr(name.size(), result.error.size() - name.size() - 1);
}

TEST(CommandLine, AllChecksPass) {
  const ProcessResult result = run(passing());
  EXPECT_EQ(result.status, 0) << result.out;
  EXPECT_EQ(result.error, "");
  const std::vector<std::string> lines = lines_of(result.out);
  EXPECT_EQ(lines.front(), "00_toy  A chapter for tests");
  EXPECT_EQ(lines.back(), "4 stages checked, all passed");
  EXPECT_NE(result.out.find("B=1 H=2 L=5 Dv=3 scale=0.57735  seed 1"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("\n  2 blocks\n"), std::string::npos);  // the note
}

TEST(CommandLine, WithoutTimedRunsStagesAreChecked) {
  const ProcessResult result = run({"--operator=running_sum", "--stage=plain", "-L5", "--seed=1", "--repeat=0"});
  EXPECT_EQ(result.status, 0) << result.out;
  EXPECT_TRUE(std::regex_search(result.out, std::regex("\nplain +cpu +fp32 +reference +[^ ]+( +-)+\n"))) << result.out;
  EXPECT_EQ(lines_of(result.out).back(), "1 stage checked, all passed");
  EXPECT_EQ(run({"--operator=scaling", "--stage=wrong", "--seed=1", "--repeat=0"}).status, 1);
}

TEST(CommandLine, PipedOutputIsPlainAndNarrow) {
  for (const auto& more : std::vector<std::vector<std::string>>{{}, {"--no-decay"}, {"--weigh"}}) {
    std::vector<std::string> arguments{"--seed=1", "--repeat=1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProcessResult result = run(arguments);
    for (const char c : result.out + result.error) EXPECT_TRUE(c == '\n' || (c >= ' ' && c < 0x7F)) << int{c};
    for (const std::string& line : lines_of(result.out)) {
      const bool one_word = line.find(' ', 2) == line.npos;  // a long path stays whole
      EXPECT_TRUE(line.size() <= 100 || one_word) << line;
    }
  }
}

TEST(CommandLine, TerminalOutputIsPainted) {
  const ProcessResult result = run_on_terminal(command(passing()), kPlain);
  EXPECT_EQ(result.status, 0);
  EXPECT_NE(result.out.find("\x1b[1m"), std::string::npos);
  EXPECT_NE(result.out.find("─"), std::string::npos);
  // What the progress line erased is gone; colours take no room.
  std::string text = std::regex_replace(result.out, std::regex("[^\n]*\x1b\\[2K"), "");
  text = std::regex_replace(text, std::regex("\x1b\\[[0-9;]*m|\r"), "");
  for (const std::string& line : lines_of(text)) {
    const auto columns = std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; });
    EXPECT_LE(columns, 100) << line;
  }
}

TEST(CommandLine, NoColorIsRespected) {
  Environment environment = kPlain;
  environment["NO_COLOR"] = "1";
  EXPECT_EQ(run_on_terminal(command(passing()), environment).out.find("\x1b[1m"), std::string::npos);
  environment = {{"TERM", "dumb"}, {"NO_COLOR", ""}};
  EXPECT_EQ(run_on_terminal(command(passing()), environment).out.find('\x1b'), std::string::npos);
}

TEST(CommandLine, TerminalsWithoutUtf8GetAscii) {
  const std::string out =
      run_on_terminal(command(passing()), {{"TERM", "xterm"}, {"LC_ALL", "C"}, {"NO_COLOR", ""}}).out;
  for (const char c : out) EXPECT_GE(c, 0) << out;
}

// Slow enough for the progress line, which must be gone in the end.
TEST(CommandLine, ProgressErasesItself) {
  const ProcessResult result = run_on_terminal(
      command({"--operator=running_sum", "--stage=plain", "--length=30000", "--value-dim=64", "--repeat=8"}), kPlain);
  EXPECT_EQ(result.status, 0);
  const std::size_t progress = result.out.find("run ");
  ASSERT_NE(progress, std::string::npos) << result.out;
  EXPECT_NE(result.out.find("of 8", progress), std::string::npos);
  EXPECT_LT(result.out.rfind(" of 8"), result.out.rfind("\x1b[2K"));
}

TEST(CommandLine, FailedChecksAreNamed) {
  const ProcessResult result = run({"--operator", "scaling", "--seed=1"});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.error, "");
  EXPECT_TRUE(result.out.ends_with("\n6 of 8 stages failed\n  wrong, unwritten, infinite, once, throws, refused\n"));
  for (const char* text : {"o differs from the reference in double by", "at worst o[0, 1, 7, 3] is",
                           "o[0, 1, 7, 3] was never written", "o[0, 1, 7, 3] is inf, not ",
                           "right in the first run, but not in the last", "has a bad day", "toy_kernels.cu:"}) {
    EXPECT_NE(std::regex_replace(result.out, std::regex("\n  "), " ").find(text), std::string::npos)
        << text << result.out;
  }
  // Failed stages have neither times nor speed-ups.
  for (const std::string& line : lines_of(result.out)) {
    if (line.starts_with("wrong ")) {
      EXPECT_TRUE(std::regex_search(line, std::regex("failed( +-){4,5}$"))) << line;
    }
  }
}

TEST(CommandLine, StagesAreChosen) {
  const ProcessResult result = run(passing({"--stage", "plain,kernel"}));
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out.find("exact"), std::string::npos) << result.out;
  EXPECT_EQ(lines_of(result.out).back(), "2 stages checked, all passed");
  EXPECT_EQ(lines_of(run(passing({"--stage", "plain", "--stage", "kernel"})).out).back(),
            "2 stages checked, all passed");
}

TEST(CommandLine, CpuOnlySkipsKernels) {
  const ProcessResult result = run(passing({"--cpu-only"}));
  EXPECT_EQ(result.status, 0);
  EXPECT_NE(result.out.find("\nkernel       skipped: --cpu-only\n"), std::string::npos) << result.out;
  EXPECT_EQ(lines_of(result.out).back(), "2 stages checked, all passed, 2 skipped");
}

TEST(CommandLine, TheGpuPassesForAnotherCard) {
  const ProcessResult result = run(passing({"--as=8.9", "--json=-"}));
  EXPECT_EQ(result.status, 0) << result.error;
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["device"]["passes_for"], "8.9");
  EXPECT_NE(result.error.find(", with what 8.9 has"), std::string::npos) << result.error;
  for (const auto& [value, message] : {std::pair("7.5", "--as: there is no such card here: 8.0, 8.6, 8.9, 9.0, 10.0"),
                                       {"120", "--as: '120' is not a compute capability such as 8.9"},
                                       {"x.y", "--as: 'x' is not a whole number"}}) {
    const ProcessResult wrong = run(passing({std::string("--as=") + value}));
    EXPECT_EQ(wrong.status, 2);
    EXPECT_NE(wrong.error.find(message), std::string::npos) << wrong.error;
    EXPECT_EQ(lines_of(wrong.error).size(), 1u) << wrong.error;
  }
}

TEST(CommandLine, StagesThatCannotRunAreSkipped) {
  const ProcessResult result = run(passing({"--value-dim", "65"}));
  EXPECT_EQ(result.status, 2);  // an option given twice
  const ProcessResult skipped = run({"--operator=running_sum", "-L5", "--value-dim=65", "--repeat=1"});
  EXPECT_EQ(skipped.status, 0);
  EXPECT_NE(skipped.out.find("kernel       skipped: Dv = 65 is above 64\n"), std::string::npos) << skipped.out;
}

TEST(CommandLine, ListNamesOperatorsAndStages) {
  const ProcessResult result = run({"--list"});
  EXPECT_EQ(result.status, 0);
  EXPECT_NE(result.out.find("running_sum  s_t = exp(g_t) s_{t-1} + x_t\n"), std::string::npos);
  EXPECT_NE(result.out.find("  kernel_bf16  gpu  bf16  the same in bf16\n"), std::string::npos);
  EXPECT_NE(result.out.find("\nrunning_sum --no-decay  s_t = s_{t-1} + x_t\n  exact   cpu"), std::string::npos);
  EXPECT_TRUE(result.out.starts_with("00_toy  A chapter for tests\n\ncounting  a sum by hand\n\nmiscounting "));
}

TEST(CommandLine, HelpNamesEveryOption) {
  const ProcessResult result = run({"--help"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.error, "");
  for (const char* option :
       {"--operator", "--stage",   "--list",  "-B,--batch", "-H,--heads", "-L,--length", "--key-dim",  "--value-dim",
        "--chunk",    "--prompt",  "--scale", "--seed",     "--repeat",   "--warmup",    "--cpu-only", "--input",
        "--output",   "--weights", "--json",  "--no-decay", "--weigh",    "--as",        "--layout",   "--gates"}) {
    EXPECT_NE(result.out.find(option), std::string::npos) << option;
  }
}

TEST(CommandLine, SeedIsFreshAndPrinted) {
  const auto seed_of = [](const std::string& out) {
    std::smatch match;
    EXPECT_TRUE(std::regex_search(out, match, std::regex("seed ([0-9]+)"))) << out;
    return match[1].str();
  };
  const std::vector<std::string> arguments{"--operator=running_sum", "--stage=plain", "-L5", "--repeat=1"};
  const std::string first = seed_of(run(arguments).out);
  EXPECT_NE(first, seed_of(run(arguments).out));
}

TEST(CommandLine, GatesAreDrawnAsAskedFor) {
  const std::vector<std::string> arguments{"--operator=running_sum", "--stage=plain", "-L5", "--repeat=1", "--seed=1"};
  EXPECT_EQ(run(arguments).out.find(" gates"), std::string::npos);
  for (const char* gates : {"usual", "weak", "bounded", "open"}) {
    std::vector<std::string> all = arguments;
    all.push_back(std::string("--gates=") + gates);
    const ProcessResult result = run(all);
    EXPECT_EQ(result.status, 0) << result.out << result.error;
    EXPECT_NE(result.out.find(std::string("seed 1  ") + gates + " gates\n"), std::string::npos) << result.out;
  }
  EXPECT_EQ(usage_error({"--gates", "strong"}), "--gates: 'strong' is not usual, weak, bounded or open");
  EXPECT_EQ(usage_error({"--gates", ""}), "--gates: '' is not usual, weak, bounded or open");
  EXPECT_EQ(usage_error({"--operator", "scaling", "--gates", "weak"}), "--gates: of no use to scaling");
}

TEST(CommandLine, BadNumbers) {
  EXPECT_EQ(usage_error({"-L", "0"}), "--length: 0 is not between 1 and 2147483647");
  EXPECT_EQ(usage_error({"--batch=-3"}), "--batch: -3 is not between 1 and 2147483647");
  EXPECT_EQ(usage_error({"-H", "-3"}), "--heads: -3 is not between 1 and 2147483647");
  EXPECT_EQ(usage_error({"--value-dim", "2147483648"}), "--value-dim: 2147483648 is not between 1 and 2147483647");
  EXPECT_EQ(usage_error({"--prompt", "-1"}), "--prompt: -1 is not between 0 and 2147483647");
  EXPECT_EQ(usage_error({"-L", "99999999999999999999999"}),
            "--length: 99999999999999999999999 is not between 1 and 2147483647");
  EXPECT_EQ(usage_error({"-L", "12x"}), "--length: '12x' is not a whole number");
  EXPECT_EQ(usage_error({"-L", "1.5"}), "--length: '1.5' is not a whole number");
  EXPECT_EQ(usage_error({"-L", ""}), "--length: '' is not a whole number");
  EXPECT_EQ(usage_error({"--scale", "x"}), "--scale: 'x' is not a number");
  EXPECT_TRUE(usage_error({"--scale", "nan"}).starts_with("--scale: nan is not between"));
  EXPECT_TRUE(usage_error({"--scale", "inf"}).starts_with("--scale: inf is not between"));
  EXPECT_EQ(usage_error({"--repeat", "-1"}), "--repeat: -1 is not between 0 and 2147483647");
  EXPECT_EQ(usage_error({"--warmup", "-1"}), "--warmup: -1 is not between 0 and 2147483647");
  EXPECT_EQ(usage_error({"--seed", "-1"}), "--seed: '-1' is not a whole number");
}

TEST(CommandLine, BadOptions) {
  EXPECT_NE(usage_error({"--nonsense"}).find("--nonsense"), std::string::npos);
  EXPECT_NE(usage_error({"word"}).find("word"), std::string::npos);
  EXPECT_NE(usage_error({"-L"}).find("--length"), std::string::npos);
  EXPECT_EQ(usage_error({"--operator", "x"}),
            "--operator: there is no 'x' in 00_toy; known are counting, "
            "miscounting, giving_up, running_sum, scaling, weighting");
  EXPECT_EQ(usage_error({"--operator", "running_sum", "--stage", "plain,right"}),
            "--stage: there is no 'right'; known are exact, plain, kernel, kernel_bf16, plain_too");
  EXPECT_EQ(usage_error({"--stage=plain,right", "--chunk=16"}), "--chunk: of no use to running_sum, scaling");
  EXPECT_EQ(usage_error({"--operator", "scaling", "--scale", "2"}), "--scale: of no use to scaling");
  EXPECT_EQ(usage_error({"--operator", "running_sum", "--weights", "w"}), "--weights: of no use to running_sum");
}

TEST(CommandLine, FormsRunInsteadOfTheirOperators) {
  const ProcessResult result = run({"--no-decay", "--seed=1", "--repeat=1"});
  EXPECT_EQ(result.status, 0) << result.out << result.error;
  EXPECT_NE(result.out.find("\nrunning_sum --no-decay  s_t = s_{t-1} + x_t\n"), std::string::npos) << result.out;
  EXPECT_EQ(lines_of(result.out).back(), "2 stages checked, all passed");  // neither other operators nor demonstrations
  const ProcessResult chosen = run({"--no-decay", "--operator=running_sum", "--stage=exact", "--repeat=1"});
  EXPECT_EQ(lines_of(chosen.out).back(), "1 stage checked, all passed") << chosen.out << chosen.error;
}

TEST(CommandLine, BadForms) {
  EXPECT_EQ(usage_error({"--no-decay", "--operator=scaling"}), "--no-decay: of no use to scaling");
  EXPECT_EQ(usage_error({"--no-decay", "--operator=counting"}), "--no-decay: of no use to counting");
  EXPECT_TRUE(usage_error({"--no-decay", "--operator=x"}).starts_with("--operator: there is no 'x' in 00_toy"));
  EXPECT_EQ(usage_error({"--no-decay", "--stage=plain"}), "--stage: there is no 'plain'; known are exact, kernel");
  EXPECT_EQ(usage_error({"--no-decay", "--scale=2"}), "--scale: of no use to running_sum --no-decay");
  EXPECT_EQ(usage_error({"--no-decay", "--weigh"}), "--no-decay and --weigh: choose one");
  EXPECT_EQ(usage_error({"--operator=weighting"}),
            "--operator: 'weighting' has forms only; --list shows their options");
}

TEST(CommandLine, LengthsPackSequences) {
  for (const char* lengths : {"--lengths=3,0,2", "--lengths"}) {
    const ProcessResult result = run({"--no-decay", lengths, "--seed=1", "--repeat=1"});
    EXPECT_EQ(result.status, 0) << result.out << result.error;
    EXPECT_NE(result.out.find("\nrunning_sum --lengths --no-decay  s_t"), std::string::npos) << result.out;
  }
  EXPECT_NE(run({"--no-decay", "--lengths=3,0,2", "--repeat=1"}).out.find("\nN=3 B=1 H=2 L=5 Dv=3 "),
            std::string::npos);
  EXPECT_EQ(usage_error({"--no-decay", "--lengths=3,,4"}), "--lengths: '' is not a whole number");
  EXPECT_EQ(usage_error({"--no-decay", "--lengths=3,x"}), "--lengths: 'x' is not a whole number");
  EXPECT_EQ(usage_error({"--no-decay", "--lengths=3,-1"}), "--lengths: -1 is not between 0 and 2147483647");
  EXPECT_EQ(usage_error({"--no-decay", "--lengths=2147483647,1"}), "--lengths: more than 2147483647 positions");
  EXPECT_EQ(usage_error({"--no-decay", "--lengths=3,4", "-B", "2"}), "running_sum: B = 2: packed sequences have B = 1");
  EXPECT_EQ(usage_error({"--no-decay", "--lengths=3,4", "-L", "9"}), "L = 9 was asked for, but --lengths has 7");
  EXPECT_EQ(usage_error({"--no-decay", "--backward", "--lengths=3"}),
            "--backward and --lengths and --no-decay: choose one");
  EXPECT_EQ(usage_error({"--no-decay", "--lengths=3", "--operator=scaling"}),
            "--lengths --no-decay: of no use to scaling");
}

TEST(CommandLine, AFileOfPackedSequencesRunsThem) {
  const TemporaryFolder folder;
  const std::string path = (folder / "in").string();
  Tensor x(Dtype::fp32, {1, 2, 5, 3}), cu_seqlens(Dtype::int64, {4});
  x.fill_bytes(0);
  std::ranges::copy(std::array<std::int64_t, 4>{0, 2, 2, 5}, cu_seqlens.elements<std::int64_t>().begin());
  write_safetensors(path, {{"x", &x}, {"cu_seqlens", &cu_seqlens}});
  const ProcessResult result = run({"--no-decay", "--input=" + path, "--repeat=1"});
  EXPECT_EQ(result.status, 0) << result.out << result.error;
  EXPECT_NE(result.out.find("\nrunning_sum --lengths --no-decay  s_t"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("\nN=3 B=1 H=2 L=5 Dv=3 "), std::string::npos) << result.out;
  // An operator that does not know them would run them as one.
  EXPECT_EQ(usage_error({"--operator=scaling", "--input=" + path}),
            path + ": cu_seqlens is of no use to scaling: the sequences that it tells apart would run as one");
}

TEST(CommandLine, AFormMayTakeSeveralOptions) {
  for (const auto& options : {std::vector<std::string>{"--no-decay", "--backward"}, {"--backward", "--no-decay"}}) {
    std::vector<std::string> arguments = options;
    for (const char* other : {"--seed=1", "--repeat=1", "--json=-"}) arguments.emplace_back(other);
    const ProcessResult result = run(arguments);
    EXPECT_EQ(result.status, 0) << result.error;
    EXPECT_NE(result.error.find("\nrunning_sum --backward --no-decay  dx_t"), std::string::npos) << result.error;
    const Json problem = Json::parse(result.out)["results"][0]["problem"];
    EXPECT_EQ(problem["backward"], true);
    EXPECT_EQ(problem["no-decay"], true);
  }
  EXPECT_EQ(usage_error({"--backward", "--no-decay", "--operator=scaling"}),
            "--backward --no-decay: of no use to scaling");
  EXPECT_EQ(usage_error({"--backward"}), "--backward: only beside another option; --list shows which");
}

TEST(CommandLine, VariantsRunWhereTheyAreAskedFor) {
  const auto names_of = [](std::vector<std::string> arguments) {
    for (const char* other : {"--seed=1", "--repeat=1", "--json=-", "--length=8"}) arguments.emplace_back(other);
    const ProcessResult result = run(arguments);
    EXPECT_EQ(result.status, 0) << result.error;
    std::vector<std::string> names;
    const Json json = Json::parse(result.out);
    for (const Json& stage : json["results"][0]["stages"]) names.push_back(stage["name"]);
    return names;
  };
  const std::vector<std::string> stages{"exact", "plain", "kernel", "kernel_bf16"};
  std::vector<std::string> all = stages;
  all.emplace_back("plain_too");
  EXPECT_EQ(names_of({"--operator=running_sum"}), stages);
  EXPECT_EQ(names_of({"--operator=running_sum", "--variants"}), all);
  EXPECT_EQ(names_of({"--operator=running_sum", "--stage=plain_too,exact"}),
            (std::vector<std::string>{"exact", "plain_too"}));
  EXPECT_EQ(usage_error({"--operator=scaling", "--variants"}), "--variants: of no use to scaling");
  const std::string list = run({"--list", "--operator=running_sum"}).out;
  EXPECT_LT(list.find("variants (--stage"), list.find("  plain_too")) << list;
  EXPECT_LT(list.find("  kernel_bf16"), list.find("variants (--stage")) << list;
  const Json json = Json::parse(run({"--list", "--json=-", "--operator=running_sum"}).out);
  for (const Json& stage : json["operators"][0]["stages"]) EXPECT_EQ(stage["variant"], stage["name"] == "plain_too");
}

TEST(CommandLine, TheListSaysWhichStagesHaveNoBackward) {
  const std::vector<std::string> lines = lines_of(run({"--list"}).out);
  const auto has = [&](const std::string& line) { return std::find(lines.begin(), lines.end(), line) != lines.end(); };
  EXPECT_TRUE(has("  exact   cpu  fp64  in double"));
  EXPECT_TRUE(has("  kernel  gpu  fp32  one thread per column (no --backward)"));
  EXPECT_TRUE(has("  exact  cpu  fp64  from the end"));
  EXPECT_TRUE(has("  right      cpu  fp32  as it should be")) << "the operator has none";
  const Json json = Json::parse(run({"--list", "--json", "-"}).out);
  for (const Json& entry : json["operators"]) {
    for (const Json& stage : entry["stages"]) {
      EXPECT_EQ(stage["backward"], entry["form"] == "no-decay" && stage["name"] == "exact") << entry;
    }
  }
}

TEST(CommandLine, MemoryHasAColumnWhereAStageTellsIt) {
  const auto line_of = [](const ProcessResult& result, const std::string& stage) {
    const std::vector<std::string> lines = lines_of(result.out);
    const auto found = std::find_if(lines.begin(), lines.end(), [&](auto& line) { return line.starts_with(stage); });
    return found == lines.end() ? result.out + result.error : *found;
  };
  const ProcessResult result = run({"--no-decay", "--repeat=1"});
  EXPECT_TRUE(line_of(result, "stage ").ends_with("  limit   memory")) << result.out;
  EXPECT_TRUE(line_of(result, "kernel ").ends_with("    200 B")) << result.out;
  EXPECT_TRUE(line_of(result, "exact ").ends_with("     0 B")) << result.out;
  const ProcessResult failed = run({"--weigh", "--repeat=1"});
  EXPECT_TRUE(line_of(failed, "right ").ends_with(" 16 B")) << failed.out;
  EXPECT_TRUE(std::regex_search(line_of(failed, "wrong"), std::regex("failed( +-){5}$"))) << failed.out;
  for (const ProcessResult& without : {run(passing()), run({"--no-decay", "--stage=exact", "--repeat=1"}),
                                       run({"--no-decay", "--cpu-only", "--repeat=1"})}) {
    EXPECT_EQ(without.status, 0);
    EXPECT_EQ(without.out.find("memory"), std::string::npos) << without.out;
  }
}

// The second part of the table. On a GPU it is there for the sake of stages that state the bytes they move; the
// emulator counts them for every stage.
TEST(CommandLine, LaunchesAndBytesMovedHaveATable) {
  const std::regex row("\nkernel +1 +(2 +0 +0 +120 B +120 B|240 B +240 B) +1.00x\n");
  const ProcessResult stated = run({"--no-decay", "--repeat=1"});
  EXPECT_TRUE(std::regex_search(stated.out, row)) << stated.out;
  EXPECT_NE(stated.out.find("launches"), std::string::npos) << stated.out;
  if (!kEmulated) {
    EXPECT_EQ(run(passing()).out.find("launches"), std::string::npos) << "no stage there states them";
  }
}

TEST(CommandLine, DemonstrationsComeFirst) {
  const ProcessResult result = run({"--repeat=1", "--seed=1", "-L5"});
  const std::size_t demonstration = result.out.find(
      "\n\ncounting  a sum by hand\n\n1 + 2 = 3\n    + 3 = 6\n\nmiscounting  a wrong one\n\n1 + 2 = 4, not 3\n\n"
      "giving_up  none\n\ncannot count\n\nrunning_sum ");
  EXPECT_NE(demonstration, std::string::npos) << result.out;
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(lines_of(result.out).back(), "miscounting, giving_up failed");
}

TEST(CommandLine, DemonstrationsRunAlone) {
  const ProcessResult result = run({"--operator=counting"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.error, "");
  EXPECT_TRUE(result.out.ends_with("\n\ncounting  a sum by hand\n\n1 + 2 = 3\n    + 3 = 6\n")) << result.out;
  EXPECT_EQ(result.out.find("B/s"), std::string::npos) << result.out;  // nothing was measured
  const ProcessResult wrong = run({"--operator=miscounting"});
  EXPECT_EQ(wrong.status, 1);
  EXPECT_TRUE(wrong.out.ends_with("\n\n1 + 2 = 4, not 3\n\nmiscounting failed\n")) << wrong.out;
  EXPECT_EQ(run({"--operator=giving_up"}).status, 1);
}

TEST(CommandLine, DemonstrationsAreNoPartOfOtherRuns) {
  const TemporaryFolder folder;
  const std::string path = (folder / "file").string();
  Tensor x(Dtype::fp32, {1, 1, 2, 3}), g(Dtype::fp32, {1, 1, 2}), w(Dtype::fp32, {3});
  for (Tensor* tensor : {&x, &g, &w}) tensor->fill_bytes(0);
  write_safetensors(path, {{"x", &x}, {"g", &g}, {"w", &w}});
  for (const auto& arguments :
       std::vector<std::vector<std::string>>{passing(),
                                             {"--stage=plain", "--repeat=1"},
                                             {"--input", path, "--repeat=1"},
                                             {"--weights", path, "--repeat=1", "--value-dim=3"}}) {
    const ProcessResult result = run(arguments);
    EXPECT_EQ(result.error, "");
    EXPECT_EQ(result.out.find("counting"), std::string::npos) << result.out;
  }
}

TEST(CommandLine, DemonstrationsTakeNoOptions) {
  const std::vector<std::vector<std::string>> useless{{"--stage", "x"},   {"--length", "5"}, {"--scale", "1"},
                                                      {"--weights", "w"}, {"--input", "in"}, {"--output", "out"}};
  for (const std::vector<std::string>& option : useless) {
    EXPECT_EQ(usage_error({"--operator=counting", option[0], option[1]}), option[0] + ": of no use to counting");
  }
}

// Found by counting, not by running out of it.
TEST(CommandLine, TooMuchMemory) {
  const std::string huge = usage_error({"--operator=running_sum", "-L", "2147483647", "-H", "100"});
  EXPECT_TRUE(std::regex_match(huge, std::regex("running_sum needs [0-9.]+ [TP]B of memory, [0-9.]+ [MGT]B are free")))
      << huge;
  EXPECT_EQ(usage_error({"--operator=running_sum", "-B", "2147483647", "-L", "2147483647", "-H", "2147483647"}),
            "x: shape [2147483647, 2147483647, 2147483647, 32] has too many elements");
  const std::vector<std::string> long_sums{"--no-decay", "-L4000000", "-H1", "--value-dim=1", "--repeat=1"};
  EXPECT_TRUE(std::regex_match(usage_error(long_sums),
                               std::regex("running_sum --no-decay needs 64.0 TB of (GPU )?memory, .* are free")));
}

TEST(CommandLine, BadInputFiles) {
  const TemporaryFolder folder;
  const std::string path = (folder / "in.safetensors").string();
  EXPECT_EQ(usage_error({"--input", path}), path + ": No such file or directory");
  EXPECT_EQ(usage_error({"--input", folder.path().string()}), folder.path().string() + ": is a folder, not a file");
  EXPECT_EQ(usage_error({"--input", ""}), "--input: the name of a file is missing");
  write_bytes(path, "not a safetensors file");
  EXPECT_TRUE(usage_error({"--input", path}).starts_with(path + ": says that its header has"));
  Tensor x(Dtype::fp32, {1, 1, 2, 3});
  x.fill_bytes(0xFF);
  write_safetensors(path, {{"x", &x}});
  EXPECT_EQ(usage_error({"--input", path, "--operator=running_sum"}),
            path + ": lacks inputs of running_sum: g; it has x");
  Tensor g(Dtype::fp32, {1, 1, 2});
  g.fill_bytes(0);
  write_safetensors(path, {{"x", &x}, {"g", &g}});
  EXPECT_TRUE(std::regex_match(usage_error({"--input", path, "--operator=running_sum"}),
                               std::regex(path + ": x\\[0, 0, 0, 0\\] = -?nan: is not finite")));
  EXPECT_EQ(usage_error({"--input", path, "--operator=running_sum", "-L3"}), "L = 3 was asked for, but x has 2");
  write_bytes(path, read_bytes(path) + "junk");
  EXPECT_EQ(usage_error({"--input", path}), path + ": 4 bytes after the last tensor");
}

TEST(CommandLine, ErrorsAreOneLineWhateverTheNames) {
  const TemporaryFolder folder;
  const std::string path = (folder / "in").string();
  const std::string header = R"({"a\nb\u001b[31m":{"dtype":"F32","shape":[9],"data_offsets":[0,16]}})";
  write_bytes(path, safetensors_bytes(header, std::string(16, 'x')));
  EXPECT_EQ(usage_error({"--input", path}),
            path + ": tensor 'a\\x0ab\\x1b[31m': 16 bytes of data, but F32 [9] take 36");
}

#if TUTORIAL_CUDA
TEST(CommandLine, WithoutAGpu) {
  Environment environment = kPlain;
  environment["CUDA_VISIBLE_DEVICES"] = "";
  const ProcessResult result = run_process(command(passing()), environment);
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(result.error.starts_with("toy_chapter: no usable GPU was found (")) << result.error;
  EXPECT_EQ(run_process(command(passing({"--cpu-only"})), environment).status, 0);
  EXPECT_EQ(run_process(command(passing({"--stage=plain"})), environment).status, 0);
}
#endif

TEST(CommandLine, InputsFromAFile) {
  const TemporaryFolder folder;
  const std::string path = (folder / "in").string();
  Tensor x(Dtype::fp32, {1, 1, 2, 3});
  Tensor g(Dtype::fp32, {1, 1, 2});
  Tensor lengths(Dtype::int64, {1});
  Tensor state(Dtype::fp32, {1, 1, 3});
  for (int i = 0; i < 6; ++i) x.elements<float>()[i] = static_cast<float>(i + 1);
  g.fill_bytes(0);
  lengths.elements<std::int64_t>()[0] = 1;
  for (float& s : state.elements<float>()) s = 10;
  write_safetensors(path, {{"x", &x}, {"g", &g}, {"lengths", &lengths}, {"initial_state", &state}}, {{"scale", "2"}});
  const std::string out = (folder / "out").string();
  const ProcessResult result = run({"--operator=running_sum", "--input", path, "--output", out});
  EXPECT_EQ(result.status, 0) << result.out << result.error;
  const SafetensorsFile file(out);
  for (const std::string stage : {"exact", "plain", "kernel", "kernel_bf16"}) {
    const Tensor o = file.read(stage + ".o");
    EXPECT_EQ(o.dtype(), Dtype::fp32);
    EXPECT_EQ(o.shape(), (Shape{1, 1, 2, 3}));
    EXPECT_EQ(o.value(0), 22);  // scale (initial state + x)
    EXPECT_EQ(o.value(5), 26);  // the second position does not count
    EXPECT_EQ(file.read(stage + ".final_state").value(2), 13);
  }
  EXPECT_EQ(file.names().size(), 8u);
}

// Stages take the file's memory as it is, and outputs have its layout.
TEST(CommandLine, FilesMayHaveHeadsInside) {
  const TemporaryFolder folder;
  const std::string path = (folder / "in").string(), out = (folder / "out").string();
  Tensor x(Dtype::fp32, {1, 2, 4, 3});  // B, L, H, Dv
  Tensor g(Dtype::fp32, {1, 2, 4});
  for (int i = 0; i < 24; ++i) x.elements<float>()[i] = static_cast<float>(i);
  g.fill_bytes(0);
  Tensor lengths(Dtype::int32, {1});
  lengths.elements<std::int32_t>()[0] = 2;
  write_safetensors(path, {{"x", &x}, {"g", &g}, {"lengths", &lengths}, {"unknown", &g}}, {{"scale", "1"}});
  const std::vector<std::string> arguments{"--operator=running_sum", "--input", path, "--output", out};
  const ProcessResult doubted = run(arguments);
  EXPECT_EQ(doubted.status, 0);
  EXPECT_NE(doubted.out.find("\nnot used of "), std::string::npos) << doubted.out;
  EXPECT_NE(doubted.out.find(": unknown\n"), std::string::npos) << doubted.out;
  EXPECT_EQ(doubted.out.find("rows apart"), std::string::npos) << doubted.out;
  EXPECT_EQ(SafetensorsFile(out).shape("kernel.o"), (Shape{1, 2, 4, 3}));

  std::vector<std::string> inside = arguments;
  inside.insert(inside.end(), {"--layout=blhd", "--json=-"});
  const ProcessResult result = run(inside);
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_NE(result.error.find("\n  4 blocks on rows apart\n"), std::string::npos) << result.error;
  const Json problem = Json::parse(result.out)["results"][0]["problem"];
  EXPECT_EQ(problem["H"], 4);
  EXPECT_EQ(problem["L"], 2);
  EXPECT_EQ(problem["layout"], "blhd");
  const SafetensorsFile file(out);
  for (const std::string stage : {"exact", "plain", "kernel", "kernel_bf16"}) {
    const Tensor o = file.read(stage + ".o");
    EXPECT_EQ(o.shape(), (Shape{1, 2, 4, 3}));
    EXPECT_EQ(o.value(5), 5);            // position 0
    EXPECT_EQ(o.value(12 + 5), 5 + 17);  // and 1 of the same head and column
    EXPECT_EQ(file.shape(stage + ".final_state"), (Shape{1, 4, 3}));
  }
  EXPECT_EQ(usage_error({"--layout=lbhd"}), "--layout: 'lbhd' is neither bhld nor blhd");
}

TEST(CommandLine, OutputIsWrittenAlsoWhenAStageFails) {
  const TemporaryFolder folder;
  const ProcessResult result = run({"--operator=scaling", "--output", (folder / "out").string()});
  EXPECT_EQ(result.status, 1);
  const SafetensorsFile file(folder / "out");
  EXPECT_TRUE(file.contains("wrong.o"));
  EXPECT_TRUE(file.contains("after.o"));
  EXPECT_FALSE(file.contains("throws.o"));
  EXPECT_EQ(folder.file_count(), 1);
}

TEST(CommandLine, UnwritableOutputsAreFoundBeforeAnythingIsComputed) {
  const TemporaryFolder folder;
  for (const char* option : {"--output", "--json"}) {
    const std::string missing = (folder / "no" / "such" / "file").string();
    EXPECT_EQ(usage_error(passing({option, missing})), "cannot write " + missing + ": No such file or directory");
    EXPECT_EQ(usage_error(passing({option, folder.path().string()})),
              "cannot write " + folder.path().string() + ": Is a directory");
    EXPECT_EQ(usage_error(passing({option, ""})), std::string(option) + ": the name of a file is missing");
  }
  EXPECT_EQ(folder.file_count(), 0);
}

TEST(CommandLine, OutputsDoNotOverwriteInputs) {
  const TemporaryFolder folder;
  const std::string path = (folder / "file").string();
  Tensor x(Dtype::fp32, {1, 1, 2, 3});
  x.fill_bytes(0);
  write_safetensors(path, {{"x", &x}});
  EXPECT_EQ(usage_error(passing({"--input", path, "--output", path})), path + " is both input and output");
  const std::string other = (folder / "other").string();
  EXPECT_EQ(usage_error(passing({"--json", other, "--output", other})), "--output and --json are both " + other);
  EXPECT_EQ(usage_error({"--output", other}),
            "--output: stages of several operators share their names; choose one with --operator");
}

// Bad input leaves an output that is already there as it was.
TEST(CommandLine, NothingIsHalfWritten) {
  const TemporaryFolder folder;
  write_bytes(folder / "out", "old");
  write_bytes(folder / "in", "junk");
  usage_error(passing({"--input", (folder / "in").string(), "--output", (folder / "out").string()}));
  EXPECT_EQ(read_bytes(folder / "out"), "old");
  EXPECT_EQ(folder.file_count(), 2);
}

bool is_null_or_positive(const Json& json) {
  return json.is_null() || (json.is_number() && json.get<double>() > 0);
}

// The contract of the JSON, member by member.
void check_json(const Json& json) {
  const auto keys = [](const Json& object) {
    std::vector<std::string> names;
    for (const auto& [name, value] : object.items()) names.push_back(name);
    return names;
  };
  EXPECT_EQ(keys(json), (std::vector<std::string>{"chapter", "device", "results"}));
  EXPECT_EQ(json["chapter"], "00_toy");
  EXPECT_TRUE(json["device"]["backend"] == "cuda" || json["device"]["backend"] == "emulator");
  EXPECT_TRUE(json["device"]["name"].is_string());
  EXPECT_TRUE(is_null_or_positive(json["device"]["copy_bandwidth_gb_s"]));
  for (const Json& result : json["results"]) {
    EXPECT_EQ(keys(result), (std::vector<std::string>{"operator", "problem", "stages"}));
    for (const char* size : {"B", "H", "L", "Dv", "seed", "scale"})
      EXPECT_TRUE(result["problem"][size].is_number()) << size;
    for (const Json& stage : result["stages"]) {
      EXPECT_EQ(keys(stage), (std::vector<std::string>{
                                 "bytes",     "bytes_moved", "checked_against", "counts",   "dtype",   "error",
                                 "failure",   "flops",       "launches",        "limit_ms", "name",    "note",
                                 "parts",     "passed",      "reference_error", "runs_on",  "skipped", "time_ms",
                                 "tolerance", "work",        "workspace_bytes"}));
      EXPECT_EQ(keys(stage["work"]), (std::vector<std::string>{"exponentials", "fma_flops", "tensor_flops"}));
      EXPECT_TRUE(stage["workspace_bytes"].is_null() || stage["workspace_bytes"] >= 0);
      EXPECT_TRUE(is_null_or_positive(stage["bytes_moved"]));
      const std::string runs_on = stage["runs_on"];
      const bool has_kernels = runs_on != "cpu" && stage["skipped"].is_null() && stage["passed"] == true;
      EXPECT_TRUE(!has_kernels || stage["launches"].is_number_integer()) << stage;
      EXPECT_TRUE(runs_on != "cpu" || stage["launches"].is_null()) << stage;
      EXPECT_TRUE(runs_on == "cpu" || runs_on == "gpu" || runs_on == "emulator");
      EXPECT_TRUE(stage["dtype"] == "fp32" || stage["dtype"] == "bf16" || stage["dtype"] == "fp64");
      EXPECT_GT(stage["tolerance"], 0);
      EXPECT_TRUE(is_null_or_positive(stage["limit_ms"]));
      if (runs_on == "emulator") {
        EXPECT_TRUE(stage["limit_ms"].is_null());
      }
      EXPECT_EQ(stage["counts"].is_object(), runs_on == "emulator" && stage["skipped"].is_null());
      EXPECT_EQ(stage["failure"].is_string(), stage["passed"] == false);
      if (!stage["skipped"].is_null()) {
        EXPECT_TRUE(stage["passed"].is_null());
        EXPECT_TRUE(stage["time_ms"].is_null());
        EXPECT_TRUE(stage["error"].is_null());
        continue;
      }
      EXPECT_TRUE(stage["passed"].is_boolean());
      EXPECT_EQ(stage["time_ms"].is_object(), stage["passed"].get<bool>());
      if (!stage["time_ms"].is_object()) continue;
      EXPECT_EQ(keys(stage["time_ms"]), (std::vector<std::string>{"graph", "max", "median", "min", "runs"}));
      EXPECT_LE(stage["time_ms"]["min"], stage["time_ms"]["median"]);
      EXPECT_LE(stage["time_ms"]["median"], stage["time_ms"]["max"]);
      EXPECT_GE(stage["time_ms"]["runs"], 1);
      EXPECT_EQ(stage["time_ms"]["graph"].is_number(), runs_on == "gpu");
      EXPECT_LE(stage["reference_error"], stage["tolerance"]);
      EXPECT_GT(stage["bytes"], 0);
    }
  }
}

TEST(CommandLine, JsonOnStandardOutput) {
  const ProcessResult result = run(passing({"--json", "-"}));
  EXPECT_EQ(result.status, 0);
  const Json json = Json::parse(result.out);
  check_json(json);
  EXPECT_NE(result.error.find("4 stages checked, all passed"), std::string::npos);  // the table
  const Json& stages = json["results"][0]["stages"];
  ASSERT_EQ(stages.size(), 4u);
  EXPECT_EQ(stages[0]["checked_against"], "reference");
  EXPECT_EQ(stages[0]["dtype"], "fp64");
  EXPECT_EQ(stages[1]["checked_against"], "exact");
  EXPECT_EQ(stages[3]["dtype"], "bf16");
  EXPECT_EQ(stages[1]["time_ms"]["runs"], 1);
  EXPECT_TRUE(stages[0]["parts"].empty());
  ASSERT_EQ(stages[1]["parts"].size(), 2u);
  EXPECT_EQ(stages[1]["parts"][0]["name"], "sums");
  EXPECT_GE(stages[1]["parts"][0]["time_ms"]["median"], stages[1]["parts"][0]["time_ms"]["min"]);
  EXPECT_TRUE(std::regex_search(result.error, std::regex("\n  sums +[0-9.]+ [mun]?s +[0-9]+%\n  nothing ")));
  EXPECT_EQ(stages[1]["flops"], 2 * 2 * 5 * 3);
  EXPECT_EQ(stages[1]["bytes"], 4 * (30 + 10 + 30 + 6));  // x, g, o, final_state
  EXPECT_EQ(stages[3]["bytes"], 2 * (30 + 30) + 4 * (10 + 6));
  EXPECT_EQ(json["results"][0]["problem"]["seed"], 1);
  EXPECT_EQ(stages[1]["work"]["fma_flops"], stages[1]["flops"]);
  EXPECT_EQ(stages[2]["note"], "2 blocks");
  if (kEmulated) {
    const Json& counts = stages[2]["counts"];
    EXPECT_EQ(counts["launches"], 1);
    EXPECT_EQ(counts["blocks"], 2);
    EXPECT_GE(counts["threads"], 3 * counts["blocks"].get<int>());
    EXPECT_EQ(counts["bytes_written"], 4 * (30 + 6));  // o, final_state
    for (const char* name : {"barriers", "atomics", "bytes_read"})
      EXPECT_TRUE(counts[name].is_number_integer()) << name;
  }
}

TEST(CommandLine, JsonOfTheList) {
  const ProcessResult result = run({"--list", "--json", "-"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.error, "");
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json["chapter"], "00_toy");
  EXPECT_EQ(json["operators"][0]["operator"], "running_sum");
  EXPECT_TRUE(json["operators"][0]["form"].is_null());
  const Json options{{"B", "--batch"}, {"H", "--heads"}, {"L", "--length"}, {"Dv", "--value-dim"}};
  EXPECT_EQ(json["operators"][0]["options"], options);
  const Json lengths{{"name", "lengths"}, {"dims", {"B"}}, {"dtype", "int32"}, {"optional", true}, {"weight", false}};
  EXPECT_EQ(json["operators"][0]["inputs"][2], lengths);
  const Json& stages = json["operators"][0]["stages"];
  ASSERT_EQ(stages.size(), 5u);
  EXPECT_EQ(stages[2]["name"], "kernel");
  EXPECT_EQ(stages[2]["place"], "gpu");
  EXPECT_EQ(stages[3]["dtype"], "bf16");
  EXPECT_TRUE(std::any_of(json["operators"].begin(), json["operators"].end(),
                          [](const Json& entry) { return entry["form"] == "no-decay"; }));
}

TEST(CommandLine, JsonOfFailedStages) {
  const TemporaryFolder folder;
  const std::string path = (folder / "json").string();
  const ProcessResult result = run({"--seed=3", "--repeat=2", "--json", path});
  EXPECT_EQ(result.status, 1);
  const Json json = Json::parse(read_bytes(path));
  check_json(json);
  ASSERT_EQ(json["results"].size(), 2u);
  const Json& stages = json["results"][1]["stages"];
  ASSERT_EQ(stages.size(), 8u);
  EXPECT_EQ(stages[0]["passed"], true);
  EXPECT_EQ(stages[1]["passed"], false);
  EXPECT_TRUE(stages[1]["failure"].get<std::string>().starts_with("o differs from the reference in double by"));
  EXPECT_GT(stages[1]["error"], 0.001);
  EXPECT_TRUE(stages[2]["error"].is_null());  // NaN
  EXPECT_EQ(stages[7]["passed"], true);
  EXPECT_EQ(stages[7]["checked_against"], "right");  // the last that passed
  EXPECT_EQ(folder.file_count(), 1);
}

TEST(CommandLine, ARunIsSummedUpInALine) {
  const TemporaryFolder folder;
  const std::string path = (folder / "summary").string();
  Environment environment = kPlain;
  environment["TUTORIAL_SUMMARY"] = path;
  run_process(command(passing()), environment);
  run_process(command({"--operator=scaling", "--stage=right,wrong", "--seed=3", "--repeat=1"}), environment);
  const std::vector<std::string> lines = lines_of(read_bytes(path));
  ASSERT_EQ(lines.size(), 2u);
  const std::regex passed("00_toy\t4\t0\t0\t(plain [0-9.e+]+x exact)?");  // the stages that the emulator does not run
  EXPECT_TRUE(std::regex_match(lines[0], passed)) << lines[0];
  EXPECT_EQ(lines[1], "00_toy\t1\t1\t0\t");
}

TEST(CommandLine, JsonOfForms) {
  const ProcessResult result = run({"--no-decay", "--repeat=1", "--json", "-"});
  const Json json = Json::parse(result.out);
  check_json(json);
  EXPECT_EQ(json["results"][0]["operator"], "running_sum");
  EXPECT_EQ(json["results"][0]["problem"]["no-decay"], true);
  EXPECT_TRUE(json["results"][0]["stages"][0]["workspace_bytes"] == 0);
  EXPECT_EQ(json["results"][0]["stages"][1]["workspace_bytes"], 200);
  EXPECT_TRUE(json["results"][0]["stages"][0]["launches"].is_null());
  EXPECT_TRUE(json["results"][0]["stages"][0]["bytes_moved"].is_null());
  EXPECT_EQ(json["results"][0]["stages"][1]["launches"], 1);
  EXPECT_EQ(json["results"][0]["stages"][1]["bytes_moved"], 240);
  EXPECT_FALSE(Json::parse(run(passing({"--json", "-"})).out)["results"][0]["problem"].contains("no-decay"));
}

TEST(CommandLine, JsonOfDemonstrations) {
  const ProcessResult result = run({"--operator=counting", "--json", "-"});
  EXPECT_EQ(result.status, 0);
  const Json json = Json::parse(result.out);
  check_json(json);
  EXPECT_EQ(json["results"], Json::array());
  EXPECT_NE(result.error.find("1 + 2 = 3"), std::string::npos);
}

TEST(CommandLine, JsonOfSkippedStages) {
  const ProcessResult result = run(passing({"--cpu-only", "--json", "-"}));
  const Json json = Json::parse(result.out);
  check_json(json);
  EXPECT_EQ(json["results"][0]["stages"][2]["skipped"], "--cpu-only");
}

}  // namespace
}  // namespace tutorial
