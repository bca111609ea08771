#include "common/test/process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <stdexcept>

namespace tutorial {
namespace {

[[noreturn]] void become(const std::vector<std::string>& command, const Environment& environment) {
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  execv(arguments[0], arguments.data());
  _exit(127);
}

int wait_for(pid_t process) {
  int status = 0;
  while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Appends what is there; false at the end.
bool read_some(int descriptor, std::string& text) {
  std::array<char, 4096> buffer;
  const ssize_t count = read(descriptor, buffer.data(), buffer.size());
  if (count < 0 && errno == EINTR) return true;
  if (count <= 0) return false;  // a terminal whose other end was closed gives EIO
  text.append(buffer.data(), static_cast<std::size_t>(count));
  return true;
}

}  // namespace

ProcessResult run_process(const std::vector<std::string>& command, const Environment& environment) {
  int out[2], error[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(error, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  const pid_t process = fork();
  if (process == 0) {
    dup2(out[1], STDOUT_FILENO);
    dup2(error[1], STDERR_FILENO);
    become(command, environment);
  }
  close(out[1]);
  close(error[1]);
  ProcessResult result;
  std::array<pollfd, 2> open{{{out[0], POLLIN, 0}, {error[0], POLLIN, 0}}};
  while (open[0].fd >= 0 || open[1].fd >= 0) {
    poll(open.data(), open.size(), -1);
    if (open[0].revents != 0 && !read_some(out[0], result.out)) open[0].fd = -1;
    if (open[1].revents != 0 && !read_some(error[0], result.error)) open[1].fd = -1;
  }
  close(out[0]);
  close(error[0]);
  result.status = wait_for(process);
  return result;
}

ProcessResult run_on_terminal(const std::vector<std::string>& command, const Environment& environment) {
  return run_until_terminal_closes(command, environment, {});
}

ProcessResult run_until_terminal_closes(const std::vector<std::string>& command, const Environment& environment,
                                        const std::string& text) {
  int terminal = -1;
  const winsize size{.ws_row = 50, .ws_col = 100, .ws_xpixel = 0, .ws_ypixel = 0};
  const pid_t process = forkpty(&terminal, nullptr, nullptr, &size);
  if (process < 0) throw std::runtime_error("no terminal");
  if (process == 0) become(command, environment);
  ProcessResult result;
  while (read_some(terminal, result.out)) {
    if (!text.empty() && result.out.find(text) != text.npos) break;
  }
  close(terminal);
  result.status = wait_for(process);
  return result;
}

}  // namespace tutorial
