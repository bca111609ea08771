#pragma once
/// @file
/// Other programs, run as a user runs them.

#include <map>
#include <string>
#include <vector>

namespace tutorial {

struct ProcessResult {
  int status = -1;  ///< exit status; 128 + the signal's number where one ended it
  std::string out;
  std::string error;
};

using Environment = std::map<std::string, std::string>;

/// Runs a program with its outputs in pipes.
ProcessResult run_process(const std::vector<std::string>& command, const Environment& environment = {});

/// Runs a program on a terminal of 100 columns; both outputs are in `out`.
ProcessResult run_on_terminal(const std::vector<std::string>& command, const Environment& environment = {});

/// The same, but the terminal is closed as soon as this text has appeared on it: the user closes the window.
ProcessResult run_until_terminal_closes(const std::vector<std::string>& command, const Environment& environment,
                                        const std::string& text);

}  // namespace tutorial
