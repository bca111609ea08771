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

// The permissions that open() would give a new file. (The mask can only be read by setting it.)
mode_t new_file_mode() {
  const mode_t mask = umask(0);
  umask(mask);
  return 0666 & ~mask;
}

}  // namespace

void require_writable(const fs::path& path) {
  const AtomicFile probe(path);
}

AtomicFile::AtomicFile(const fs::path& path) : path_(path) {
  if (path.empty()) throw UsageError("cannot write a file without a name");
  std::error_code error;
  target_ = fs::weakly_canonical(path, error);
  if (error) fail(error.value());
  const fs::file_status status = fs::status(target_, error);
  if (fs::is_directory(status)) fail(EISDIR);
  if (fs::exists(status)) {
    if (access(target_.c_str(), W_OK) != 0) fail(errno);
    if (!fs::is_regular_file(status)) {
      descriptor_ = open(target_.c_str(), O_WRONLY | O_CLOEXEC);
      if (descriptor_ < 0) fail(errno);
      return;
    }
  }
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
  if (!temporary_.empty()) {
    struct stat existing {};
    const bool replaces = stat(target_.c_str(), &existing) == 0;
    // mkstemp lets only the owner read.
    if (fchmod(descriptor_, replaces ? existing.st_mode & 07777 : new_file_mode()) != 0) fail(errno);
  }
  const int closed = close(descriptor_);
  descriptor_ = -1;
  if (closed != 0) fail(errno);  // where a network file system says that it is full
  if (!temporary_.empty()) {
    if (rename(temporary_.c_str(), target_.c_str()) != 0) fail(errno);
    temporary_.clear();
  }
}

void AtomicFile::fail(int error_number) const {
  throw UsageError("cannot write " + path_.string() + ": " + std::strerror(error_number));
}

}  // namespace tutorial
