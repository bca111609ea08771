#include "common/chapter/attention.hpp"

#include <cmath>

namespace tutorial {

double positions(const Sizes& sizes) {
  return double(sizes.at("B")) * double(sizes.at("H")) * double(sizes.at("L"));
}

Operator with_attention(Operator definition, const Draw& q, const Draw& k, const std::vector<Input>& own) {
  definition.input({.name = "q", .dims = {"B", "H", "L", "Dk"}, .draw = q})
      .input({.name = "k", .dims = {"B", "H", "L", "Dk"}, .draw = k})
      .input({.name = "v", .dims = {"B", "H", "L", "Dv"}, .draw = normal()});
  for (const Input& input : own) definition.input(input);
  definition
      .input({.name = "initial_state",
              .dims = {"B", "H", "Dk", "Dv"},
              .draw = normal(),
              .optional = true,
              .bf16 = false,
              .in_graph = false})
      .output({.name = "o", .dims = {"B", "H", "L", "Dv"}})
      .output({.name = "final_state", .dims = {"B", "H", "Dk", "Dv"}, .bf16 = false, .in_graph = false})
      .sizes({{"B", 4}, {"H", 8}, {"L", 2048}, {"Dk", 128}, {"Dv", 128}, {"C", 64}})
      .modest_sizes({{"B", 1}, {"H", 2}, {"L", 256}, {"Dk", 64}, {"Dv", 64}})
      .scale([](const Sizes& s) { return 1 / std::sqrt(double(s.at("Dk"))); });
  return definition;
}

}  // namespace tutorial
