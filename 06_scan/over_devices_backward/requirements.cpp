#include "06_scan/over_devices_backward/requirements.hpp"

#include "06_scan/over_devices/map_sizes.hpp"
#include "06_scan/over_devices/measure.hpp"
#include "06_scan/over_devices/requirements.hpp"
#include "06_scan/over_devices/shares.hpp"
#include "06_scan/over_devices_backward/chapters.hpp"
#include "06_scan/over_devices_backward/dispatch/variants.hpp"
#include "06_scan/over_devices_backward/forward_part.hpp"
#include "06_scan/over_devices_backward/gradient_shares.hpp"
#include "06_scan/over_devices_backward/share_out.hpp"
#include "common/device/device_group.hpp"
#include "common/tile/requirements.hpp"

namespace tutorial::over_devices {
namespace {

std::int64_t bytes(std::size_t floats) {
  return std::int64_t(sizeof(float) * floats);
}

/// Floats of both maps of a device.
template <Rule kRule>
std::size_t map_pair(const BackwardArguments& a) {
  return map_size<kRule>(forward_sizes(a)) + state_size(a);
}

/// The report's text for a stage. @param message_bytes that one device sends to another at once
template <Rule kRule>
std::string note(const BackwardArguments& a, void (*stage)(const BackwardArguments&), std::int64_t link_bytes,
                 std::int64_t message_bytes) {
  return describe(a.N, link_bytes,
                  measure(
                      a.N, [&] { stage(a); }, [&] { dispatch_backward(as_chapter<kRule>(a)); },
                      [&] { dispatch_backward(as_chapter<kRule>(gradient_share_of(0))); }, message_bytes));
}

/// Bytes of the share, of the maps of all devices, and of the state before and the gradient behind.
template <Rule kRule>
std::int64_t shares_and_maps(const BackwardArguments& a) {
  return share_memory<kRule>(a) + bytes(a.N * map_pair<kRule>(a) + 2 * state_size(a));
}

/// Bytes of a workspace that a stage of the outputs has beside its share, the maps of all devices and a state.
template <Rule kRule>
std::int64_t without_maps(std::int64_t memory, const Arguments& forward) {
  return memory - share_memory<kRule>(forward) - bytes(forward.N * map_size<kRule>(forward) + state_size(forward));
}

/// Bytes of the outputs of forward_part(), for the longest share.
std::int64_t forward_part_memory(const BackwardArguments& a) {
  return 2 * std::int64_t(heads(a)) * longest_share(a).L * a.Dv;
}

template <Rule kRule>
std::int64_t local_memory(const BackwardArguments& a) {
  return dispatch_backward_memory(as_chapter<kRule>(longest_share(a)));
}

}  // namespace

// --- all_gather ---

template <Rule kRule>
std::string all_gather_backward_unsupported(const BackwardArguments& a) {
  if (const std::string reason = relay_backward_unsupported<kRule>(a); !reason.empty() || kRule != Rule::delta_rule)
    return reason;
  if (a.Dk > kMaxKeyDim) return "Dk > 512: the columns of a state would not fit into shared memory";
  Arguments wide = forward_sizes(a);
  wide.Dv += wide.Dk;
  const std::string reason = dispatch_unsupported(as_chapter<kRule>(wide));
  return reason.empty() ? "" : "its maps of Dv + Dk columns: " + reason;
}

template <Rule kRule>
std::int64_t all_gather_backward_memory(const BackwardArguments& a) {
  if (a.N == 1) return share_memory<kRule>(a) + local_memory<kRule>(a);
  const Arguments forward = forward_sizes(a);
  return shares_and_maps<kRule>(a) + forward_part_memory(a) +
         without_maps<kRule>(all_gather_memory<kRule>(forward), forward) + local_memory<kRule>(a);
}

template <Rule kRule>
std::int64_t all_gather_backward_link_bytes(const BackwardArguments& a) {
  return bytes(map_pair<kRule>(a)) * a.N * (a.N - 1);
}

template <Rule kRule>
std::string all_gather_backward_note(const BackwardArguments& a) {
  return note<kRule>(a, all_gather_backward<kRule>, all_gather_backward_link_bytes<kRule>(a),
                     bytes(map_pair<kRule>(a)));
}

// --- the variants ---

template <Rule kRule>
std::string relay_backward_unsupported(const BackwardArguments& a) {
  if (const std::string reason = group_unsupported(a.N); !reason.empty()) return reason;
  Arguments forward = forward_sizes(a);
  forward.q = a.q, forward.k = a.k, forward.v = a.v;
  if (const std::string reason = dispatch_unsupported(as_chapter<kRule>(forward)); !reason.empty()) return reason;
  return dispatch_backward_unsupported(as_chapter<kRule>(a));
}

template <Rule kRule>
std::int64_t relay_backward_memory(const BackwardArguments& a) {
  const std::int64_t states = 4 * bytes(state_size(a));  // before and after, and their gradients
  return share_memory<kRule>(a) + states + forward_part_memory(a) +
         dispatch_memory(as_chapter<kRule>(longest_share(forward_sizes(a)))) + local_memory<kRule>(a);
}

std::int64_t relay_backward_link_bytes(const BackwardArguments& a) {
  return 2 * bytes(state_size(a)) * (a.N - 1);
}

template <Rule kRule>
std::string relay_backward_note(const BackwardArguments& a) {
  return note<kRule>(a, relay_backward<kRule>, relay_backward_link_bytes(a), bytes(state_size(a)));
}

template <Rule kRule>
std::string states_alone_backward_unsupported(const BackwardArguments& a) {
  if (const std::string reason = relay_backward_unsupported<kRule>(a); !reason.empty()) return reason;
  if (const std::string reason = tile::unsupported_extents(tile::extents_of(a)); !reason.empty()) return reason;
  for (const View<const __nv_bfloat16>& view : {a.q, a.k, a.v, a.d_o}) {
    if (!tile::has_aligned_rows(view)) return "rows are not aligned to 16 bytes";
  }
  return "";
}

template <Rule kRule>
std::int64_t states_alone_backward_memory(const BackwardArguments& a) {
  if (a.N == 1) return share_memory<kRule>(a) + local_memory<kRule>(a);
  const Arguments forward = forward_sizes(a);
  const std::int64_t first_pass = states_alone_memory<kRule>(forward) - all_gather_memory<kRule>(forward);
  return shares_and_maps<kRule>(a) + first_pass + gate_parts_memory<kRule>(longest_share(forward)) +
         local_memory<kRule>(a);
}

template <Rule kRule>
std::string states_alone_backward_note(const BackwardArguments& a) {
  return note<kRule>(a, states_alone_backward<kRule>, all_gather_backward_link_bytes<kRule>(a),
                     bytes(map_pair<kRule>(a)));
}

template <Rule kRule>
std::int64_t share_memory(const BackwardArguments& a) {
  return share_memory_of<kRule>(a);
}

#define INSTANTIATE(RULE)                                                               \
  template std::string relay_backward_unsupported<RULE>(const BackwardArguments&);      \
  template std::string all_gather_backward_unsupported<RULE>(const BackwardArguments&); \
  template std::int64_t relay_backward_memory<RULE>(const BackwardArguments&);          \
  template std::int64_t all_gather_backward_memory<RULE>(const BackwardArguments&);     \
  template std::int64_t share_memory<RULE>(const BackwardArguments&);                   \
  template std::int64_t all_gather_backward_link_bytes<RULE>(const BackwardArguments&); \
  template std::string relay_backward_note<RULE>(const BackwardArguments&);             \
  template std::string all_gather_backward_note<RULE>(const BackwardArguments&)
INSTANTIATE(Rule::linear_attention);
INSTANTIATE(Rule::simple_gla);
INSTANTIATE(Rule::delta_rule);
#undef INSTANTIATE

#define INSTANTIATE(RULE)                                                                 \
  template std::string states_alone_backward_unsupported<RULE>(const BackwardArguments&); \
  template std::int64_t states_alone_backward_memory<RULE>(const BackwardArguments&);     \
  template std::string states_alone_backward_note<RULE>(const BackwardArguments&)
INSTANTIATE(Rule::linear_attention);
INSTANTIATE(Rule::simple_gla);
#undef INSTANTIATE

}  // namespace tutorial::over_devices
