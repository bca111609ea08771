#pragma once
/// @file
/// Files for tests.

#include <filesystem>
#include <string>

namespace tutorial {

/// An empty folder for one test, removed with all that is in it.
class TemporaryFolder {
 public:
  TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();

  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }
  /// How many files there are, hidden ones included.
  int file_count() const;

 private:
  std::filesystem::path path_;
};

std::string read_bytes(const std::filesystem::path& path);
void write_bytes(const std::filesystem::path& path, const std::string& bytes);

/// A safetensors file from its header and its data.
std::string safetensors_bytes(const std::string& header, const std::string& data);

}  // namespace tutorial
