#include "06_scan/operators.hpp"

#include <algorithm>
#include <cmath>

#include "06_scan/delta_rule/map_tree.hpp"
#include "06_scan/scan.hpp"
#include "06_scan/scan_backward.hpp"
#include "common/chapter/draw.hpp"

namespace tutorial::scan {
namespace {

/// Positions of all heads.
double positions(const Sizes& s) {
  return double(s.at("B")) * double(s.at("H")) * double(s.at("L"));
}

/// Their channels.
double steps(const Sizes& s) {
  return positions(s) * double(s.at("D"));
}

/// The operations of composing two maps: one exponential, the value's multiply-add, the sum of the gates.
Work compositions(double count) {
  return {.fma_flops = 3 * count, .exponentials = count};
}

/// What the operator and its adjoint share.
Operator with_inputs(Operator definition) {
  definition.input({.name = "x", .dims = {"B", "H", "L", "D"}, .draw = normal(), .bf16 = false})
      .input({.name = "log_decay",
              .dims = {"B", "H", "L", "Dg"},
              .draw = logsigmoid(),
              .gate = true,
              .bf16 = false,
              .valid = [](double g, const Sizes&) { return g <= 0; },
              .requirement = "must be at most 0: values that grow leave fp32, and rounding errors grow with them"})
      .input({.name = "initial_state",
              .dims = {"B", "H", "D"},
              .draw = normal(),
              .optional = true,
              .bf16 = false,
              .in_graph = false})
      .flattened("D")
      .flattened("Dg")
      .derived_size("Dg", [](const Sizes& s) { return s.at("D"); })
      .consistent([](const Sizes& s) -> std::string {
        if (s.at("Dg") == 1 || s.at("Dg") == s.at("D")) return "";
        return "Dg = " + std::to_string(s.at("Dg")) +
               ": log_decay has one gate per step, or one for each of the D = " + std::to_string(s.at("D")) +
               " channels";
      })
      .sizes({{"B", 8}, {"H", 1}, {"L", 8192}, {"D", 1536}})
      .modest_sizes({{"B", 1}, {"H", 2}, {"L", 1024}, {"D", 40}});
  return definition;
}

}  // namespace

Arguments Arguments::bind(const Call& call) {
  return {call.size("B"),
          call.size("H"),
          call.size("L"),
          call.size("D"),
          call.size("Dg"),
          call.view<const float>("x"),
          call.view<const float>("log_decay"),
          call.view<const float>("initial_state"),
          call.view<float>("y"),
          call.view<float>("final_state"),
          call.view<float>("final_log_decay")};
}

BackwardArguments BackwardArguments::bind(const Call& call) {
  return {call.size("B"),
          call.size("H"),
          call.size("L"),
          call.size("D"),
          call.size("Dg"),
          call.view<const float>("x"),
          call.view<const float>("log_decay"),
          call.view<const float>("initial_state"),
          call.view<const float>("dy"),
          call.view<float>("dx"),
          call.view<float>("dlog_decay"),
          call.view<float>("dinitial_state")};
}

Operator definition() {
  return with_inputs(Operator("scan", "y_t = exp(g_t) y_{t-1} + x_t"))
      .output({.name = "y", .dims = {"B", "H", "L", "D"}, .bf16 = false})
      .output({.name = "final_state", .dims = {"B", "H", "D"}, .bf16 = false, .in_graph = false})
      .output({.name = "final_log_decay", .dims = {"B", "H", "Dg"}, .bf16 = false, .in_graph = false})
      .work([](const Sizes& s) -> Work { return {.fma_flops = 2 * steps(s), .exponentials = steps(s)}; })
      .reference(sequential);
}

Operator backward_definition() {
  return with_inputs(Operator("scan", "dx_t = dy_t + exp(g_{t+1}) dx_{t+1}, dg_t = exp(g_t) dx_t y_{t-1}")
                         .form("backward", "the gradients of x, log_decay and initial_state for those of y"))
      .input({.name = "dy", .dims = {"B", "H", "L", "D"}, .draw = normal(), .bf16 = false})
      .output({.name = "dx", .dims = {"B", "H", "L", "D"}, .bf16 = false})
      .output({.name = "dlog_decay", .dims = {"B", "H", "L", "Dg"}, .bf16 = false})
      .output({.name = "dinitial_state", .dims = {"B", "H", "D"}, .bf16 = false, .in_graph = false})
      .work([](const Sizes& s) -> Work { return {.fma_flops = 7 * steps(s), .exponentials = 3 * steps(s)}; })
      .refuses("dfinal_state", "it takes the gradient of y alone")
      .refuses("dfinal_log_decay", "it takes the gradient of y alone")
      .reference(sequential_backward);
}

Work hillis_steele_work(const Sizes& s) {
  return compositions(steps(s) * std::ceil(std::log2(double(s.at("L")))));
}

Work blelloch_work(const Sizes& s) {
  return compositions(3 * steps(s));
}

Work scan_states_work(const Sizes& s) {
  // A product, which takes a unit as long as a multiply-add, two of those for the scan's maps and values, one for o.
  const double elements = positions(s) * double(s.at("Dk") * s.at("Dv"));
  return {.fma_flops = 8 * elements, .exponentials = elements / 4};
}

Work scan_tiles_work(const Sizes& s) {
  // A multiply-add for the tile's own sum; then a product and two multiply-adds.
  return {.fma_flops = 8 * positions(s) * double(s.at("Dk") * s.at("Dv")), .exponentials = 2 * positions(s)};
}

namespace {

/// Operations of the delta rule's scans: the maps of leaves, the walk, and per head so many compositions of two maps
/// and applications of a map to a state.
Work affine_work(const Sizes& s, double compositions, double applications) {
  const auto Dk = double(s.at("Dk")), Dv = double(s.at("Dv"));
  const int N = leaf_count(int(s.at("L")));
  const double products = compositions * Dk * Dk * (Dk + Dv) + applications * Dk * Dk * Dv;
  const double leaves = N > 1 ? kLeaf * 2 * Dk * ((N - 2) * (Dk + Dv) + Dv) : 0;
  const double walk = double(s.at("L")) * 3 * Dk * Dv;
  return {.fma_flops = double(s.at("B")) * double(s.at("H")) * 2 * (products + leaves + walk)};
}

}  // namespace

Work affine_chain_work(const Sizes& s) {
  return affine_work(s, 0, std::max(0, leaf_count(int(s.at("L"))) - 2));  // the map of the first leaf is a state
}

Work scan_affine_work(const Sizes& s) {
  const int N = leaf_count(int(s.at("L"))), longest = longest_run(N);
  double compositions = 0, applications = 0;  // without those of the first run, which is a state
  double states = 0;                          // the first run, as it grows
  for (int run = 1; run < longest; run *= 2) {
    compositions += pairs_going_up(N, run) - 1;
    states += 1;
  }
  for (int run = longest; run > 0; run /= 2) applications += states_going_down(N, run) - 1;
  return affine_work(s, compositions, applications + states);
}

}  // namespace tutorial::scan
