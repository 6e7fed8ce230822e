// Carries out the calls of an NcclCommunicator (nccl.h): packs regions of arrays, calls NCCL, and unpacks
// what arrives. Private to tessera/runtime.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <string_view>
#include <utility>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/runtime/device/nccl.h"
#include "tessera/runtime/kernels/tensor.h"

namespace tessera::device {

using comm::ArrayView;
using comm::Item;

// An NCCL communicator of a group or of a sender and a receiver, and its stream.
struct Link {
  NcclComm comm = nullptr;
  c10::Stream stream;
  std::vector<int> members;
  size_t me = 0;
};

// Works on the current stream, which must be the link's.
class NcclMoves {
 public:
  // `rank`: in the world, for faults.
  NcclMoves(const Nccl& nccl, int rank, Place place, PlaceOf place_of)
      : nccl_(nccl), rank_(rank), place_(place), place_of_(std::move(place_of)) {}

  // A region of an array.
  struct Region {
    const ArrayView* view;
    Box box;
  };
  using Regions = std::vector<Region>;

  c10::Device device() const { return kernels::device_of(place_); }
  // Throws a fault unless the code of an NCCL function is that of success.
  void check(int code, std::string_view function) const;
  // Carries out a collective.
  void move(const Link& link, const std::vector<Item>& items) const;
  void send(const Link& link, size_t to, const at::Tensor& from) const;
  void receive(const Link& link, size_t from, const at::Tensor& to) const;
  // Returns the elements of the regions one after the other, where they are if they lie so.
  at::Tensor flat(DType dtype, const Regions& regions) const;
  // Returns memory for the elements of the regions: their own if it lies so.
  at::Tensor room(DType dtype, const Regions& regions) const;
  // Copies elements, one region after the other, to their places, unless they are there.
  void unpack(DType dtype, const at::Tensor& packed, const Regions& regions) const;

 private:
  at::Tensor tensor(DType dtype, const Region& region) const;
  at::Tensor empty(DType dtype, int64_t elements) const;
  void all_reduce(const Link& link, const std::vector<Item>& items) const;
  void reduce_scatter(const Link& link, const std::vector<Item>& items) const;
  void all_gather(const Link& link, const std::vector<Item>& items) const;
  // Carries out a call by messages. All parts are packed before any output is written, since an output may
  // be the memory of an input.
  void exchange(const Link& link, const std::vector<Item>& items) const;
  // Writes what has arrived from a member; with a combiner, combines it with earlier parts.
  void assemble(const Link& link, const std::vector<Item>& items, size_t member,
                const at::Tensor& packed, std::vector<std::vector<Box>>& covered) const;

  const Nccl& nccl_;
  const int rank_;
  const Place place_;
  const PlaceOf place_of_;
};

}  // namespace tessera::device
