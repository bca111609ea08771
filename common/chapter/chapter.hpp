#pragma once
/// @file
/// A chapter's executable: its operators and their stages, run, checked, timed and reported as the command line asks.

#include <deque>
#include <string>

#include "common/chapter/operator.hpp"

namespace tutorial {

class Chapter {
 public:
  /// `name` is the chapter's folder, `title` what it teaches, in a few words.
  Chapter(std::string name, std::string title) : name_(std::move(name)), title_(std::move(title)) {}

  /// Adds an operator; its stages are added to what is returned, which stays valid.
  Operator& add(Operator definition);

  /// Does what the command line asks. Returns the exit status: 0 all checks passed, 1 a check failed, 2 bad usage or
  /// input, which is one line on standard error.
  int run(int argc, const char* const* argv) const;

  const std::string& name() const { return name_; }
  const std::string& title() const { return title_; }
  const std::deque<Operator>& operators() const { return operators_; }

 private:
  std::string name_;
  std::string title_;
  std::deque<Operator> operators_;
};

/// The executable's chapter: each chapter's main.cpp defines it, as its table of contents. common/chapter/main.cpp runs
/// it for the reader, and the chapter's tests go through its stages.
Chapter chapter();

}  // namespace tutorial
