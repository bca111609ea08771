#pragma once
/// @file
/// Text on a terminal, in colour where one is, and plain where the text goes to a file or a pipe.

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

namespace tutorial {

enum class Paint { none, bold, dim, red, green, cyan };

/// Where text is written to, and what can be written there.
class Terminal {
 public:
  /// Looks at the file: colours on a terminal, unless NO_COLOR is set or TERM is "dumb"; signs outside ASCII on a
  /// terminal whose locale is UTF-8.
  explicit Terminal(std::FILE* file);

  std::FILE* file() const { return file_; }
  /// A person is looking, and lines can be overwritten.
  bool interactive() const { return interactive_; }

  /// The text in a colour, where the terminal has colours.
  std::string paint(Paint paint, std::string_view text) const;
  /// One sign or the other, by what the terminal can show.
  std::string sign(std::string_view unicode, std::string_view ascii) const;

  /// Writes text at once, so that a pipe's reader sees it as it comes. What cannot be written is left out: the file's
  /// std::ferror() tells.
  void write(std::string_view text) const;
  /// Writes a line.
  void line(std::string_view text) const;

 private:
  std::FILE* file_;
  bool interactive_;
  bool colour_;
  bool unicode_;
};

/// The columns that UTF-8 text takes, as long as all its signs are one column wide and nothing is painted.
std::size_t width_of(std::string_view text);

}  // namespace tutorial
