#pragma once
/// @file
/// The safetensors file format: eight bytes of header length (little endian), a JSON header, the packed tensors.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/tensor.hpp"

namespace tutorial {

/// Names and texts.
using Metadata = std::map<std::string, std::string, std::less<>>;

/// A safetensors file, open for reading. The header is checked completely; the elements of a tensor are read when it is
/// asked for. F32, F64, F16, BF16, I32 and I64 can be read; a tensor of another type is an error only when it is asked
/// for. Every error is a UsageError that names the file.
class SafetensorsFile {
 public:
  /// Reads and checks the header; throws UsageError where the file cannot be read or is not a safetensors file.
  explicit SafetensorsFile(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  const Metadata& metadata() const { return metadata_; }
  /// Of all tensors, in alphabetical order.
  std::vector<std::string> names() const;
  /// Whether there is a tensor of this name.
  bool contains(const std::string& name) const { return entries_.find(name) != entries_.end(); }
  /// Of a tensor that is there, else UsageError.
  const Shape& shape(const std::string& name) const { return entry(name).shape; }

  /// Reads a tensor in the type that it has in the file. UsageError where it is not there or of a type that cannot be
  /// read.
  Tensor read(const std::string& name) const;

 private:
  struct Entry {
    std::string dtype;  // as the file writes it
    Shape shape;
    std::uint64_t begin = 0;  // bytes from the end of the header
    std::uint64_t end = 0;
  };
  class HeaderReader;

  const Entry& entry(const std::string& name) const;
  void check_entries(std::uint64_t data_bytes) const;
  [[noreturn]] void fail(const std::string& what) const;

  std::filesystem::path path_;
  std::uint64_t data_start_ = 0;  // bytes from the start of the file
  Metadata metadata_;
  std::map<std::string, Entry, std::less<>> entries_;
};

/// A tensor to be written, and its name in the file.
struct NamedTensor {
  std::string name;
  const Tensor* tensor;
};

/// Writes a file, whole or not at all (see AtomicFile), the tensors in their types and in this order. Throws UsageError
/// where it cannot be written. Names are not repeated.
void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       const Metadata& metadata = {});

}  // namespace tutorial
