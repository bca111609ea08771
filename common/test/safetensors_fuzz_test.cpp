/// @file
/// Files that were valid once. Whatever happened to them, the reader either gives tensors or one line that says what is
/// wrong. (AddressSanitizer watches it in the emulator-asan preset.)

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "common/error.hpp"
#include "common/safetensors.hpp"
#include "common/test/files.hpp"

namespace tutorial {
namespace {

constexpr int kMutations = 4000;

std::string valid_file() {
  const TemporaryFolder folder;
  Tensor q(Dtype::fp32, {2, 1, 3, 4});
  Tensor k(Dtype::bf16, {2, 5});
  Tensor n(Dtype::int32, {2});
  q.fill_bytes(0x3F);
  k.fill_bytes(0);
  n.fill_bytes(1);
  write_safetensors(folder / "a", {{"q", &q}, {"k", &k}, {"key_lengths", &n}}, {{"scale", "0.5"}, {"op", "fuzz"}});
  return read_bytes(folder / "a");
}

class Mutator {
 public:
  explicit Mutator(unsigned seed) : engine_(seed) {}

  std::string mutate(std::string bytes) {
    for (int i = below(4); i >= 0; --i) mutate_once(bytes);
    return bytes;
  }

 private:
  int below(std::size_t limit) { return static_cast<int>(engine_() % std::max<std::size_t>(limit, 1)); }

  // Most changes hit the header, where the structure is.
  std::size_t place(const std::string& bytes) {
    return static_cast<std::size_t>(below(below(4) == 0 ? bytes.size() : std::min<std::size_t>(bytes.size(), 260)));
  }

  void mutate_once(std::string& bytes) {
    static const std::vector<std::string> words{"-1",
                                                "0",
                                                "18446744073709551615",
                                                "18446744073709551616",
                                                "9223372036854775807",
                                                "4294967296",
                                                "1e9",
                                                "\"\"",
                                                "[",
                                                "]",
                                                "{",
                                                "}",
                                                ",",
                                                ":",
                                                "null",
                                                "true",
                                                "\"F32\"",
                                                "\"shape\"",
                                                "\"q\"",
                                                "\"\\u0000\"",
                                                "\"\\ud800\"",
                                                "\xff",
                                                "[[[[[[[[",
                                                "\"__metadata__\""};
    if (bytes.empty()) return;
    const std::size_t at = place(bytes);
    switch (below(8)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ 1 << below(8));
        break;
      case 1:
        bytes[at] = static_cast<char>(below(256));
        break;
      case 2:
        bytes.resize(at);
        break;
      case 3:
        bytes.erase(at, static_cast<std::size_t>(below(20)));
        break;
      case 4:
        bytes.insert(at, words[static_cast<std::size_t>(below(words.size()))]);
        break;
      case 5: {  // a part of the file again, elsewhere
        const std::string part = bytes.substr(place(bytes), static_cast<std::size_t>(below(80)));
        bytes.insert(at, part);
        break;
      }
      case 6: {  // a digit of a shape or an offset
        const std::size_t digit = bytes.find_first_of("0123456789", at);
        if (digit != bytes.npos) bytes[digit] = static_cast<char>('0' + below(10));
        break;
      }
      default:  // the length of the header
        bytes[static_cast<std::size_t>(below(std::min<std::size_t>(bytes.size(), 8)))] = static_cast<char>(below(256));
    }
  }

  std::mt19937 engine_;
};

TEST(SafetensorsFuzz, MutatedFilesAreReadOrRefused) {
  const TemporaryFolder folder;
  const std::string valid = valid_file();
  int accepted = 0, refused = 0;
  for (unsigned seed = 0; seed < kMutations; ++seed) {
    write_bytes(folder / "a", Mutator(seed).mutate(valid));
    try {
      const SafetensorsFile file(folder / "a");
      for (const std::string& name : file.names()) {
        try {
          const Tensor tensor = file.read(name);
          if (tensor.size() > 0) tensor.value(tensor.size() - 1);
        } catch (const UsageError& error) {  // of a type that cannot be read
          EXPECT_NE(std::string(error.what()).find("is of type"), std::string::npos) << error.what();
        }
      }
      ++accepted;
    } catch (const UsageError& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with((folder / "a").string() + ": ")) << error.what();
      ++refused;
    } catch (const std::exception& error) {
      FAIL() << "seed " << seed << ": " << error.what();
    }
  }
  // The mutations reach both sides.
  EXPECT_GT(accepted, kMutations / 50);
  EXPECT_GT(refused, kMutations / 2);
}

// The lengths and offsets of a header are set right again after its text was changed, so that more files come through
// to the checks behind the parser.
TEST(SafetensorsFuzz, MutatedHeadersOfTheRightLength) {
  const TemporaryFolder folder;
  const std::string valid = valid_file();
  std::uint64_t header_bytes = 0;
  valid.copy(reinterpret_cast<char*>(&header_bytes), sizeof header_bytes);
  const std::string header = valid.substr(8, header_bytes);
  int accepted = 0, refused = 0;
  for (unsigned seed = 0; seed < kMutations; ++seed) {
    write_bytes(folder / "a", safetensors_bytes(Mutator(seed).mutate(header), valid.substr(8 + header_bytes)));
    try {
      const SafetensorsFile file(folder / "a");
      for (const std::string& name : file.names()) EXPECT_GE(element_count(file.shape(name)), 0);
      ++accepted;
    } catch (const UsageError& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with((folder / "a").string() + ": ")) << error.what();
      ++refused;
    } catch (const std::exception& error) {
      FAIL() << "seed " << seed << ": " << error.what();
    }
  }
  EXPECT_GT(accepted, kMutations / 50);
  EXPECT_GT(refused, kMutations / 2);
}

}  // namespace
}  // namespace tutorial
