/// @file
/// Chapter 05, the table of contents: a state that overwrites, and how its steps become matrix products again.
/// (common/chapter/main.cpp runs it.)

#include "05_deltanet_wy/delta_rule.hpp"
#include "05_deltanet_wy/delta_rule/dispatch/requirements.hpp"
#include "05_deltanet_wy/delta_rule_backward.hpp"
#include "05_deltanet_wy/delta_rule_backward/dispatch/requirements.hpp"
#include "05_deltanet_wy/demonstrations/delta_rule_neighbour.hpp"
#include "05_deltanet_wy/demonstrations/gated_delta_rule_neighbours.hpp"
#include "05_deltanet_wy/demonstrations/kda_neighbours.hpp"
#include "05_deltanet_wy/gated_delta_rule.hpp"
#include "05_deltanet_wy/gated_delta_rule_backward.hpp"
#include "05_deltanet_wy/kda.hpp"
#include "05_deltanet_wy/kda_backward.hpp"
#include "05_deltanet_wy/operators.hpp"
#include "05_deltanet_wy/packed_backward.hpp"
#include "05_deltanet_wy/packed_delta_rule.hpp"
#include "05_deltanet_wy/packed_gated_delta_rule.hpp"
#include "05_deltanet_wy/packed_kda.hpp"
#include "common/chapter/chapter.hpp"

