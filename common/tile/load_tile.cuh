#pragma once
/// @file
/// A chunk's rows from device memory to a tile in shared memory: load_tile() through registers, load_tile_async() by
/// cp.async.

#include "common/tile/load_tile_async.cuh"
#include "common/tile/load_tile_sync.cuh"
