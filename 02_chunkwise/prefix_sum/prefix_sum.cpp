#include "02_chunkwise/prefix_sum/prefix_sum.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace tutorial {
namespace {

/// Lays numbers out in columns, with a bar between chunks.
class Picture {
 public:
  Picture(std::size_t n, std::size_t chunk, long largest)
      : n_(n), chunk_(chunk), width_(fmt::formatted_size("{}", largest)) {}

  /// Adds a line with a label, one number per position, and the meaning of the numbers.
  template <class ShownAt>
  void row(const char* label, const std::vector<long>& numbers, ShownAt shown_at, const char* meaning) {
    std::string line = fmt::format("{:<8}", label);
    for (std::size_t i = 0; i < n_; ++i) {
      const bool shown = shown_at(i);
      const long number = shown ? numbers[numbers.size() == n_ ? i : i / chunk_] : 0;
      line += fmt::format("  {:>{}}", shown ? fmt::to_string(number) : "", width_);
      if (is_last(i) && i + 1 < n_) line += " |";
    }
    if (*meaning) line += fmt::format("   {}", meaning);
    text_ += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  void line(const char* line) { text_ += std::string(line) + "\n"; }

  bool is_first(std::size_t i) const { return i % chunk_ == 0; }
  bool is_last(std::size_t i) const { return i % chunk_ == chunk_ - 1 || i + 1 == n_; }
  const std::string& text() const { return text_; }

 private:
  std::size_t n_, chunk_, width_;
  std::string text_;
};

}  // namespace

ChunkedSums chunked_sums(const std::vector<long>& x, int chunk) {
  ChunkedSums result;
  for (auto begin = x.begin(); begin != x.end();) {  // the chunks are independent
    const auto end = begin + std::min<std::ptrdiff_t>(chunk, x.end() - begin);
    std::partial_sum(begin, end, std::back_inserter(result.local));
    result.totals.push_back(result.local.back());
    begin = end;
  }
  result.carried.resize(result.totals.size());
  std::exclusive_scan(result.totals.begin(), result.totals.end(), result.carried.begin(), 0L);  // few totals
  for (std::size_t i = 0; i < x.size(); ++i) {  // again the chunks are independent
    result.sums.push_back(result.carried[i / std::size_t(chunk)] + result.local[i]);
  }
  return result;
}

Demonstration prefix_sum(int n, int chunk) {
  std::vector<long> x(std::size_t(n), 0), serial;
  std::iota(x.begin(), x.end(), 0L);
  std::partial_sum(x.begin(), x.end(), std::back_inserter(serial));
  const ChunkedSums result = chunked_sums(x, chunk);

  Picture picture(x.size(), std::size_t(chunk), serial.back());
  const auto all = [](std::size_t) { return true; };
  const auto first = [&](std::size_t i) { return picture.is_first(i); };
  const auto last = [&](std::size_t i) { return picture.is_last(i); };
  picture.row("x", x, all, "");
  picture.line("");
  picture.line("pass 1: each chunk for itself, all at once");
  picture.row("local", result.local, all, "as the masked scores inside a chunk, (Q K^T) . M");
  picture.row("total", result.totals, last, "as the state that a chunk adds, K^T V");
  picture.line("");
  picture.line("pass 2: the few totals in line, then again all at once");
  picture.row("carried", result.carried, first, "as the state that a chunk starts from, S");
  picture.row("sum", result.sums, all, "carried + local, as O = Q S + ((Q K^T) . M) V");
  return {.text = picture.text(), .passed = result.sums == serial};
}

}  // namespace tutorial
