// The calls that a compiler makes under -fsanitize=thread, answered for the detector of races instead of ThreadSanitizer.
// Outside of kernels, and in launches that are not watched, they do nothing but the atomic operation that they stand for.

#include "race_hooks.hpp"

#include <cstddef>
#include <cstdint>

#include "race_detector.hpp"

#ifndef EMULATOR_TSAN

namespace {

using emulator::races::active;
using emulator::races::Detector;
using emulator::races::Order;
using emulator::races::place_of;

bool& instrumented() {
  static bool is_true = false;
  return is_true;
}

Order order_of(int order) {
  return {.acquires = order == __ATOMIC_ACQUIRE || order == __ATOMIC_CONSUME || order == __ATOMIC_ACQ_REL ||
                      order == __ATOMIC_SEQ_CST,
          .releases = order == __ATOMIC_RELEASE || order == __ATOMIC_ACQ_REL || order == __ATOMIC_SEQ_CST};
}

}  // namespace

namespace emulator::races {

bool is_instrumented() {
  return instrumented();
}

}  // namespace emulator::races

// NOLINTBEGIN: the names and types are the compiler's
#pragma GCC diagnostic ignored "-Wpedantic"  // of __int128

extern "C" {

void __tsan_init();
void __tsan_init() {
  instrumented() = true;
}
void __tsan_func_entry(void*);
void __tsan_func_entry(void*) {}
void __tsan_func_exit();
void __tsan_func_exit() {}

#define ACCESS(name, bytes, method)                                                               \
  void name(void* address);                                                                       \
  void name(void* address) {                                                                      \
    if (Detector* d = active()) d->method(address, bytes, place_of(__builtin_return_address(0))); \
  }
#define ACCESSES(bytes)                             \
  ACCESS(__tsan_read##bytes, bytes, read)           \
  ACCESS(__tsan_write##bytes, bytes, write)         \
  ACCESS(__tsan_unaligned_read##bytes, bytes, read) \
  ACCESS(__tsan_unaligned_write##bytes, bytes, write)

ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
ACCESS(__tsan_vptr_read, sizeof(void*), read)

void __tsan_vptr_update(void** address, void*);
void __tsan_vptr_update(void** address, void*) {
  if (Detector* d = active()) d->write(address, sizeof(void*), place_of(__builtin_return_address(0)));
}
void __tsan_read_range(void* address, std::size_t bytes);
void __tsan_read_range(void* address, std::size_t bytes) {
  if (Detector* d = active()) d->read(address, bytes, place_of(__builtin_return_address(0)));
}
void __tsan_write_range(void* address, std::size_t bytes);
void __tsan_write_range(void* address, std::size_t bytes) {
  if (Detector* d = active()) d->write(address, bytes, place_of(__builtin_return_address(0)));
}

#define UPDATE(bits, T, name)                                                                                     \
  T __tsan_atomic##bits##_##name(volatile T* address, T value, int order);                                        \
  T __tsan_atomic##bits##_##name(volatile T* address, T value, int order) {                                       \
    if (Detector* d = active()) {                                                                                 \
      d->update_flag(const_cast<T*>(address), sizeof(T), place_of(__builtin_return_address(0)), order_of(order)); \
    }                                                                                                             \
    return __atomic_##name##_SUFFIX(address, value);                                                              \
  }
#define __atomic_exchange_SUFFIX(a, v) __atomic_exchange_n(a, v, __ATOMIC_SEQ_CST)
#define __atomic_fetch_add_SUFFIX(a, v) __atomic_fetch_add(a, v, __ATOMIC_SEQ_CST)
#define __atomic_fetch_sub_SUFFIX(a, v) __atomic_fetch_sub(a, v, __ATOMIC_SEQ_CST)
#define __atomic_fetch_and_SUFFIX(a, v) __atomic_fetch_and(a, v, __ATOMIC_SEQ_CST)
#define __atomic_fetch_or_SUFFIX(a, v) __atomic_fetch_or(a, v, __ATOMIC_SEQ_CST)
#define __atomic_fetch_xor_SUFFIX(a, v) __atomic_fetch_xor(a, v, __ATOMIC_SEQ_CST)
#define __atomic_fetch_nand_SUFFIX(a, v) __atomic_fetch_nand(a, v, __ATOMIC_SEQ_CST)

#define COMPARE(bits, T, name, weak)                                                                                  \
  int __tsan_atomic##bits##_compare_exchange_##name(volatile T* address, T* expected, T value, int order, int fail);  \
  int __tsan_atomic##bits##_compare_exchange_##name(volatile T* address, T* expected, T value, int order, int fail) { \
    const bool is_done =                                                                                              \
        __atomic_compare_exchange_n(address, expected, value, weak, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);              \
    if (Detector* d = active()) {                                                                                     \
      const auto place = place_of(__builtin_return_address(0));                                                       \
      if (is_done) {                                                                                                  \
        d->update_flag(const_cast<T*>(address), sizeof(T), place, order_of(order));                                   \
      } else {                                                                                                        \
        d->load_flag(const_cast<T*>(address), sizeof(T), place, order_of(fail));                                      \
      }                                                                                                               \
    }                                                                                                                 \
    return is_done;                                                                                                   \
  }

#define ATOMICS(bits, T)                                                                                         \
  T __tsan_atomic##bits##_load(const volatile T* address, int order);                                            \
  T __tsan_atomic##bits##_load(const volatile T* address, int order) {                                           \
    if (Detector* d = active()) {                                                                                \
      d->load_flag(const_cast<T*>(address), sizeof(T), place_of(__builtin_return_address(0)), order_of(order));  \
    }                                                                                                            \
    return __atomic_load_n(address, __ATOMIC_SEQ_CST);                                                           \
  }                                                                                                              \
  void __tsan_atomic##bits##_store(volatile T* address, T value, int order);                                     \
  void __tsan_atomic##bits##_store(volatile T* address, T value, int order) {                                    \
    if (Detector* d = active()) {                                                                                \
      d->store_flag(const_cast<T*>(address), sizeof(T), place_of(__builtin_return_address(0)), order_of(order)); \
    }                                                                                                            \
    __atomic_store_n(address, value, __ATOMIC_SEQ_CST);                                                          \
  }                                                                                                              \
  UPDATE(bits, T, exchange)                                                                                      \
  UPDATE(bits, T, fetch_add)                                                                                     \
  UPDATE(bits, T, fetch_sub)                                                                                     \
  UPDATE(bits, T, fetch_and)                                                                                     \
  UPDATE(bits, T, fetch_or)                                                                                      \
  UPDATE(bits, T, fetch_xor)                                                                                     \
  UPDATE(bits, T, fetch_nand)                                                                                    \
  COMPARE(bits, T, strong, false)                                                                                \
  COMPARE(bits, T, weak, true)

ATOMICS(8, std::uint8_t)
ATOMICS(16, std::uint16_t)
ATOMICS(32, std::uint32_t)
ATOMICS(64, std::uint64_t)

void __tsan_atomic_thread_fence(int);
void __tsan_atomic_thread_fence(int) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if (Detector* d = active()) d->fence(place_of(__builtin_return_address(0)));
}
void __tsan_atomic_signal_fence(int);
void __tsan_atomic_signal_fence(int) {}

}  // extern "C"
// NOLINTEND

#else

namespace emulator::races {

bool is_instrumented() {
  return false;
}

}  // namespace emulator::races

#endif
