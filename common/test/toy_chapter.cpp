#include "common/test/toy_chapter.hpp"

#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "common/chapter/chapter.hpp"
#include "common/parts.hpp"

namespace tutorial {
namespace {

template <class Accumulator>
void sum_on_cpu(const RunningSum<float>& a) {
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) {
      for (int j = 0; j < a.Dv; ++j) {
        const int state = (b * a.H + h) * a.Dv + j;
        Accumulator sum = a.initial_state == nullptr ? 0 : a.initial_state[state];
        for (int t = 0; t < a.L; ++t) {
          if (a.g.data != nullptr) sum *= std::exp(static_cast<Accumulator>(*a.g.row(b, h, t)));
          if (a.lengths == nullptr || t < a.lengths[b]) sum += a.x.row(b, h, t)[j];
          a.o.row(b, h, t)[j] = static_cast<float>(a.scale * sum);
        }
        if (a.final_state != nullptr) a.final_state[state] = static_cast<float>(sum);
      }
    }
  }
}

void scale_rows(const Scaling& a) {
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) {
      for (int t = 0; t < a.L; ++t) {
        for (int j = 0; j < a.Dv; ++j) a.o.row(b, h, t)[j] = a.w[j] * a.x.row(b, h, t)[j];
      }
    }
  }
}

float& last_element(const Scaling& a) {
  return a.o.row(a.B - 1, a.H - 1, a.L - 1)[a.Dv - 1];
}

}  // namespace

template <class T>
RunningSum<T> RunningSum<T>::bind(const Call& call) {
  return {call.size("B"),
          call.size("H"),
          call.size("L"),
          call.size("Dv"),
          call.scale(),
          call.view<const T>("x"),
          call.view<const float>("g"),
          call.data<const std::int32_t>("lengths"),
          call.data<const float>("initial_state"),
          call.view<T>("o"),
          call.data<float>("final_state")};
}

void sum_reference(const RunningSum<float>& a) {
  sum_on_cpu<double>(a);
}

void sum_plain(const RunningSum<float>& a) {
  sum_on_cpu<float>(a);
  end_part("sums");
  end_part("nothing");
}

std::string sum_kernel_unsupported(const RunningSum<float>& a) {
  return a.Dv <= 64 ? "" : "Dv = " + std::to_string(a.Dv) + " is above 64";
}

std::string sum_note(const RunningSum<float>& a) {
  return std::to_string(a.B * a.H) + " blocks" + (a.x.stride_l > a.Dv ? " on rows apart" : "");
}

std::int64_t sum_bytes_moved(const RunningSum<float>& a) {
  return std::int64_t{8} * a.B * a.H * a.L * a.Dv;  // x, o
}

std::int64_t sum_memory(const RunningSum<float>& a) {
  return std::int64_t{4} * a.B * a.H * a.L * a.L;
}

RunningSumBackward RunningSumBackward::bind(const Call& call) {
  return {call.size("B"),        call.size("H"), call.size("L"), call.size("Dv"), call.view<const float>("do"),
          call.view<float>("dx")};
}

void sum_backward(const RunningSumBackward& a) {
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) {
      for (int j = 0; j < a.Dv; ++j) {
        double sum = 0;
        for (int t = a.L - 1; t >= 0; --t) a.dx.row(b, h, t)[j] = float(sum += double(a.d_o.row(b, h, t)[j]));
      }
    }
  }
}

Scaling Scaling::bind(const Call& call) {
  return {call.size("B"),
          call.size("H"),
          call.size("L"),
          call.size("Dv"),
          call.view<const float>("x"),
          call.data<const float>("w"),
          call.view<float>("o")};
}

void scaling_right(const Scaling& a) {
  scale_rows(a);
}

void scaling_wrong(const Scaling& a) {
  scale_rows(a);
  last_element(a) += 1;
}

void scaling_unwritten(const Scaling& a) {
  const float kept = last_element(a);
  scale_rows(a);
  last_element(a) = kept;
}

void scaling_infinite(const Scaling& a) {
  scale_rows(a);
  last_element(a) = std::numeric_limits<float>::infinity();
}

void scaling_once(const Scaling& a) {
  static int calls = 0;
  scale_rows(a);
  if (calls++ > 0) last_element(a) += 1;
}

void scaling_throws(const Scaling&) {
  throw std::runtime_error("has a bad day");
}

std::int64_t scaling_memory(const Scaling& a) {
  return std::int64_t{4} * a.Dv;
}

void scaling_outside(const Scaling& a) {
  scale_rows(a);
  a.o.row(0, 0, 0)[a.Dv] = a.x.row(0, 0, 0)[a.Dv];
}

