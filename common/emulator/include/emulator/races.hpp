#pragma once
/// @file
/// Races in kernels: two accesses of one address, one of them a write, that nothing orders. They are found in every
/// schedule, also if the values come out right. See common/emulator/README.md.
///
/// Accesses are seen in sources that are compiled with -fsanitize=thread, whose calls the emulator answers
/// (race_hooks.cpp), and in what the emulator does for threads: copies, products.

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string>
#include <vector>

namespace emulator {

/// What was found.
struct Finding {
  enum class Kind {
    race,      ///< two accesses in no order
    proxy,     ///< a copy or a product that lacks a fence_async_proxy()
    unwritten  ///< a read of memory that nothing has written
  };
  Kind kind;
  std::string text;  ///< one sentence, with both places
};

/// From the next launch on kernels are watched, and what is found is kept for take_findings() instead of ending the
/// launch. Also reads of memory that nothing has written are found. For one OS thread of the host.
void collect_findings();
/// What launches have found since the last call: the first of each pair of lines.
std::vector<Finding> take_findings();

/// Device memory with a name for findings.
struct NamedMemory {
  const void* address;
  std::size_t bytes;
  std::size_t element_bytes;
  std::string name;
  bool is_written = true;  ///< by the host
  // What kernels have done with it since it got its name, where they are watched:
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;
};
/// Names memory until forget_names().
void name_memory(const NamedMemory& memory);
void forget_names();
/// The memory of this address; nullptr if it has no name.
const NamedMemory* find_named_memory(const void* address);
/// Whether a kernel that was watched has written there since the memory got its name.
bool was_written(const void* address);

/// Called in kernels for accesses that no compiler sees. Without a watch they do nothing.
void note_read(const void* address, std::size_t bytes, std::source_location where);
void note_write(const void* address, std::size_t bytes, std::source_location where);
/// A read of shared memory by a copy or a product, which looks at it through the async proxy.
void note_proxy_read(const void* address, std::size_t bytes, std::source_location where);
/// Reads what another lane has noted as read by note_shared_read().
#if defined(__SANITIZE_THREAD__) && !defined(EMULATOR_TSAN)
template <class T>
__attribute__((noinline, no_sanitize("thread"))) T read_unwatched(const T* address) {
  return *address;
}
#else
template <class T>
T read_unwatched(const T* address) {
  return *address;
}
#endif
/// The destination of a copy of cp.async, from its issue to the wait for it.
void note_unfinished_write(const void* address, std::size_t bytes, std::source_location where);

}  // namespace emulator
