#include "common/chapter/table.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <sstream>

namespace tutorial {
namespace {

// What is printed into a file, which is no terminal.
class Printed {
 public:
  Printed() : file_(std::tmpfile()), terminal_(file_) {}
  ~Printed() { std::fclose(file_); }
  const Terminal& terminal() const { return terminal_; }
  std::vector<std::string> lines() {
    std::rewind(file_);
    std::vector<std::string> lines(1);
    for (int c; (c = std::fgetc(file_)) != EOF;) {
      if (c == '\n') {
        lines.emplace_back();
      } else {
        lines.back() += static_cast<char>(c);
      }
    }
    lines.pop_back();
    return lines;
  }

 private:
  std::FILE* file_;
  Terminal terminal_;
};

TEST(Table, AlignsItsColumns) {
  Printed printed;
  const Table table(printed.terminal(), {{"stage", 8, false}, {"time", 7}});
  table.print_header();
  table.print_row({{"one"}, {"1.2 ms", Paint::red}});
  table.print_row({{"two", Paint::bold}, {"-"}});
  EXPECT_EQ(printed.lines(), (std::vector<std::string>{"stage        time",  //
                                                       "-----------------",  //
                                                       "one        1.2 ms",  //
                                                       "two             -"}));
}

// 40 + 40 + 3 * 10 and four gaps of 2 are 118.
TEST(Table, CutsOneColumnToFitTheLine) {
  const std::string long_name(40, 'n');
  Printed printed;
  const Table table(printed.terminal(), {{"stage", 40, false}, {"against", 40, false}, {"a", 10}, {"b", 10}, {"c", 10}},
                    "against");
  table.print_header();
  table.print_row({{long_name}, {long_name}, {"1"}, {"2"}, {"3"}});
  for (const std::string& line : printed.lines()) EXPECT_EQ(line.size(), Table::kLineWidth) << line;
  EXPECT_EQ(printed.lines()[2].substr(0, 66), long_name + "  " + std::string(20, 'n') + "..  ");
}

// 60 + 9 + 3 * 9, where the cut column is at its least: the gaps shrink.
TEST(Table, ShrinksItsGapsNext) {
  Printed printed;
  const Table table(printed.terminal(), {{"stage", 60, false}, {"against", 40, false}, {"a", 9}, {"b", 9}, {"c", 9}},
                    "against");
  table.print_header();
  EXPECT_EQ(printed.lines()[0].size(), 100u);
  EXPECT_EQ(printed.lines()[0].substr(60, 9), " against ");
}

TEST(Terminal, CountsColumnsNotBytes) {
  EXPECT_EQ(width_of("µs"), 2u);
  EXPECT_EQ(width_of("2.50×"), 5u);
  EXPECT_EQ(width_of(""), 0u);
}

TEST(Terminal, FilesAreNotPainted) {
  Printed printed;
  EXPECT_FALSE(printed.terminal().interactive());
  EXPECT_EQ(printed.terminal().paint(Paint::red, "text"), "text");
  EXPECT_EQ(printed.terminal().sign("µ", "u"), "u");
}

}  // namespace
}  // namespace tutorial
