/// @file
/// Chapter 06, the table of contents: a recurrence as a scan. (common/chapter/main.cpp runs it.)

#include "06_scan/convolution.hpp"
#include "06_scan/convolution/example.hpp"
#include "06_scan/decode.hpp"
#include "06_scan/decode/tokens.hpp"
#include "06_scan/operators.hpp"
#include "06_scan/scan.hpp"
#include "06_scan/scan/trace.hpp"
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
  add_convolution_stages(chapter.add(convolution::definition()));
  add_stages<decode::Rule::simple_gla>(chapter.add(decode::definition<decode::Rule::simple_gla>()));
  add_stages<decode::Rule::gla>(chapter.add(decode::definition<decode::Rule::gla>()));
  add_stages<decode::Rule::delta_rule>(chapter.add(decode::definition<decode::Rule::delta_rule>()));
  add_stages<decode::Rule::normalized>(chapter.add(decode::definition<decode::Rule::normalized>()));
  return chapter;
}

}  // namespace tutorial
