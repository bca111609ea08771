#include "06_scan/over_devices_backward/share_out.hpp"

#include "06_scan/over_devices_backward/gradient_shares.hpp"

namespace tutorial::over_devices {

const BackwardArguments& gradient_share_of(int n) {
  return shares<BackwardArguments>()[n].arguments;
}

void share_out(const BackwardArguments& a) {
  make_shares(a);
}

void collect(const BackwardArguments& a) {
  collect_shares(a);
}

}  // namespace tutorial::over_devices