Chapter chapter() {
  Chapter chapter("00_toy", "A chapter for tests");
  chapter.demonstration("counting", "a sum by hand", [] { return Demonstration{"1 + 2 = 3\n    + 3 = 6\n", true}; });
  chapter.demonstration("miscounting", "a wrong one", [] { return Demonstration{"1 + 2 = 4, not 3", false}; });
  chapter.demonstration("giving_up", "none", []() -> Demonstration { throw std::runtime_error("cannot count"); });
  chapter
      .add(Operator("running_sum", "s_t = exp(g_t) s_{t-1} + x_t")
               .input({.name = "x", .dims = {"B", "H", "L", "Dv"}, .draw = normal()})
               .input({.name = "g",
                       .dims = {"B", "H", "L"},
                       .draw = logsigmoid(16),
                       .gate = true,
                       .bf16 = false,
                       .valid = [](double g, const Sizes&) { return g <= 0; },
                       .requirement = "must be at most 0"})
               .input({.name = "lengths",
                       .dims = {"B"},
                       .dtype = Dtype::int32,
                       .optional = true,
                       .valid = [](double n, const Sizes& s) { return n >= 0 && n <= static_cast<double>(s.at("L")); },
                       .requirement = "must be between 0 and L"})
               .input({.name = "initial_state",
                       .dims = {"B", "H", "Dv"},
                       .optional = true,
                       .bf16 = false,
                       .in_graph = false})
               .output({.name = "o", .dims = {"B", "H", "L", "Dv"}})
               .output({.name = "final_state", .dims = {"B", "H", "Dv"}, .bf16 = false, .in_graph = false})
               .sizes({{"B", 2}, {"H", 4}, {"L", 256}, {"Dv", 32}})
               .modest_sizes({{"L", 64}})
               .scale([](const Sizes& s) { return 1 / std::sqrt(static_cast<double>(s.at("Dv"))); })
               .work([](const Sizes& s) {
                 return Work{.fma_flops = 2.0 * static_cast<double>(s.at("B") * s.at("H") * s.at("L") * s.at("Dv"))};
               })
               .reference(sum_reference))
      .stage({.name = "exact", .dtype = Dtype::fp64, .run = sum_reference, .idea = "in double"})
      .stage({.name = "plain", .run = sum_plain, .idea = "in float"})
      .stage({.name = "kernel",
              .processor = Processor::gpu,
              .run = sum_kernel,
              .idea = "one thread per column",
              .unsupported = sum_kernel_unsupported,
              .note = sum_note})
      .stage({.name = "kernel_bf16",
              .processor = Processor::gpu,
              .dtype = Dtype::bf16,
              .run = sum_kernel_bf16,
              .idea = "the same in bf16"})
      .variant({.name = "plain_too", .run = sum_plain, .idea = "what a dispatch might choose"});
  chapter
      .add(Operator("scaling", "o = w x, with stages that fail")
               .input({.name = "x", .dims = {"B", "H", "L", "Dv"}, .draw = normal()})
               .input({.name = "w", .dims = {"Dv"}, .draw = uniform(1, 2), .weight = true})
               .output({.name = "o", .dims = {"B", "H", "L", "Dv"}})
               .sizes({{"B", 1}, {"H", 2}, {"L", 8}, {"Dv", 4}})
               .reference(scaling_right))
      .stage({.name = "right", .run = scaling_right, .idea = "as it should be"})
      .stage({.name = "wrong", .run = scaling_wrong, .idea = "one element is off by one"})
      .stage({.name = "unwritten", .run = scaling_unwritten, .idea = "one element is missing"})
      .stage({.name = "infinite", .run = scaling_infinite, .idea = "one element is infinite"})
      .stage({.name = "once", .run = scaling_once, .idea = "right only the first time"})
      .stage({.name = "throws", .run = scaling_throws, .idea = "gives up"})
      .stage({.name = "refused", .processor = Processor::gpu, .run = scaling_refused, .idea = "too many threads"})
      .stage({.name = "after", .run = scaling_right, .idea = "as it should be, after others have failed"});
  const Operator no_decay = Operator("running_sum", "s_t = s_{t-1} + x_t")
                                .form("no-decay", "sum without a decay")
                                .input({.name = "x", .dims = {"B", "H", "L", "Dv"}, .draw = normal()})
                                .output({.name = "o", .dims = {"B", "H", "L", "Dv"}})
                                .sizes({{"B", 1}, {"H", 2}, {"L", 5}, {"Dv", 3}})
                                .reference(sum_reference);
  chapter.add(no_decay)
      .stage({.name = "exact", .dtype = Dtype::fp64, .run = sum_reference, .idea = "in double"})
      .stage({.name = "kernel",
              .processor = Processor::gpu,
              .run = sum_kernel,
              .idea = "one thread per column",
              .unsupported = sum_kernel_unsupported,
              .memory = sum_memory,
              .bytes_moved = sum_bytes_moved});
  const Operator packed = no_decay.packed();
  chapter.add(packed).stage(
      {.name = "exact", .run = packed.on_each_sequence(on<RunningSum<float>>(sum_reference)), .idea = "in double"});
  chapter.add(no_decay.backward("dx_t = dx_{t+1} + do_t").reference(sum_backward))
      .stage({.name = "exact", .dtype = Dtype::fp64, .run = sum_backward, .idea = "from the end"});
  chapter
      .add(Operator("weighting", "o = w x, which there is as a form only")
               .form("weigh", "scaling under another name")
               .input({.name = "x", .dims = {"B", "H", "L", "Dv"}, .draw = normal()})
               .input({.name = "w", .dims = {"Dv"}, .draw = uniform(1, 2)})
               .output({.name = "o", .dims = {"B", "H", "L", "Dv"}})
               .sizes({{"B", 1}, {"H", 2}, {"L", 8}, {"Dv", 4}})
               .reference(scaling_right))
      .stage({.name = "right", .run = scaling_right, .idea = "as it should be", .memory = scaling_memory})
      .stage({.name = "wrong_under_a_long_name",
              .run = scaling_wrong,
              .idea = "one element is off by one",
              .memory = scaling_memory});
  return chapter;
}

}  // namespace tutorial
