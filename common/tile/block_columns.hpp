#pragma once
/// @file
/// How many columns of Dv a block has. The functions query the GPU's multiprocessors or shared memory, and throw
/// CudaError if there is no GPU.

#include "common/tile/extents.hpp"

namespace tutorial::tile {

/// The widest tile of this problem: 128 if Dv has at least 128 columns, the state fits into registers and the tiles
/// into this GPU's shared memory; else 64.
int widest_tile(const Extents&);
/// The tile of a block that walks a head alone, 64 or 128 columns: narrow if multiprocessors would otherwise be idle.
int block_columns(const Extents&);

}  // namespace tutorial::tile
