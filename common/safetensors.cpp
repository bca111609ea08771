#include "common/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "common/atomic_file.hpp"
#include "common/error.hpp"

namespace tutorial {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are copied to and from files as they are");

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit

struct FileType {
  std::string_view name;
  std::uint64_t bits;          // of one element
  std::optional<Dtype> dtype;  // none: known to the format, of no use here
};
constexpr std::array<FileType, 17> kFileTypes{{
    {"F32", 32, Dtype::fp32},
    {"F64", 64, Dtype::fp64},
    {"F16", 16, Dtype::fp16},
    {"BF16", 16, Dtype::bf16},
    {"I32", 32, Dtype::int32},
    {"I64", 64, Dtype::int64},
    {"BOOL", 8, {}},
    {"U8", 8, {}},
    {"I8", 8, {}},
    {"U16", 16, {}},
    {"I16", 16, {}},
    {"U32", 32, {}},
    {"U64", 64, {}},
    {"C64", 64, {}},
    {"F8_E4M3", 8, {}},
    {"F8_E5M2", 8, {}},
    {"F8_E8M0", 8, {}},
}};

const FileType* find_type(std::string_view name) {
  const auto* found =
      std::find_if(kFileTypes.begin(), kFileTypes.end(), [&](const auto& type) { return type.name == name; });
  return found == kFileTypes.end() ? nullptr : found;
}

std::string_view file_name_of(Dtype dtype) {
  return std::find_if(kFileTypes.begin(), kFileTypes.end(), [&](const auto& type) { return type.dtype == dtype; })
      ->name;
}

}  // namespace

// Takes the header's JSON apart as it is parsed. A tree of the JSON library would hide duplicate keys, and a hostile
// header of 100 MB would take gigabytes.
class SafetensorsFile::HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(SafetensorsFile& file) : file_(file) {}

  bool start_object(std::size_t) override {
    if (++depth_ == 1) return true;
    if (depth_ == 2 && tensor_ == "__metadata__") return true;
    if (depth_ == 2) {
      entry_ = Entry{};
      seen_ = {};
      return true;
    }
    unexpected("an object");
  }
  bool key(std::string& name) override {
    if (depth_ == 1) {
      tensor_ = name;
      if (name == "__metadata__" ? std::exchange(metadata_seen_, true) : file_.contains(name)) {
        file_.fail("two entries '" + name + "' in the header");
      }
    } else {
      key_ = name;
    }
    return true;
  }
  bool string(std::string& text) override {
    if (depth_ == 2 && tensor_ == "__metadata__") {
      if (!file_.metadata_.emplace(key_, text).second) file_.fail("two metadata entries '" + key_ + "'");
      return true;
    }
    if (depth_ != 2 || key_ != "dtype" || in_array_) unexpected("a string");
    once(seen_.dtype);
    entry_.dtype = text;
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ != 2 || in_array_ || tensor_ == "__metadata__") unexpected("a list");
    if (key_ == "shape") {
      once(seen_.shape);
    } else if (key_ == "data_offsets") {
      once(seen_.offsets);
    } else {
      unexpected("a list");
    }
    in_array_ = true;
    offsets_ = 0;
    return true;
  }
  bool number_unsigned(std::uint64_t number) override {
    if (!in_array_) unexpected("a number");
    if (key_ == "shape") {
      if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        file_.fail(fmt::format("tensor '{}': dimension {} is too large", tensor_, number));
      }
      entry_.shape.push_back(static_cast<std::int64_t>(number));
    } else {
      if (offsets_ == 2) file_.fail("tensor '" + tensor_ + "': more than two data_offsets");
      (offsets_++ == 0 ? entry_.begin : entry_.end) = number;
    }
    return true;
  }
  bool end_array() override {
    in_array_ = false;
    if (key_ == "data_offsets" && offsets_ != 2) file_.fail("tensor '" + tensor_ + "': data_offsets are not two");
    return true;
  }
  bool end_object() override {
    if (depth_-- == 2 && tensor_ != "__metadata__") {
      if (!seen_.dtype || !seen_.shape || !seen_.offsets) {
        file_.fail(fmt::format("tensor '{}' has no {}", tensor_,
                               !seen_.dtype   ? "dtype"
                               : !seen_.shape ? "shape"
                                              : "data_offsets"));
      }
      file_.entries_.emplace(tensor_, std::move(entry_));
    }
    return true;
  }

  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("a truth value"); }
  bool number_integer(std::int64_t number) override { unexpected(std::to_string(number)); }
  bool number_float(double, const std::string& text) override { unexpected(text); }
  bool binary(binary_t&) override { unexpected("binary data"); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    file_.fail(fmt::format("the header is not valid JSON at byte {}", position));
  }

 private:
  [[noreturn]] void unexpected(const std::string& what) const {
    if (depth_ == 0) file_.fail("the header is " + what + ", not an object");
    if (depth_ == 1) file_.fail("entry '" + tensor_ + "' of the header is " + what + ", not an object");
    file_.fail(fmt::format("{} '{}': {} in '{}'", tensor_ == "__metadata__" ? "entry" : "tensor", tensor_, what, key_));
  }
  void once(bool& seen) const {
    if (std::exchange(seen, true)) file_.fail("tensor '" + tensor_ + "': two entries '" + key_ + "'");
  }

  SafetensorsFile& file_;
  int depth_ = 0;
  bool in_array_ = false;
  bool metadata_seen_ = false;
  std::string tensor_;  // the key of depth 1
  std::string key_;     // the key of depth 2
  Entry entry_;
  struct {
    bool dtype = false, shape = false, offsets = false;
  } seen_;
  int offsets_ = 0;
};

