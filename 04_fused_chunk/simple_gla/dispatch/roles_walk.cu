/// @file
/// The kernel of roles_walk.cuh.

#include <cuda_runtime.h>

#include "04_fused_chunk/simple_gla/dispatch/roles_walk.cuh"
#include "04_fused_chunk/simple_gla/dispatch/roles_walk.hpp"
#include "04_fused_chunk/simple_gla/dispatch/walks.hpp"
#include "common/device/launch.cuh"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_requirements.hpp"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/panel_tile.cuh"
#include "common/tile/select_shape.cuh"

namespace tutorial::simple_gla {
namespace {

/// Grid (tiles of Dv of all segments, H, B).
template <class Loader>
__global__ void __launch_bounds__(kRolesThreads<Loader>, 1)
    roles_walk_kernel(Bf16Arguments a, const __grid_constant__ typename Loader::Tensors tensors, LaunchPlan plan) {
  const BlockPart<typename Loader::Shape> part(extents_of(a), plan.length, int(blockIdx.x));
  Loader loader;
  if (threadIdx.x < kProductsThreads) {
    multiply(a, plan, part, loader);
  } else {
    loader.load(a, tensors, part, GatesBesideKeys<Loader>(a, part));
  }
}

template <class Loader>
void launch_roles(const Bf16Arguments& a, const LaunchPlan& plan, const typename Loader::Tensors& tensors) {
  using Shape = typename Loader::Shape;
  static_assert(kSharedBytes<Loader> + kTileAlignment <= 99 * 1024, "what a block of an RTX card has");
  launch(roles_walk_kernel<Loader>,
         {grid_of<Shape>(extents_of(a), plan.segments), kRolesThreads<Loader>, kSharedBytes<Loader>}, a, tensors, plan);
}

}  // namespace

RolesLoader roles_loader(const Bf16Arguments& a) {
  return bulk_copies_unsupported(a).empty() ? RolesLoader::kBulkCopies : RolesLoader::kCpAsync;
}

void roles_walk(const Bf16Arguments& a, LaunchPlan plan, RolesLoader loader) {
  if (plan.segments > 1) plan.starts = segment_starts(a, plan);
  if (loader == RolesLoader::kBulkCopies) {
    select_shape<PanelShape>(a.Dk, plan.columns, [&]<class Shape>(Shape) {
      if constexpr (Shape::kDk <= 128) launch_roles<BulkCopies<Shape, true>>(a, plan, chunk_maps(a));
    });
  } else {
    select_shape<ChunkShape>(a.Dk, plan.columns, [&]<class Shape>(Shape) {
      if constexpr (Shape::kDk <= 128) launch_roles<CpAsync<Shape>>(a, plan, {});
    });
  }
}

}  // namespace tutorial::simple_gla
