// Coded transfers over any communicator: the sender encodes the values, the encoded bytes travel,
// and the receiver decodes them. The counters count the encoded bytes like all other bytes that are
// sent. base/codec.h defines the formats and their sizes.
#pragma once

#include <cstddef>
#include <list>
#include <vector>

#include "tessera/base/codec.h"
#include "tessera/comm/communicator.h"

namespace tessera::comm {

// Encodes `values` into message_bytes() bytes in the codec's format. If the codec's format is not
// smaller than the dtype's (is_smaller), the values are stored in `dtype` instead. Rounds to
// nearest, ties to even. In float16, finite values that are too large become the largest finite
// number; infinities and NaN never become finite.
std::vector<std::byte> encode(const Codec& codec, DType dtype, const std::vector<double>& values);
std::vector<double> decode(const Codec& codec, DType dtype, int64_t elements,
                           const std::byte* from);

// A `CodedCall` is one message or collective call under way. Call begin, begin_send or begin_recv,
// wait for the handle that it returns (unless it is kNoHandle), then call finish. The memory of the
// views and this object must live until finish returns.
class CodedCall {
 public:
  // Starts a collective call. `residual` is this member's error feedback: what the codec dropped in
  // the last such call, one float for each element that this member encodes (for each item
  // coded_elements(), in order). The call adds the residual to these elements and then overwrites
  // it with what the codec drops this time. Null: no error feedback.
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
    Redistribution what;  // the transfer that moves `bytes`
  };
  void write(size_t item, const std::vector<Message*>& messages) const;

  size_t me_ = 0;
  Codec codec_;
  std::vector<Item> items_;
  std::vector<Redistribution> whats_;            // only after begin_recv()
  std::vector<std::vector<CodedPiece>> pieces_;  // by item
  std::list<Message> messages_;                  // a list: elements keep their addresses
};

}  // namespace tessera::comm
