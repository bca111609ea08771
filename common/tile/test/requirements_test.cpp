/// @file
/// What the kernels on tensor cores refuse, each reason by its sentence.

#include "common/tile/requirements.hpp"

#include <gtest/gtest.h>

#include <cuda_bf16.h>

namespace tutorial::tile {
namespace {

struct Arguments {
  int B = 1, H = 1, L = 64, Dk = 64, Dv = 64;
  View<const __nv_bfloat16> q{nullptr, 4096, 4096, 64}, k = q, v = q;
  View<__nv_bfloat16> o{nullptr, 4096, 4096, 64};
};

TEST(RequirementsTest, SayWhatIsNotSupported) {
  const auto reason = [](auto change) {
    Arguments a;
    change(a);
    return tensor_core_unsupported(a);
  };
  EXPECT_EQ(reason([](Arguments&) {}), "");
  EXPECT_EQ(reason([](Arguments& a) { a.Dk = 256, a.Dv = 512; }), "");
  EXPECT_NE(reason([](Arguments& a) { a.Dk = 40; }).find("multiple of 16"), std::string::npos);
  EXPECT_NE(reason([](Arguments& a) { a.Dv = 8; }).find("multiple of 16"), std::string::npos);
  EXPECT_NE(reason([](Arguments& a) { a.Dk = 272; }).find("Dk > 256"), std::string::npos);
  EXPECT_NE(reason([](Arguments& a) { a.Dv = 528; }).find("Dv > 512"), std::string::npos);
  EXPECT_NE(reason([](Arguments& a) { a.H = 65536; }).find("65535"), std::string::npos);
  EXPECT_NE(reason([](Arguments& a) { a.B = 65535, a.H = 65535; }).find("2^31"), std::string::npos);
  EXPECT_NE(reason([](Arguments& a) { a.L = INT32_MAX - 100; }).find("2^31"), std::string::npos);
  EXPECT_NE(reason([](Arguments& a) { a.q.stride_l = 60; }).find("aligned"), std::string::npos);
  EXPECT_NE(reason([](Arguments& a) { a.o.stride_b = 4; }).find("aligned"), std::string::npos);
  EXPECT_NE(reason([](Arguments& a) {
              a.v.data = reinterpret_cast<const __nv_bfloat16*>(8);  // never read
            }).find("aligned"),
            std::string::npos);
}

// Kernels with one set of tiles fit into every GPU's shared memory, and ask no device.
TEST(RequirementsTest, OfOneSetOfTiles) {
  Arguments a;
  a.Dk = 256, a.Dv = 512;
  EXPECT_EQ(one_set_unsupported(a), "");
  a.Dk = 272;
  EXPECT_NE(one_set_unsupported(a).find("Dk > 256"), std::string::npos);
  a.Dk = 256, a.k.stride_l = 60;
  EXPECT_NE(one_set_unsupported(a).find("aligned"), std::string::npos);
}

}  // namespace
}  // namespace tutorial::tile
