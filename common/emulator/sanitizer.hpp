#pragma once
/// @file
/// What the emulator tells the sanitizers: that it changes stacks, and what orders the threads of a kernel. Without a
/// sanitizer all of it is nothing.
///
/// The emulator's own .cpp files are compiled without instrumentation: their data is shared by all threads of a block,
/// which take turns, and would look like races.

#include <cstddef>

#ifdef EMULATOR_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef EMULATOR_TSAN
#include <sanitizer/tsan_interface.h>
extern "C" {  // libtsan exports these without a header
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace emulator::sanitizer {

#ifdef EMULATOR_ASAN
inline constexpr bool kAddress = true;
#else
inline constexpr bool kAddress = false;
#endif
#ifdef EMULATOR_TSAN
inline constexpr bool kThread = true;
#else
inline constexpr bool kThread = false;
#endif

/// A stack as AddressSanitizer knows it.
struct StackBounds {
  const void* bottom = nullptr;
  std::size_t bytes = 0;
};

/// AddressSanitizer: right before a jump to `to`. `fake_stack` keeps what finish_switch() needs when control comes
/// back; nullptr if it never will.
inline void start_switch([[maybe_unused]] void** fake_stack, [[maybe_unused]] StackBounds to) {
#ifdef EMULATOR_ASAN
  __sanitizer_start_switch_fiber(fake_stack, to.bottom, to.bytes);
#endif
}

/// AddressSanitizer: right after a jump. Returns the stack that control came from.
inline StackBounds finish_switch([[maybe_unused]] void* fake_stack) {
  StackBounds from;
#ifdef EMULATOR_ASAN
  __sanitizer_finish_switch_fiber(fake_stack, &from.bottom, &from.bytes);
#endif
  return from;
}

/// AddressSanitizer: the frames on an abandoned stack are gone, its bytes may be used again.
inline void forget_frames([[maybe_unused]] StackBounds stack) {
#ifdef EMULATOR_ASAN
  __asan_unpoison_memory_region(stack.bottom, stack.bytes);
#endif
}

/// AddressSanitizer: whether an access to these bytes is allowed from now on.
inline void set_access([[maybe_unused]] const void* begin, [[maybe_unused]] std::size_t bytes,
                       [[maybe_unused]] bool allowed) {
#ifdef EMULATOR_ASAN
  if (allowed) {
    __asan_unpoison_memory_region(begin, bytes);
  } else {
    __asan_poison_memory_region(begin, bytes);
  }
#endif
}

/// A point that orders threads: what a thread did before its release() happens before what another does after its
/// acquire() that comes later.
class SyncPoint {
 public:
#ifdef EMULATOR_TSAN
  void release() {
    __tsan_release(this);
  }
  void acquire() {
    __tsan_acquire(this);
  }

 private:
  alignas(8) char address_ = 0;  // ThreadSanitizer knows a SyncPoint by its address alone
#else
  void release() {}
  void acquire() {}
#endif
};

/// ThreadSanitizer's idea of one thread of a kernel: a history of its own, which only SyncPoints link to others.
class Strand {
 public:
#ifdef EMULATOR_TSAN
  /// A strand that is nobody else's in this launch. @param name for reports
  void create(const char* name);
  /// Gives it back. @param ended whether its function has returned
  void discard(bool ended);
  void adopt_current() {
    handle_ = __tsan_get_current_fiber();
  }
  /// Right before a jump to this strand. Taking turns orders nothing: on a GPU the threads run at the same time.
  void switch_to() {
    __tsan_switch_to_fiber(handle_, __tsan_switch_to_fiber_no_sync);
  }
  /// Releases a point on behalf of this strand, which is not running.
  void release(SyncPoint& point) {
    Strand current;
    current.adopt_current();
    switch_to();
    point.release();
    current.switch_to();
  }

 private:
  void* handle_ = nullptr;
#else
  void create(const char*) {}
  void discard(bool) {}
  void adopt_current() {}
  void switch_to() {}
  void release(SyncPoint&) {}
#endif
};

/// Strands may be used again: all of the launch that has ended comes before what follows.
#ifdef EMULATOR_TSAN
void recycle_strands();
#else
inline void recycle_strands() {}
#endif

/// While it lives ThreadSanitizer overlooks the memory accesses of library functions (memcpy, free, ...) that the
/// emulator calls on behalf of several threads of a kernel.
class Unwatched {
 public:
#ifdef EMULATOR_TSAN
  Unwatched() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~Unwatched() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
#else
  Unwatched() {}
  ~Unwatched() {}
#endif
  Unwatched(const Unwatched&) = delete;
  Unwatched& operator=(const Unwatched&) = delete;
};

}  // namespace emulator::sanitizer
