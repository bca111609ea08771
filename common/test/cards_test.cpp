/// @file
/// All stages of a chapter on the cards that the emulator knows: each one is right there, or says what the card lacks.
/// Part of every chapter's tests. It takes one problem for each operator on four cards; with TUTORIAL_ALL_CARDS set, all
/// of them on all cards, which `ctest -C full -R cards` does.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "common/test/on_card.hpp"
#include "common/test/stages.hpp"

#if TUTORIAL_EMULATOR
namespace tutorial {
namespace {

bool takes_all() {
  return std::getenv("TUTORIAL_ALL_CARDS") != nullptr;
}

Problem problem_of(const Operator& definition, std::int64_t H, std::int64_t L, std::int64_t width) {
  ProblemRequest request{.seed = 5, .modest = true};
  for (const auto& [symbol, size] :
       {std::pair("B", std::int64_t{1}), {"H", H}, {"L", L}, {"P", L / 2}, {"Dk", width}, {"Dv", width}}) {
    const std::vector<std::string>& symbols = definition.symbols();
    if (std::find(symbols.begin(), symbols.end(), symbol) != symbols.end()) request.sizes[symbol] = size;
  }
  return make_problem(definition, request);
}

/// Runs what the card supports. @param reasons why the card that has all supports no more; by stage
void expect_right_or_missing(const Operator& definition, const Problem& problem,
                             const std::map<std::string, std::string>& reasons) {
  References references(definition, problem);
  for (const Stage& stage : definition.stages()) {
    if (stage.processor != Processor::gpu) continue;
    SCOPED_TRACE(definition.label() + " " + stage.name);
    const std::string reason = why_not(definition, stage, problem);
    if (reason.empty()) {
      expect_close(evaluate(definition, stage, problem), references.of(stage), tolerance_of(stage, problem.sizes));
    } else if (reasons.at(stage.name).empty()) {
      EXPECT_NE(reason.find(", and this GPU has "), std::string::npos) << reason;
      EXPECT_NE(stage.name, "dispatch") << reason;
    }
  }
}

class EachCardTest : public testing::TestWithParam<const char*> {};

TEST_P(EachCardTest, EveryStageIsRightOrSaysWhatIsMissing) {
  if (std::string("rtx3060 h200").find(GetParam()) != std::string::npos && !takes_all()) {
    GTEST_SKIP() << "has what others have that are tried; TUTORIAL_ALL_CARDS=1 tries all";
  }
  using Size = std::pair<std::int64_t, std::int64_t>;  // L, width
  const std::vector<Size> sizes =
      takes_all() ? std::vector<Size>{{65, 64}, {65, 128}, {200, 128}, {65, 256}} : std::vector<Size>{{70, 128}};
  const Chapter contents = chapter();
  for (const Operator& definition : contents.operators()) {
    if (shares_heads(definition)) continue;
    for (const auto& [L, width] : sizes) {
      SCOPED_TRACE("L " + std::to_string(L) + ", width " + std::to_string(width));
      const Problem problem = problem_of(definition, takes_all() ? 2 : 1, L, width);
      std::map<std::string, std::string> reasons;
      for (const Stage& stage : definition.stages()) reasons[stage.name] = why_not(definition, stage, problem);
      const OnCard card(GetParam());
      expect_right_or_missing(definition, problem, reasons);
    }
  }
}

/// The stages that need products of warpgroups, else bulk copies, else more shared memory than an RTX card has.
using Cells = std::array<std::string, 3>;

/// Why a card does not run the stage; empty if it does.
std::string reason_on(const char* card, const Operator& definition, const Stage& stage, const Problem& problem) {
  const OnCard on_card(card);
  return why_not(definition, stage, problem);
}

/// Adds the stage to the cell of what it needs, if it needs anything.
void add(const Operator& definition, const Stage& stage, const Problem& problem, Cells& cells) {
  const auto append = [&](std::size_t cell, const std::string& more) {
    cells[cell] += (cells[cell].empty() ? "`" : ", `") + stage.name + "`" + more;
  };
  const auto on = [&](const char* card) { return reason_on(card, definition, stage, problem); };
  if (on("b200").starts_with("products of warpgroups")) return append(0, "");
  if (on("h200,compute_capability=8.9").starts_with("bulk copies")) return append(1, "");
  const std::string block = "a block needs ", reason = on("rtx4090");
  if (!reason.starts_with(block)) return;
  append(2, " (" + reason.substr(block.size(), reason.find(" of shared") - block.size()) + ")");
}

/// The rows of this chapter in docs/cards.md.
std::vector<std::string> rows_of_page(const std::string& chapter_number) {
  std::ifstream page(PROJECT_FOLDER "/docs/cards.md");
  std::vector<std::string> rows;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("| " + chapter_number + " `")) rows.push_back(line);
  }
  return rows;
}

TEST(CardsTest, ThePageNamesTheStagesThatCardsLack) {
  const Chapter contents = chapter();
  const std::string number = contents.name().substr(0, 2);
  std::vector<std::string> rows;
  for (const Operator& definition : contents.operators()) {
    if (definition.form() != "" && definition.form() != "backward") continue;  // other forms need the same
    const Problem problem = problem_of(definition, 1, 128, 128);
    Cells cells;
    for (const Stage& stage : definition.stages()) {
      if (stage.processor == Processor::gpu) add(definition, stage, problem, cells);
    }
    if (cells == Cells()) continue;
    std::string row = "| " + number + " `" + definition.label() + "` |";
    for (const std::string& cell : cells) row += " " + (cell.empty() ? "–" : cell) + " |";
    rows.push_back(row);
  }
  const auto lines = [](const std::vector<std::string>& all) {
    std::string text;
    for (const std::string& row : all) text += row + "\n";
    return text;
  };
  EXPECT_EQ(lines(rows_of_page(number)), lines(rows)) << "docs/cards.md";
}

INSTANTIATE_TEST_SUITE_P(CardsTest, EachCardTest,
                         testing::Values("a100", "rtx3060", "rtx4090", "h200", "b200", "rtx5090"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tutorial
#endif
