#pragma once
/// @file
/// A chapter's executable: its operators and their stages, run, checked, timed and reported as the command line asks.

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "common/chapter/demonstration.hpp"
#include "common/chapter/operator.hpp"

namespace tutorial {

/// A chapter: its name, its demonstrations and its operators with their stages.
class Chapter {
 public:
  /// `name` is the chapter's folder, `title` what it teaches, in a few words.
  Chapter(std::string name, std::string title) : name_(std::move(name)), title_(std::move(title)) {}

  /// Adds a warm-up that runs before the operators. What it throws is a failure.
  /// @param option if given, the demonstration runs only where the command line has --OPTION
  void demonstration(std::string name, std::string summary, std::function<Demonstration()> run,
                     std::string option = {});

  /// Adds an operator; its stages are added to what is returned, which stays valid. Two may have the same name if they
  /// differ in their form.
  Operator& add(Operator definition);

  /// Does what the command line asks. Returns the exit status: 0 all checks passed, 1 a check failed, 2 bad usage or
  /// input, or an error of the machine outside of the stages, which is one line on standard error. No std::exception
  /// leaves it.
  int run(int argc, const char* const* argv) const;

  /// Of an operator its definition with the option --backward; null where it has none, or is one itself.
  const Operator* backward_of(const Operator& definition) const;

  const std::string& name() const { return name_; }
  const std::string& title() const { return title_; }
  const std::vector<NamedDemonstration>& demonstrations() const { return demonstrations_; }
  const std::deque<Operator>& operators() const { return operators_; }

 private:
  std::string name_;
  std::string title_;
  std::vector<NamedDemonstration> demonstrations_;
  std::deque<Operator> operators_;
};

/// The executable's chapter: each chapter's main.cpp defines it, as its table of contents. common/chapter/main.cpp runs
/// it for the reader, and the chapter's tests go through its stages.
Chapter chapter();

}  // namespace tutorial
