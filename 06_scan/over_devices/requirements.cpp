#include "06_scan/over_devices/requirements.hpp"

#include <algorithm>

#include "06_scan/over_devices/chapters.hpp"
#include "06_scan/over_devices/dispatch/variants.hpp"
#include "06_scan/over_devices/map_sizes.hpp"
#include "06_scan/over_devices/measure.hpp"
#include "06_scan/over_devices/share_out.hpp"
#include "06_scan/over_devices/shares.hpp"
#include "common/device/device_group.hpp"
#include "common/tile/launch_plan.hpp"
#include "common/tile/requirements.hpp"

namespace tutorial::over_devices {
namespace {

std::int64_t bytes(std::size_t floats) {
  return std::int64_t(sizeof(float) * floats);
}

/// The report's text for a stage. @param message_bytes that one device sends to another at once
template <Rule kRule>
std::string note(const Arguments& a, void (*stage)(const Arguments&), std::int64_t link_bytes,
                 std::int64_t message_bytes) {
  return describe(a.N, link_bytes,
                  measure(
                      a.N, [&] { stage(a); }, [&] { dispatch(as_chapter<kRule>(a)); },
                      [&] { dispatch(as_chapter<kRule>(share_of(0))); }, message_bytes));
}

/// Bytes of the maps of the segments of a share: dispatch/segment_maps.cuh.
template <Rule kRule>
std::int64_t segment_maps_memory(const Arguments& share) {
  return tile::one_wave(tile::extents_of(share)).segments * bytes(map_size<kRule>(share));
}

}  // namespace

// --- relay ---

template <Rule kRule>
std::string relay_unsupported(const Arguments& a) {
  if (const std::string reason = group_unsupported(a.N); !reason.empty()) return reason;
  return dispatch_unsupported(as_chapter<kRule>(a));
}

template <Rule kRule>
std::int64_t relay_memory(const Arguments& a) {
  const std::int64_t states = 2 * bytes(state_size(a));  // before and after
  return share_memory<kRule>(a) + states + dispatch_memory(as_chapter<kRule>(longest_share(a)));
}

std::int64_t relay_link_bytes(const Arguments& a) {
  return bytes(state_size(a)) * (a.N - 1);
}

template <Rule kRule>
std::string relay_note(const Arguments& a) {
  return note<kRule>(a, relay<kRule>, relay_link_bytes(a), bytes(state_size(a)));
}

// --- all_gather ---

template <Rule kRule>
std::string all_gather_unsupported(const Arguments& a) {
  if (const std::string reason = relay_unsupported<kRule>(a); !reason.empty() || kRule != Rule::delta_rule)
    return reason;
  if (a.Dk > kMaxKeyDim) return "Dk > 512: the columns of a state would not fit into shared memory";
  Arguments x = a;
  x.Dv += x.Dk;
  const std::string reason = dispatch_unsupported(as_chapter<kRule>(x));
  return reason.empty() ? "" : "its maps of Dv + Dk columns: " + reason;
}

template <Rule kRule>
std::int64_t all_gather_memory(const Arguments& a) {
  if (a.N == 1) return relay_memory<kRule>(a);
  const Arguments share = longest_share(a);
  std::int64_t dispatched = dispatch_memory(as_chapter<kRule>(share)) + gate_parts_memory<kRule>(share);
  if (kRule == Rule::delta_rule) {
    Arguments wide = share;
    wide.Dv += wide.Dk;
    const std::int64_t values_and_outputs = 2 * 2 * std::int64_t(heads(wide)) * wide.L * wide.Dv;
    dispatched = std::max(dispatched, dispatch_memory(as_chapter<kRule>(wide))) + values_and_outputs;
  }
  return share_memory<kRule>(a) + bytes(a.N * map_size<kRule>(a) + state_size(a)) + dispatched;
}

template <Rule kRule>
std::int64_t all_gather_link_bytes(const Arguments& a) {
  return bytes(map_size<kRule>(a)) * a.N * (a.N - 1);
}

template <Rule kRule>
std::string all_gather_note(const Arguments& a) {
  return note<kRule>(a, all_gather<kRule>, all_gather_link_bytes<kRule>(a), bytes(map_size<kRule>(a)));
}

// --- the variants ---

template <Rule kRule>
std::string states_alone_unsupported(const Arguments& a) {
  const std::string reason = relay_unsupported<kRule>(a);
  return reason.empty() ? tile::tensor_core_unsupported(a) : reason;
}

template <Rule kRule>
std::int64_t states_alone_memory(const Arguments& a) {
  if (a.N == 1) return relay_memory<kRule>(a);
  return all_gather_memory<kRule>(a) + segment_maps_memory<kRule>(longest_share(a));
}

template <Rule kRule>
std::string states_alone_note(const Arguments& a) {
  return note<kRule>(a, states_alone<kRule>, all_gather_link_bytes<kRule>(a), bytes(map_size<kRule>(a)));
}

template <Rule kRule>
std::int64_t overlap_memory(const Arguments& a) {
  if (a.N == 1) return relay_memory<kRule>(a);
  return all_gather_memory<kRule>(a) + segment_maps_memory<kRule>(heads_of(longest_share(a), 0, overlapped_parts(a)));
}

template <Rule kRule>
std::string overlap_note(const Arguments& a) {
  const Arguments part = heads_of(a, 0, overlapped_parts(a));
  return note<kRule>(a, overlap<kRule>, all_gather_link_bytes<kRule>(a), bytes(map_size<kRule>(part)));
}

template <Rule kRule>
std::string head_by_head_unsupported(const Arguments& a) {
  return relay_unsupported<kRule>(heads_of(a, 0, a.H));
}

template <Rule kRule>
std::int64_t head_by_head_memory(const Arguments& a) {
  const std::int64_t states = 2 * bytes(state_size(a)) / a.H;  // before and after
  return share_memory<kRule>(a) + states + dispatch_memory(as_chapter<kRule>(heads_of(longest_share(a), 0, a.H)));
}

template <Rule kRule>
std::string head_by_head_note(const Arguments& a) {
  return note<kRule>(a, head_by_head<kRule>, relay_link_bytes(a), bytes(state_size(heads_of(a, 0, a.H))));
}

template <Rule kRule>
std::int64_t share_memory(const Arguments& a) {
  return share_memory_of<kRule>(a);
}

#define INSTANTIATE(RULE)                                                \
  template std::string relay_unsupported<RULE>(const Arguments&);        \
  template std::string all_gather_unsupported<RULE>(const Arguments&);   \
  template std::string head_by_head_unsupported<RULE>(const Arguments&); \
  template std::int64_t relay_memory<RULE>(const Arguments&);            \
  template std::int64_t all_gather_memory<RULE>(const Arguments&);       \
  template std::int64_t head_by_head_memory<RULE>(const Arguments&);     \
  template std::int64_t share_memory<RULE>(const Arguments&);            \
  template std::int64_t all_gather_link_bytes<RULE>(const Arguments&);   \
  template std::string relay_note<RULE>(const Arguments&);               \
  template std::string all_gather_note<RULE>(const Arguments&);          \
  template std::string head_by_head_note<RULE>(const Arguments&)
INSTANTIATE(Rule::linear_attention);
INSTANTIATE(Rule::simple_gla);
INSTANTIATE(Rule::delta_rule);
#undef INSTANTIATE

#define INSTANTIATE(RULE)                                                \
  template std::string states_alone_unsupported<RULE>(const Arguments&); \
  template std::int64_t states_alone_memory<RULE>(const Arguments&);     \
  template std::int64_t overlap_memory<RULE>(const Arguments&);          \
  template std::string states_alone_note<RULE>(const Arguments&);        \
  template std::string overlap_note<RULE>(const Arguments&)
INSTANTIATE(Rule::linear_attention);
INSTANTIATE(Rule::simple_gla);
#undef INSTANTIATE

}  // namespace tutorial::over_devices
