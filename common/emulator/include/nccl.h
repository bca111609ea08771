#pragma once
/// @file
/// What NCCL's header of this name declares, as far as this project uses it. It is a stand-in for tests: it moves the
/// right bytes and finds wrong use, but its times say nothing.
///
/// One host thread calls for all devices, and calls that belong together stand in one group. Transfers run when the
/// outermost group ends, or at once outside of a group. Stricter than NCCL: a transfer whose counterparts are not in
/// the same group, which may wait forever on GPUs, is ncclInvalidUsage, and so are counterparts whose counts or types
/// differ; a buffer that does not lie in memory of the communicator's device as a whole, and a stream of another
/// device, are ncclInvalidArgument. emulator::last_report() tells more. EMULATOR_NCCL_FAULT makes a group fail.

#include <cuda_runtime.h>

#include <cstddef>

// NOLINTBEGIN(readability-identifier-naming): the names are NCCL's

enum ncclResult_t {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
};

enum ncclDataType_t {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclInt64 = 4,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9,
};

/// A device's part in a group of devices that exchange data.
using ncclComm_t = struct ncclComm*;

/// What a result means, in words.
const char* ncclGetErrorString(ncclResult_t result);

/// Communicators of `count` different devices, those of `devices`, or 0, 1, ... if it is null. ncclInvalidArgument if
/// there are fewer devices, ncclInvalidUsage if one stands there twice.
ncclResult_t ncclCommInitAll(ncclComm_t* communicators, int count, const int* devices);
/// The communicator must be one that was made and not destroyed or aborted before.
ncclResult_t ncclCommDestroy(ncclComm_t communicator);
/// The same, and streams stop waiting for its transfers.
ncclResult_t ncclCommAbort(ncclComm_t communicator);
/// What has happened to the communicator's transfers since it was made: ncclSuccess while all is well.
ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* error);

/// Groups may stand in groups.
ncclResult_t ncclGroupStart();
/// Runs the transfers of the outermost group. The result is that of the first call of the group that failed; then no
/// transfer runs.
ncclResult_t ncclGroupEnd();

/// Brings `count` elements of each device to all devices, in the order of their ranks; all of them call it.
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t communicator,
                           cudaStream_t stream);
/// Sends to the device of rank `peer`, which calls ncclRecv().
ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream);
/// Receives what the device of rank `peer` sends by ncclSend().
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream);

// NOLINTEND(readability-identifier-naming)
