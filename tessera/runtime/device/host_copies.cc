#include "tessera/runtime/device/host_copies.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "tessera/runtime/kernels/tensor.h"

namespace tessera::device {

struct HostCopies::Impl {
  PlaceOf place_of;
  std::vector<at::Tensor> copies;
  std::vector<std::pair<at::Tensor, at::Tensor>> written;  // the copy, and where it belongs
};

HostCopies::HostCopies(PlaceOf place_of)
    : impl_(std::make_unique<Impl>(Impl{std::move(place_of), {}, {}})) {}
HostCopies::~HostCopies() = default;
HostCopies::HostCopies(HostCopies&&) noexcept = default;
HostCopies& HostCopies::operator=(HostCopies&&) noexcept = default;

// Returns the first byte of a contiguous copy, or null if none is needed.
std::byte* HostCopies::copied(DType dtype, std::byte* data, const std::vector<int64_t>& shape,
                              const std::vector<int64_t>& strides, bool back) {
  if (data == nullptr || std::ranges::count(shape, 0) > 0) return nullptr;
  const Place place = impl_->place_of(data);
  if (place.is_processor()) return nullptr;
  at::Tensor there = kernels::tensor_of(data, dtype, shape, strides, place);
  const at::Tensor& copy = impl_->copies.emplace_back(
      there.to(at::kCPU, /*non_blocking=*/false, /*copy=*/true).contiguous());
  if (back) impl_->written.emplace_back(copy, std::move(there));
  return static_cast<std::byte*>(copy.data_ptr());
}

comm::ArrayView HostCopies::read(DType dtype, const comm::ArrayView& view) {
  std::byte* copy = copied(dtype, view.data, view.box.shape(), view.strides, false);
  return copy == nullptr ? view
                         : comm::ArrayView{copy, view.box, row_major_strides(view.box.shape())};
}
comm::ArrayView HostCopies::write(DType dtype, const comm::ArrayView& view) {
  std::byte* copy = copied(dtype, view.data, view.box.shape(), view.strides, true);
  return copy == nullptr ? view
                         : comm::ArrayView{copy, view.box, row_major_strides(view.box.shape())};
}
kernels::Array HostCopies::read(const kernels::Array& array) {
  std::byte* copy = copied(array.dtype, array.data, array.shape, array.strides, false);
  return copy == nullptr ? array : kernels::Array::contiguous(copy, array.dtype, array.shape);
}
kernels::Array HostCopies::write(const kernels::Array& array) {
  std::byte* copy = copied(array.dtype, array.data, array.shape, array.strides, true);
  return copy == nullptr ? array : kernels::Array::contiguous(copy, array.dtype, array.shape);
}

void HostCopies::give_back() {
  for (const auto& [copy, there] : impl_->written) there.copy_(copy);
  impl_->written.clear();
}

bool HostCopies::empty() const { return impl_->copies.empty(); }

}  // namespace tessera::device
