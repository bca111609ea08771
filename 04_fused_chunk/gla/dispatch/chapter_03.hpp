#pragma once
/// @file
/// `chapter_03`: the operator as chapter 03 left it, on the same inputs. The chapter's tables compare with it, and
/// dispatch calls it where it is faster or the only one.

#include "04_fused_chunk/fused_gla.hpp"

namespace tutorial::fused_gla {

/// Chapter 03's dispatch on bf16.
inline void chapter_03(const Bf16Arguments& a) {
  gla::dispatch(a);
}
/// Why it cannot run the problem, as a sentence; empty if it can.
inline std::string chapter_03_unsupported(const Bf16Arguments& a) {
  return gla::dispatch_unsupported(a);
}
/// What it picks, as text for the report.
inline std::string chapter_03_note(const Bf16Arguments& a) {
  return gla::dispatch_note(a);
}
/// Bytes of memory that it needs beside its inputs and outputs.
inline std::int64_t chapter_03_memory(const Bf16Arguments& a) {
  return gla::dispatch_memory(a);
}
/// Bytes that its kernels read from device memory or write to it.
inline std::int64_t chapter_03_bytes_moved(const Bf16Arguments& a) {
  return gla::dispatch_bytes_moved(a);
}

}  // namespace tutorial::fused_gla
