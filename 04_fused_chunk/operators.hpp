#pragma once
/// @file
/// What the chapter's runner needs to know about the operators: inputs, outputs, sizes, operations, reference. The
/// operator `gla` itself is chapter 03's.
/// Work is that of one call, for complete sizes; it throws std::out_of_range if one is missing.

#include "common/chapter/operator.hpp"

namespace tutorial::fused_gla {

/// The least operations of the stages from five_steps to intra_fused, in sub-chunks of 16. (intra_fused computes the
/// pairs once per 64 columns of v; they are counted once.)
Work sub_chunk_work(const Sizes&);

}  // namespace tutorial::fused_gla

namespace tutorial::simple_gla {

/// Its operations are those of chunks of 64 on tensor cores.
Operator definition();

// The operations of the other stages.
Work recurrent_work(const Sizes&);  ///< of recurrent
Work chunkwise_work(const Sizes&);  ///< of chunkwise, in chunks of --chunk

}  // namespace tutorial::simple_gla
