/// @file
/// Chapter 06, the table of contents: a recurrence as a scan; then those of chapters 04 and 05 as scans.
/// (common/chapter/main.cpp runs it.)

#include "02_chunkwise/linear_attention.hpp"
#include "02_chunkwise/linear_attention_backward.hpp"
#include "02_chunkwise/operators.hpp"
#include "04_fused_chunk/operators.hpp"
#include "04_fused_chunk/simple_gla_backward.hpp"
#include "05_deltanet_wy/delta_rule_backward.hpp"
#include "05_deltanet_wy/operators.hpp"
#include "06_scan/convolution.hpp"
#include "06_scan/convolution/dispatch/cufft.hpp"
#include "06_scan/convolution/example.hpp"
#include "06_scan/convolution/requirements.hpp"
#include "06_scan/decode.hpp"
#include "06_scan/decode/requirements.hpp"
#include "06_scan/decode/tokens.hpp"
#include "06_scan/decode_pool.hpp"
#include "06_scan/delta_rule.hpp"
#include "06_scan/delta_rule/requirements.hpp"
#include "06_scan/operators.hpp"
#include "06_scan/over_devices.hpp"
#include "06_scan/over_devices/dispatch/variants.hpp"
#include "06_scan/over_devices/model.hpp"
#include "06_scan/over_devices/requirements.hpp"
#include "06_scan/over_devices_backward.hpp"
#include "06_scan/over_devices_backward/dispatch/variants.hpp"
#include "06_scan/over_devices_backward/requirements.hpp"
#include "06_scan/scan.hpp"
#include "06_scan/scan/dispatch/cub.hpp"
#include "06_scan/scan/requirements.hpp"
#include "06_scan/scan/trace.hpp"
#include "06_scan/scan_backward.hpp"
#include "06_scan/short_convolution.hpp"
#include "06_scan/simple_gla.hpp"
#include "06_scan/simple_gla/dispatch/scan_tiles.hpp"
#include "06_scan/simple_gla/requirements.hpp"
#include "common/chapter/chapter.hpp"

