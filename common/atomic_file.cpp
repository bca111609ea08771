#include "common/atomic_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>

#include "common/error.hpp"

namespace tutorial {
namespace fs = std::filesystem;
namespace {

constexpr mode_t kNewFileMode = 0666;  // less the user's mask

// The mask can only be read by setting it.
mode_t user_mask() {
  const mode_t mask = umask(0);
  umask(mask);
  return mask;
}

[[noreturn]] void refuse(const fs::path& path, int error_number) {
  throw UsageError("cannot write " + path.string() + ": " + std::strerror(error_number));
}

// What is there under the name, and can be written: a regular file, something else, or nothing yet. (The name itself is
// asked, not its target: that of /dev/stdout in a pipe is no path.)
fs::file_type writable_type(const fs::path& path) {
  if (path.empty()) throw UsageError("cannot write a file without a name");
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) refuse(path, EISDIR);
  if (fs::exists(status) && access(path.c_str(), W_OK) != 0) refuse(path, errno);
  return status.type();
}

bool is_written_directly(fs::file_type type) {
  return type != fs::file_type::regular && type != fs::file_type::not_found && type != fs::file_type::none;
}

}  // namespace

fs::path target_of(const fs::path& path) {
  constexpr int kMostLinks = 40;  // as Linux follows
  std::error_code error;
  fs::path target = path;
  for (int links = 0; fs::is_symlink(fs::symlink_status(target, error)); ++links) {
    if (links == kMostLinks) refuse(path, ELOOP);
    const fs::path next = fs::read_symlink(target, error);
    if (error) refuse(path, error.value());
    target = target.parent_path() / next;  // `next` alone where it is absolute
  }
  target = fs::weakly_canonical(fs::absolute(target, error), error);
  if (error) refuse(path, error.value());
  return target;
}

void require_writable(const fs::path& path) {
  if (!is_written_directly(writable_type(path))) const AtomicFile probe(path);
}

AtomicFile::AtomicFile(const fs::path& path) : path_(path) {
  is_direct_ = is_written_directly(writable_type(path));
  if (is_direct_) {
    descriptor_ = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (descriptor_ < 0) fail(errno);
    return;
  }
  target_ = target_of(path);
  descriptor_ = open(target_.parent_path().c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, kNewFileMode);
  if (descriptor_ >= 0) return;
  if (errno != EOPNOTSUPP && errno != EISDIR) fail(errno);  // the latter from kernels without O_TMPFILE
  std::string temporary = (target_.parent_path() / ".tutorial-XXXXXX").string();
  descriptor_ = mkostemp(temporary.data(), O_CLOEXEC);
  if (descriptor_ < 0) fail(errno);
  temporary_ = temporary;
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, std::size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(descriptor_, next, bytes);
    if (written < 0) {
      if (errno == EINTR) continue;
      fail(errno);
    }
    next += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

void AtomicFile::commit() {
  if (!is_direct_) {
    struct stat existing {};
    const bool replaces = stat(target_.c_str(), &existing) == 0;
    // mkstemp lets only the owner read.
    if (fchmod(descriptor_, replaces ? existing.st_mode & 07777 : kNewFileMode & ~user_mask()) != 0) fail(errno);
    if (temporary_.empty()) give_name();
  }
  const int closed = close(descriptor_);
  descriptor_ = -1;
  if (closed != 0) fail(errno);  // where a network file system says that it is full
  if (!temporary_.empty()) {
    if (rename(temporary_.c_str(), target_.c_str()) != 0) fail(errno);
    temporary_.clear();
  }
}

// A link does not replace a file: where there is one, a temporary name will.
void AtomicFile::give_name() {
  const std::string file = "/proc/self/fd/" + std::to_string(descriptor_);
  const auto link_to = [&](const fs::path& name) {
    return linkat(AT_FDCWD, file.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
  };
  if (link_to(target_)) return;
  if (errno != EEXIST) fail(errno);
  const fs::path temporary = target_.parent_path() / (".tutorial-" + std::to_string(getpid()));
  if (!link_to(temporary)) fail(errno);
  temporary_ = temporary;
}

void AtomicFile::fail(int error_number) const {
  refuse(path_, error_number);
}

}  // namespace tutorial
