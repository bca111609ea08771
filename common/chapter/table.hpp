#pragma once
/// @file
/// A table of text, a row at a time.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "common/terminal.hpp"

namespace tutorial {

/// A column's title and layout.
struct Column {
  std::string title;
  std::size_t width = 0;  ///< of its widest cell, in signs; the title counts by itself
  bool right = true;      ///< alignment
};

/// A text and its colour.
struct Cell {
  std::string text;
  Paint paint = Paint::none;
};

/// Prints rows as they come, so the widths of its columns are given. It stays within kLineWidth where it can: first one
/// column is cut, down to the width of its title or of kLeastCut, then the gaps between columns shrink.
class Table {
 public:
  static constexpr std::size_t kLineWidth = 100;
  static constexpr std::size_t kLeastCut = 9;

  /// `cut` is the title of the column whose cells are cut where a line would be too long; empty: none.
  Table(const Terminal& terminal, std::vector<Column> columns, std::string_view cut = {});

  /// Prints a line of the table.
  void print_header() const;
  /// Prints a row: its cells from the first column on.
  void print_row(const std::vector<Cell>& cells) const;

 private:
  std::size_t line_width() const;
  std::string aligned(const Column& column, std::string text, Paint paint) const;

  const Terminal& terminal_;
  std::vector<Column> columns_;
  std::size_t gap_ = 2;  // between columns
};

}  // namespace tutorial
