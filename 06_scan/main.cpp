/// @file
/// Chapter 06, the table of contents: a recurrence as a scan; then those of chapters 04 and 05 as scans.
/// (common/chapter/main.cpp runs it.)

#include "04_fused_chunk/operators.hpp"
#include "05_deltanet_wy/operators.hpp"
#include "06_scan/convolution.hpp"
#include "06_scan/convolution/example.hpp"
#include "06_scan/decode.hpp"
#include "06_scan/decode/tokens.hpp"
#include "06_scan/delta_rule.hpp"
#include "06_scan/operators.hpp"
#include "06_scan/scan.hpp"
#include "06_scan/scan/trace.hpp"
#include "06_scan/simple_gla.hpp"
#include "common/chapter/chapter.hpp"

namespace tutorial {
namespace {

void add_stages(Operator& definition) {
  using namespace scan;
  definition.cpu("sequential", sequential, "a loop over time: the truth, in double")
      .dtype(Dtype::fp64)
      .cpu("hillis_steele", hillis_steele,
           "every step looks back 1, 2, 4, ... steps: log2(L) rounds, each over all of L")
      .dtype(Dtype::fp64)
      .memory(hillis_steele_memory)
      .stage_work(hillis_steele_work)
      .cpu("blelloch", blelloch, "up a tree and down again: twice the rounds, but 3 L compositions in all")
      .dtype(Dtype::fp64)
      .memory(blelloch_memory)
      .stage_work(blelloch_work)
      .gpu("sequential_gpu", sequential_gpu, "a thread a channel, the loop over time")
      .limits(sequential_gpu_limits)
      .moved(sequential_gpu_moved)
      .gpu("blelloch_gpu", blelloch_gpu, "the tree in shared memory, padded: a block a channel, tile after tile")
      .limits(blelloch_gpu_limits)
      .stage_work(blelloch_work)
      .gpu("warp_shuffle", warp_shuffle, "registers instead: steps, lanes, warps")
      .limits(warp_shuffle_limits)
      .gpu("single_pass", single_pass, "all tiles at once, each looks back at those before it")
      .limits(single_pass_limits)
      .memory(single_pass_memory)
      .moved(single_pass_moved)
      .gpu("cub", cub_scan, "the same operator through CUB: the yardstick")
      .limits(cub_limits)
      .memory(cub_memory)
      .without_output("final_log_decay")  // what separates its sequences is a gate of -infinity
      .gpu("dispatch", dispatch, "what a user calls: single_pass, or the loop where it is short")
      .limits(dispatch_limits)
      .memory(dispatch_memory)
      .moved(dispatch_moved)
      .note(dispatch_note);
}

void add_backward_stages(Operator& definition) {
  using namespace scan;
  definition.cpu("sequential", sequential_backward, "the loop again, then backwards over time")
      .dtype(Dtype::fp64)
      .gpu("sequential_gpu", sequential_gpu_backward, "the same kernel twice, the second time from the end")
      .limits(sequential_gpu_backward_limits)
      .memory(sequential_gpu_backward_memory)
      .gpu("dispatch", dispatch_backward, "two scans, one of them from the end, and the gates' gradient")
      .limits(dispatch_backward_limits)
      .memory(dispatch_backward_memory);
}

void add_simple_gla_stages(Operator& definition) {
  using namespace simple_gla;
  definition.cpu("recurrent", recurrent, "decay the state, add the outer product, read it: the truth, in double")
      .dtype(Dtype::fp64)
      .stage_work(recurrent_work)
      .gpu("two_kernels", two_kernels, "chapter 04's chunks on tensor cores: states into memory, then outputs")
      .dtype(Dtype::bf16)
      .limits(two_kernels_limits)
      .memory(two_kernels_memory)
      .moved(two_kernels_moved)
      .gpu<HalfArguments>("fused", fused, "chapter 04's single walk over the chunks")
      .dtype(Dtype::bf16)
      .limits(fused_limits)
      .memory(fused_memory)
      .moved<HalfArguments>(fused_moved)
      .gpu("dispatch", dispatch, "what chapter 04's user calls")
      .dtype(Dtype::bf16)
      .limits(dispatch_limits)
      .memory(dispatch_memory)
      .moved(dispatch_moved)
      .note(dispatch_note)
      .gpu("scan_states", scan::scan_states, "every product k^T v and every state in memory, a scan between them")
      .limits(scan::scan_states_limits)
      .memory(scan::scan_states_memory)
      .moved(scan::scan_states_moved)
      .stage_work(scan::scan_states_work)
      .gpu("scan_fused", scan::scan_fused, "the same scan in registers: tiles look back, no step's state is written")
      .limits(scan::scan_fused_limits)
      .memory(scan::scan_fused_memory)
      .moved(scan::scan_fused_moved)
      .stage_work(scan::scan_fused_work);
}

void add_delta_rule_stages(Operator& definition) {
  using namespace delta_rule;
  definition.cpu("recurrent", recurrent, "read under the key, write the difference: the truth, in double")
      .dtype(Dtype::fp64)
      .stage_work(recurrent_work)
      .gpu("dispatch", dispatch, "what chapter 05's user calls: chunks in the WY form")
      .dtype(Dtype::bf16)
      .limits(dispatch_limits)
      .memory(dispatch_memory)
      .moved(dispatch_moved)
      .note(dispatch_note)
      .gpu("scan_affine", scan::scan_affine, "runs of 32 steps as matrices, and a tree of their products")
      .limits(scan::scan_affine_limits)
      .memory(scan::scan_affine_memory)
      .moved(scan::scan_affine_moved)
      .stage_work(scan::scan_affine_work);
}

void add_convolution_stages(Operator& definition) {
  using namespace convolution;
  definition.cpu("direct", direct, "the sum as it is written: the truth, in double")
      .dtype(Dtype::fp64)
      .limits(direct_limits)
      .cpu("fft", fft, "a product of spectra, of sequences that end with zeros")
      .dtype(Dtype::fp64)
      .memory(fft_memory)
      .stage_work(fft_work)
      .gpu("scan", by_scan, "the operator scan with one gate, for kernel_j = r^j")
      .limits(by_scan_limits)
      .memory(by_scan_memory)
      .moved(by_scan_moved)
      .note(by_scan_note)
      .stage_work(by_scan_work)
      .gpu("cufft", by_cufft, "fft through cuFFT, all channels at once")
      .limits(by_cufft_limits)
      .memory(by_cufft_memory)
      .stage_work(fft_work);
}

template <decode::Rule kRule>
void add_stages(Operator& definition) {
  using namespace decode;
  definition.cpu("recurrent", recurrent<kRule>, "the chapter's recurrence: the truth, in double")
      .dtype(Dtype::fp64)
      .gpu("prefill", prefill<kRule>, "all tokens at once, by the chapter's dispatch")
      .dtype(Dtype::bf16)
      .limits(prefill_limits<kRule>)
      .memory(prefill_memory<kRule>)
      .moved(prefill_moved<kRule>)
      .note(prefill_note<kRule>)
      .stage_work(prefill_work<kRule>)
      .gpu("step", step<kRule>, "the prompt at once, then a kernel a token: the state in, the state out")
      .dtype(Dtype::bf16)
      .limits(step_limits<kRule>)
      .memory(step_memory<kRule>)
      .moved(step_moved<kRule>)
      .note(step_note<kRule>)
      .stage_work(step_work<kRule>);
}

}  // namespace

Chapter chapter() {
  Chapter chapter("06_scan", "A recurrence is a scan: affine maps, composed in any grouping");
  chapter.demonstration("blelloch_tree", "prints the tree of the stage blelloch for eight elements",
                        scan::blelloch_tree, "trace");
  chapter.demonstration("convolution_example", "prints a convolution of four numbers, by direct, fft and scan",
                        convolution::worked_example, "example");
  chapter.demonstration("decode_tokens", "prints the time of a token by the operator decode", decode::tokens, "tokens");
  add_stages(chapter.add(scan::definition()));
  add_backward_stages(chapter.add(scan::backward_definition()));
  add_simple_gla_stages(chapter.add(simple_gla::definition()));
  add_delta_rule_stages(chapter.add(delta_rule::definition()));
  add_convolution_stages(chapter.add(convolution::definition()));
  add_stages<decode::Rule::simple_gla>(chapter.add(decode::definition<decode::Rule::simple_gla>()));
  add_stages<decode::Rule::gla>(chapter.add(decode::definition<decode::Rule::gla>()));
  add_stages<decode::Rule::delta_rule>(chapter.add(decode::definition<decode::Rule::delta_rule>()));
  add_stages<decode::Rule::normalized>(chapter.add(decode::definition<decode::Rule::normalized>()));
  return chapter;
}

}  // namespace tutorial
