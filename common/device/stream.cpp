#include "common/device/stream.hpp"

namespace tutorial {
namespace {

thread_local cudaStream_t stream_of_this_thread = nullptr;

}  // namespace

cudaStream_t current_stream() {
  return stream_of_this_thread;
}

void set_current_stream(cudaStream_t stream) {
  stream_of_this_thread = stream;
}

}  // namespace tutorial
