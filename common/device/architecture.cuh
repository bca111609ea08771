#pragma once
/// @file
/// GPU only: which instructions the architecture has that this pass of the compiler generates code for.
///
/// One build may hold code for several architectures. A wrapper of an instruction that begins with Hopper compiles for
/// all of them, and ends the kernel with a trap on those that lack it. Stages say in their limits what they need, so
/// that no kernel gets that far.

#include <cuda_runtime.h>

/// 1 if compute capability 9.0 or later is compiled for: barriers in shared memory, bulk copies, clusters.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define TUTORIAL_SM90 1
#else
#define TUTORIAL_SM90 0
#endif

/// 1 if exactly Hopper is compiled for, as sm_90a: products of warpgroups, registers that change hands, loads into several
/// blocks of a cluster.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define TUTORIAL_SM90A 1
#else
#define TUTORIAL_SM90A 0
#endif
