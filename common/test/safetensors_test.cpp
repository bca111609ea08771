#include "common/safetensors.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "common/error.hpp"
#include "common/test/files.hpp"

namespace tutorial {
namespace {

namespace fs = std::filesystem;

Tensor counting(Dtype dtype, const Shape& shape) {
  Tensor tensor(dtype, shape);
  for (std::size_t i = 0; i < tensor.bytes(); ++i) tensor.raw()[i] = static_cast<std::byte>(i % 61);
  return tensor;
}

TEST(Safetensors, WhatIsWrittenIsRead) {
  const TemporaryFolder folder;
  std::vector<Tensor> tensors;
  std::vector<NamedTensor> named;
  const std::vector<std::string> names{"f32", "f64", "bf16", "f16", "i32", "i64", "scalar", "empty", "odd \"name\"\n"};
  tensors.push_back(counting(Dtype::fp32, {2, 3}));
  tensors.push_back(counting(Dtype::fp64, {5}));
  tensors.push_back(counting(Dtype::bf16, {3, 1, 1}));
  tensors.push_back(counting(Dtype::fp16, {7}));
  tensors.push_back(counting(Dtype::int32, {4}));
  tensors.push_back(counting(Dtype::int64, {2, 2}));
  tensors.push_back(counting(Dtype::fp32, {}));
  tensors.push_back(counting(Dtype::fp32, {0, 4}));
  tensors.push_back(counting(Dtype::fp32, {1}));
  for (std::size_t i = 0; i < names.size(); ++i) named.push_back({names[i], &tensors[i]});
  write_safetensors(folder / "a", named, {{"op", "test"}, {"scale", "0.5"}});

  const SafetensorsFile file(folder / "a");
  EXPECT_EQ(file.metadata(), (Metadata{{"op", "test"}, {"scale", "0.5"}}));
  EXPECT_EQ(file.names().size(), names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    ASSERT_TRUE(file.contains(names[i])) << names[i];
    const Tensor read = file.read(names[i]);
    EXPECT_EQ(read.dtype(), tensors[i].dtype());
    EXPECT_EQ(read.shape(), tensors[i].shape());
    EXPECT_EQ(file.shape(names[i]), tensors[i].shape());
    EXPECT_TRUE(std::equal(read.raw(), read.raw() + read.bytes(), tensors[i].raw()));
  }
  EXPECT_FALSE(file.contains("absent"));
  EXPECT_THROW(file.read("absent"), UsageError);
}

// The bytes of a file, as the format's description gives them.
TEST(Safetensors, ReadsTheFormat) {
  const TemporaryFolder folder;
  const float values[] = {1, 2, 3, 4};
  const std::string data(reinterpret_cast<const char*>(values), sizeof values);
  const std::string header =
      R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[12,16]},"a":{"data_offsets":[0,12],"shape":[3,1],"dtype":"F32"}}   )";
  write_bytes(folder / "a", safetensors_bytes(header, data));
  const SafetensorsFile file(folder / "a");
  EXPECT_EQ(file.read("a").value(2), 3);
  EXPECT_EQ(file.read("b").value(0), 4);
}

TEST(Safetensors, DataStartsAligned) {
  const TemporaryFolder folder;
  const Tensor tensor = counting(Dtype::fp64, {1});
  for (int length = 1; length < 10; ++length) {
    write_safetensors(folder / "a", {{std::string(static_cast<std::size_t>(length), 'x'), &tensor}});
    EXPECT_EQ((fs::file_size(folder / "a") - tensor.bytes()) % 8, 0u);
  }
}

// What a file of one tensor's header and 16 bytes of data is refused with.
std::string refusal(const std::string& header, const std::string& data = std::string(16, 'x')) {
  const TemporaryFolder folder;
  write_bytes(folder / "bad.safetensors", safetensors_bytes(header, data));
  try {
    const SafetensorsFile file(folder / "bad.safetensors");
  } catch (const UsageError& error) {
    const std::string name = (folder / "bad.safetensors").string() + ": ";
    const std::string message = error.what();
    EXPECT_TRUE(message.starts_with(name)) << message;
    EXPECT_EQ(message.find('\n'), message.npos);
    return message.substr(std::min(name.size(), message.size()));
  }
  return "accepted";
}

std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

TEST(Safetensors, AcceptsTheFileThatTheOthersAreVariantsOf) {
  EXPECT_EQ(refusal(R"({"q":)" + tensor("F32", "[2,2]", "[0,16]") + "}"), "accepted");
}

