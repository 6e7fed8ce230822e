#include "tessera/runtime/kernels/placed_result.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <vector>

#include "tessera/base/check.h"

namespace tessera::kernels {
namespace {

// The request of the thread's PlacedResult, and the allocations of `bytes` bytes that the thread
// has made since the request.
struct Request {
  void* at = nullptr;  // the given memory; null: no request
  size_t bytes = 0;
  std::optional<size_t> turn;
  std::vector<const void*> made;
};
thread_local Request request;

// The allocator that libtorch had before install().
c10::Allocator* plain = nullptr;

// Frees memory of a tensor, unless it is the memory given to the PlacedResult, which belongs to
// the caller.
void free_unless_placed(void* at) {
  if (at != nullptr && at != request.at) plain->raw_deleter()(at);
}

class PlacingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const bool asked = request.at != nullptr && request.bytes == bytes;
    void* const at =
        asked && request.turn == request.made.size() ? request.at : plain->raw_allocate(bytes);
    if (asked) request.made.push_back(at);
    return {at, at, free_unless_placed, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return free_unless_placed; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    plain->copy_data(to, from, bytes);
  }
};

}  // namespace

PlacedResult::PlacedResult(void* at, size_t bytes, std::optional<size_t>& turn)
    : at_(at), turn_(turn) {
  TESSERA_CHECK(request.at == nullptr, "expected one placed result at a time, found two");
  request.at = at;
  request.bytes = bytes;
  request.turn = turn;
  request.made.clear();
}
PlacedResult::~PlacedResult() { request.at = nullptr; }

bool PlacedResult::holds(const void* result) {
  if (result == at_) return true;
  // Searches for the last match, because an address may have been freed and allocated again.
  const auto found = std::find(request.made.rbegin(), request.made.rend(), result);
  turn_.reset();
  if (found != request.made.rend()) {
    turn_ = static_cast<size_t>(request.made.rend() - found) - 1;
  }
  return false;
}

void PlacedResult::install() {
  constexpr uint8_t kOverDefault = 1;
  static PlacingAllocator allocator;
  if (plain != nullptr || c10::GetCPUAllocator()->raw_deleter() == nullptr) return;
  plain = c10::GetCPUAllocator();
  c10::SetCPUAllocator(&allocator, kOverDefault);
}

}  // namespace tessera::kernels
