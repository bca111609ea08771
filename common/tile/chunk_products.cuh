#pragma once
/// @file
/// The four products of a chunk on tensor cores:
///
///     P   = (Q K^T) . M        masked_scores()
///     O   = Q S                add_from_state()
///     O  += P V                add_from_scores(), add_from_transposed_scores() for P^T
///     S  += K^T V              update_state()
///
/// Shared memory that a chunk reads at Dk = Dv = 128, in KB: scores 88, Q S 64, P V 36, K^T V 80. Reading them takes
/// about as long as the chunk's 1344 mma. Fewer warps with more columns read less, so there are four with 32 columns,
/// not eight with 16.

#include "common/tile/chunk_shape.cuh"
#include "common/tile/column_products.cuh"
#include "common/tile/masked_scores.cuh"
#include "common/tile/transposed_scores.cuh"
