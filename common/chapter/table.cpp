#include "common/chapter/table.hpp"

#include <algorithm>

namespace tutorial {

Table::Table(const Terminal& terminal, std::vector<Column> columns, std::string_view cut)
    : terminal_(terminal), columns_(std::move(columns)) {
  for (Column& column : columns_) column.width = std::max(column.width, width_of(column.title));
  for (Column& column : columns_) {
    if (column.title != cut) continue;
    const std::size_t excess = line_width() - std::min(line_width(), kLineWidth);
    const std::size_t least = std::min(column.width, std::max(kLeastCut, width_of(column.title)));
    column.width -= std::min(excess, column.width - least);
  }
  if (line_width() > kLineWidth) gap_ = 1;
}

void Table::print_header() const {
  std::string line;
  for (const Column& column : columns_) {
    line += std::string(line.empty() ? 0 : gap_, ' ') + aligned(column, column.title, Paint::bold);
  }
  terminal_.line(line);
  std::string rule;
  for (std::size_t i = 0; i < line_width(); ++i) rule += terminal_.sign("─", "-");
  terminal_.line(terminal_.paint(Paint::dim, rule));
}

void Table::print_row(const std::vector<Cell>& cells) const {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    line += std::string(i == 0 ? 0 : gap_, ' ') + aligned(columns_[i], cells[i].text, cells[i].paint);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  terminal_.line(line);
}

std::size_t Table::line_width() const {
  std::size_t width = gap_ * (columns_.size() - 1);
  for (const Column& column : columns_) width += column.width;
  return width;
}

std::string Table::aligned(const Column& column, std::string text, Paint paint) const {
  if (width_of(text) > column.width) {  // a name, in ASCII
    const std::string cut = terminal_.sign("…", "..");
    text = text.substr(0, column.width - width_of(cut)) + cut;
  }
  const std::string space(column.width - std::min(column.width, width_of(text)), ' ');
  return column.right ? space + terminal_.paint(paint, text) : terminal_.paint(paint, text) + space;
}

}  // namespace tutorial
