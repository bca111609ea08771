/// @file
/// What `gpu` requires of a problem, and the memory that it takes: what gla's dispatch does, and the table of gates.

#include "03_gla/retention/requirements.hpp"

#include "03_gla/retention/gates.hpp"

namespace tutorial::retention {

template <class T>
std::string gpu_unsupported(const Arguments<T>& a) {
  return gla::dispatch_unsupported(gated(a, nullptr));
}
template std::string gpu_unsupported(const FloatArguments&);
template std::string gpu_unsupported(const Bf16Arguments&);

template <class T>
std::string gpu_note(const Arguments<T>& a) {
  return gla::dispatch_note(gated(a, nullptr));
}
template std::string gpu_note(const FloatArguments&);
template std::string gpu_note(const Bf16Arguments&);

template <class T>
std::int64_t gpu_memory(const Arguments<T>& a) {
  return gla::dispatch_memory(gated(a, nullptr)) + std::int64_t(sizeof(float)) * a.H * a.Dk;
}
template std::int64_t gpu_memory(const FloatArguments&);
template std::int64_t gpu_memory(const Bf16Arguments&);

}  // namespace tutorial::retention
