#pragma once
/// @file
/// Loads and stores with a hint for the caches. The emulator has no caches: they are plain loads and stores, which it
/// neither counts nor checks.

// NOLINTBEGIN(readability-identifier-naming,bugprone-reserved-identifier): the names are CUDA's

/// Through the read-only path: nobody writes there while the kernel runs.
template <class T>
T __ldg(const T* address) {
  return *address;
}
/// Cached in L2 only.
template <class T>
T __ldcg(const T* address) {
  return *address;
}
/// Read once: first to be evicted.
template <class T>
T __ldcs(const T* address) {
  return *address;
}
/// Cached in L2 only.
template <class T>
void __stcg(T* address, T value) {
  *address = value;
}
/// Written once: first to be evicted.
template <class T>
void __stcs(T* address, T value) {
  *address = value;
}

// NOLINTEND(readability-identifier-naming,bugprone-reserved-identifier)
