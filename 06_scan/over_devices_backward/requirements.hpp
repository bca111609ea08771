#pragma once
/// @file
/// Whether gradients over several devices can be computed, the memory and the bytes that they take, and what a stage
/// says of itself in the report.

#include <cstdint>
#include <string>

#include "06_scan/over_devices_backward.hpp"

namespace tutorial::over_devices {

// Why a stage cannot run the problem, as a sentence; empty if it can.
template <Rule kRule>
std::string relay_backward_unsupported(const BackwardArguments&);
template <Rule kRule>
std::string all_gather_backward_unsupported(const BackwardArguments&);
template <Rule kRule>
std::string states_alone_backward_unsupported(const BackwardArguments&);

// Bytes that a stage needs on a device, its shares of the inputs and gradients among them.
template <Rule kRule>
std::int64_t relay_backward_memory(const BackwardArguments&);
template <Rule kRule>
std::int64_t all_gather_backward_memory(const BackwardArguments&);
template <Rule kRule>
std::int64_t states_alone_backward_memory(const BackwardArguments&);
/// Bytes of the largest share of a device: a rule's tensors and the states that may be among them.
template <Rule kRule>
std::int64_t share_memory(const BackwardArguments&);

// Bytes that a stage sends from device to device.
std::int64_t relay_backward_link_bytes(const BackwardArguments&);
template <Rule kRule>
std::int64_t all_gather_backward_link_bytes(const BackwardArguments&);  ///< and of states_alone

// What a stage sends, how fast, and how it compares with one device, as text for the report.
template <Rule kRule>
std::string relay_backward_note(const BackwardArguments&);
template <Rule kRule>
std::string all_gather_backward_note(const BackwardArguments&);
template <Rule kRule>
std::string states_alone_backward_note(const BackwardArguments&);

}  // namespace tutorial::over_devices
