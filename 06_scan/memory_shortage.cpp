#include "06_scan/memory_shortage.hpp"

#include <fmt/format.h>

#include "common/chapter/machine.hpp"
#include "common/device/workspace.hpp"
#include "common/units.hpp"

namespace tutorial::scan {

std::string memory_shortage(std::string_view tag, std::int64_t bytes) {
  const double available = double(available_gpu_memory()) + double(workspace_size(tag));
  if (double(bytes) <= available) return "";
  return fmt::format("it needs {} of memory beside inputs and outputs, {} are free",
                     format_quantity(double(bytes), "B"), format_quantity(available, "B"));
}

}  // namespace tutorial::scan