TEST(Safetensors, RefusesBadHeaders) {
  EXPECT_EQ(refusal("", ""), "the header is not valid JSON at byte 1");
  EXPECT_EQ(refusal("{", ""), "the header is not valid JSON at byte 2");
  EXPECT_EQ(refusal("{} x", ""), "the header is not valid JSON at byte 4");
  EXPECT_EQ(refusal("[]", ""), "the header is a list, not an object");
  EXPECT_EQ(refusal("1", ""), "the header is a number, not an object");
  EXPECT_EQ(refusal("\"\xff\"", ""), "the header is not valid JSON at byte 2");
  EXPECT_EQ(refusal(std::string(200'000, '['), ""), "the header is a list, not an object");
  EXPECT_EQ(refusal(R"({"q":1})", ""), "entry 'q' of the header is a number, not an object");
  EXPECT_EQ(refusal(R"({"q":null})", ""), "entry 'q' of the header is null, not an object");
  EXPECT_EQ(refusal(R"({"__metadata__":{"a":1}})", ""), "entry '__metadata__': a number in 'a'");
  EXPECT_EQ(refusal(R"({"__metadata__":[]})", ""), "entry '__metadata__' of the header is a list, not an object");
  EXPECT_EQ(refusal(R"({"__metadata__":{"a":"1","a":"2"}})", ""), "two metadata entries 'a'");
  EXPECT_EQ(refusal(R"({"__metadata__":{},"__metadata__":{}})", ""), "two entries '__metadata__' in the header");
}

TEST(Safetensors, RefusesBadTensors) {
  const std::string good = tensor("F32", "[2,2]", "[0,16]");
  EXPECT_EQ(refusal(R"({"q":)" + good + R"(,"q":)" + good + "}"), "two entries 'q' in the header");
  EXPECT_EQ(refusal(R"({"q":{}})"), "tensor 'q' has no dtype");
  EXPECT_EQ(refusal(R"({"q":{"dtype":"F32","data_offsets":[0,16]}})"), "tensor 'q' has no shape");
  EXPECT_EQ(refusal(R"({"q":{"dtype":"F32","shape":[4]}})"), "tensor 'q' has no data_offsets");
  EXPECT_EQ(refusal(R"({"q":{"dtype":"F32","shape":[4],"shape":[4],"data_offsets":[0,16]}})"),
            "tensor 'q': two entries 'shape'");
  EXPECT_EQ(refusal(R"({"q":{"dtype":"F32","shape":[4],"data_offsets":[0,16],"color":"red"}})"),
            "tensor 'q': a string in 'color'");
  EXPECT_EQ(refusal(R"({"q":{"dtype":32,"shape":[4],"data_offsets":[0,16]}})"), "tensor 'q': a number in 'dtype'");
  EXPECT_EQ(refusal(R"({"q":)" + tensor("F32", "4", "[0,16]") + "}"), "tensor 'q': a number in 'shape'");
  EXPECT_EQ(refusal(R"({"q":)" + tensor("F32", "[[4]]", "[0,16]") + "}"), "tensor 'q': a list in 'shape'");
  EXPECT_EQ(refusal(R"({"q":)" + tensor("F32", "[{}]", "[0,16]") + "}"), "tensor 'q': an object in 'shape'");
  EXPECT_EQ(refusal(R"({"q":)" + tensor("F32", "[-4]", "[0,16]") + "}"), "tensor 'q': -4 in 'shape'");
  EXPECT_EQ(refusal(R"({"q":)" + tensor("F32", "[4.0]", "[0,16]") + "}"), "tensor 'q': 4.0 in 'shape'");
  EXPECT_EQ(refusal(R"({"q":)" + tensor("F32", "[\"4\"]", "[0,16]") + "}"), "tensor 'q': a string in 'shape'");
  EXPECT_EQ(refusal(R"({"q":)" + tensor("F32", "[18446744073709551615]", "[0,16]") + "}"),
            "tensor 'q': dimension 18446744073709551615 is too large");
  EXPECT_EQ(refusal(R"({"q":)" + tensor("F32", "[4294967296,4294967296]", "[0,16]") + "}"),
            "tensor 'q': shape [4294967296, 4294967296] has too many elements");
  EXPECT_EQ(refusal(R"({"q":)" + tensor("F32", "[0,4294967296,4294967296]", "[0,0]") + "}", ""),
            "tensor 'q': shape [0, 4294967296, 4294967296] has too many elements");
  EXPECT_EQ(refusal(R"({"q":)" + tensor("F32", "[3]", "[0,16]") + "}"),
            "tensor 'q': 16 bytes of data, but F32 [3] take 12");
  EXPECT_EQ(refusal(R"({"q":)" + tensor("BF16", "[2,2]", "[0,16]") + "}"),
            "tensor 'q': 16 bytes of data, but BF16 [2, 2] take 8");
  EXPECT_EQ(refusal(R"({"q":)" + tensor("BOOL", "[2]", "[0,16]") + "}"),
            "tensor 'q': 16 bytes of data, but BOOL [2] take 2");
}

TEST(Safetensors, RefusesBadOffsets) {
  const auto one = [](const std::string& offsets) { return R"({"q":)" + tensor("F32", "[4]", offsets) + "}"; };
  EXPECT_EQ(refusal(one("[0]")), "tensor 'q': data_offsets are not two");
  EXPECT_EQ(refusal(one("[0,8,16]")), "tensor 'q': more than two data_offsets");
  EXPECT_EQ(refusal(one("[0,16]"), std::string(15, 'x')),
            "tensor 'q' has data_offsets [0, 16], but the file has 15 bytes of data");
  EXPECT_EQ(refusal(one("[16,0]")), "tensor 'q' has data_offsets [16, 0], but the file has 16 bytes of data");
  EXPECT_EQ(refusal(one("[-16,0]")), "tensor 'q': -16 in 'data_offsets'");
  EXPECT_EQ(
      refusal(one("[18446744073709551600,18446744073709551615]")),
      "tensor 'q' has data_offsets [18446744073709551600, 18446744073709551615], but the file has 16 bytes of data");
  EXPECT_EQ(refusal(one("[0,16]"), std::string(20, 'x')), "4 bytes after the last tensor");
  EXPECT_EQ(refusal(one("[4,20]"), std::string(20, 'x')), "4 unused bytes before tensor 'q'");
  EXPECT_EQ(refusal("{}"), "16 bytes after the last tensor");
  const auto two = [](const std::string& a, const std::string& b) {
    return R"({"a":)" + tensor("F32", "[2]", a) + R"(,"b":)" + tensor("F32", "[2]", b) + "}";
  };
  EXPECT_EQ(refusal(two("[0,8]", "[8,16]")), "accepted");
  EXPECT_EQ(refusal(two("[8,16]", "[0,8]")), "accepted");
  EXPECT_EQ(refusal(two("[0,8]", "[4,12]"), std::string(12, 'x')), "tensors 'a' and 'b' overlap");
  EXPECT_EQ(refusal(two("[0,8]", "[0,8]"), std::string(8, 'x')), "tensors 'a' and 'b' overlap");
  EXPECT_EQ(refusal(two("[0,8]", "[12,20]"), std::string(20, 'x')), "4 unused bytes before tensor 'b'");
}

TEST(Safetensors, OtherTypesAreAnErrorOnlyWhenTheyAreAskedFor) {
  const TemporaryFolder folder;
  const std::string header = R"({"mask":)" + tensor("BOOL", "[4]", "[0,4]") + R"(,"new":)" +
                             tensor("F4", "[6]", "[4,7]") + R"(,"q":)" + tensor("F32", "[1]", "[7,11]") + "}";
  write_bytes(folder / "a", safetensors_bytes(header, std::string(11, '\0')));
  const SafetensorsFile file(folder / "a");
  EXPECT_EQ(file.read("q").value(0), 0);
  for (const std::string name : {"mask", "new"}) {
    try {
      file.read(name);
      FAIL() << name;
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find("tensor '" + name + "' is of type"), std::string::npos) << error.what();
    }
  }
}

std::string opening_error(const fs::path& path) {
  try {
    const SafetensorsFile file(path);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Safetensors, RefusesWhatIsNoFile) {
  const TemporaryFolder folder;
  EXPECT_EQ(opening_error(folder / "absent"), (folder / "absent").string() + ": No such file or directory");
  EXPECT_EQ(opening_error(folder.path()), folder.path().string() + ": is a folder, not a file");
  EXPECT_EQ(opening_error("/dev/null"), "/dev/null: is not a regular file");
}

TEST(Safetensors, RefusesTruncatedFiles) {
  const TemporaryFolder folder;
  const Tensor tensor = counting(Dtype::fp32, {4});
  write_safetensors(folder / "whole", {{"q", &tensor}});
  const std::string whole = read_bytes(folder / "whole");
  for (std::size_t length = 0; length < whole.size(); ++length) {
    write_bytes(folder / "cut", whole.substr(0, length));
    EXPECT_NE(opening_error(folder / "cut"), "accepted") << length;
  }
  write_bytes(folder / "cut", "1234567");
  EXPECT_EQ(opening_error(folder / "cut"), (folder / "cut").string() + ": 7 bytes, too short for a safetensors file");
}

TEST(Safetensors, RefusesHeaderLengthsBeyondTheFile) {
  const TemporaryFolder folder;
  for (const std::uint64_t length :
       {std::uint64_t{3}, std::uint64_t{100'000'001}, ~std::uint64_t{0}, ~std::uint64_t{7}}) {
    write_bytes(folder / "a", std::string(reinterpret_cast<const char*>(&length), sizeof length) + "{}");
    EXPECT_EQ(opening_error(folder / "a"), (folder / "a").string() + ": says that its header has " +
                                               std::to_string(length) + " bytes, but only 2 follow");
  }
}

// A sparse file: nothing of it is read.
TEST(Safetensors, RefusesHeadersAbove100Megabytes) {
  const TemporaryFolder folder;
  const std::uint64_t length = 100'000'001;
  write_bytes(folder / "a", std::string(reinterpret_cast<const char*>(&length), sizeof length));
  fs::resize_file(folder / "a", 200'000'000);
  EXPECT_EQ(opening_error(folder / "a"),
            (folder / "a").string() + ": says that its header has 100000001 bytes, too many");
}

TEST(Safetensors, WritingFailsWithoutATrace) {
  const TemporaryFolder folder;
  const Tensor tensor = counting(Dtype::fp32, {4});
  EXPECT_THROW(write_safetensors(folder / "no/such/folder", {{"q", &tensor}}), UsageError);
  EXPECT_THROW(write_safetensors(folder.path(), {{"q", &tensor}}), UsageError);
  EXPECT_EQ(folder.file_count(), 0);
}

}  // namespace
}  // namespace tutorial
