/// @file
/// What `packed` requires, and the bytes that it needs beside its inputs and outputs.

#include "02_chunkwise/linear_attention/requirements.hpp"
#include "02_chunkwise/packed.hpp"
#include "common/tile/packed_plan.hpp"

namespace tutorial::linear_attention {

using namespace tile;

std::string packed_unsupported(const PackedBf16Arguments& p) {
  const std::string reason = tensor_core_unsupported(p.all);
  if (!reason.empty()) return reason;
  return packed_plan_unsupported(extents_of(p.all), packed_plan(extents_of(p.all), p.N));
}

std::int64_t packed_memory(const PackedBf16Arguments& p) {
  return packed_plan_memory(extents_of(p.all), packed_plan(extents_of(p.all), p.N));
}

}  // namespace tutorial::linear_attention
