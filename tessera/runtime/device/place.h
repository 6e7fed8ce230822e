// Where the bytes of an array lie, in the terms of libtorch but without its headers.
#pragma once

#include <cstdint>

namespace tessera::device {

struct Place {
  int8_t type = 0;    // c10::DeviceType as a number; 0: memory of the process
  int8_t index = -1;  // number of the device among those of its type
  bool is_processor() const { return type == 0; }
  bool operator==(const Place&) const = default;
};

}  // namespace tessera::device
