#include "common/device/device.hpp"

#include <cuda_runtime.h>

#include <algorithm>
#include <array>

#include "common/device/error.hpp"

namespace tutorial {
namespace {

constexpr int kKilobyte = 1024;

/// A card that another one can pass for.
struct Card {
  int capability;
  int shared_per_block, shared_per_multiprocessor;  // bytes
};
// Source: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
constexpr std::array kCards{
    Card{80, 163 * kKilobyte, 164 * kKilobyte},  Card{86, 99 * kKilobyte, 100 * kKilobyte},
    Card{89, 99 * kKilobyte, 100 * kKilobyte},   Card{90, 227 * kKilobyte, 228 * kKilobyte},
    Card{100, 227 * kKilobyte, 228 * kKilobyte}, Card{120, 99 * kKilobyte, 100 * kKilobyte},
};
const Card* passed_for = nullptr;

int attribute(cudaDeviceAttr which) {
  int device = 0, value = 0;
  check(cudaGetDevice(&device));
  check(cudaDeviceGetAttribute(&value, which, device));
  return value;
}

int own_capability() {
  return 10 * attribute(cudaDevAttrComputeCapabilityMajor) + attribute(cudaDevAttrComputeCapabilityMinor);
}

std::string this_gpu_has(const std::string& what) {
  return ", and this GPU has " + what;
}

std::string kilobytes(std::size_t bytes) {
  return std::to_string((bytes + kKilobyte - 1) / kKilobyte) + " KB";
}

}  // namespace

int multiprocessor_count() {
  return attribute(cudaDevAttrMultiProcessorCount);
}

double clocks_per_microsecond() {
  return attribute(cudaDevAttrClockRate) / 1e3;
}

double memory_bytes_per_microsecond() {
  const double clocks = attribute(cudaDevAttrMemoryClockRate) / 1e3, bits = attribute(cudaDevAttrGlobalMemoryBusWidth);
  return clocks * 2 * bits / 8;
}

int compute_capability() {
  return passed_for ? passed_for->capability : own_capability();
}

int shared_memory_per_block() {
  const int own = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  return passed_for ? std::min(own, passed_for->shared_per_block) : own;
}

int shared_memory_per_multiprocessor() {
  const int own = attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  return passed_for ? std::min(own, passed_for->shared_per_multiprocessor) : own;
}

bool has_early_start() {
  return compute_capability() >= 90;
}

std::string bulk_copies_missing() {
  const int capability = compute_capability();
  if (capability >= 90) return "";
  return "bulk copies need compute capability 9.0 or later" + this_gpu_has(capability_text(capability));
}

std::string warpgroup_products_missing() {
  const int capability = compute_capability();
  if (capability == 90) return "";
  return "products of warpgroups need compute capability 9.0" + this_gpu_has(capability_text(capability));
}

std::string shared_memory_missing(std::size_t bytes) {
  const auto most = static_cast<std::size_t>(shared_memory_per_block());
  if (bytes <= most) return "";
  return "a block needs " + kilobytes(bytes) + " of shared memory" + this_gpu_has(kilobytes(most));
}

std::string pass_for(int capability) {
  const auto card =
      std::find_if(kCards.begin(), kCards.end(), [&](const Card& c) { return c.capability == capability; });
  if (card == kCards.end()) return "there is no such card here: 8.0, 8.6, 8.9, 9.0, 10.0 and 12.0 are known";
  const int own = own_capability();
  const auto lacks = [&](const char* what) {
    return capability_text(capability) + " has " + what + ", which this GPU of " + capability_text(own) + " lacks";
  };
  if (capability >= 90 && own < 90) return lacks("bulk copies");
  if (capability == 90 && own != 90) return lacks("products of warpgroups");
  if (card->shared_per_block > attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)) {
    return lacks((kilobytes(std::size_t(card->shared_per_block)) + " of shared memory per block").c_str());
  }
  passed_for = &*card;
  return "";
}

int passes_for() {
  return passed_for ? passed_for->capability : 0;
}

std::string capability_text(int capability) {
  return std::to_string(capability / 10) + "." + std::to_string(capability % 10);
}

}  // namespace tutorial
