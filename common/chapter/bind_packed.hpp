#pragma once
/// @file
/// The definition of PackedSequences::bind(), for the files that instantiate it.

#include "common/chapter/call.hpp"
#include "common/packed_sequences.hpp"

namespace tutorial {

template <class Arguments>
PackedSequences<Arguments> PackedSequences<Arguments>::bind(const Call& call) {
  return {Arguments::bind(call), call.data<const std::int32_t>(kOffsets), call.size("N")};
}

}  // namespace tutorial
