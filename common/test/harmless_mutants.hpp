#pragma once
/// @file
/// Mutants of hand-overs that are right: common/test/barriers.hpp makes one of each line of a kernel that hands something
/// over, and the detector of races has to notice all but these.

#include <algorithm>
#include <regex>
#include <string>

namespace tutorial {

/// Mutants that the detector need not notice.
struct HarmlessMutants {
  const char* file;  ///< a part of its path; empty: any
  const char* code;  ///< a regular expression for the line before, the line and the line after, with their line breaks
  const char* faults;  ///< "relaxed", "early", "late"; several with a blank between them
  const char* why;
};

// In the expressions .* ends with its line.
constexpr HarmlessMutants kHarmlessMutants[] = {
    {"", R"(wait.*\n.*fence_async_proxy\(\)|fence_async_proxy\(\);.*\n.*(arrive_expect|load\())", "late",
     "the thread loads a tile later; whether its fence stands before or behind arrive_expect() makes no difference"},
    {"", R"(cluster_sync\(\);.*\n\})", "relaxed early late", "it keeps the block alive for others, and orders nothing"},
    {"", "(has|have) been read by ordinary loads", "relaxed early late",
     "the detector asks for no fence between ordinary loads and a copy that refills the tile"},
    {"", "AreRead", "late", "in the emulator a product reads its factors at once, for all warps"},
    // 02
    {"02_chunkwise/", R"(wgmma_wait<0>\(scores\);\s*\n.*empty\[ring)", "relaxed early",
     "the warps that wait for these scores arrive at `empty`, too, and this arrival comes before theirs"},
    {"hopper_walk.cuh", R"(kNormalized\) fence_async_proxy)", "relaxed early late",
     "the detector asks for no fence between ordinary loads and a copy that refills the tile"},
    {"hopper_walk.cuh", R"(of_chunk\(tiles.K\);.*\n.*empty\[ring)", "relaxed early",
     "its arrival at `full` of the next chunk comes later, and those who wait for that arrive at `empty`"},
    {"11_warpgroup_mma.cu", R"(__syncthreads\(\);.*\n.*load\(t \+ kChunk\))", "early",
     "behind the products a warp touches its own outputs alone"},
    {"dispatch/cluster.cu", R"(push_shared.*\n.*scores_full\[ring.stage\(\)\]\.arrive)", "early",
     "between the barrier and the arrival its thread has pushed, and that reads alone"},
    // 03
    {"by_sub_chunks.cuh", R"(^  \}\n  __syncthreads\(\);\n$)", "early",
     "it orders init() of barriers and what uses them, which the emulator checks by itself"},
    {"5_one_anchor.cu", R"(__syncthreads\(\);\n  float from_end)", "early",
     "it orders init() of barriers and what uses them, which the emulator checks by itself"},
    {"gla_layer/2_gpu.cu", R"(first \+= kRanks\) \{\n    __syncthreads)", "relaxed early late",
     "it is for more ranks than one round has, and the layers that are drawn have as many"},
    // 04
    {"04_fused_chunk/gla", R"(\}\n    fence_async_proxy\(\);)", "relaxed early late",
     "it is for zeros above the diagonal; the fence behind the first chunk's scores comes before the first product"},
    {"04_fused_chunk/gla", R"(ring.wait\(prepared_empty\[warp\]\))", "late",
     "the tile is written behind the wait for levels_empty, which comes later"},
    {"6_bounded_start.cu", R"(ring.wait\(full\); lane_index\(\) == 0\) empty)", "relaxed late",
     "these warps read nothing of the chunks of the warm-up; they wait so that no phase passes unseen"},
    {"loading_warps.cuh", R"(wait_at_named_barrier\(empty\(operand, n\), kAll\))", "early",
     "what the loading threads have copied is handed over at `full`"},
    {"simple_gla_backward/dispatch/pipelined_walk.cuh", R"(__syncthreads\(\);.*\n.*row_products.store)", "early",
     "behind the products of rows there are outputs alone, which store() does not read"},
    // 05
    {"prepare_inverses.cu", R"(a\.beta.*\n  __syncthreads)", "early",
     "it orders init() of barriers and what uses them, which the emulator checks by itself"},
    {"5_warpgroups.cu", R"(__syncthreads\(\);\n  if \(threadIdx.x < kWarpgroup)", "early",
     "it orders init() of barriers and what uses them, which the emulator checks by itself"},
    {"one_kernel.cuh", "no warp needs what the chunk before has left", "early",
     "the product before it reads K, where nothing is written here"},
    {"one_kernel.cuh", R"(wgmma_wait<0>\(Q_K\);\s*\n.*empty\[ring)", "relaxed early",
     "the warps that wait for these matrices arrive at `empty`, too, and this arrival comes before theirs"},
    {"one_block.cuh", R"(barriers.empty\[ring.stage\(\)\].arrive)", "relaxed early",
     "the warps that wait for these blocks arrive at `empty`, too, and this arrival comes before theirs"},
    {"one_block_chains.cuh", R"(barriers.empty\[ring.stage\(\)\].arrive)", "early",
     "before it the warp has put O; the slot has been read by a product before"},
    {"cluster_memory.cuh", R"(matrices_full\[slot\]\.arrive)", "early",
     "between the barrier and the arrival its thread has pushed, and that reads alone"},
    {"gated_delta_rule_backward/dispatch/tensor_core.cu", R"(__syncthreads\(\);\n  if \(g.normalize_keys\))", "late",
     "the sums are read behind store_output(), too"},
    {"gated_delta_rule_backward/dispatch/warpgroups.cu", R"(positions_empty\[positions_ring)", "early",
     "of the positions the warp has read nothing since its last arrival, where keys have the length 1 already"},
    {"walk_segments.cuh", R"(end_reads\(\) \{\n.*fence_async_proxy)", "late",
     "between it and the arrival that follows nothing is read"},
    {"kda/5_one_anchor.cu", R"(a\.beta.*\n  __syncthreads)", "early",
     "it orders init() of barriers and what uses them, which the emulator checks by itself"},
    {"kda", "the blocks, too, were stored for ldmatrix", "relaxed early late",
     "what copies and products read has a fence of its own: the rows where they are decayed, U behind its stores"},
    {"kda_backward/dispatch/prepare_chunks.cu", R"(a\.beta.*\n  __syncthreads)", "early",
     "it orders init() of barriers and what uses them, which the emulator checks by itself"},
    {"kda_backward/dispatch/warpgroup_walks.cuh", R"(wait\(barriers\.later_empty)", "late",
     "T, which is loaded first, has been read before the warps arrive at `empty`"},
    {"kda_backward/dispatch/warpgroup_walks.cuh", R"(wait_at_named_barrier\(kChain, kWarpgroup\);)", "early",
     "before it a warp's products have read the errors of the chunk before, and a product ends for all warps at once"},
    {"sub_chunk_anchors.cuh", "does not write all rows again", "relaxed early late",
     "another fence of these threads follows before a copy or a product reads the rows"},
    {"sub_chunk_anchors.cuh", R"(\}\n  fence_async_proxy\(\);\n  multiply)", "relaxed early late",
     "another fence of these threads follows before a copy or a product reads the rows"},
    {"kda/dispatch/middle_anchor.cu", "// for V", "relaxed late",
     "the warps that have prepared the chunk waited for the same bytes before they said so"},
    {"kda/5_one_anchor.cu", "copies and threads have read the slot", "relaxed early late",
     "behind the last fence before it only bounds are computed from the slot, and the problem needs none"},
    {"kda/5_one_anchor.cu", "no warp needs the keys' rows any more", "early",
     "the last that a warp does before it is to write rows of its own"},
    {"kda/dispatch/cluster.cuh", R"((wait|arrive)_at_named_barrier\(kScoresRead)", "early",
     "the last that a warp does before it is to write rows of its own"},
    {"kda/dispatch/cluster.cuh", "threads have read and written the slot", "relaxed early",
     "those who have written there have called fences of their own, for the products that read it"},
    {"kda/dispatch/cluster.cuh", R"(wait_at_named_barrier\(kRowsDecayed)", "early",
     "what these warps have done to the chunk before is handed over at `full`"},
    {"kda/dispatch/cluster.cuh", R"(wait_at_named_barrier\(kRowsReady)", "early late",
     "the decays have been there since kRowsDecayed, and U is written behind kOfInverse"},
    {"gated_delta_rule/", R"(next_in_slot.*\.arrive\(\))", "early",
     "before it the warp has put O; the slot has been read by a product before"},
    {"gated_delta_rule/", R"(slot_read\)\.arrive\(\))", "early",
     "before it the warp has put O; the slot has been read by a product before"},
};

/// Why a mutant is right; nullptr if it has to be noticed.
/// @param lines the line before, the line and the line after
inline const char* why_harmless(const std::string& file, const std::string& lines, const std::string& fault) {
  for (const HarmlessMutants& one : kHarmlessMutants) {
    if (!std::string(one.file).empty() && file.find(one.file) == std::string::npos) continue;
    if ((" " + std::string(one.faults) + " ").find(" " + fault + " ") == std::string::npos) continue;
    if (std::regex_search(lines, std::regex(one.code))) return one.why;
  }
  return nullptr;
}

}  // namespace tutorial
