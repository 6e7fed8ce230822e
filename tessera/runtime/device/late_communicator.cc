#include "tessera/runtime/device/late_communicator.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tessera::device {
namespace {

using comm::ArrayView;
using comm::Handle;

class LateCommunicator final : public comm::Communicator {
 public:
  explicit LateCommunicator(comm::Communicator& world) : world_(world) {}

  int rank() const override { return world_.rank(); }
  int size() const override { return world_.size(); }
  int group(const std::vector<int>& members) override { return world_.group(members); }
  void barrier() override { world_.barrier(); }
  void abort(const std::string& reason) override { world_.abort(reason); }
  comm::Counters& counters() override { return world_.counters(); }

  Handle issue(int group, std::vector<comm::Item> items, const comm::Label& label) override {
    std::vector<Arrival> arrivals;
    for (comm::Item& item : items) item.out = divert(item.what->dtype, item.out, arrivals);
    return keep(world_.issue(group, std::move(items), label), std::move(arrivals));
  }
  Handle issue_send(int to, int64_t tag, DType dtype, ArrayView from,
                    const comm::Label& label) override {
    return world_.issue_send(to, tag, dtype, std::move(from), label);
  }
  Handle issue_recv(int from, int64_t tag, DType dtype, ArrayView into,
                    const comm::Label& label) override {
    std::vector<Arrival> arrivals;
    ArrayView there = divert(dtype, into, arrivals);
    return keep(world_.issue_recv(from, tag, dtype, std::move(there), label), std::move(arrivals));
  }
  void wait(Handle handle) override {
    world_.wait(handle);
    const auto found = arrivals_.find(handle);
    if (found == arrivals_.end()) return;
    for (const Arrival& one : found->second)
      comm::copy_region(one.dtype, one.from, one.to, one.to.box);
    arrivals_.erase(found);
  }

 private:
  // Where values arrive, and where they go when they are waited for.
  struct Arrival {
    DType dtype;
    std::vector<std::byte> memory;
    ArrayView from, to;
  };

  static ArrayView divert(DType dtype, const ArrayView& to, std::vector<Arrival>& arrivals) {
    if (to.data == nullptr || to.box.empty()) return to;
    Arrival& one = arrivals.emplace_back();
    one.dtype = dtype;
    one.memory.resize(static_cast<size_t>(to.box.volume() * dtype_bytes(dtype)));
    one.from = {one.memory.data(), to.box, row_major_strides(to.box.shape())};
    one.to = to;
    return one.from;
  }

  Handle keep(Handle handle, std::vector<Arrival> arrivals) {
    if (!arrivals.empty()) arrivals_.emplace(handle, std::move(arrivals));
    return handle;
  }

  comm::Communicator& world_;
  std::map<Handle, std::vector<Arrival>> arrivals_;  // by handle
};

}  // namespace

std::unique_ptr<comm::Communicator> late_communicator(comm::Communicator& world) {
  return std::make_unique<LateCommunicator>(world);
}

}  // namespace tessera::device
