#pragma once
/// @file
/// What `dispatch` of `--backward` does with a problem, for `delta_rule` and the operators with gates: a kernel as it is,
/// a kernel on copies (copies.hpp), or fp32 (in_fp32.hpp).

#include <cstdint>
#include <functional>
#include <string>

#include "05_deltanet_wy/delta_rule_backward/dispatch/copies.hpp"
#include "05_deltanet_wy/delta_rule_backward/dispatch/in_fp32.hpp"

namespace tutorial::delta_rule {

/// A stage or variant that dispatch may choose.
template <class Arguments>
struct Kernel {
  const char* name;
  void (*run)(const Arguments&);             ///< starts it
  std::int64_t (*memory)(const Arguments&);  ///< bytes beside inputs and outputs
};

/// What dispatch has chosen.
struct Choice {
  std::string note;         ///< its name, and why it is not the fastest kernel on the tensors themselves
  std::string unsupported;  ///< why it cannot run the problem either; empty if it can
  std::function<std::int64_t()> memory;
  std::function<void()> run;
};

/// @param unsupported why the kernel for all widths does not support arguments; empty if it does
/// @param fastest the fastest Kernel for arguments that this one supports
/// @param normalizes whether a copy of k is normalised
/// @param copies_name of the copies' workspace
template <class Arguments, class Unsupported, class Fastest>
Choice choose(const Arguments& g, const Gates& gates, const char* copies_name, bool normalizes, Unsupported unsupported,
              Fastest fastest) {
  const auto memory = [=] {  // g may come without strides, which tell nothing of the fastest kernel; copies have some
    const Arguments copies = sizes_of_copies(g, normalizes);
    return fastest(copies).memory(copies);
  };
  const std::string reason = unsupported(g);
  if (reason.empty()) return {fastest(g).name, "", memory, [=] { fastest(g).run(g); }};
  const Arguments sizes = sizes_of_copies(g, normalizes);
  if (const std::string of_copies = unsupported(sizes); !of_copies.empty()) {
    return {"in fp32: " + of_copies, backward_in_fp32_unsupported(g), [=] { return backward_in_fp32_memory(g); },
            [=] { backward_in_fp32(g, gates); }};
  }
  return {
      fastest(sizes).name + (" on copies: " + reason), "", [=] { return memory() + memory_of_copies(g); },
      [=] { on_copies(copies_name, g, normalizes, [&](const Arguments& copies) { fastest(copies).run(copies); }); }};
}

}  // namespace tutorial::delta_rule
