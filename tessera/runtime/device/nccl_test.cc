// Tests the communicators of accelerators on the stand-in, against the brute-force reference of
// comm/testing.h: by NCCL's functions as the processor plays them, and through the host.
#include "tessera/runtime/device/nccl.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tessera/comm/testing.h"
#include "tessera/runtime/device/device.h"
#include "tessera/runtime/device/open.h"
#include "tessera/runtime/kernels.h"

namespace tessera::device {
namespace {

using comm::testing::Arrays;
using comm::testing::Case;

// The arrays of a case in the memory of a device.
class OnDevice {
 public:
  OnDevice(Device& device, Stream& stream, Arrays& arrays) : device_(device), stream_(stream) {
    add(arrays.in_memory, arrays.item.in);
    if (!arrays.out_memory.empty()) {
      add(arrays.out_memory, arrays.item.out);
    } else {
      arrays.item.out.data = arrays.item.in.data;
    }
  }
  void bring_back() {
    for (auto& [host, memory] : copies_)
      device_.download(stream_, *memory, 0, host->data(), memory->bytes());
  }

 private:
  void add(std::vector<std::byte>& host, comm::ArrayView& view) {
    const auto bytes = static_cast<int64_t>(host.size());
    auto& memory = copies_.emplace_back(&host, device_.allocate(bytes).value()).second;
    device_.upload(stream_, *memory, 0, host.data(), bytes);
    view.data = memory->data() + (view.data - host.data());
  }
  Device& device_;
  Stream& stream_;
  std::vector<std::pair<std::vector<std::byte>*, std::unique_ptr<Memory>>> copies_;
};

// Runs `body` on ranks that have a stand-in each.
void on_ranks(int ranks, const std::string& name, const Connections::Message& message,
              const std::function<void(comm::Communicator& world, comm::Communicator& found,
                                       Device&, Stream& computing, Stream& messaging)>& body) {
  const Status done = comm::run_threads(ranks, {}, [&](comm::Communicator& world) {
    const kernels::ThreadScope scope(1);
    auto device = open(name, &world);
    ASSERT_TRUE(device) << device.error().message;
    const auto computing = (*device)->stream({}), messaging = (*device)->stream({});
    Connections connections{{comm::testing::all_ranks(ranks)}, {}};
    if (message.from == world.rank() || message.to == world.rank())
      connections.messages.push_back(message);
    auto made = (*device)->communicator(world, connections);
    ASSERT_TRUE(made) << made.error().message;
    body(world, **made, **device, *computing, *messaging);
  });
  EXPECT_TRUE(done) << done.error().message;
}

class AcceleratorCommunicator : public testing::TestWithParam<const char*> {};

TEST_P(AcceleratorCommunicator, EqualsTheReference) {
  constexpr int kRanks = 3;
  on_ranks(kRanks, GetParam(), {},
           [](auto& world, auto& found, Device& device, Stream&, Stream& stream) {
             const int group = found.group(comm::testing::all_ranks(kRanks));
             const auto me = static_cast<size_t>(world.rank());
             for (const Case& one : comm::testing::all_cases(kRanks)) {
               Arrays arrays(one, me);
               OnDevice there(device, stream, arrays);
               world.counters() = {};
               comm::Handle handle = comm::kNoHandle;
               stream.launch([&] {
                 handle = found.issue(group, {arrays.item}, {one.name, "x", "axis"});
               });
               stream.launch([&] { found.wait(handle); });
               stream.finish();
               there.bring_back();
               // Results that are not sums of two numbers are rounded otherwise than in the reference.
               const double tolerance = one.what.dtype == DType::kFloat64   ? 1e-13
                                        : one.what.dtype == DType::kFloat32 ? 1e-5
                                                                            : 2e-2;
               EXPECT_EQ(arrays.error(one, tolerance), "");
               EXPECT_EQ(world.counters().total_bytes(), comm::traffic(one.what, me).bytes)
                   << one.name;
             }
           });
}

TEST_P(AcceleratorCommunicator, AMessageWaitsForTheStreamThatIssuedIt) {
  constexpr int64_t kElements = 1000;
  on_ranks(2, GetParam(), {0, 1, 5},
           [](auto& world, auto& found, Device& device, Stream& computing, Stream& messaging) {
             auto memory = device.allocate(kElements * 8).value();
             const comm::ArrayView view{memory->data(), Box::whole({kElements}), {1}};
             std::vector<double> values(kElements);
             for (double round = 1; round <= 20; ++round) {
               values.assign(kElements, world.rank() == 0 ? round : -1);
               device.upload(computing, *memory, 0,
                             reinterpret_cast<const std::byte*>(values.data()), kElements * 8);
               messaging.wait(computing.record());
               messaging.launch([&] {
                 found.wait(world.rank() == 0 ? found.issue_send(1, 5, DType::kFloat64, view, {})
                                              : found.issue_recv(0, 5, DType::kFloat64, view, {}));
               });
               computing.wait(messaging.record());
               device.download(computing, *memory, 0, reinterpret_cast<std::byte*>(values.data()),
                               kElements * 8);
               EXPECT_EQ(values, std::vector<double>(kElements, round));
             }
           });
}

INSTANTIATE_TEST_SUITE_P(All, AcceleratorCommunicator,
                         testing::Values("stand-in", "stand-in(messages=host)"),
                         [](const auto& one) {
                           return std::string(one.param) == "stand-in" ? "Nccl" : "ThroughTheHost";
                         });

// NCCL knows no tags. Rank 0 sends 1, 2, 3 of two lines; rank 1 receives 2 before 1.
TEST(Nccl, LinesThatAreReceivedInAnotherOrderHaveLinksOfTheirOwn) {
  const Status done = comm::run_threads(2, {}, [&](comm::Communicator& world) {
    const kernels::ThreadScope scope(1);
    const auto device = open("stand-in", &world).value();
    std::vector<Connections::Message> messages{{0, 1, 1, 7}, {0, 1, 2, 8}, {0, 1, 3, 7}};
    if (world.rank() == 1) std::swap(messages[0], messages[1]);
    const auto made = device->communicator(world, {{}, messages}).value();
    const auto memory = device->allocate(3 * 8).value();
    const auto stream = device->stream({});
    const auto place = [](const Connections::Message& one) { return 8 * (one.tag - 1); };
    std::vector<double> values{1, 2, 3};
    if (world.rank() == 1) values.assign(3, -1);
    auto* host = reinterpret_cast<std::byte*>(values.data());
    device->upload(*stream, *memory, 0, host, 3 * 8);
    std::vector<comm::Handle> handles;
    for (const Connections::Message& one : messages) {
      const comm::ArrayView view{memory->data() + place(one), Box::whole({1}), {1}};
      stream->launch([&] {
        handles.push_back(world.rank() == 0
                              ? made->issue_send(1, one.tag, DType::kFloat64, view, {})
                              : made->issue_recv(0, one.tag, DType::kFloat64, view, {}));
      });
      if (world.rank() == 0) continue;
      stream->launch([&] { made->wait(handles.back()); });
      device->download(*stream, *memory, 0, host, 3 * 8);
      EXPECT_EQ(values[static_cast<size_t>(one.tag - 1)], static_cast<double>(one.tag));
    }
    for (const comm::Handle handle : handles) {
      if (world.rank() == 0) stream->launch([&] { made->wait(handle); });
    }
    stream->finish();
  });
  EXPECT_TRUE(done) << done.error().message;
}

TEST(Nccl, MessagesOfALineInAnotherOrderThanTheirReceiverExpectsAreRefused) {
  const Status done = comm::run_threads(2, {}, [&](comm::Communicator& world) {
    const kernels::ThreadScope scope(1);
    const auto device = open("stand-in", &world).value();
    Connections connections{{}, {{0, 1, 1, 7}, {0, 1, 2, 7}}};
    if (world.rank() == 1) std::swap(connections.messages[0], connections.messages[1]);
    const auto made = device->communicator(world, connections);
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().message,
              "messages from rank 0 to rank 1: expected those of a transfer to be received in the "
              "order in which they are sent, found another; messages=host allows it");
  });
  EXPECT_TRUE(done) << done.error().message;
}

TEST(Nccl, WithoutTheLibraryOneLineSaysSo) {
  const auto library = nccl_library();
  if (library) GTEST_SKIP() << "libnccl.so.2 is installed here";
  EXPECT_TRUE(library.error().message.starts_with("expected NCCL (libnccl.so.2), found none: "));
}

}  // namespace
}  // namespace tessera::device
