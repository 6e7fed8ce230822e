#include "tessera/runtime/device/device.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "tessera/base/one_line.h"
#include "tessera/base/text.h"
#include "tessera/runtime/device/test_device.h"

namespace tessera::device {

void Device::upload(Stream& stream, const Memory& memory, int64_t offset, const std::byte* from,
                    int64_t bytes) {
  stream.launch([&] { std::memcpy(memory.data() + offset, from, static_cast<size_t>(bytes)); });
  stream.finish();
}

void Device::download(Stream& stream, const Memory& memory, int64_t offset, std::byte* to,
                      int64_t bytes) {
  stream.launch([&] { std::memcpy(to, memory.data() + offset, static_cast<size_t>(bytes)); });
  stream.finish();
}

Result<std::unique_ptr<Device>> open(std::string_view name) {
  if (name.empty()) {
    const char* stated = std::getenv("TESSERA_DEVICE");
    name = stated == nullptr ? "cpu" : stated;
  }
  TESSERA_TRY(const Call call, parse_call(name));
  uint64_t seed = 1;
  for (const auto& [key, value] : call.arguments) {
    const auto number = parse_int(value);
    if (call.name != "test" || key != "seed" || !number || *number < 0) {
      return invalid_input(
          fmt::format("device '{}': expected cpu, test or test(seed=N), found {}={}",
                      short_line(name), short_line(key), short_line(value)));
    }
    seed = static_cast<uint64_t>(*number);
  }
  if (call.name == "cpu") return nullptr;
  if (call.name == "test") return test_device(seed);
  return invalid_input(
      fmt::format("device '{}': expected cpu, test or test(seed=N)", short_line(name)));
}

}  // namespace tessera::device
