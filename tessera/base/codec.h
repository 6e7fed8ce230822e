// Lossy codecs write the elements of a message between ranks in fewer bytes. A message is a list of
// elements in row-major order. The size of a coded message depends only on the number of elements,
// so that bytes are known before anything runs. docs/strategies/compression.md describes the
// formats.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/redistribution.h"
#include "tessera/base/result.h"

namespace tessera {

struct Codec {
  enum class Kind : uint8_t {
    kInt8,  // a float32 scale for each kInt8Chunk elements, then a signed byte an element
    kFloat16,
    kBFloat16,
    // The K = max(1, floor(ratio n)) elements of largest magnitude are sent, each as a float32
    // value and an int32 index; the others are 0.
    kTopK,
  };
  Kind kind = Kind::kInt8;
  double ratio = 0;  // for kTopK, in (0, 1]
  friend bool operator==(const Codec&, const Codec&) = default;
};
inline constexpr int64_t kInt8Chunk = 128;

Result<Codec> parse_codec(std::string_view text);  // "int8", "float16", "bfloat16", "topk:0.01"
std::string codec_text(const Codec& codec);

// A codec on an edge. With `error_feedback`, the codec's error is added to the next message there.
struct Compression {
  Codec codec;
  bool error_feedback = false;
  friend bool operator==(const Compression&, const Compression&) = default;
};

int64_t kept_elements(const Codec& codec, int64_t elements);  // K for kTopK; else all
// Returns whether the codec makes a message smaller. A message that it does not make smaller is
// sent as it is. `message_bytes` returns the bytes of the message as it is sent.
bool is_smaller(const Codec& codec, DType dtype, int64_t elements);
int64_t message_bytes(const std::optional<Codec>& codec, DType dtype, int64_t elements);

// A piece that moves in a coded redistribution: each box is encoded once by its source and decoded
// by all members that take it. A source that takes its own box decodes it too, so that all holders
// of an element have the same value afterwards.
struct CodedPiece {
  size_t source = 0;
  Box box;
  std::vector<size_t> receivers;  // ascending
  bool leaves() const {           // whether another member takes it
    return receivers.size() > 1 || receivers[0] != source;
  }
};
// Returns the pieces, ordered by source, then in the order of their first receivers.
std::vector<CodedPiece> coded_pieces(const Redistribution& what);
// Returns whether a codec may be used: elements are floating and are copied or summed, in boxes of
// which any two are equal or disjoint (else ranks that should hold the same value would decode it
// from different messages).
bool can_code(const Redistribution& what);
// Returns the bytes and messages that a member sends when these items move in one call.
Traffic coded_traffic(const std::vector<const Redistribution*>& items, const Codec& codec,
                      size_t member);
// Returns the number of elements that a member encodes, which is the length of its error feedback.
int64_t coded_elements(const Redistribution& what, size_t member);

}  // namespace tessera
