#pragma once
/// @file
/// Files that are written whole or not at all.

#include <cstddef>
#include <filesystem>

namespace tutorial {

/// Throws UsageError where `path` cannot be written: its folder does not exist or takes no files, it is empty, a folder
/// itself, or it is protected. Asked before hours of work; leaves nothing behind.
void require_writable(const std::filesystem::path& path);

/// A file under a temporary name in the same folder, which takes its final name when it is complete. Until then a file
/// that is already there stays as it is. What is not a regular file (a terminal, /dev/null, a pipe) is written
/// directly. Every error is a UsageError that names the file.
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
  [[noreturn]] void fail(int error_number) const;

  std::filesystem::path path_;       // as the user named it
  std::filesystem::path target_;     // what it stands for: a symbolic link stays one
  std::filesystem::path temporary_;  // empty where the target is written directly
  int descriptor_ = -1;
};

}  // namespace tutorial
