/// @file
/// What the runner must know of the layer.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "03_gla/gla_layer.hpp"
#include "03_gla/operators.hpp"
#include "common/chapter/draw.hpp"

namespace tutorial::gla_layer {
namespace {

/// As PyTorch begins, roughly: the columns of x W^T are as large as those of x.
/// @param in the symbol of W's columns
Draw linear(std::string in) {
  return [in = std::move(in)](const Random& random, const Sizes& sizes, Tensor& W) {
    normal(1 / std::sqrt(double(sizes.at(in))))(random, sizes, W);
  };
}

/// The heads that the norm's weight [Dv] makes of value_dim columns, where a file gives both.
std::int64_t heads(const Sizes& s) {
  constexpr std::int64_t kHeads = 4;
  if (!s.contains("value_dim") || !s.contains("Dv")) return kHeads;
  return std::max<std::int64_t>(1, s.at("value_dim") / s.at("Dv"));
}

/// One line about heads that do not fill a matrix.
std::string misfit(const Sizes& s, const char* columns, const char* width) {
  const std::int64_t H = s.at("H");
  if (s.at(columns) % H != 0) return fmt::format("H = {} does not divide {} = {}", H, columns, s.at(columns));
  if (s.at(columns) == H * s.at(width)) return "";
  return fmt::format("{} = {} is not H = {} heads of {} = {}", columns, s.at(columns), H, width, s.at(width));
}

double rows(const Sizes& s) {
  return double(s.at("B")) * double(s.at("L"));
}

/// Of the products with Wq, Wk, Wv, Wr, W1 and Wo.
double product_flops(const Sizes& s) {
  const auto d_model = double(s.at("d_model"));
  return 2 * rows(s) * d_model * double(2 * s.at("key_dim") + 3 * s.at("value_dim") + s.at("rank"));
}

/// What is left beside products and gla. W2's product counts here: our kernel does it on the fp32 units, too.
Work with_rest(const Sizes& s, Work work) {
  const auto key_dim = double(s.at("key_dim")), value_dim = double(s.at("value_dim"));
  work.fma_flops += rows(s) * (2 * double(s.at("rank")) * key_dim + 6 * value_dim);
  work.exponentials += rows(s) * (2 * key_dim + value_dim);  // a logarithm takes as long
  return work;
}

Work with_float_products(const Sizes& s, Work attention) {
  attention.fma_flops += product_flops(s);
  return with_rest(s, attention);
}

}  // namespace

template <class T>
Arguments<T> Arguments<T>::bind(const Call& call) {
  return {.B = call.size("B"),
          .H = call.size("H"),
          .L = call.size("L"),
          .d_model = call.size("d_model"),
          .rank = call.size("rank"),
          .Dk = call.size("Dk"),
          .Dv = call.size("Dv"),
          .scale = call.scale(),
          .eps = call.parameter("eps"),
          .normalizer = call.parameter("normalizer"),
          .x = call.data<const T>("x"),
          .Wq = call.data<const T>("q_proj.weight"),
          .Wk = call.data<const T>("k_proj.weight"),
          .Wv = call.data<const T>("v_proj.weight"),
          .Wz = call.data<const T>("g_proj.weight"),
          .W1 = call.data<const T>("gk_proj.0.weight"),
          .W2 = call.data<const T>("gk_proj.1.weight"),
          .bias = call.data<const float>("gk_proj.1.bias"),
          .w = call.data<const float>("g_norm_swish_gate.weight"),
          .Wo = call.data<const T>("o_proj.weight"),
          .y = call.data<T>("y")};
}
template struct Arguments<float>;
template struct Arguments<__nv_bfloat16>;

Operator definition() {
  Operator definition("gla_layer", "x to y: projections, gla, a norm and a gate for each head, and back");
  const auto weight = [&](const char* name, const Dims& dims) {
    definition.input({.name = name, .dims = dims, .draw = linear(dims[1]), .weight = true});
  };
  definition.input({.name = "x", .dims = {"B", "L", "d_model"}, .draw = normal()})
      .metadata_size("H", "num_heads")
      .derived_size("H", heads)
      .derived_size("key_dim",
                    [](const Sizes& s) {
                      return s.contains("Dk") ? s.at("H") * s.at("Dk") : std::max<std::int64_t>(1, s.at("d_model") / 2);
                    })
      .derived_size("value_dim",
                    [](const Sizes& s) { return s.contains("Dv") ? s.at("H") * s.at("Dv") : s.at("d_model"); })
      .derived_size("Dk", [](const Sizes& s) { return s.at("key_dim") / s.at("H"); })
      .derived_size("Dv", [](const Sizes& s) { return s.at("value_dim") / s.at("H"); });
  weight("q_proj.weight", {"key_dim", "d_model"});
  weight("k_proj.weight", {"key_dim", "d_model"});
  weight("v_proj.weight", {"value_dim", "d_model"});
  weight("g_proj.weight", {"value_dim", "d_model"});
  weight("gk_proj.0.weight", {"rank", "d_model"});
  weight("gk_proj.1.weight", {"key_dim", "rank"});
  definition
      .input(
          {.name = "gk_proj.1.bias", .dims = {"key_dim"}, .draw = uniform(-0.25, 0.25), .bf16 = false, .weight = true})
      .input({.name = "g_norm_swish_gate.weight",
              .dims = {"Dv"},
              .draw = uniform(0.5, 1.5),
              .bf16 = false,
              .weight = true});
  weight("o_proj.weight", {"d_model", "value_dim"});
  definition.output({.name = "y", .dims = {"B", "L", "d_model"}})
      .sizes({{"B", 4}, {"L", 2048}, {"d_model", 2048}, {"rank", 16}})
      .modest_sizes({{"B", 1}, {"L", 128}, {"d_model", 128}})
      .consistent([](const Sizes& s) {
        const std::string keys = misfit(s, "key_dim", "Dk");
        return keys.empty() ? misfit(s, "value_dim", "Dv") : keys;
      })
      .scale([](const Sizes& s) { return 1 / std::sqrt(double(s.at("Dk"))); })
      .parameter("eps", 1e-5, "norm_eps")
      .parameter("normalizer", 16, "gate_logit_normalizer")
      .reference(reference, reference_memory)
      .bf16_reference(bf16_reference);
  return definition;
}

double float_tolerance(const Sizes& s) {
  return std::max(1e-5, 1e-4 / std::sqrt(double(s.at("L"))));
}

Work cpu_work(const Sizes& s) {
  Sizes chunked = s;
  chunked["C"] = 64;
  return with_float_products(s, gla::chunkwise_work(chunked));
}

Work gpu_work(const Sizes& s) {
  return with_float_products(s, gla::chunk_gpu_work(s));
}

Work gpu_bf16_work(const Sizes& s) {
  Work work = gla::subchunk_walk_work(s);
  work.tensor_flops += product_flops(s);
  return with_rest(s, work);
}

}  // namespace tutorial::gla_layer