namespace tutorial {
namespace {

void add_stages(Operator& definition) {
  using namespace scan;
  definition
      .stage({.name = "sequential",
              .dtype = Dtype::fp64,
              .run = sequential,
              .idea = "a loop over time: the truth, in double"})
      .stage({.name = "hillis_steele",
              .dtype = Dtype::fp64,
              .run = hillis_steele,
              .idea = "every step looks back 1, 2, 4, ... steps: log2(L) rounds, each over all of L",
              .memory = hillis_steele_memory,
              .work = hillis_steele_work})
      .stage({.name = "blelloch",
              .dtype = Dtype::fp64,
              .run = blelloch,
              .idea = "up a tree and down again: twice the rounds, but 3 L compositions in all",
              .memory = blelloch_memory,
              .work = blelloch_work})
      .stage({.name = "sequential_gpu",
              .processor = Processor::gpu,
              .run = sequential_gpu,
              .idea = "one thread per channel, the loop over time",
              .unsupported = sequential_gpu_unsupported,
              .bytes_moved = channel_bytes_moved})
      .stage({.name = "blelloch_gpu",
              .processor = Processor::gpu,
              .run = blelloch_gpu,
              .idea = "the tree in shared memory, padded: one block per channel, tile after tile",
              .unsupported = blelloch_gpu_unsupported,
              .work = blelloch_work})
      .stage({.name = "warp_shuffle",
              .processor = Processor::gpu,
              .run = warp_shuffle,
              .idea = "registers instead: steps, lanes, warps",
              .unsupported = warp_shuffle_unsupported})
      .stage({.name = "single_pass",
              .processor = Processor::gpu,
              .run = single_pass,
              .idea = "all tiles at once, each looks back at those before it",
              .unsupported = single_pass_unsupported,
              .memory = single_pass_memory,
              .bytes_moved = channel_bytes_moved})
      .stage({.name = "warp_look_back",
              .processor = Processor::gpu,
              .run = warp_look_back,
              .idea = "a warp looks at 32 predecessors at once",
              .unsupported = single_pass_unsupported,
              .memory = single_pass_memory,
              .bytes_moved = channel_bytes_moved})
      .stage({.name = "wide_tiles",
              .processor = Processor::gpu,
              .run = wide_tiles,
              .idea = "D = 1: tiles of 8192 steps wait in shared memory, loaded 16 bytes at a time",
              .unsupported = wide_tiles_unsupported,
              .memory = wide_tiles_memory,
              .bytes_moved = channel_bytes_moved})
      .stage({.name = "channel_lanes",
              .processor = Processor::gpu,
              .run = channel_lanes,
              .idea = "D > 1: lanes are channels, and time goes to the warps",
              .unsupported = channel_lanes_unsupported,
              .memory = channel_lanes_memory,
              .bytes_moved = channel_bytes_moved})
      .stage({.name = "dispatch",
              .processor = Processor::gpu,
              .run = dispatch,
              .idea = "what a user calls: all tiles at once in any layout, or the loop where it is short",
              .unsupported = dispatch_unsupported,
              .note = dispatch_note,
              .memory = dispatch_memory,
              .bytes_moved = dispatch_bytes_moved})
      .variant({.name = "cub",
                .processor = Processor::gpu,
                .run = cub_scan,
                .idea = "the same operator through CUB: the yardstick",
                .unsupported = cub_unsupported,
                .memory = cub_memory,
                .without = {"final_log_decay"}});  // what separates its sequences is a gate of -infinity
}

void add_backward_stages(Operator& definition) {
  using namespace scan;
  definition
      .stage({.name = "sequential",
              .dtype = Dtype::fp64,
              .run = sequential_backward,
              .idea = "the loop again, then backwards over time"})
      .stage({.name = "sequential_gpu",
              .processor = Processor::gpu,
              .run = sequential_gpu_backward,
              .idea = "the same kernel twice, the second time from the end",
              .unsupported = sequential_gpu_backward_unsupported,
              .memory = sequential_gpu_backward_memory})
      .stage({.name = "dispatch",
              .processor = Processor::gpu,
              .run = dispatch_backward,
              .idea = "two scans, one of them from the end, and the gates' gradient",
              .unsupported = dispatch_backward_unsupported,
              .memory = dispatch_backward_memory});
}

void add_simple_gla_stages(Operator& definition) {
  using namespace simple_gla;
  definition  // chapter 04's stages, which this chapter's are compared with
      .stage({.name = "recurrent",
              .dtype = Dtype::fp64,
              .run = recurrent,
              .idea = "chapter 04's loop: decay the state, add the outer product, read it; in double",
              .work = recurrent_work})
      .stage({.name = "two_kernels",
              .processor = Processor::gpu,
              .dtype = Dtype::bf16,
              .run = two_kernels,
              .idea = "chapter 04's chunks on tensor cores: states into memory, then outputs",
              .unsupported = two_kernels_unsupported,
              .memory = two_kernels_memory,
              .bytes_moved = two_kernels_bytes_moved})
      .stage({.name = "fused",
              .processor = Processor::gpu,
              .dtype = Dtype::bf16,
              .run = fused,
              .idea = "chapter 04's single walk over the chunks",
              .unsupported = fused_unsupported,
              .bytes_moved = fused_bytes_moved})
      .stage({.name = "dispatch",
              .processor = Processor::gpu,
              .dtype = Dtype::bf16,
              .run = dispatch,
              .idea = "what a user of chapter 04 calls",
              .unsupported = dispatch_unsupported,
              .note = dispatch_note,
              .memory = dispatch_memory,
              .bytes_moved = dispatch_bytes_moved})
      // This chapter's: simple_gla/1_scan_states.cu and so on.
      .stage({.name = "scan_states",
              .processor = Processor::gpu,
              .run = scan::scan_states,
              .idea = "every product k^T v and every state in memory, a scan between them",
              .unsupported = scan::scan_states_unsupported,
              .memory = scan::scan_states_memory,
              .bytes_moved = scan::scan_states_bytes_moved,
              .work = scan::scan_states_work})
      .stage({.name = "scan_fused",
              .processor = Processor::gpu,
              .run = scan::scan_fused,
              .idea = "one kernel: tiles look back while their steps wait in shared memory",
              .unsupported = scan::scan_fused_unsupported,
              .memory = scan::scan_fused_memory,
              .bytes_moved = scan::scan_fused_bytes_moved,
              .work = scan::scan_tiles_work})
      .variant({.name = "scan_tiles",
                .processor = Processor::gpu,
                .run = scan::scan_tiles,
                .idea = "a scan over tiles of 64 steps, then all tiles at once",
                .unsupported = scan::scan_tiles_unsupported,
                .memory = scan::scan_tiles_memory,
                .bytes_moved = scan::scan_tiles_bytes_moved,
                .work = scan::scan_tiles_work});
}

void add_delta_rule_stages(Operator& definition) {
  using namespace delta_rule;
  definition  // chapter 05's stages, which this chapter's are compared with
      .stage({.name = "recurrent",
              .dtype = Dtype::fp64,
              .run = recurrent,
              .idea = "chapter 05's loop: read under the key, write the difference; in double",
              .work = recurrent_work})
      .stage({.name = "dispatch",
              .processor = Processor::gpu,
              .dtype = Dtype::bf16,
              .run = dispatch,
              .idea = "what a user of chapter 05 calls: chunks in the WY form",
              .unsupported = dispatch_unsupported,
              .note = dispatch_note,
              .memory = dispatch_memory,
              .bytes_moved = dispatch_bytes_moved})
      // This chapter's: delta_rule/1_affine_chain.cu and so on.
      .stage({.name = "affine_chain",
              .processor = Processor::gpu,
              .run = scan::affine_chain,
              .idea = "runs of 32 steps as matrices, applied one after the other",
              .unsupported = scan::affine_chain_unsupported,
              .memory = scan::affine_chain_memory,
              .bytes_moved = scan::affine_chain_bytes_moved,
              .work = scan::affine_chain_work})
      .stage({.name = "scan_affine",
              .processor = Processor::gpu,
              .run = scan::scan_affine,
              .idea = "a tree of products of these matrices",
              .unsupported = scan::scan_affine_unsupported,
              .memory = scan::scan_affine_memory,
              .bytes_moved = scan::scan_affine_bytes_moved,
              .work = scan::scan_affine_work});
}

void add_convolution_stages(Operator& definition) {
  using namespace convolution;
  definition
      .stage({.name = "fft",
              .dtype = Dtype::fp64,
              .run = fft,
              .idea = "a product of spectra, of sequences that end with zeros",
              .memory = fft_memory,
              .work = fft_work})
      .stage({.name = "scan",
              .processor = Processor::gpu,
              .run = by_scan,
              .idea = "the operator scan with one gate, for kernel_j = r^j",
              .unsupported = by_scan_unsupported,
              .note = by_scan_note,
              .memory = by_scan_memory,
              .bytes_moved = by_scan_bytes_moved,
              .work = by_scan_work})
      .variant({.name = "direct",
                .dtype = Dtype::fp64,
                .run = direct,
                .idea = "the sum as it is written: the truth, in double",
                .unsupported = direct_unsupported})
      .variant({.name = "cufft",
                .processor = Processor::gpu,
                .run = by_cufft,
                .idea = "fft through cuFFT, all channels at once",
                .unsupported = by_cufft_unsupported,
                .memory = by_cufft_memory,
                .work = fft_work});
}

template <decode::Rule kRule>
void add_stages(Operator& definition) {
  using namespace decode;
  definition
      .stage({.name = "recurrent",
              .dtype = Dtype::fp64,
              .run = recurrent<kRule>,
              .idea = "the chapter's recurrence: the truth, in double"})
      .stage({.name = "prefill",
              .processor = Processor::gpu,
              .dtype = Dtype::bf16,
              .run = prefill<kRule>,
              .idea = "all tokens at once, by the chapter's dispatch",
              .unsupported = prefill_unsupported<kRule>,
              .note = prefill_note<kRule>,
              .memory = prefill_memory<kRule>,
              .bytes_moved = prefill_bytes_moved<kRule>,
              .work = prefill_work<kRule>})
      .stage({.name = "step",
              .processor = Processor::gpu,
              .dtype = Dtype::bf16,
              .run = step<kRule>,
              .idea = "the prompt at once, then a kernel per token: one thread per column of the state",
              .unsupported = step_unsupported<kRule>,
              .note = step_note<kRule>,
              .memory = step_memory<kRule>,
              .bytes_moved = step_bytes_moved<kRule>,
              .work = step_work<kRule>})
      .stage({.name = "step_in_registers",
              .processor = Processor::gpu,
              .dtype = Dtype::bf16,
              .run = step_in_registers<kRule>,
              .idea = "all of the state under way before the first wait",
              .unsupported = step_in_registers_unsupported<kRule>,
              .note = step_note<kRule>,
              .memory = step_memory<kRule>,
              .work = step_work<kRule>})
      .stage({.name = "replay",
              .processor = Processor::gpu,
              .dtype = Dtype::bf16,
              .run = replay<kRule>,
              .idea = "the state is written once per 16 tokens, the updates since then are replayed",
              .unsupported = step_in_registers_unsupported<kRule>,
              .note = step_note<kRule>,
              .memory = replay_memory<kRule>,
              .work = step_work<kRule>})
      .stage({.name = "dispatch",
              .processor = Processor::gpu,
              .dtype = Dtype::bf16,
              .run = dispatch<kRule>,
              .idea = "what a user calls: tiles that fit the number of states, any width",
              .unsupported = dispatch_unsupported<kRule>,
              .note = dispatch_note<kRule>,
              .memory = step_memory<kRule>,
              .bytes_moved = dispatch_bytes_moved<kRule>,
              .work = step_work<kRule>});
}

template <decode::Rule kRule>
void add_pool(Chapter& chapter) {
  using namespace decode;
  chapter.add(pool_definition<kRule>())
      .stage({.name = "recurrent",
              .dtype = Dtype::fp64,
              .run = recurrent_pool<kRule>,
              .idea = "each entry by itself, on the state in its slot"})
      .stage({.name = "dispatch",
              .processor = Processor::gpu,
              .dtype = Dtype::bf16,
              .run = dispatch_pool<kRule>,
              .idea = "what a user calls: tokens read and write the slots, a prompt gathers and scatters them",
              .unsupported = dispatch_pool_unsupported<kRule>,
              .memory = dispatch_pool_memory<kRule>,
              .work = step_work<kRule>,
              .share_out = copy_pool,
              .goes_on = true})
      .variant({.name = "bf16_states",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = dispatch_pool_bf16<kRule>,
                .idea = "the same with a pool in bf16: half of the bytes, and each token rounds its state",
                .unsupported = dispatch_pool_bf16_unsupported<kRule>,
                .memory = dispatch_pool_bf16_memory<kRule>,
                .work = step_work<kRule>,
                .tolerance = bf16_states_tolerance,
                .share_out = round_pool,
                .collect = widen_pool,
                .goes_on = true});
}

/// @param recurrent the chapter's loop in double @param one_device its dispatch, with what belongs to it
template <over_devices::Rule kRule>
void add_stages_over_devices(Operator& definition, Stage recurrent, Stage one_device) {
  using namespace over_devices;
  recurrent.name = "recurrent", recurrent.dtype = Dtype::fp64;
  recurrent.idea = "the chapter's loop, in double";
  one_device.name = "one_device", one_device.processor = Processor::gpu, one_device.dtype = Dtype::bf16;
  one_device.idea = "the chapter's dispatch on the first device alone";
  definition.stage(std::move(recurrent))
      .stage(std::move(one_device))
      .stage({.name = "relay",
              .processor = Processor::gpu,
              .dtype = Dtype::bf16,
              .run = relay<kRule>,
              .idea = "each device waits for the state of the one before it",
              .unsupported = relay_unsupported<kRule>,
              .note = relay_note<kRule>,
              .memory = relay_memory<kRule>,
              .share_out = on<Arguments>(share_out),
              .collect = on<Arguments>(collect)})
      .stage({.name = "all_gather",
              .processor = Processor::gpu,
              .dtype = Dtype::bf16,
              .run = all_gather<kRule>,
              .idea = "every device tells what it does to any state, then all walk at once",
              .unsupported = all_gather_unsupported<kRule>,
              .note = all_gather_note<kRule>,
              .memory = all_gather_memory<kRule>,
              .share_out = on<Arguments>(share_out),
              .collect = on<Arguments>(collect)});
  if constexpr (kRule != Rule::delta_rule) {
    definition
        .variant({.name = "states_alone",
                  .processor = Processor::gpu,
                  .dtype = Dtype::bf16,
                  .run = states_alone<kRule>,
                  .idea = "a first pass over k and v alone",
                  .unsupported = states_alone_unsupported<kRule>,
                  .note = states_alone_note<kRule>,
                  .memory = states_alone_memory<kRule>,
                  .share_out = on<Arguments>(share_out),
                  .collect = on<Arguments>(collect)})
        .variant({.name = "overlap",
                  .processor = Processor::gpu,
                  .dtype = Dtype::bf16,
                  .run = overlap<kRule>,
                  .idea = "the maps of half of the heads travel while the other half is computed",
                  .unsupported = states_alone_unsupported<kRule>,
                  .note = overlap_note<kRule>,
                  .memory = overlap_memory<kRule>,
                  .share_out = on<Arguments>(share_out),
                  .collect = on<Arguments>(collect)});
  }
  definition.variant({.name = "head_by_head",
                      .processor = Processor::gpu,
                      .dtype = Dtype::bf16,
                      .run = head_by_head<kRule>,
                      .idea = "relay, head after head: the next device starts when one head has arrived",
                      .unsupported = head_by_head_unsupported<kRule>,
                      .note = head_by_head_note<kRule>,
                      .memory = head_by_head_memory<kRule>,
                      .share_out = on<Arguments>(share_out),
                      .collect = on<Arguments>(collect)});
}

/// The gradients. @param recurrent,one_device as above
template <over_devices::Rule kRule>
void add_backward_stages_over_devices(Operator& definition, Stage recurrent, Stage one_device) {
  using namespace over_devices;
  recurrent.name = "recurrent";
  recurrent.idea = "the chapter's two walks on the CPU";
  one_device.name = "one_device", one_device.processor = Processor::gpu, one_device.dtype = Dtype::bf16;
  one_device.idea = "the chapter's dispatch on the first device alone";
  const auto tolerance = one_device.tolerance;
  definition.stage(std::move(recurrent))
      .stage(std::move(one_device))
      .stage({.name = "all_gather",
              .processor = Processor::gpu,
              .dtype = Dtype::bf16,
              .run = all_gather_backward<kRule>,
              .idea = "what each device does to a state and to its gradient, at once to all",
              .unsupported = all_gather_backward_unsupported<kRule>,
              .note = all_gather_backward_note<kRule>,
              .memory = all_gather_backward_memory<kRule>,
              .tolerance = tolerance,
              .share_out = on<BackwardArguments>(share_out),
              .collect = on<BackwardArguments>(collect)})
      .variant({.name = "relay",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = relay_backward<kRule>,
                .idea = "the state goes from device to device, then its gradient comes back",
                .unsupported = relay_backward_unsupported<kRule>,
                .note = relay_backward_note<kRule>,
                .memory = relay_backward_memory<kRule>,
                .tolerance = tolerance,
                .share_out = on<BackwardArguments>(share_out),
                .collect = on<BackwardArguments>(collect)});
  if constexpr (kRule != Rule::delta_rule) {
    definition.variant({.name = "states_alone",
                        .processor = Processor::gpu,
                        .dtype = Dtype::bf16,
                        .run = states_alone_backward<kRule>,
                        .idea = "first passes over k and v, and over q and do alone",
                        .unsupported = states_alone_backward_unsupported<kRule>,
                        .note = states_alone_backward_note<kRule>,
                        .memory = states_alone_backward_memory<kRule>,
                        .tolerance = tolerance,
                        .share_out = on<BackwardArguments>(share_out),
                        .collect = on<BackwardArguments>(collect)});
  }
}

/// The stages of a rule; the chapter's functions are found by the types of their arguments.
template <over_devices::Rule kRule, class FloatArguments, class Bf16Arguments>
void add_over_devices(Chapter& chapter, void (*recurrent)(const FloatArguments&),
                      void (*dispatch)(const Bf16Arguments&), std::string (*unsupported)(const Bf16Arguments&),
                      std::string (*note)(const Bf16Arguments&), std::int64_t (*memory)(const Bf16Arguments&)) {
  add_stages_over_devices<kRule>(chapter.add(over_devices::definition<kRule>()), {.run = recurrent},
                                 {.run = dispatch, .unsupported = unsupported, .note = note, .memory = memory});
}

void add_over_devices(Chapter& chapter) {
  using over_devices::Rule;
  add_over_devices<Rule::linear_attention>(chapter, linear_attention::recurrent_double, linear_attention::dispatch,
                                           linear_attention::dispatch_unsupported, linear_attention::dispatch_note,
                                           linear_attention::dispatch_memory);
  add_over_devices<Rule::simple_gla>(chapter, simple_gla::recurrent, simple_gla::dispatch,
                                     simple_gla::dispatch_unsupported, simple_gla::dispatch_note,
                                     simple_gla::dispatch_memory);
  add_over_devices<Rule::delta_rule>(chapter, delta_rule::recurrent, delta_rule::dispatch,
                                     delta_rule::dispatch_unsupported, delta_rule::dispatch_note,
                                     delta_rule::dispatch_memory);
  {
    using namespace linear_attention;
    add_backward_stages_over_devices<Rule::linear_attention>(
        chapter.add(over_devices::backward_definition<Rule::linear_attention>()),
        {.dtype = Dtype::fp32, .run = recurrent_backward},
        {.run = dispatch_backward,
         .unsupported = dispatch_backward_unsupported,
         .note = dispatch_backward_note,
         .memory = dispatch_backward_memory});
  }
  {
    using namespace simple_gla;
    add_backward_stages_over_devices<Rule::simple_gla>(
        chapter.add(over_devices::backward_definition<Rule::simple_gla>()),
        {.run = recurrent_backward, .memory = recurrent_backward_memory, .tolerance = fp32_backward_tolerance},
        {.run = dispatch_backward,
         .unsupported = dispatch_backward_unsupported,
         .note = dispatch_backward_note,
         .memory = dispatch_backward_memory,
         .tolerance = bf16_backward_tolerance});
  }
  {
    using namespace delta_rule;
    add_backward_stages_over_devices<Rule::delta_rule>(
        chapter.add(over_devices::backward_definition<Rule::delta_rule>()),
        {.dtype = Dtype::fp64, .run = delta_rule::recurrent_backward, .memory = recurrent_backward_memory},
        {.run = dispatch_backward,
         .unsupported = dispatch_backward_unsupported,
         .note = dispatch_backward_note,
         .memory = dispatch_backward_memory});
  }
}

void add_short_convolution(Chapter& chapter) {
  using namespace short_convolution;
  chapter.add(definition())
      .stage({.name = "dispatch",
              .processor = Processor::gpu,
              .dtype = Dtype::bf16,
              .run = dispatch<__nv_bfloat16>,
              .idea = "the last W inputs in registers: one pass over memory",
              .unsupported = dispatch_unsupported<__nv_bfloat16>})
      .stage({.name = "in_fp32",
              .processor = Processor::gpu,
              .run = dispatch<float>,
              .idea = "the same in fp32",
              .unsupported = dispatch_unsupported<float>});
  chapter.add(backward_definition())
      .stage({.name = "dispatch",
              .processor = Processor::gpu,
              .dtype = Dtype::bf16,
              .run = dispatch_backward<__nv_bfloat16>,
              .idea = "windows of u and dy in registers, then the sums of all runs",
              .unsupported = dispatch_backward_unsupported<__nv_bfloat16>,
              .memory = dispatch_backward_memory<__nv_bfloat16>})
      .stage({.name = "in_fp32",
              .processor = Processor::gpu,
              .run = dispatch_backward<float>,
              .idea = "the same in fp32",
              .unsupported = dispatch_backward_unsupported<float>,
              .memory = dispatch_backward_memory<float>});
}

}  // namespace

Chapter chapter() {
  Chapter chapter("06_scan", "A recurrence is a scan: affine maps, composed in any grouping");
  chapter.demonstration("blelloch_tree", "prints the tree of the stage blelloch for eight elements",
                        scan::blelloch_tree, "trace");
  chapter.demonstration("convolution_example", "prints a convolution of four numbers, by direct, fft and scan",
                        convolution::worked_example, "example");
  chapter.demonstration("decode_tokens", "prints the time of a token by the operator decode", decode::tokens, "tokens");
  chapter.demonstration("devices_model", "prints what a model says of the time of --devices, up to 1024 of them",
                        over_devices::model, "model");
  add_stages(chapter.add(scan::definition()));
  add_backward_stages(chapter.add(scan::backward_definition()));
  add_simple_gla_stages(chapter.add(simple_gla::definition()));
  add_delta_rule_stages(chapter.add(delta_rule::definition()));
  add_convolution_stages(chapter.add(convolution::definition()));
  add_short_convolution(chapter);
  add_stages<decode::Rule::simple_gla>(chapter.add(decode::definition<decode::Rule::simple_gla>()));
  add_stages<decode::Rule::gla>(chapter.add(decode::definition<decode::Rule::gla>()));
  add_stages<decode::Rule::delta_rule>(chapter.add(decode::definition<decode::Rule::delta_rule>()));
  add_stages<decode::Rule::gated_delta_rule>(chapter.add(decode::definition<decode::Rule::gated_delta_rule>()));
  add_stages<decode::Rule::kda>(chapter.add(decode::definition<decode::Rule::kda>()));
  add_stages<decode::Rule::normalized>(chapter.add(decode::definition<decode::Rule::normalized>()));
  add_over_devices(chapter);
  add_pool<decode::Rule::simple_gla>(chapter);
  add_pool<decode::Rule::gla>(chapter);
  add_pool<decode::Rule::delta_rule>(chapter);
  add_pool<decode::Rule::gated_delta_rule>(chapter);
  add_pool<decode::Rule::kda>(chapter);
  return chapter;
}

}  // namespace tutorial
