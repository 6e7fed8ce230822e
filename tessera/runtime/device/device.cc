#include "tessera/runtime/device/device.h"

#include <cstring>

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

}  // namespace tessera::device
