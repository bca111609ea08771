/// @file
/// Operator::grouped(): heads that share their queries and keys, by a stride of zero.

#include <algorithm>
#include <cstddef>
#include <vector>

#include "common/chapter/head_sums.hpp"
#include "common/chapter/operator.hpp"
#include "common/device/workspace.hpp"
#include "common/parts.hpp"

namespace tutorial {
namespace {

// What has Hk heads: q and k, their gradients, and of gradients that cancel the term that is subtracted.
std::set<std::string> of_key_heads() {
  return {"q", "k", "dq", "dk", subtracted_of("dq"), subtracted_of("dk")};
}

// The bytes of dq or dk before heads are added up.
std::int64_t bytes_of_parts(const Call& call, Dtype dtype) {
  return std::int64_t(call.size("B")) * call.size("H") * call.size("L") * call.size("Dk") *
         std::int64_t(size_of(dtype));
}

// A function that only looks at the call.
template <class Result>
StageFunction<Result> on_groups(const StageFunction<Result>& function) {
  if (!function) return {};
  return StageFunction<Result>::of([=](const Call& call) { return function(call.grouped(of_key_heads())); });
}

// A function that computes. Gradients of q and k go to memory of their own, an entry for each head, and are added up.
StageFunction<void> added_up(const StageFunction<void>& function, Processor processor) {
  if (!function) return {};
  return StageFunction<void>::of([=](const Call& call) {
    Call groups = call.grouped(of_key_heads());
    const int heads = groups.size("H"), L = call.size("L"), Dk = call.size("Dk");
    struct Sum {
      HeadParts parts;
      TensorReference to;
    };
    std::vector<Sum> sums;
    std::vector<std::vector<std::byte>> host;
    for (const std::string& name : of_key_heads()) {
      const TensorReference* whole = call.find(name);
      if (whole == nullptr || !whole->writable) continue;
      const auto bytes = std::size_t(bytes_of_parts(call, whole->dtype));
      void* data = nullptr;
      if (processor == Processor::gpu) {
        data = workspace_bytes("grouped heads: " + name, bytes);
      } else {
        data = host.emplace_back(bytes).data();
      }
      const std::int64_t of_head = std::int64_t(L) * Dk;
      groups.add(name, {data, whole->dtype, true, heads * of_head, of_head, Dk});
      sums.push_back({{data, groups.size("B"), heads, L, Dk}, *whole});
    }
    function(groups);
    for (const Sum& sum : sums) add_up_heads(sum.parts, sum.to, call.size("Hk"), processor);
    if (!sums.empty() && processor == Processor::gpu) end_part("heads");
  });
}

}  // namespace

Operator Operator::grouped() const {
  Operator grouped(*this);
  grouped.form("key-heads",
               "heads of q and k, each of which H / Hk heads share; half of the heads, unless a number is given");
  const auto give_key_heads = [](auto& specs) {
    for (auto& spec : specs) {
      if (of_key_heads().contains(spec.name)) spec.dims[1] = "Hk";
    }
  };
  give_key_heads(grouped.inputs_);
  give_key_heads(grouped.outputs_);
  const auto after_heads = std::find(grouped.symbols_.begin(), grouped.symbols_.end(), "H");
  grouped.symbols_.insert(after_heads + 1, "Hk");
  grouped.derived_size("Hk", [](const Sizes& sizes) { return std::max<std::int64_t>(sizes.at("H") / 2, 1); });
  grouped.consistent([conflict = conflict_](const Sizes& sizes) {
    const std::int64_t H = sizes.at("H"), Hk = sizes.at("Hk");
    if (Hk <= 0 || H % Hk != 0) {
      return "Hk = " + std::to_string(Hk) + " does not divide H = " + std::to_string(H);
    }
    return conflict ? conflict(sizes) : "";
  });
  grouped.reference_ = added_up(reference_, Processor::cpu);
  grouped.reference_memory_ = on_groups(reference_memory_);
  grouped.long_reference_ = added_up(long_reference_, Processor::cpu);
  grouped.long_reference_memory_ = on_groups(long_reference_memory_);
  grouped.bf16_reference_ = added_up(bf16_reference_, Processor::cpu);
  const bool has_gradients =
      std::any_of(outputs_.begin(), outputs_.end(), [](const Output& spec) { return spec.name == "dq"; });
  for (Stage& stage : grouped.stages_) {
    stage.run = added_up(stage.run, stage.processor);
    stage.unsupported = on_groups(stage.unsupported);
    stage.note = on_groups(stage.note);
    stage.share_out = on_groups(stage.share_out);
    stage.collect = on_groups(stage.collect);
    const Dtype dtype = size_of(stage.dtype) == 2 ? stage.dtype : Dtype::fp32;
    if (const auto moved = on_groups(stage.bytes_moved); moved) {
      stage.bytes_moved = StageFunction<std::int64_t>::of([=](const Call& call) {
        const std::int64_t bytes = moved(call), parts = has_gradients ? 2 * bytes_of_parts(call, dtype) : 0;
        return bytes < 0 ? bytes : bytes + parts + parts / (call.size("H") / call.size("Hk"));
      });
    }
    if (const auto memory = on_groups(stage.memory); memory || has_gradients) {
      stage.memory = StageFunction<std::int64_t>::of([=](const Call& call) {
        return (memory ? memory(call) : 0) + (has_gradients ? 2 * bytes_of_parts(call, dtype) : 0);
      });
    }
  }
  return grouped;
}

}  // namespace tutorial