SafetensorsFile::SafetensorsFile(std::filesystem::path path) : path_(std::move(path)) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path_, error);
  if (error) fail(error.message());
  if (!std::filesystem::is_regular_file(status)) {
    fail(std::filesystem::is_directory(status) ? "is a folder, not a file" : "is not a regular file");
  }
  const std::uint64_t file_bytes = std::filesystem::file_size(path_, error);
  if (error) fail(error.message());
  std::ifstream file(path_, std::ios::binary);
  if (!file) fail(std::strerror(errno));

  std::uint64_t header_bytes = 0;
  if (file_bytes < sizeof header_bytes) fail(fmt::format("{} bytes, too short for a safetensors file", file_bytes));
  file.read(reinterpret_cast<char*>(&header_bytes), sizeof header_bytes);
  if (!file) fail("cannot be read");
  data_start_ = sizeof header_bytes + header_bytes;
  if (header_bytes > file_bytes - sizeof header_bytes) {
    fail(fmt::format("says that its header has {} bytes, but only {} follow", header_bytes,
                     file_bytes - sizeof header_bytes));
  }
  if (header_bytes > kMaxHeaderBytes) fail(fmt::format("says that its header has {} bytes, too many", header_bytes));
  std::string header(header_bytes, '\0');
  file.read(header.data(), static_cast<std::streamsize>(header.size()));
  if (!file) fail("cannot be read");

  HeaderReader reader(*this);
  nlohmann::json::sax_parse(header, &reader);
  check_entries(file_bytes - data_start_);
}

void SafetensorsFile::check_entries(std::uint64_t data_bytes) const {
  std::vector<std::pair<std::string_view, const Entry*>> by_offset;
  for (const auto& [name, entry] : entries_) {
    if (entry.begin > entry.end || entry.end > data_bytes) {
      fail(fmt::format("tensor '{}' has data_offsets [{}, {}], but the file has {} bytes of data", name, entry.begin,
                       entry.end, data_bytes));
    }
    std::int64_t elements = 0;
    try {
      elements = element_count(entry.shape);
    } catch (const UsageError& problem) {
      fail(fmt::format("tensor '{}': {}", name, problem.what()));
    }
    const FileType* type = find_type(entry.dtype);  // the size of a type that nobody has heard of cannot be checked
    if (type != nullptr && static_cast<std::uint64_t>(elements) * (type->bits / 8) != entry.end - entry.begin) {
      fail(fmt::format("tensor '{}': {} bytes of data, but {} {} take {}", name, entry.end - entry.begin, entry.dtype,
                       to_string(entry.shape), static_cast<std::uint64_t>(elements) * (type->bits / 8)));
    }
    by_offset.emplace_back(name, &entry);
  }
  std::sort(by_offset.begin(), by_offset.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second->begin, a.second->end) < std::pair(b.second->begin, b.second->end);
  });
  std::uint64_t end = 0;
  std::string_view previous;
  for (const auto& [name, entry] : by_offset) {
    if (entry->begin < end) fail(fmt::format("tensors '{}' and '{}' overlap", previous, name));
    if (entry->begin > end) fail(fmt::format("{} unused bytes before tensor '{}'", entry->begin - end, name));
    end = entry->end;
    previous = name;
  }
  if (end != data_bytes) fail(fmt::format("{} bytes after the last tensor", data_bytes - end));
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

const SafetensorsFile::Entry& SafetensorsFile::entry(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) fail(fmt::format("has no tensor '{}'", name));
  return found->second;
}

Tensor SafetensorsFile::read(const std::string& name) const {
  const Entry& found = entry(name);
  const FileType* type = find_type(found.dtype);
  if (type == nullptr || !type->dtype) {
    fail(fmt::format("tensor '{}' is of type {}; F32, F64, F16, BF16, I32 and I64 can be read", name, found.dtype));
  }
  Tensor tensor(*type->dtype, found.shape);
  std::ifstream file(path_, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(data_start_ + found.begin));
  file.read(reinterpret_cast<char*>(tensor.raw()), static_cast<std::streamsize>(tensor.bytes()));
  if (!file) fail(fmt::format("tensor '{}' cannot be read", name));
  return tensor;
}

void SafetensorsFile::fail(const std::string& what) const {
  throw UsageError(path_.string() + ": " + what);
}

void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       const Metadata& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t end = 0;
  for (const auto& [name, tensor] : tensors) {
    const std::uint64_t begin = end;
    end += tensor->bytes();
    header[name] = {
        {"dtype", file_name_of(tensor->dtype())}, {"shape", tensor->shape()}, {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data starts aligned
  const std::uint64_t header_bytes = text.size();

  AtomicFile file(path);
  file.write(&header_bytes, sizeof header_bytes);
  file.write(text.data(), text.size());
  for (const auto& [name, tensor] : tensors) file.write(tensor->raw(), tensor->bytes());
  file.commit();
}

}  // namespace tutorial
