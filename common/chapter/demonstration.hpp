#pragma once
/// @file
/// A warm-up before a chapter's operators: it computes something small and shows it as text.

#include <functional>
#include <string>

namespace tutorial {

/// What a demonstration shows.
struct Demonstration {
  std::string text;     ///< lines, printed as they are
  bool passed = false;  ///< what it computed is right
};

/// A demonstration as its chapter lists it.
struct NamedDemonstration {
  std::string name;
  std::string summary;  ///< one line for --list
  std::function<Demonstration()> run;
  std::string option = {};  ///< "trace": shown only where --trace asks for it; empty: in every run of the whole chapter
};

}  // namespace tutorial
