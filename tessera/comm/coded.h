// Coded transfers: encode -> move bytes -> decode, over any communicator. The coded bytes are
// counted like any other bytes that cross; base/codec.h defines the formats and their sizes.
#pragma once

#include <cstddef>
#include <list>
#include <vector>

#include "tessera/base/codec.h"
#include "tessera/comm/communicator.h"

namespace tessera::comm {

// Encodes `values` into message_bytes() bytes in the codec's format; the values stay as they are if
// the codec's format is not smaller. Rounds to nearest, ties to even. float16 keeps finite values
// finite; values that are not finite stay not finite.
std::vector<std::byte> encode(const Codec& codec, DType dtype, const std::vector<double>& values);
std::vector<double> decode(const Codec& codec, DType dtype, int64_t elements,
                           const std::byte* from);

// A `CodedCall` is one message or collective call under way. Call begin_*, wait for the handle (if
// it is not kNoHandle), then call finish. The views' memory and this object must stay until then.
class CodedCall {
 public:
  // Starts a collective call. `residual` holds what the codec dropped from the elements that this
  // member encoded in its last call here, in order (coded_elements() of each item, summed). It is
  // added to those elements, then replaced. Null: no error feedback.
  Handle begin(Communicator& world, int group, size_t me, const std::vector<Item>& items,
               const Codec& codec, float* residual, const Label& label);
  Handle begin_send(Communicator& world, int to, int64_t tag, DType dtype, const ArrayView& from,
                    const Codec& codec, float* residual, const Label& label);
  Handle begin_recv(Communicator& world, int from, int64_t tag, DType dtype, const ArrayView& into,
                    const Codec& codec, const Label& label);
  void finish();

 private:
  struct Message {
    const CodedPiece* piece = nullptr;
    size_t item = 0;
    std::vector<std::byte> bytes;
    Redistribution what;  // moves `bytes`
  };
  void write(size_t item, const std::vector<Message*>& messages) const;

  size_t me_ = 0;
  Codec codec_;
  std::vector<Item> items_;
  std::vector<Redistribution> whats_;            // for a single message
  std::vector<std::vector<CodedPiece>> pieces_;  // by item
  std::list<Message> messages_;                  // a list: elements keep their addresses
};

}  // namespace tessera::comm
