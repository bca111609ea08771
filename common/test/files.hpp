#pragma once
/// @file
/// Files for tests.

#include <filesystem>
#include <string>

#include "common/test/temporary_folder.hpp"

namespace tutorial {

std::string read_bytes(const std::filesystem::path& path);
void write_bytes(const std::filesystem::path& path, const std::string& bytes);

/// A safetensors file from its header and its data.
std::string safetensors_bytes(const std::string& header, const std::string& data);

}  // namespace tutorial
