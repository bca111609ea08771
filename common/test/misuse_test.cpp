/// @file
/// A chapter's executable as hostile and clumsy users run it: streams that are closed or full, pipes, names of one
/// file, limits, and environments.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/chapter/machine.hpp"
#include "common/test/files.hpp"
#include "common/test/process.hpp"

namespace tutorial {
namespace {

using Json = nlohmann::json;

const Environment kPlain{{"TERM", "xterm-256color"}, {"LC_ALL", "C.UTF-8"}, {"NO_COLOR", ""}};

// The operator whose stages all pass, on the smallest of problems.
std::vector<std::string> passing(const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments{"--operator", "running_sum",   "-B1",      "-H2",
                                     "-L5",        "--value-dim=3", "--seed=1", "--repeat=1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

// The chapter in a shell: what stands before it, such as `ulimit -f 0;`, and behind it, such as `>&-`.
std::vector<std::string> shell_command(const std::vector<std::string>& arguments, const std::string& behind,
                                       const std::string& before = "") {
  std::vector<std::string> words{"/bin/sh", "-c", before + " \"$0\" \"$@\" " + behind, TOY_CHAPTER};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

ProcessResult run_in_shell(const std::vector<std::string>& arguments, const std::string& behind,
                           const std::string& before = "") {
  return run_process(shell_command(arguments, behind, before), kPlain);
}

// Exit status 2, nothing on standard output, one line on standard error: the message behind the program's name.
std::string usage_error(const ProcessResult& result) {
  EXPECT_EQ(result.status, 2) << result.out << result.error;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(std::count(result.error.begin(), result.error.end(), '\n'), 1) << result.error;
  const std::string name = "toy_chapter: ";
  EXPECT_TRUE(result.error.starts_with(name)) << result.error;
  return result.error.substr(name.size(), result.error.size() - name.size() - 1);
}

// A whole document with the results of passing().
void check_json(const std::string& text) {
  const Json json = Json::parse(text);
  EXPECT_EQ(json["results"][0]["operator"], "running_sum");
  for (const Json& stage : json["results"][0]["stages"]) EXPECT_EQ(stage["passed"], true);
}

TEST(Misuse, TwoNamesOfAFileAreOneFile) {
  const TemporaryFolder folder;
  const std::string in_folder = "cd '" + folder.path().string() + "' &&";
  const auto refused = [&](const std::string& arguments) {
    return run_in_shell(passing(), arguments, in_folder + " ln -sf new link &&").error;
  };
  EXPECT_EQ(refused("--output new --json ./new"), "toy_chapter: --output and --json are both ./new\n");
  EXPECT_EQ(refused("--output link --json new"), "toy_chapter: --output and --json are both new\n");
  EXPECT_EQ(refused("--json new >new"), "toy_chapter: new is where standard output goes\n");
  EXPECT_EQ(refused("--output new >>new"), "toy_chapter: new is where standard output goes\n");
  EXPECT_EQ(folder.file_count(), 2);  // the link, and what the shell made
}

TEST(Misuse, FilesThatArePipes) {
  const TemporaryFolder folder;
  const std::string before = "cd '" + folder.path().string() + "' && mkfifo pipe && { cat pipe >copy & } &&";
  const ProcessResult named = run_in_shell(passing(), "--json pipe && wait && cat copy >&2", before);
  EXPECT_EQ(named.status, 0) << named.error;
  check_json(named.error);
  const ProcessResult out = run_in_shell(passing({"--json=/dev/stdout"}), "2>/dev/null | cat");
  EXPECT_EQ(out.status, 0);
  check_json(out.out);  // the table is on standard error, as with -
  const ProcessResult descriptor = run_in_shell(passing({"--json=/dev/fd/3"}), "3>&1 >/dev/null | cat");
  check_json(descriptor.out);
}

TEST(Misuse, OutputThatCannotBeWrittenIsAnError) {
  const std::string message = "toy_chapter: standard output could not be written\n";
  for (const auto& arguments : {passing(), passing({"--json=-"}), {"--list"}, {"--list", "--json=-"}, {"--help"}}) {
    for (const std::string closed : {">/dev/full", ">&-"}) {
      const ProcessResult result = run_in_shell(arguments, closed);
      EXPECT_EQ(result.status, 2) << arguments.back() << closed;
      EXPECT_TRUE(result.error.ends_with(message)) << result.error;
    }
  }
  const TemporaryFolder folder;
  const std::string path = (folder / "json").string();
  EXPECT_EQ(run_in_shell(passing({"--json", path}), ">&-").error, message);
  check_json(read_bytes(path));  // and nothing else is in the file
}

TEST(Misuse, NobodyReadsStandardError) {
  for (const std::string closed : {"2>/dev/full", "2>&-"}) {
    EXPECT_EQ(run_in_shell({"--nonsense"}, closed).status, 2) << closed;
    const ProcessResult result = run_in_shell(passing({"--json=-"}), closed);
    EXPECT_EQ(result.status, 0) << closed;
    check_json(result.out);
  }
}

// The user closes the window while a run goes on.
TEST(Misuse, TheTerminalIsGone) {
  const TemporaryFolder folder;
  const std::string path = (folder / "json").string();
  const ProcessResult result =
      run_until_terminal_closes(shell_command({"--operator=running_sum", "--stage=plain", "--length=15000",
                                               "--value-dim=64", "--repeat=12", "--json", path},
                                              "", "trap '' HUP;"),
                                kPlain, " of 12");  // some run: the line begins after a quarter of a second
  EXPECT_EQ(result.status, 2);                      // the table could not be written
  check_json(read_bytes(path));
}

TEST(Misuse, AFileSizeLimitIsAnError) {
#ifdef EMULATOR_TSAN
  GTEST_SKIP() << "with this limit ThreadSanitizer ends a program before main() begins";
#endif
  const TemporaryFolder folder;
  const std::string path = (folder / "out").string();
  const ProcessResult result = run_in_shell(passing({"--output", path}), "", "ulimit -f 0;");
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(result.error.ends_with("cannot write " + path + ": File too large\n")) << result.error;
  EXPECT_EQ(folder.file_count(), 0);
}

// In a real GPU's build these variables mean nothing.
TEST(Misuse, SettingsOfTheEmulator) {
  if (!kEmulated) GTEST_SKIP();
  for (const std::string setting :
       {"THREADS=4294967296", "THREADS=0", "THREADS=-1", "THREADS=many", "THREADS=", "MULTIPROCESSORS=2147483648",
        "MULTIPROCESSORS=0", "MULTIPROCESSORS=1e3", "MEMORY=18446744073709551616", "MEMORY=lots", "SCHEDULE=backward",
        "SCHEDULE=mixed:", "SCHEDULE=", "ASYNC=soon", "ASYNC=random:x", "SKIP_BARRIER=here"}) {
    const std::string text = usage_error(run_in_shell(passing(), "", fmt::format("export EMULATOR_{};", setting)));
    EXPECT_NE(text.find(fmt::format("'{}': ", setting.substr(setting.find('=') + 1))), std::string::npos) << text;
  }
  EXPECT_EQ(run_in_shell(passing({"--stage=plain"}), "", "export EMULATOR_THREADS=many;").status, 0) << "unused";
}

TEST(Misuse, LimitsOfContainers) {
  constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();
  const TemporaryFolder version_1, version_2, none;
  EXPECT_EQ(available_in_container(none.path()), kUnlimited);
  write_bytes(version_2 / "memory.max", "max\n");
  EXPECT_EQ(available_in_container(version_2.path()), kUnlimited);
  write_bytes(version_2 / "memory.max", "1000\n");
  write_bytes(version_2 / "memory.current", "300\n");
  EXPECT_EQ(available_in_container(version_2.path()), 700u);
  std::filesystem::create_directory(version_1 / "memory");
  write_bytes(version_1 / "memory/memory.limit_in_bytes", "1000\n");
  write_bytes(version_1 / "memory/memory.usage_in_bytes", "1200\n");
  EXPECT_EQ(available_in_container(version_1.path()), 0u);
}

TEST(Misuse, NamesThatAreMissing) {
  const auto error = [](const std::vector<std::string>& arguments) { return usage_error(run_in_shell(arguments, "")); };
  EXPECT_EQ(error({"--operator", ""}), "--operator: a name is missing");
  EXPECT_EQ(error({"--stage", ""}), "--stage: a name is missing in ''");
  for (const std::string stages : {"plain,", ",plain", "plain,,exact", ","}) {
    EXPECT_EQ(error({"--stage", stages}), fmt::format("--stage: a name is missing in '{}'", stages));
  }
  EXPECT_EQ(error({"--list", "--operator", "nope"}).substr(0, 30), "--operator: there is no 'nope'");
  for (const std::vector<std::string>& more :
       std::vector<std::vector<std::string>>{{"--stage", "plain"}, {"--length", "4"}, {"--cpu-only"}, {"--no-decay"}}) {
    EXPECT_EQ(error({"--list", more.front(), more.size() > 1 ? more.back() : "--list"}),
              fmt::format("--list: takes --operator and --json, not {}", more.front()));
  }
  const ProcessResult list = run_in_shell({"--list", "--operator", "scaling"}, "");
  EXPECT_EQ(list.status, 0);
  EXPECT_NE(list.out.find("unwritten"), std::string::npos);
  EXPECT_EQ(list.out.find("running_sum"), std::string::npos);
  const Json json = Json::parse(run_in_shell({"--list", "--operator", "scaling", "--json=-"}, "").out);
  EXPECT_EQ(json["operators"].size(), 1u);
}

TEST(Misuse, NothingIsNotAllPassed) {
  EXPECT_EQ(usage_error(run_in_shell(passing({"--cpu-only", "--stage=kernel"}), "")),
            "--cpu-only: of no use to kernel, which run on a GPU");
  const ProcessResult skipped = run_in_shell({"--operator=running_sum", "--stage=kernel", "-L5", "--value-dim=65"}, "");
  EXPECT_EQ(skipped.status, 2);
  EXPECT_TRUE(skipped.out.ends_with("no stage was checked, 1 skipped\n")) << skipped.out;
  EXPECT_EQ(skipped.error, "toy_chapter: no stage was checked: kernel: Dv = 65 is above 64\n");
  const std::vector<std::string> both{"--operator=running_sum", "--stage=kernel,kernel_bf16", "-L5", "--value-dim=65",
                                      "--json=-"};
  const ProcessResult two = run_in_shell(both, "");
  EXPECT_EQ(two.status, 0) << two.error;  // kernel_bf16 takes it
  // The report is there before the error.
  const ProcessResult json = run_in_shell({"--no-decay", "--stage=kernel", "-L5", "--value-dim=65", "--json=-"}, "");
  EXPECT_EQ(json.status, 2);
  EXPECT_EQ(Json::parse(json.out)["results"][0]["stages"][0]["skipped"], "Dv = 65 is above 64");
}

TEST(Misuse, StacksAndThreads) {
  EXPECT_EQ(usage_error(run_in_shell(passing(), "", "ulimit -s 256;")),
            "a stack may have 256 kB here and 1024 are needed: ulimit -s");
  EXPECT_EQ(usage_error(run_in_shell(passing(), "", "export OMP_NUM_THREADS=100000;")),
            "OMP_NUM_THREADS is 100000: 4096 threads are the most");
  EXPECT_EQ(run_in_shell(passing(), "", "ulimit -s 4096; export OMP_NUM_THREADS=4,2;").status, 0);
}

TEST(Misuse, ErrorsAreShort) {
  const TemporaryFolder folder;
  const std::string path = (folder / "in").string();
  const std::string header =
      R"({")" + std::string(100000, 'a') + R"(":{"dtype":"F32","shape":[9],"data_offsets":[0,16]}})";
  write_bytes(path, safetensors_bytes(header, std::string(16, 'x')));
  const std::string error = usage_error(run_in_shell({"--input", path}, ""));
  EXPECT_LT(error.size(), 2100);
  EXPECT_TRUE(error.ends_with("16 bytes of data, but F32 [9] take 36")) << error;
}

}  // namespace
}  // namespace tutorial
