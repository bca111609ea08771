#include "06_scan/scan/trace.hpp"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <vector>

#include "06_scan/affine.hpp"
#include "06_scan/scan/tree.hpp"

namespace tutorial::scan {
namespace {

/// A map, and the steps that it stands for; none for the identity.
struct Node {
  Affine<double> map = {};
  int first = 0, last = 0;
};

/// Steps that are not neighbours, or in the wrong order, would be a mistake of the tree: they become step -1.
Node compose_nodes(const Node& first, const Node& second) {
  if (first.last == 0) return second;
  if (second.last == 0) return first;
  const bool are_neighbours = first.last + 1 == second.first;
  return {compose(first.map, second.map), are_neighbours ? first.first : -1, are_neighbours ? second.last : -1};
}

std::string steps_of(const Node& node) {
  if (node.last == 0) return "id";
  return node.first == node.last ? fmt::format("{}", node.first) : fmt::format("{}-{}", node.first, node.last);
}

std::string line(const char* name, const std::vector<Node>& nodes) {
  std::string steps = fmt::format("{:<10}", name), values = fmt::format("{:<10}", "");
  for (const Node& node : nodes) {
    steps += fmt::format("{:>9}", steps_of(node));
    values += fmt::format("{:>9.6g}", node.map.value);
  }
  return steps + "\n" + values + "\n";
}

}  // namespace

Demonstration blelloch_tree() {
  constexpr int kSteps = 8;
  std::vector<Node> steps;
  for (int t = 1; t <= kSteps; ++t) steps.push_back({{std::log(0.5), double(t)}, t, t});

  std::vector<Node> tree = steps;
  std::string text =
      "y_t = y_{t-1} / 2 + t, y_0 = 0. Each element: the steps s-t whose map it is, and that map's value;\n"
      "its factor is 1/2 for each step. id is the identity, value 0.\n\n" +
      line("steps", tree);
  up_sweep(tree, compose_nodes, [&] { text += line("up", tree); });
  tree.back() = {};
  text += line("root = id", tree);
  down_sweep(tree, compose_nodes, [&] { text += line("down", tree); });
  for (int i = 0; i < kSteps; ++i) {
    tree[std::size_t(i)] = compose_nodes(tree[std::size_t(i)], steps[std::size_t(i)]);
  }
  text += line("then step", tree);

  bool passed = true;
  double y = 0;
  for (int t = 1; t <= kSteps; ++t) {
    const Node& node = tree[std::size_t(t - 1)];
    y = y / 2 + t;
    passed = passed && node.first == 1 && node.last == t && std::abs(node.map.value - y) < 1e-12;
  }
  return {.text = text, .passed = passed};
}

}  // namespace tutorial::scan
