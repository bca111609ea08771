#include "common/dtype.hpp"

#include <stdexcept>

namespace tutorial {

std::size_t size_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::bf16:
    case Dtype::fp16:
      return 2;
    case Dtype::fp32:
    case Dtype::int32:
      return 4;
    case Dtype::fp64:
    case Dtype::int64:
      return 8;
  }
  throw std::logic_error("size_of: not a Dtype");
}

std::string_view name_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp32:
      return "fp32";
    case Dtype::fp64:
      return "fp64";
    case Dtype::bf16:
      return "bf16";
    case Dtype::fp16:
      return "fp16";
    case Dtype::int32:
      return "int32";
    case Dtype::int64:
      return "int64";
  }
  throw std::logic_error("name_of: not a Dtype");
}

}  // namespace tutorial