namespace tutorial {
namespace {

// What stages say of keys that are alike, in multiples of their tolerance, which is six roundings to bf16 of e = 1.7e-3
// (docs/notebook/05_delta_rule.md). With n keys alike, rows that cancel lose e sqrt(2 n) if each of them is rounded.
constexpr double kTwice = 1;  // rows that cancel are two bf16
constexpr double kOnce =
    3;  // one bf16: two of its factors (v_new and P, or v_new and Y) lose e sqrt(4 n), 2.7e-2 for n = 64
// dg of gated_delta_rule is of one position one product of two whole states, of which nothing may be left, so its limit is
// relative to the size of its terms. In chunks that are not marked up to 8 keys are alike, and Y, Z and v_new in each cost
// 9.2e-3, the root mean square of 300 draws. Three times that, as 1e-2 is 3.4 times what rounding three factors costs.
// (That of kda has one number for each row of a state, the largest of which is not smaller.)
constexpr double kOfTerms = 2.8;
constexpr double kTOnce = 12;  // T in one bf16, too: the errors of a row have one sign, and add up to n e, 0.11

void add_stages(Operator& definition) {
  using namespace delta_rule;
  definition
      .stage({.name = "recurrent",
              .dtype = Dtype::fp64,
              .run = recurrent,
              .idea = "read under the key, write the difference: the reference, in double",
              .work = recurrent_work})
      .stage({.name = "dense_product",
              .dtype = Dtype::fp64,
              .run = dense_product,
              .idea = "a chunk's matrices I - beta k^T k multiplied out: 87 times the work",
              .memory = dense_product_memory,
              .work = dense_product_work})
      .stage({.name = "wy",
              .dtype = Dtype::fp64,
              .run = wy,
              .idea = "their product is I minus a sum of outer products: its vectors, one after the other",
              .memory = wy_memory,
              .work = wy_work})
      .stage({.name = "ut_transform",
              .dtype = Dtype::fp64,
              .run = ut_transform,
              .idea = "all vectors at once: T from a triangular solve, then matrix products",
              .memory = ut_transform_memory,
              .work = ut_transform_work})
      .stage({.name = "chunk_gpu",
              .processor = Processor::gpu,
              .run = chunk_gpu,
              .idea = "the UT transform of all chunks at once, then a walk over them: four kernels",
              .unsupported = chunk_gpu_unsupported,
              .memory = chunk_gpu_memory,
              .bytes_moved = chunk_gpu_bytes_moved,
              .work = ut_transform_work})
      .stage({.name = "block_inverse",
              .processor = Processor::gpu,
              .run = block_inverse,
              .idea = "T from its 16 x 16 blocks: those on the diagonal, then the others by products",
              .unsupported = chunk_gpu_unsupported,
              .memory = chunk_gpu_memory,
              .bytes_moved = chunk_gpu_bytes_moved,
              .work = ut_transform_work})
      .stage({.name = "tensor_core",
              .processor = Processor::gpu,
              .dtype = Dtype::bf16,
              .run = tensor_core,
              .idea = "all products on bf16, on tensor cores: the same four kernels",
              .unsupported = tensor_core_unsupported,
              .memory = tensor_core_memory,
              .bytes_moved = tensor_core_bytes_moved,
              .most_where_alike = kTOnce})
      .stage({.name = "fused",
              .processor = Processor::gpu,
              .dtype = Dtype::bf16,
              .run = fused,
              .idea = "T in two bf16; T (V - K S) and outputs in one walk: no W, no U, no states in memory",
              .unsupported = fused_unsupported,
              .memory = fused_memory,
              .bytes_moved = fused_bytes_moved,
              .most_where_alike = kOnce})
      .stage({.name = "warpgroup_chain",
              .processor = Processor::gpu,
              .dtype = Dtype::bf16,
              .run = warpgroup_chain,
              .idea = "the chain by warpgroup products, outputs in its gaps",
              .unsupported = warpgroup_chain_unsupported,
              .memory = warpgroup_chain_memory,
              .bytes_moved = warpgroup_chain_bytes_moved,
              .most_where_alike = kOnce})
      .stage({.name = "scores_in_walk",
              .processor = Processor::gpu,
              .dtype = Dtype::bf16,
              .run = scores_in_walk,
              .idea = "P in a warpgroup of its own beside the chain: of T and P only T in memory",
              .unsupported = warpgroup_chain_unsupported,
              .memory = warpgroup_chain_memory,
              .bytes_moved = scores_in_walk_bytes_moved,
              .most_where_alike = kOnce})
      .stage({.name = "cluster",
              .processor = Processor::gpu,
              .dtype = Dtype::bf16,
              .run = cluster,
              .idea = "T beside the chain, too: the two blocks of a head share the work for it",
              .unsupported = warpgroup_chain_unsupported,
              .bytes_moved = cluster_bytes_moved,
              .most_where_alike = kOnce})
      .stage({.name = "three_blocks",
              .processor = Processor::gpu,
              .dtype = Dtype::bf16,
              .run = three_blocks,
              .idea = "a third block computes T and P for the two blocks of a head",
              .unsupported = warpgroup_chain_unsupported,
              .bytes_moved = cluster_bytes_moved,
              .most_where_alike = kOnce})
      .stage({.name = "segments",
              .processor = Processor::gpu,
              .dtype = Dtype::bf16,
              .run = segments,
              .idea = "few heads: the sequence cut; a segment's transition is the walk of the values -K",
              .unsupported = warpgroup_chain_unsupported,
              .memory = segments_memory,
              .bytes_moved = segments_bytes_moved,
              .most_where_alike = kOnce})
      .stage({.name = "dispatch",
              .processor = Processor::gpu,
              .dtype = Dtype::bf16,
              .run = dispatch,
              .idea = "what a user calls: the fastest walk for the widths, or fp32",
              .unsupported = dispatch_unsupported,
              .note = dispatch_note,
              .memory = dispatch_memory,
              .bytes_moved = dispatch_bytes_moved,
              .most_where_alike = kOnce})
      .variant({.name = "recurrent_gpu",
                .processor = Processor::gpu,
                .run = recurrent_gpu,
                .idea = "the state in registers, a block walks the positions: one kernel",
                .unsupported = recurrent_gpu_unsupported,
                .bytes_moved = recurrent_gpu_bytes_moved,
                .work = recurrent_work})
      .variant({.name = "specialized_warps",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = specialized_warps,
                .idea = "warps that load, warps in the chain, warps for outputs",
                .unsupported = specialized_warps_unsupported,
                .memory = fused_memory,
                .bytes_moved = specialized_warps_bytes_moved,
                .most_where_alike = kOnce})
      .variant({.name = "one_kernel",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = one_kernel,
                .idea = "T and P in warps of the block that walks",
                .unsupported = warpgroup_chain_unsupported,
                .bytes_moved = one_kernel_bytes_moved,
                .most_where_alike = kOnce})
      .variant({.name = "one_block",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = one_block,
                .idea = "a head in one block: two chains read the same tiles, T and P",
                .unsupported = warpgroup_chain_unsupported,
                .bytes_moved = one_block_bytes_moved,
                .most_where_alike = kOnce});
}

/// @param alike what the kernels of dispatch say of keys that are alike. Keys that it normalises are rounded to bf16 again,
/// which moves outputs as far as a rounding of v_new does, whatever the kernels do.
void add_backward_stages(Operator& definition, double alike = kTwice) {
  using namespace delta_rule;
  definition
      .stage({.name = "recurrent",
              .dtype = Dtype::fp64,
              .run = recurrent_backward,
              .idea = "three walks: S, dS from the end, S again; no state is stored",
              .memory = recurrent_backward_memory,
              .work = recurrent_backward_work})
      .stage({.name = "chunkwise",
              .dtype = Dtype::fp64,
              .run = chunkwise_backward,
              .idea = "the adjoint of each line of a chunk; that of the inverse is a triangular system",
              .memory = chunkwise_backward_memory,
              .work = chunkwise_backward_work})
      .stage({.name = "walks",
              .processor = Processor::gpu,
              .dtype = Dtype::bf16,
              .run = walks_backward,
              .idea = "two walks on tensor cores leave S and dS in memory; then all chunks at once",
              .unsupported = walks_backward_unsupported,
              .memory = tensor_core_backward_memory,
              .bytes_moved = walks_backward_bytes_moved,
              .most_where_alike = kOnce})
      .stage({.name = "tensor_core",
              .processor = Processor::gpu,
              .dtype = Dtype::bf16,
              .run = tensor_core_backward,
              .idea = "all gradients of a chunk on fragments, from tiles that its block shares",
              .unsupported = tensor_core_backward_unsupported,
              .memory = tensor_core_backward_memory,
              .bytes_moved = tensor_core_backward_bytes_moved,
              .most_where_alike = kOnce})
      .stage({.name = "warpgroups",
              .processor = Processor::gpu,
              .dtype = Dtype::bf16,
              .run = warpgroups_backward,
              .idea = "walks and gradients by warpgroups, on tiles that bulk copies bring",
              .unsupported = warpgroups_backward_unsupported,
              .memory = warpgroups_backward_memory,
              .bytes_moved = warpgroups_backward_bytes_moved,
              .most_where_alike = alike})
      .stage({.name = "dispatch",
              .processor = Processor::gpu,
              .dtype = Dtype::bf16,
              .run = dispatch_backward,
              .idea = "what a user calls: Dk up to 1024, any Dv, rows and keys; in fp32 where tiles do not fit",
              .unsupported = dispatch_backward_unsupported,
              .note = dispatch_backward_note,
              .memory = dispatch_backward_memory,
              .most_where_alike = alike})
      .variant({.name = "both_ends",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = both_ends_backward,
                .idea = "both walks in one launch: neither reads what the other writes",
                .unsupported = both_ends_backward_unsupported,
                .memory = both_ends_backward_memory,
                .bytes_moved = both_ends_backward_bytes_moved,
                .most_where_alike = alike})
      .variant({.name = "longer_chunks",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = longer_chunks_backward,
                .idea = "gradients in chunks of 128 positions: half as many states in memory",
                .unsupported = warpgroups_backward_unsupported,
                .memory = longer_chunks_backward_memory,
                .bytes_moved = longer_chunks_backward_bytes_moved,
                .most_where_alike = alike})
      .variant({.name = "segments",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = segments_backward,
                .idea = "both walks in segments, walked at once: what each does to S and dS first",
                .unsupported = warpgroups_backward_unsupported,
                .memory = segments_backward_memory,
                .most_where_alike = alike});
}

void add_gated_stages(Operator& definition) {
  using namespace gated_delta_rule;
  definition
      .stage({.name = "recurrent",
              .dtype = Dtype::fp64,
              .run = recurrent,
              .idea = "the state fades, then overwrites: the reference, in double",
              .work = recurrent_work})
      .stage({.name = "chunkwise",
              .dtype = Dtype::fp64,
              .run = chunkwise,
              .idea = "the UT transform with a decay for each pair of positions",
              .memory = chunkwise_memory,
              .work = chunkwise_work})
      .stage({.name = "tensor_core",
              .processor = Processor::gpu,
              .dtype = Dtype::bf16,
              .run = tensor_core,
              .idea = "T, P and decays of all chunks at once, then one walk on tensor cores",
              .unsupported = tensor_core_unsupported,
              .memory = tensor_core_memory,
              .bytes_moved = tensor_core_bytes_moved,
              .most_where_alike = kOnce})
      .stage({.name = "three_blocks",
              .processor = Processor::gpu,
              .dtype = Dtype::bf16,
              .run = three_blocks,
              .idea = "a third block computes T, P and decays for the two blocks of a head",
              .unsupported = cluster_unsupported,
              .bytes_moved = cluster_bytes_moved,
              .most_where_alike = kOnce})
      .stage({.name = "dispatch",
              .processor = Processor::gpu,
              .dtype = Dtype::bf16,
              .run = dispatch,
              .idea = "what a user calls: tensor cores for their widths, or fp32",
              .unsupported = dispatch_unsupported,
              .note = dispatch_note,
              .memory = dispatch_memory,
              .bytes_moved = dispatch_bytes_moved,
              .most_where_alike = kOnce})
      .variant({.name = "recurrent_gpu",
                .processor = Processor::gpu,
                .run = recurrent_gpu,
                .idea = "the state in registers; the gate multiplies the sums over it",
                .unsupported = recurrent_gpu_unsupported,
                .bytes_moved = recurrent_gpu_bytes_moved,
                .work = recurrent_work})
      .variant({.name = "segments",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = segments,
                .idea = "the sequence in segments, walked at once: what each does to a state first, and its decay",
                .unsupported = warpgroups_unsupported,
                .memory = segments_memory,
                .bytes_moved = segments_bytes_moved,
                .most_where_alike = kOnce})
      .variant({.name = "cluster",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = cluster,
                .idea = "T, P and decays in warps beside the chain; the two blocks of a head share them",
                .unsupported = cluster_unsupported,
                .bytes_moved = cluster_bytes_moved,
                .most_where_alike = kOnce})
      .variant({.name = "one_block",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = one_block,
                .idea = "a head in one block, with two chains; decays of values and outputs, none of pairs",
                .unsupported = cluster_unsupported,
                .bytes_moved = one_block_bytes_moved,
                .most_where_alike = kOnce})
      .variant({.name = "zero_starts",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = zero_starts,
                .idea = "its segments from zeros, a chunk or two earlier, where gates allow it; else segments",
                .unsupported = cluster_unsupported,
                .memory = zero_starts_memory,
                .most_where_alike = kOnce});
}

void add_gated_backward_stages(Operator& definition) {
  using namespace gated_delta_rule;
  definition
      .stage({.name = "recurrent",
              .dtype = Dtype::fp64,
              .run = recurrent_backward,
              .idea = "two walks: S, and dS from the end beside the states S again; dg from both",
              .memory = recurrent_backward_memory,
              .work = recurrent_backward_work})
      .stage({.name = "chunkwise",
              .dtype = Dtype::fp64,
              .run = chunkwise_backward,
              .idea = "the adjoint of each line of a chunk, with its factors",
              .memory = chunkwise_backward_memory,
              .work = chunkwise_backward_work})
      .stage({.name = "dispatch",
              .processor = Processor::gpu,
              .dtype = Dtype::bf16,
              .run = dispatch_backward,
              .idea = "what a user calls: the fastest of the two above, on copies, or in fp32 where tiles do not fit",
              .unsupported = dispatch_backward_unsupported,
              .note = dispatch_backward_note,
              .memory = dispatch_backward_memory,
              .most_where_alike = kTwice,
              .most_of_terms = kOfTerms})
      .variant({.name = "tensor_core",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = tensor_core_backward,
                .idea = "both walks in one launch, then all chunks at once; dg from terms that contain the gate",
                .unsupported = tensor_core_backward_unsupported,
                .memory = tensor_core_backward_memory,
                .bytes_moved = tensor_core_backward_bytes_moved,
                .most_where_alike = kTwice,
                .most_of_terms = kOfTerms})
      .variant({.name = "warpgroups",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = warpgroups_backward,
                .idea = "walks and gradients by warpgroups, gradients of two chunks at a time",
                .unsupported = warpgroups_backward_unsupported,
                .memory = warpgroups_backward_memory,
                .bytes_moved = warpgroups_backward_bytes_moved,
                .most_where_alike = kTwice,
                .most_of_terms = kOfTerms})
      .variant({.name = "segments",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = segments_backward,
                .idea = "both walks in segments, from zeros a bit earlier, or from states that two kernels compute",
                .unsupported = warpgroups_backward_unsupported,
                .memory = segments_backward_memory,
                .most_where_alike = kTwice,
                .most_of_terms = kOfTerms});
}

void add_kda_stages(Operator& definition) {
  using namespace kda;
  definition
      .stage({.name = "recurrent",
              .dtype = Dtype::fp64,
              .run = recurrent,
              .idea = "decay each row of the state, then the delta rule's step: the reference, in double",
              .work = recurrent_work})
      .stage({.name = "chunkwise",
              .dtype = Dtype::fp64,
              .run = chunkwise,
              .idea = "the UT transform of decayed products, which come from sub-chunks of 16",
              .memory = chunkwise_memory,
              .work = chunkwise_work})
      .stage({.name = "tensor_core",
              .processor = Processor::gpu,
              .dtype = Dtype::bf16,
              .run = tensor_core,
              .idea = "decays in the rows, then delta_rule's walk: two kernels",
              .unsupported = tensor_core_unsupported,
              .memory = tensor_core_memory,
              .bytes_moved = tensor_core_bytes_moved,
              .most_where_alike = kOnce})
      .stage({.name = "two_products",
              .processor = Processor::gpu,
              .dtype = Dtype::bf16,
              .run = two_products,
              .idea = "a chain of warpgroups with two products: T is multiplied into K- and P before it",
              .unsupported = warpgroups_unsupported,
              .memory = two_products_memory,
              .bytes_moved = two_products_bytes_moved,
              .most_where_alike = kOnce})
      .stage({.name = "one_anchor",
              .processor = Processor::gpu,
              .dtype = Dtype::bf16,
              .run = one_anchor,
              .idea = "one anchor for a chunk: P and A are products of warpgroups",
              .unsupported = one_anchor_unsupported,
              .memory = two_products_memory,
              .bytes_moved = one_anchor_bytes_moved,
              .most_where_alike = kOnce})
      .stage({.name = "dispatch",
              .processor = Processor::gpu,
              .dtype = Dtype::bf16,
              .run = dispatch,
              .idea = "what a user calls: the walk for the widths, or fp32",
              .unsupported = dispatch_unsupported,
              .note = dispatch_note,
              .memory = dispatch_memory,
              .bytes_moved = dispatch_bytes_moved,
              .most_where_alike = kOnce})
      .variant({.name = "recurrent_gpu",
                .processor = Processor::gpu,
                .run = recurrent_gpu,
                .idea = "the state in registers, decayed in the pass that reads it: one kernel",
                .unsupported = recurrent_gpu_unsupported,
                .bytes_moved = recurrent_gpu_bytes_moved,
                .work = recurrent_work})
      .variant({.name = "specialized_warps",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = specialized_warps,
                .idea = "warps that load, warps in the chain, warps for outputs; 32 or 64 columns",
                .unsupported = specialized_warps_unsupported,
                .memory = tensor_core_memory,
                .bytes_moved = specialized_warps_bytes_moved,
                .most_where_alike = kOnce})
      .variant({.name = "cluster",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = cluster,
                .idea = "one kernel: the two blocks of a head prepare its chunks for each other",
                .unsupported = one_anchor_unsupported,
                .bytes_moved = cluster_bytes_moved,
                .most_where_alike = kOnce})
      .variant({.name = "segments",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = segments,
                .idea = "segments walked at once, from zeros a bit earlier, or from states that two kernels compute",
                .unsupported = one_anchor_unsupported,
                .memory = segments_memory,
                .most_where_alike = kOnce})
      .variant({.name = "zero_starts",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = zero_starts,
                .idea = "the segments of cluster from zeros, where gates and keys show that they may; else segments",
                .unsupported = one_anchor_unsupported,
                .memory = zero_starts_memory,
                .most_where_alike = kOnce})
      .variant({.name = "middle_anchor",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = middle_anchor,
                .idea = "one kernel, chunks of 32 with an anchor in the middle; segments from zeros, or as in segments",
                .unsupported = one_anchor_unsupported,
                .memory = middle_anchor_memory,
                .most_where_alike = kOnce});
}

void add_kda_backward_stages(Operator& definition) {
  using namespace kda;
  definition
      .stage({.name = "recurrent",
              .dtype = Dtype::fp64,
              .run = recurrent_backward,
              .idea = "two walks: S, and dS from the end beside the states S again; dg row by row",
              .memory = recurrent_backward_memory,
              .work = recurrent_backward_work})
      .stage({.name = "chunkwise",
              .dtype = Dtype::fp64,
              .run = chunkwise_backward,
              .idea = "the adjoint of each line of a chunk, in two levels where that is",
              .memory = chunkwise_backward_memory,
              .work = chunkwise_backward_work})
      .stage({.name = "dispatch",
              .processor = Processor::gpu,
              .dtype = Dtype::bf16,
              .run = dispatch_backward,
              .idea = "what a user calls: warpgroups or tensor_core, on copies, or in fp32 where tiles do not fit",
              .unsupported = dispatch_backward_unsupported,
              .note = dispatch_backward_note,
              .memory = dispatch_backward_memory,
              .most_where_alike = kTwice})
      .variant({.name = "tensor_core",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = tensor_core_backward,
                .idea = "both walks in one launch; then sums that cross sub-chunks, and pairs within one in fp32",
                .unsupported = tensor_core_backward_unsupported,
                .memory = tensor_core_backward_memory,
                .bytes_moved = tensor_core_backward_bytes_moved,
                .most_where_alike = kTwice})
      .variant({.name = "warpgroups",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = warpgroups_backward,
                .idea = "products of warpgroups and bulk copies, with one anchor for a chunk's gradients",
                .unsupported = warpgroups_backward_unsupported,
                .memory = warpgroups_backward_memory,
                .most_where_alike = kTwice})
      .variant({.name = "segments",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = segments_backward,
                .idea = "both walks in segments, from zeros a bit earlier, or from states that two kernels compute",
                .unsupported = warpgroups_backward_unsupported,
                .memory = segments_backward_memory,
                .most_where_alike = kTwice});
}

/// The form --lengths of an operator.
/// @param on_each a CPU stage of the operator, for each sequence by itself
void add_packed(Chapter& chapter, const Operator& whole, Stage on_each, Stage dispatch) {
  const Operator definition = whole.packed();
  on_each.dtype = Dtype::fp64;
  on_each.run = definition.on_each_sequence(on_each.run);
  on_each.idea = "one sequence after the other, each by itself";
  dispatch.name = "dispatch";
  dispatch.processor = Processor::gpu;
  dispatch.dtype = Dtype::bf16;
  dispatch.idea = "what a user calls: chunks that cross no border";
  chapter.add(definition).stage(std::move(on_each)).stage(std::move(dispatch));
}

void add_packed_forms(Chapter& chapter) {
  for (const Operator& whole : {delta_rule::definition(), delta_rule::normalized_definition()}) {
    using namespace delta_rule;
    add_packed(chapter, whole,
               {.name = "ut_transform",
                .run = on<FloatArguments>(ut_transform),
                .memory = ut_transform_memory,
                .work = ut_transform_work},
               {.run = dispatch_packed,
                .unsupported = dispatch_packed_unsupported,
                .note = dispatch_packed_note,
                .memory = dispatch_packed_memory});
  }
  for (const Operator& whole : {gated_delta_rule::definition(), gated_delta_rule::normalized_definition()}) {
    using namespace gated_delta_rule;
    add_packed(
        chapter, whole,
        {.name = "chunkwise", .run = on<FloatArguments>(chunkwise), .memory = chunkwise_memory, .work = chunkwise_work},
        {.run = dispatch_packed,
         .unsupported = dispatch_packed_unsupported,
         .note = dispatch_packed_note,
         .memory = dispatch_packed_memory});
  }
  for (const Operator& whole : {kda::definition(), kda::normalized_definition()}) {
    using namespace kda;
    add_packed(
        chapter, whole,
        {.name = "chunkwise", .run = on<FloatArguments>(chunkwise), .memory = chunkwise_memory, .work = chunkwise_work},
        {.run = dispatch_packed,
         .unsupported = dispatch_packed_unsupported,
         .note = dispatch_packed_note,
         .memory = dispatch_packed_memory});
  }
}

void add_packed_gradients(Chapter& chapter) {
  for (const Operator& forward : {delta_rule::definition(), delta_rule::normalized_definition()}) {
    using namespace delta_rule;
    add_packed(chapter, backward_definition(forward),
               {.name = "chunkwise",
                .run = on<FloatBackwardArguments>(chunkwise_backward),
                .memory = chunkwise_backward_memory,
                .work = chunkwise_backward_work},
               {.run = dispatch_packed_backward,
                .unsupported = dispatch_packed_backward_unsupported,
                .note = dispatch_packed_backward_note,
                .memory = dispatch_packed_backward_memory});
  }
  for (const Operator& forward : {gated_delta_rule::definition(), gated_delta_rule::normalized_definition()}) {
    using namespace gated_delta_rule;
    add_packed(chapter, backward_definition(forward),
               {.name = "chunkwise",
                .run = on<FloatBackwardArguments>(chunkwise_backward),
                .memory = chunkwise_backward_memory,
                .work = chunkwise_backward_work},
               {.run = dispatch_packed_backward,
                .unsupported = dispatch_packed_backward_unsupported,
                .note = dispatch_packed_backward_note,
                .memory = dispatch_packed_backward_memory});
  }
  for (const Operator& forward : {kda::definition(), kda::normalized_definition()}) {
    using namespace kda;
    add_packed(chapter, backward_definition(forward),
               {.name = "chunkwise",
                .run = on<FloatBackwardArguments>(chunkwise_backward),
                .memory = chunkwise_backward_memory,
                .work = chunkwise_backward_work},
               {.run = dispatch_packed_backward,
                .unsupported = dispatch_packed_backward_unsupported,
                .note = dispatch_packed_backward_note,
                .memory = dispatch_packed_backward_memory});
  }
}

}  // namespace

Chapter chapter() {
  Chapter chapter("05_deltanet_wy", "The delta rule: a state that overwrites, and the products hidden in it");
  chapter.demonstration("matches_chapter_02", "orthonormal keys, beta = 1: delta_rule is chapter 02's operator",
                        delta_rule::matches_chapter_02);
  add_stages(chapter.add(delta_rule::definition()));
  add_stages(chapter.add(delta_rule::normalized_definition()));
  add_backward_stages(chapter.add(delta_rule::backward_definition(delta_rule::definition())));
  add_backward_stages(chapter.add(delta_rule::backward_definition(delta_rule::normalized_definition())), kOnce);
  chapter.demonstration("matches_neighbours",
                        "no gates: gated_delta_rule is delta_rule; nothing to replace: simple_gla",
                        gated_delta_rule::matches_neighbours);
  add_gated_stages(chapter.add(gated_delta_rule::definition()));
  add_gated_stages(chapter.add(gated_delta_rule::normalized_definition()));
  for (const Operator& forward : {gated_delta_rule::definition(), gated_delta_rule::normalized_definition()}) {
    add_gated_backward_stages(chapter.add(gated_delta_rule::backward_definition(forward)));
  }
  chapter.demonstration("kda_matches", "kda without gates is delta_rule, with nothing to replace chapter 03's gla",
                        kda::matches_delta_rule_and_gla);
  add_kda_stages(chapter.add(kda::definition()));
  add_kda_stages(chapter.add(kda::normalized_definition()));
  add_kda_backward_stages(chapter.add(kda::backward_definition(kda::definition())));
  add_kda_backward_stages(chapter.add(kda::backward_definition(kda::normalized_definition())));
  add_packed_forms(chapter);
  add_packed_gradients(chapter);
  // Models with these gates have fewer heads of queries and keys than of values.
  for (const Operator& definition : std::deque(chapter.operators())) {
    if (definition.name() != "delta_rule") chapter.add(definition.grouped());
  }
  return chapter;
}

}  // namespace tutorial
