#include "tessera/runtime/device/open.h"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>

#include "tessera/base/one_line.h"
#include "tessera/base/text.h"
#include "tessera/comm/gather_bytes.h"
#include "tessera/runtime/device/cuda.h"
#include "tessera/runtime/device/stand_in.h"
#include "tessera/runtime/device/test_device.h"

namespace tessera::device {
namespace {

// The values of the keys of a name.
struct Keys {
  uint64_t seed = 1;
  bool formulas = false;
  bool through_host = false;  // messages between accelerators
};

using MadeDevice = Result<std::unique_ptr<Device>>;

struct Named {
  std::string_view name;
  std::string_view keys;  // separated by spaces
  bool several;           // whether a host may have several of them
  Status (*missing)();    // an error that says what is missing
  // Makes the device of one of the ranks of a host, by the rank's number among them.
  MadeDevice (*open)(const Keys&, int number);
};

Status nothing() { return {}; }

constexpr std::array<Named, 4> kNamed = {{
    {"cpu", "", false, nothing, [](const Keys&, int) -> MadeDevice { return nullptr; }},
    {"test", "seed kernels", false, nothing,
     [](const Keys& keys, int) -> MadeDevice { return test_device(keys.seed, keys.formulas); }},
    {"stand-in", "messages", true, nothing,
     [](const Keys& keys, int number) -> MadeDevice {
       return stand_in(number, keys.through_host);
     }},
    {"cuda", "messages", true, cuda_missing,
     [](const Keys& keys, int number) -> MadeDevice {
       return cuda_device(number, keys.through_host);
     }},
}};

bool set_key(const Named& device, std::string_view key, std::string_view value, Keys& keys) {
  const std::vector<std::string> known = split_text(device.keys, ' ');
  if (std::ranges::find(known, key) == known.end()) return false;
  if (key == "seed") {
    const auto number = parse_int(value);
    if (!number || *number < 0) return false;
    keys.seed = static_cast<uint64_t>(*number);
    return true;
  }
  if (key == "kernels") return keys.formulas = value == "formulas";
  return keys.through_host = value == "host";
}

// Returns the number of this rank among the ranks of its host.
int number_on_host(comm::Communicator& world) {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  const std::vector<std::string> hosts = comm::gather_bytes(world, name.data());
  const auto me = hosts.begin() + world.rank();
  return static_cast<int>(std::count(hosts.begin(), me, *me));
}

}  // namespace

Result<std::unique_ptr<Device>> open(std::string_view name, comm::Communicator* world) {
  const char* stated = name.empty() ? std::getenv("TESSERA_DEVICE") : nullptr;
  if (name.empty()) name = stated == nullptr || *stated == '\0' ? "cpu" : stated;
  const auto refused = [&] {
    return invalid_input(
        fmt::format("{} '{}': expected cpu, cuda, cuda(messages=host), stand-in, "
                    "stand-in(messages=host), test, "
                    "test(seed=N) or test(kernels=formulas)",
                    stated == nullptr ? "device" : "TESSERA_DEVICE", short_line(name)));
  };
  const auto call = parse_call(name);
  if (!call) return refused();
  const auto device = std::ranges::find(kNamed, call->name, &Named::name);
  if (device == kNamed.end()) return refused();
  Keys keys;
  for (const auto& [key, value] : call->arguments) {
    if (!set_key(*device, key, value, keys)) return refused();
  }
  TESSERA_TRY_VOID(device->missing());
  return device->open(keys, device->several && world != nullptr ? number_on_host(*world) : 0);
}

}  // namespace tessera::device
