#include "tessera/runtime/device/staged_communicator.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tessera/runtime/device/host_copies.h"

namespace tessera::device {
namespace {

using comm::ArrayView;
using comm::Handle;

class StagedCommunicator final : public comm::Communicator {
 public:
  StagedCommunicator(comm::Communicator& world, PlaceOf place)
      : world_(world), place_of_(std::move(place)) {}

  int rank() const override { return world_.rank(); }
  int size() const override { return world_.size(); }
  int group(const std::vector<int>& members) override { return world_.group(members); }
  void barrier() override { world_.barrier(); }
  void abort(const std::string& reason) override { world_.abort(reason); }
  comm::Counters& counters() override { return world_.counters(); }

  Handle issue(int group, std::vector<comm::Item> items, const comm::Label& label) override {
    HostCopies copies(place_of_);
    for (comm::Item& item : items) {
      item.in = copies.read(item.what->dtype, item.in);
      // Elements that no member holds stay as they are.
      item.out = copies.write(item.what->dtype, item.out);
    }
    return keep(world_.issue(group, std::move(items), label), std::move(copies));
  }
  Handle issue_send(int to, int64_t tag, DType dtype, ArrayView from,
                    const comm::Label& label) override {
    HostCopies copies(place_of_);
    ArrayView there = copies.read(dtype, from);
    return keep(world_.issue_send(to, tag, dtype, std::move(there), label), std::move(copies));
  }
  Handle issue_recv(int from, int64_t tag, DType dtype, ArrayView into,
                    const comm::Label& label) override {
    HostCopies copies(place_of_);
    ArrayView there = copies.write(dtype, into);
    return keep(world_.issue_recv(from, tag, dtype, std::move(there), label), std::move(copies));
  }
  void wait(Handle handle) override {
    world_.wait(handle);
    const auto found = copies_.find(handle);
    if (found == copies_.end()) return;
    found->second.give_back();
    copies_.erase(found);
  }

 private:
  Handle keep(Handle handle, HostCopies copies) {
    if (!copies.empty()) copies_.emplace(handle, std::move(copies));
    return handle;
  }

  comm::Communicator& world_;
  const PlaceOf place_of_;
  std::map<Handle, HostCopies> copies_;  // by handle
};

}  // namespace

std::unique_ptr<comm::Communicator> staged_communicator(comm::Communicator& world, PlaceOf place) {
  return std::make_unique<StagedCommunicator>(world, std::move(place));
}

}  // namespace tessera::device
