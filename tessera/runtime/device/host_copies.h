// Copies of an accelerator's arrays in memory of the host, for work that must reach them there.
// Arrays that the host reaches are not copied.
//
//   HostCopies copies(place_of);
//   encode(copies.read(dtype, from));         // waits for the current stream
//   receive(copies.write(dtype, to)); ...
//   copies.give_back();                       // copies what was written to the accelerator
#pragma once

#include <functional>
#include <memory>

#include "tessera/comm/communicator.h"
#include "tessera/runtime/device/place.h"
#include "tessera/runtime/kernels.h"

namespace tessera::device {

// Returns whose memory is at an address that a view of a program has.
using PlaceOf = std::function<Place(const std::byte*)>;

class HostCopies {
 public:
  explicit HostCopies(PlaceOf place_of);
  ~HostCopies();
  HostCopies(HostCopies&&) noexcept;
  HostCopies& operator=(HostCopies&&) noexcept;

  // Returns an array that the host may read until this object ends.
  comm::ArrayView read(DType dtype, const comm::ArrayView& view);
  kernels::Array read(const kernels::Array& array);
  // Returns an array with the present values that the host may read and write.
  comm::ArrayView write(DType dtype, const comm::ArrayView& view);
  kernels::Array write(const kernels::Array& array);
  // Copies the arrays of write() to where they belong, and waits for it.
  void give_back();
  bool empty() const;  // whether nothing was copied

 private:
  std::byte* copied(DType dtype, std::byte* data, const std::vector<int64_t>& shape,
                    const std::vector<int64_t>& strides, bool back);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::device
