// A communicator for GPUs by NCCL, whose library is loaded when it is wanted: no header of it is
// needed to build.
//
// Each group of ranks, and each pair of a sender and a receiver, has an NCCL communicator and a
// stream of its own. So a call waits for nothing but its members, whatever other calls were issued
// before, as communicator.h asks for. A call begins when the stream that issued it has come there,
// and the stream that waits for it goes on when it is done; the host never waits.
//
// How a call is done follows from its boxes: one ncclAllReduce, ncclReduceScatter or ncclAllGather
// where all members hold or need the same, else messages between each two members in one NCCL group,
// whose parts the receiver combines in member order. Arrays that are not contiguous are packed on the
// GPU. NCCL adds in an order of its own, so sums may differ from those of other communicators in the
// last bits.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "tessera/base/result.h"
#include "tessera/comm/communicator.h"
#include "tessera/runtime/device/libtorch_device.h"

namespace tessera::device {

struct NcclId {
  std::array<char, 128> bytes{};
};
using NcclComm = void*;

// The functions of the library that are used, with the prototypes of its manual (2.2x, unchanged
// since 2.7). 0 is success. A stream is what c10 calls its native handle.
struct Nccl {
  const char* (*error_string)(int) = nullptr;
  int (*get_version)(int*) = nullptr;
  int (*get_unique_id)(NcclId*) = nullptr;
  int (*comm_init_rank)(NcclComm*, int ranks, NcclId, int rank) = nullptr;
  int (*comm_destroy)(NcclComm) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*send)(const void*, size_t count, int type, int peer, NcclComm, void* stream) = nullptr;
  int (*recv)(void*, size_t count, int type, int peer, NcclComm, void* stream) = nullptr;
  int (*all_reduce)(const void*, void*, size_t count, int type, int op, NcclComm,
                    void* stream) = nullptr;
  int (*all_gather)(const void*, void*, size_t sent, int type, NcclComm, void* stream) = nullptr;
  int (*reduce_scatter)(const void*, void*, size_t received, int type, int op, NcclComm,
                        void* stream) = nullptr;
};
// Values of the library's enumerations.
inline constexpr int kNcclSum = 0, kNcclMax = 2;
int nccl_type(DType dtype);

// Loads libnccl.so.2. Errors (invalid input): it cannot be loaded, or lacks a function.
Result<const Nccl*> nccl_library();

// Connects the groups and pairs of `connections`. All ranks of `world` call this function. Errors
// (invalid input): a receiver expects the messages of a sender in another order than they are sent.
Result<std::unique_ptr<comm::Communicator>> nccl_communicator(const Nccl& nccl,
                                                              comm::Communicator& world,
                                                              const Connections& connections,
                                                              Place place, PlaceOf place_of);

}  // namespace tessera::device
