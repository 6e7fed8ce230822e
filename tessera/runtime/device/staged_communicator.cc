#include "tessera/runtime/device/staged_communicator.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tessera/runtime/kernels/tensor.h"

namespace tessera::device {
namespace {

using comm::ArrayView;
using comm::Handle;

class StagedCommunicator final : public comm::Communicator {
 public:
  StagedCommunicator(comm::Communicator& world, PlaceOf place)
      : world_(world), place_(std::move(place)) {}

  int rank() const override { return world_.rank(); }
  int size() const override { return world_.size(); }
  int group(const std::vector<int>& members) override { return world_.group(members); }
  void barrier() override { world_.barrier(); }
  void abort(const std::string& reason) override { world_.abort(reason); }
  comm::Counters& counters() override { return world_.counters(); }

  Handle issue(int group, std::vector<comm::Item> items, const comm::Label& label) override {
    Staged staged;
    for (comm::Item& item : items) {
      item.in = sent(item.what->dtype, item.in, staged);
      item.out = arriving(item.what->dtype, item.out, staged);
    }
    return keep(world_.issue(group, std::move(items), label), std::move(staged));
  }
  Handle issue_send(int to, int64_t tag, DType dtype, ArrayView from,
                    const comm::Label& label) override {
    Staged staged;
    ArrayView there = sent(dtype, from, staged);
    return keep(world_.issue_send(to, tag, dtype, std::move(there), label), std::move(staged));
  }
  Handle issue_recv(int from, int64_t tag, DType dtype, ArrayView into,
                    const comm::Label& label) override {
    Staged staged;
    ArrayView there = arriving(dtype, into, staged);
    return keep(world_.issue_recv(from, tag, dtype, std::move(there), label), std::move(staged));
  }
  void wait(Handle handle) override {
    world_.wait(handle);
    const auto found = staged_.find(handle);
    if (found == staged_.end()) return;
    for (const auto& [from, to] : found->second.arrivals) to.copy_(from);
    staged_.erase(found);
  }

 private:
  // Memory of the host for one call.
  struct Staged {
    std::vector<at::Tensor> sent;
    std::vector<std::pair<at::Tensor, at::Tensor>> arrivals;  // where values arrive, where they go
  };

  at::Tensor tensor(DType dtype, const ArrayView& view) const {
    return kernels::tensor_of(view.data, dtype, view.box.shape(), view.strides, place_(view.data));
  }
  static ArrayView view_of(const at::Tensor& host, const Box& box) {
    return {static_cast<std::byte*>(host.data_ptr()), box, row_major_strides(box.shape())};
  }
  ArrayView sent(DType dtype, const ArrayView& from, Staged& staged) const {
    if (from.data == nullptr || from.box.empty()) return from;
    const at::Tensor& host = staged.sent.emplace_back(
        tensor(dtype, from).to(at::kCPU, /*non_blocking=*/false, /*copy=*/true).contiguous());
    return view_of(host, from.box);
  }
  ArrayView arriving(DType dtype, const ArrayView& to, Staged& staged) const {
    if (to.data == nullptr || to.box.empty()) return to;
    // Elements that no member holds stay as they are, so what is there now comes first.
    at::Tensor there = tensor(dtype, to);
    at::Tensor host = there.to(at::kCPU, /*non_blocking=*/false, /*copy=*/true).contiguous();
    staged.arrivals.emplace_back(host, std::move(there));
    return view_of(host, to.box);
  }

  Handle keep(Handle handle, Staged staged) {
    if (!staged.sent.empty() || !staged.arrivals.empty())
      staged_.emplace(handle, std::move(staged));
    return handle;
  }

  comm::Communicator& world_;
  const PlaceOf place_;
  std::map<Handle, Staged> staged_;  // by handle
};

}  // namespace

std::unique_ptr<comm::Communicator> staged_communicator(comm::Communicator& world, PlaceOf place) {
  return std::make_unique<StagedCommunicator>(world, std::move(place));
}

}  // namespace tessera::device
