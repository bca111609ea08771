#include "06_scan/over_devices/share_out.hpp"

namespace tutorial::over_devices {

const Arguments& share_of(int n) {
  return shares<Arguments>()[n].arguments;
}

void share_out(const Arguments& a) {
  make_shares(a);
}

void collect(const Arguments& a) {
  collect_shares(a);
}

}  // namespace tutorial::over_devices
