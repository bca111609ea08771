/// @file
/// A target for libFuzzer: any bytes as a file of tensors. The reader gives tensors or a UsageError; whatever else
/// happens ends the fuzzer. tools/fuzz.sh builds and runs it.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "common/error.hpp"
#include "common/safetensors.hpp"

namespace {

// Reads every tensor, each element as a number, and each in fp32 or int32 as a chapter does.
void read_all(const tutorial::SafetensorsFile& file) {
  for (const std::string& name : file.names()) {
    try {
      const tutorial::Tensor tensor = file.read(name);
      if (tensor.size() != tutorial::element_count(file.shape(name))) std::abort();
      const bool integer = tensor.dtype() == tutorial::Dtype::int32 || tensor.dtype() == tutorial::Dtype::int64;
      tensor.to(integer ? tutorial::Dtype::int32 : tutorial::Dtype::fp32);
      for (std::int64_t i = 0; i < tensor.size(); ++i) tensor.value(i);
    } catch (const tutorial::UsageError&) {  // of a type that cannot be read, or a whole number beyond 32 bits
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const int file = memfd_create("fuzzed", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  if (ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != static_cast<ssize_t>(size)) std::abort();
  try {
    read_all(tutorial::SafetensorsFile(path));
  } catch (const tutorial::UsageError& error) {
    if (!std::string(error.what()).starts_with(path + ": ")) std::abort();
  }
  return 0;
}
