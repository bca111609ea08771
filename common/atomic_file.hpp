#pragma once
/// @file
/// Files that are written whole or not at all.

#include <cstddef>
#include <filesystem>

namespace tutorial {

/// The file that writing to `path` creates or replaces: an absolute path without symbolic links, also where the file
/// does not exist yet. Two names of one file have one target. Throws UsageError where links lead in a circle.
std::filesystem::path target_of(const std::filesystem::path& path);

/// Throws UsageError where `path` cannot be written: its folder does not exist or takes no files, it is empty, a folder
/// itself, or it is protected. Asked before hours of work; leaves nothing behind. What is not a regular file is not
/// opened: the reader of a pipe would see its end.
void require_writable(const std::filesystem::path& path);

/// A file without a name, which takes its final name when it is complete. Until then a file that is already there stays
/// as it is, and a process that is killed leaves nothing. (On a file system that knows no files without a name, such as
/// NFS, it has a temporary name in the same folder, which a killed process leaves.) What is not a regular file (a
/// terminal, /dev/null, a pipe) is written directly; opening a named pipe waits for its reader. Every error is a
/// UsageError that names the file.
class AtomicFile {
 public:
  /// `path` is the file's final name.
  explicit AtomicFile(const std::filesystem::path& path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  /// Without commit() nothing remains.
  ~AtomicFile();

  /// Appends to what has been written.
  void write(const void* data, std::size_t bytes);
  /// The file is complete: gives it its name. Nothing is written after it.
  void commit();

 private:
  void give_name();
  [[noreturn]] void fail(int error_number) const;

  std::filesystem::path path_;       // as the user named it
  std::filesystem::path target_;     // target_of(path): a symbolic link stays one
  std::filesystem::path temporary_;  // a name until commit(); empty where there is none
  bool is_direct_ = false;           // the target is no regular file
  int descriptor_ = -1;
};

}  // namespace tutorial
