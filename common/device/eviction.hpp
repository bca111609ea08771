#pragma once
/// @file
/// A hint for the second-level cache, which loads and stores may give.

namespace tutorial {

/// Which lines make room for others. A kernel that reads some lines again later says so, or says which ones it does not
/// need again. Results do not depend on it. The emulator has no cache.
/// Source: PTX ISA, "Cache eviction priority hints".
enum class Eviction {
  kNormal,
  kFirst,  ///< before others: nobody reads the line again soon
  kLast,   ///< after others: it will be read again soon
};

}  // namespace tutorial
