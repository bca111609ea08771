/// @file
/// Every barrier of the chapter's kernels is needed: common/test/barriers.hpp.

#if TUTORIAL_EMULATOR

#include "common/test/barriers.hpp"

namespace tutorial {
namespace {

constexpr const char* kStrongGates = "golden/kda_strong.safetensors";
// Chunks of these are marked, so kernels of gradients add the errors of rounding, too (make_keys_alike.py).
constexpr const char* kKeysAlike = "05_deltanet_wy/test/keys_alike.safetensors";
constexpr const char* kKeysAlikeRows = "05_deltanet_wy/test/keys_alike_rows.safetensors";

// As in chapter 02: `output_empty` keeps the state from getting two chunks ahead of the warps that store. No order of
// the emulator's lets it.
constexpr KernelWithBarriers kKernels[] = {
    {"delta_rule", "recurrent_gpu", "05_deltanet_wy/delta_rule/dispatch/recurrent_gpu.cu", 128, 16},
    {"delta_rule", "chunk_gpu", "05_deltanet_wy/delta_rule/5_chunk_gpu.cu", 80, 16},
    {"delta_rule", "block_inverse", "05_deltanet_wy/delta_rule/6_block_inverse.cu", 80, 16},
    {"delta_rule", "tensor_core", "05_deltanet_wy/chunk/prepare.cu", 16, 16},
    {"delta_rule", "tensor_core", "05_deltanet_wy/delta_rule/7_tensor_core.cu", 80, 16},
    {"delta_rule", "fused", "05_deltanet_wy/delta_rule/8_fused.cu", 16, 16, 130},
    {"delta_rule", "specialized_warps", "common/device/block_barrier.cuh", 16, 16, 330},
    {"delta_rule", "warpgroup_chain", "05_deltanet_wy/delta_rule/9_warpgroup_chain.cu", 64, 64, 390, "", "",
     "output_empty"},
    {"delta_rule", "scores_in_walk", "05_deltanet_wy/delta_rule/10_scores_in_walk.cu", 64, 64, 390, "", "",
     "output_empty"},
    {"delta_rule", "one_kernel", "05_deltanet_wy/delta_rule/dispatch/one_kernel.cu", 64, 64, 450, "", "",
     "output_empty"},
    {"delta_rule", "one_kernel", "05_deltanet_wy/delta_rule/dispatch/one_kernel.cuh", 64, 64, 450},
    {"delta_rule", "one_kernel", "05_deltanet_wy/chunk/matrices.cuh", 64, 64, 200},
    {"delta_rule", "cluster", "05_deltanet_wy/delta_rule/11_cluster.cu", 64, 64, 850, "", "", "output_empty"},
    {"delta_rule", "cluster", "05_deltanet_wy/chunk/cluster_memory.cuh", 64, 64, 850},
    {"delta_rule", "three_blocks", "05_deltanet_wy/delta_rule/12_three_blocks.cu", 64, 64, 850, "", "", "output_empty"},
    {"delta_rule", "three_blocks", "05_deltanet_wy/chunk/pass_matrices_on.cuh", 64, 64, 850},
    // When a chain comes to its wait for Q and K, others have waited for the same tiles: the warps that compute T, and
    // the chain that computed P. There are no strong chunks, and no decays, of
    // which a second arrival tells.
    {"delta_rule", "one_block", "05_deltanet_wy/chunk/one_block_chains.cuh", 64, 64, 450, "", "",
     "^    ring.wait\\(barriers.full\\)|^      wgmma_(fence\\((sums|S), factor|commit|wait<0>\\(sums\\))"},
    {"delta_rule", "one_block", "05_deltanet_wy/chunk/one_block.cuh", 64, 64, 450, "", "",
     "^      if \\(lane_index\\(\\) == 0\\) full.arrive|kExist \\? 2 : 1"},
    // Two segments of five chunks, then seven segments.
    {"delta_rule", "segments", "05_deltanet_wy/delta_rule/13_segments.cu", 64, 64, 600, "",
     "EMULATOR_MULTIPROCESSORS=2", "output_empty"},
    {"delta_rule", "segments", "05_deltanet_wy/chunk/walk_for_map.cuh", 64, 64, 600, "", "EMULATOR_MULTIPROCESSORS=2"},
    {"delta_rule", "segments", "05_deltanet_wy/chunk/segment_maps.cuh", 64, 64, 800},
    {"delta_rule", "segments", "05_deltanet_wy/chunk/prepare_inverses.cu", 64, 64, 200},
    {"delta_rule --backward", "walks", "05_deltanet_wy/delta_rule_backward/3_walks.cu", 16, 16, 130},
    {"delta_rule --backward", "tensor_core", "05_deltanet_wy/delta_rule_backward/4_tensor_core.cu", 16, 16, 130,
     "states_kernel"},  // and gradient_states_kernel
    {"delta_rule --backward", "both_ends", "05_deltanet_wy/delta_rule_backward/4_tensor_core.cu", 64, 64, 0,
     "gradients_kernel", "", nullptr, kKeysAlike},
    // With the tiles of two chunks, then with those of one.
    {"delta_rule --backward", "both_ends", "05_deltanet_wy/delta_rule_backward/dispatch/both_ends.cu", 16, 16, 130, "",
     "", "^      __syncthreads"},
    {"delta_rule --backward", "both_ends", "05_deltanet_wy/delta_rule_backward/dispatch/both_ends.cu", 80, 16, 130, "",
     "EMULATOR_DEVICE=rtx4090"},
    // rows_empty is to the rows what output_empty is to the outputs.
    {"delta_rule --backward", "warpgroups", "05_deltanet_wy/delta_rule_backward/warpgroup_walks.cuh", 64, 64, 0, "", "",
     "rows_empty", kKeysAlike},
    // The barrier of a warpgroup's own: each product ends for all its warps at once. The other two: products on the
    // same sums follow one another anyway.
    {"delta_rule --backward", "warpgroups", "05_deltanet_wy/delta_rule_backward/5_warpgroups.cu", 64, 64, 0, "", "",
     "^  wait_at_named_barrier\\(kOwnGroup|^    (  )?wgmma_(commit|wait<0>\\(sums)", kKeysAlike},
    // One block for all pairs. A later commit also covers the products before it, and a tile that is released too early
    // is filled only when the threads that compute wait again, which they do for the product that reads it.
    {"delta_rule --backward", "longer_chunks", "05_deltanet_wy/delta_rule_backward/dispatch/longer_chunks.cu", 64, 64,
     0, "", "EMULATOR_MULTIPROCESSORS=1", "wgmma_commit|^    wgmma_wait<0>\\(dK", kKeysAlike},
    {"delta_rule --backward", "longer_chunks", "05_deltanet_wy/delta_rule_backward/dispatch/gradient_pairs.cuh", 64, 64,
     600, "", "EMULATOR_MULTIPROCESSORS=1"},
    {"kda", "recurrent_gpu", "05_deltanet_wy/kda/dispatch/recurrent_gpu.cu", 64, 16},
    {"kda --backward", "tensor_core", "05_deltanet_wy/kda/prepare_decayed.cuh", 64, 64, 0, "", "", nullptr,
     kKeysAlikeRows},
    {"kda", "tensor_core", "05_deltanet_wy/kda/3_tensor_core.cu", 16, 16, 130, "", "", "^      __syncthreads"},
    {"kda", "tensor_core", "05_deltanet_wy/kda/3_tensor_core.cu", 16, 16, 130, "", "EMULATOR_DEVICE=rtx4090"},
    {"kda", "specialized_warps", "common/device/block_barrier.cuh", 16, 16, 270},
    {"gated_delta_rule", "recurrent_gpu", "05_deltanet_wy/gated_delta_rule/dispatch/recurrent_gpu.cu", 32, 16},
    {"gated_delta_rule", "tensor_core", "05_deltanet_wy/gated_delta_rule/prepare_gated.cuh", 16, 16},
    {"gated_delta_rule", "tensor_core", "05_deltanet_wy/gated_delta_rule/3_tensor_core.cu", 16, 16, 130},
    {"gated_delta_rule", "segments", "05_deltanet_wy/gated_delta_rule/dispatch/segments.cu", 64, 64, 600, "",
     "EMULATOR_MULTIPROCESSORS=2", "output_empty"},
    {"gated_delta_rule", "cluster", "05_deltanet_wy/gated_delta_rule/dispatch/cluster.cu", 64, 64, 850, "", "",
     "output_empty"},
    {"gated_delta_rule", "cluster", "05_deltanet_wy/chunk/cluster_memory.cuh", 64, 64, 850},
    {"gated_delta_rule", "three_blocks", "05_deltanet_wy/gated_delta_rule/4_three_blocks.cu", 64, 64, 850, "", "",
     "output_empty"},
    {"gated_delta_rule", "cluster", "05_deltanet_wy/chunk/warpgroup_inverse.cuh", 64, 64, 200},
    // No chunk is strong with the gates that are drawn. Then with strong ones, but so few chunks that nothing lies where
    // something else was.
    {"gated_delta_rule", "one_block", "05_deltanet_wy/chunk/one_block_chains.cuh", 64, 64, 450, "", "",
     "^    ring.wait\\(barriers.full\\)|^      wgmma_(fence\\((sums|S), factor|commit|wait<0>\\(sums\\))"},
    {"gated_delta_rule", "one_block", "05_deltanet_wy/chunk/one_block_chains.cuh", 64, 64, 0, "", "",
     "^    ring.wait\\(barriers.full\\)|empty", "golden/gated_delta_rule_strong.safetensors"},
    {"gated_delta_rule", "one_block", "05_deltanet_wy/chunk/one_block.cuh", 64, 64, 450},
    {"gated_delta_rule --backward", "tensor_core", "05_deltanet_wy/gated_delta_rule_backward/dispatch/tensor_core.cu",
     64, 64, 0, "", "", "^      __syncthreads", kKeysAlike},
    {"gated_delta_rule --backward", "tensor_core", "05_deltanet_wy/gated_delta_rule_backward/dispatch/tensor_core.cu",
     80, 16, 130, "", "EMULATOR_DEVICE=rtx4090", "^        (__syncthreads|cp_async)"},
    // Three segments of four chunks that need their past. The wait for S is one for products that are done; it is there
    // for the compiler. Two lines are for walks without gates.
    {"gated_delta_rule --backward", "segments", "05_deltanet_wy/delta_rule_backward/dispatch/segmented_walks.cuh", 64,
     64, 0, "", "EMULATOR_MULTIPROCESSORS=6", "wgmma_wait<1>\\(S|wgmma_fence\\(X, s, S|^      wgmma_wait<1>\\(X\\)",
     kKeysAlike},
    {"delta_rule --backward", "segments", "05_deltanet_wy/delta_rule_backward/dispatch/segmented_walks.cuh", 64, 64,
     520, "", "EMULATOR_MULTIPROCESSORS=6", "^(?!.*(wgmma_fence\\(X, s, S|wgmma_wait<1>\\(X\\)))"},
    {"gated_delta_rule --backward", "segments", "05_deltanet_wy/delta_rule_backward/dispatch/walk_segments.cuh", 64, 64,
     0, "", "EMULATOR_MULTIPROCESSORS=6", "rows_empty", kKeysAlike},
    // The warp of dg is never a pair behind, and the emulator's copies do not overtake ordinary loads.
    {"gated_delta_rule --backward", "warpgroups", "05_deltanet_wy/gated_delta_rule_backward/dispatch/warpgroups.cu", 64,
     64, 0, "", "EMULATOR_MULTIPROCESSORS=1", "products_empty|fence_async_proxy", kKeysAlike},
    // With the gates that are drawn no chunk takes the long way. A product ends for all warps at once. Gates of which
    // one anchor cannot have a whole chunk: its sub-chunks have anchors of their own. The stage has a fence of its own
    // behind the last one of decay_to_ends().
    {"kda", "one_anchor", "05_deltanet_wy/kda/sub_chunk_anchors.cuh", 64, 64, 0, "", "", "^  fence_async_proxy\\(\\);$",
     kStrongGates},
    {"kda", "cluster", "05_deltanet_wy/kda/sub_chunk_anchors.cuh", 64, 64, 0, "", "", nullptr, kStrongGates},
    {"kda", "one_anchor", "05_deltanet_wy/kda/5_one_anchor.cu", 64, 64, 0, "prepare_chunk", "", "^    wait_at_named",
     kStrongGates},
    {"kda", "two_products", "05_deltanet_wy/kda/prepare_updates.cu", 64, 64, 200},
    {"kda", "two_products", "05_deltanet_wy/kda/4_two_products.cu", 64, 64, 390, "", "", "output_empty"},
    // Gates of which two anchors can have a chunk, and what is there for them.
    {"kda --gates bounded", "one_anchor", "05_deltanet_wy/kda/5_one_anchor.cu", 64, 64, 200, "prepare_chunk", "",
     "__syncthreads|fence_async_proxy|^  wait_at_named"},
    // Six blocks share out eleven chunks. The emulator's copies do not overtake ordinary loads.
    {"kda --gates open", "middle_anchor", "05_deltanet_wy/kda/5_one_anchor.cu", 64, 64, 700, "chunks_left_kernel",
     "EMULATOR_MULTIPROCESSORS=2", "fence_async_proxy"},
    {"kda --gates bounded", "cluster", "05_deltanet_wy/kda/half_anchors.cuh", 64, 64, 200},
    {"kda --gates bounded", "cluster", "05_deltanet_wy/kda/dispatch/cluster.cuh", 64, 64, 850, "", "",
     "output_empty|is_own|empty\\[kPeerSlot\\]|fence_async_proxy|kOfInverse"},
    // Two segments of 12 chunks. Rows that are wrong seem to have no anchor, or to forget nothing: then `segments` walks the
    // head, and no result shows it. The detector of races does. The walk waits for V behind what is prepared with it.
    {"kda --gates bounded", "middle_anchor", "05_deltanet_wy/kda/dispatch/middle_anchor.cu", 64, 80, 700, "",
     "EMULATOR_MULTIPROCESSORS=2", "\\(barrier, |fence_async_proxy|wait_stores_read|raw\\[|__syncthreads"},
    // Three segments of five chunks: more than there are slots, and the third one's start comes from the second one's.
    {"kda --gates open", "segments", "05_deltanet_wy/kda/dispatch/segments.cu", 64, 64, 800, "",
     "EMULATOR_MULTIPROCESSORS=3", "output_empty"},
    {"kda", "one_anchor", "05_deltanet_wy/kda/5_one_anchor.cu", 64, 64, 200, "prepare_chunk", "",
     "^    __syncthreads|wait_at_named_barrier"},
    // The other block would have to be two chunks ahead; with the gates that are drawn no chunk takes the long way; the
    // wait of SlotRing is that of its caller.
    {"kda", "cluster", "05_deltanet_wy/kda/dispatch/cluster.cu", 64, 64, 850, "", "", "output_empty"},
    {"kda", "cluster", "05_deltanet_wy/kda/dispatch/cluster.cuh", 64, 64, 850, "", "",
     "kScoresRead|output_empty|is_own|empty\\[kPeerSlot\\]"},
    {"kda", "cluster", "05_deltanet_wy/kda/chunk_anchor.cuh", 64, 64, 850, "", "", "tile::kWarpgroup\\);$"},
    // Marked chunks, of which one has no anchor. The emulator's copies do not overtake ordinary loads. A wait for products in
    // a branch is for the compiler.
    {"kda --backward", "tensor_core", "05_deltanet_wy/kda_backward/dispatch/alike_scores.cuh", 64, 64, 0, "", "",
     nullptr, kKeysAlikeRows},
    {"kda --backward", "tensor_core", "05_deltanet_wy/kda_backward/dispatch/tensor_core.cu", 64, 64, 0, "", "", nullptr,
     kKeysAlikeRows},
    {"kda --backward", "warpgroups", "05_deltanet_wy/kda_backward/dispatch/prepare_chunks.cu", 64, 64, 130,
     "prepare_chunks_kernel", "", "^    __syncthreads|wait_at_named_barrier"},
    // As with a gate per position.
    {"kda --backward", "segments", "05_deltanet_wy/kda_backward/dispatch/warpgroup_walks.cuh", 64, 64, 0, "",
     "EMULATOR_MULTIPROCESSORS=6", "wgmma_wait<1>\\(S|wgmma_wait<0>\\(X, s", kKeysAlikeRows},
    {"kda --backward", "warpgroups", "05_deltanet_wy/kda_backward/dispatch/chunk_gradients.cuh", 64, 64, 0, "", "",
     "^  wait_at_named_barrier\\(kProductsEnded|wgmma_fence\\(\\);|^      fence_async_proxy", kKeysAlikeRows},
    {"kda --backward", "warpgroups", "05_deltanet_wy/kda_backward/dispatch/warpgroups.cu", 64, 64, 130},
    {"kda --backward", "warpgroups", "05_deltanet_wy/kda_backward/dispatch/sub_chunk_gradients.cuh", 64, 64, 0, "", "",
     nullptr, kKeysAlikeRows},
    {"kda --backward", "dispatch", "05_deltanet_wy/delta_rule_backward/dispatch/in_fp32.cu", 64, 16, 40, "",
     "EMULATOR_DEVICE=rtx4090"},
    {"delta_rule --normalize-keys", "dispatch", "common/device/block_barrier.cuh", 16, 16, 330},
    // Eight segments of two chunks.
    {"delta_rule", "dispatch", "05_deltanet_wy/delta_rule/dispatch/segmented_walk.cuh", 64, 16, 1000, "",
     "EMULATOR_DEVICE=rtx4090"},
};

INSTANTIATE_TEST_SUITE_P(Kernels, BarriersTest, testing::ValuesIn(kKernels), name_of_kernel);
INSTANTIATE_TEST_SUITE_P(Kernels, WholeKernelsTest, testing::ValuesIn(distinct_runs(kKernels)), name_of_kernel);

#if defined(EMULATOR_RACES_BUILD)
// Under the detector alone, which takes one order of threads.
constexpr KernelWithBarriers kMore[] = {
    {"delta_rule", "specialized_warps", "05_deltanet_wy/delta_rule/dispatch/specialized_warps.cu", 16, 16, 330},
    {"kda", "specialized_warps", "05_deltanet_wy/kda/dispatch/specialized_warps.cu", 16, 16, 270},
    {"kda", "two_products", "05_deltanet_wy/kda/store_J_and_R.cuh", 64, 64, 200},
    {"kda --gates usual", "zero_starts", "05_deltanet_wy/kda/dispatch/zero_starts.cuh", 64, 64, 300, "",
     "EMULATOR_MULTIPROCESSORS=4"},
    // A sequence of several segments that need their past. beta is 0 in the rows that are cleared, and gates are near 1. So
    // no result shows whether they are cleared in time. Those who decay the rows call the fence again.
    {"kda --lengths --gates open", "dispatch", "05_deltanet_wy/kda/clear_rows.cuh", 64, 64, 3000, "", "",
     "fence_async_proxy"},
};

INSTANTIATE_TEST_SUITE_P(More, BarriersTest, testing::ValuesIn(kMore), name_of_kernel);

TEST(BarriersTable, HasEachFileThatHandsOver) {
  EXPECT_EQ(files_without_mutants({kKernels, kMore}), std::vector<std::string>());
}
#endif

}  // namespace
}  // namespace tutorial

#endif
