#pragma once
/// @file
/// Whether a stage over several devices can run, the memory and the bytes that it takes, and what it says of itself in
/// the report.

#include <cstdint>
#include <string>

#include "06_scan/over_devices.hpp"

namespace tutorial::over_devices {

// Why a stage cannot run the problem, as a sentence; empty if it can.
template <Rule kRule>
std::string relay_unsupported(const Arguments&);
template <Rule kRule>
std::string all_gather_unsupported(const Arguments&);
template <Rule kRule>
std::string states_alone_unsupported(const Arguments&);  ///< and of overlap
template <Rule kRule>
std::string head_by_head_unsupported(const Arguments&);

// Bytes that a stage needs on a device, its shares of the inputs and of o among them.
template <Rule kRule>
std::int64_t relay_memory(const Arguments&);
template <Rule kRule>
std::int64_t all_gather_memory(const Arguments&);
template <Rule kRule>
std::int64_t states_alone_memory(const Arguments&);
template <Rule kRule>
std::int64_t overlap_memory(const Arguments&);
template <Rule kRule>
std::int64_t head_by_head_memory(const Arguments&);
/// Bytes of the largest share of a device: a rule's tensors and the states that may be among them.
template <Rule kRule>
std::int64_t share_memory(const Arguments&);

// Bytes that a stage sends from device to device.
std::int64_t relay_link_bytes(const Arguments&);  ///< and of head_by_head
template <Rule kRule>
std::int64_t all_gather_link_bytes(const Arguments&);  ///< and of states_alone and overlap

// What a stage sends, how fast, and how it compares with one device, as text for the report.
template <Rule kRule>
std::string relay_note(const Arguments&);
template <Rule kRule>
std::string all_gather_note(const Arguments&);
template <Rule kRule>
std::string states_alone_note(const Arguments&);
template <Rule kRule>
std::string overlap_note(const Arguments&);
template <Rule kRule>
std::string head_by_head_note(const Arguments&);

}  // namespace tutorial::over_devices
