// Lossy codecs write the elements of a message between ranks in fewer bytes. A message is a list of
// elements in row-major order. The size of a coded message depends only on the number of elements,
// so that the bytes of a run are known before it starts. docs/strategies/compression.md describes
// the formats.
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
    // For each kIntegerChunk elements a float32 scale, followed by one signed byte (kInt8) or half a
    // byte (kInt4) for each element
    kInt8,
    kInt4,
    kFloat16,
    kBFloat16,
    // The K = max(1, floor(ratio n)) elements of largest magnitude are sent as float32 values; the
    // others are 0. Where they are takes ceil(log2 n) bits for each, or one bit for each of all n
    // elements if that is less.
    kTopK,
    // The elements are cut into chunks of kDctSide x kDctSide. The `kept` coefficients of largest
    // magnitude of each chunk's discrete cosine transform are sent, each as a float32 value and
    // a 16-bit index (DeMo, arXiv 2411.19870).
    kDct,
  };
  Kind kind = Kind::kInt8;
  double ratio = 0;  // for kTopK: the share of the elements that is sent, in (0, 1]
  int64_t kept = 0;  // for kDct: coefficients of a chunk that are sent
  // The factor by which a residual of error feedback shrinks before the next message, in (0, 1].
  double decay = 1;
  friend bool operator==(const Codec&, const Codec&) = default;
};
inline constexpr int64_t kIntegerChunk = 128;
inline constexpr int64_t kDctSide = 64;

// Reads "int8", "int4", "float16", "bfloat16", "topk:0.01" or "dct:32", each optionally followed by
// ",decay=0.999".
Result<Codec> parse_codec(std::string_view text);
std::string codec_text(const Codec& codec);

// The codec of a transfer. With `error_feedback`, the error that the codec makes in a message is
// added to the next message of the same transfer.
struct Compression {
  Codec codec;
  bool error_feedback = false;
  friend bool operator==(const Compression&, const Compression&) = default;
};

// Returns how many values a message has: K for kTopK, those of all chunks for kDct, else all elements.
int64_t kept_elements(const Codec& codec, int64_t elements);
// Returns the bytes that say which elements a kTopK message has, and whether they are a bit for each
// of all elements.
int64_t top_index_bytes(int64_t kept, int64_t elements);
bool top_has_bitmap(int64_t kept, int64_t elements);
int top_index_bits(int64_t elements);  // bits of one index
// Returns whether the codec makes a message smaller. If not, the message is sent without the codec.
// message_bytes() returns the bytes of the message in the form in which it is sent.
bool is_smaller(const Codec& codec, DType dtype, int64_t elements);
int64_t message_bytes(const std::optional<Codec>& codec, DType dtype, int64_t elements);

// A box that moves in a coded redistribution. The source encodes the box once, and all members that
// take it decode it. If the source takes its own box, it decodes the box too, so that all holders
// of an element have the same value afterwards.
struct CodedPiece {
  size_t source = 0;
  Box box;
  std::vector<size_t> receivers;  // ascending
  bool leaves() const {           // whether a member other than the source takes it
    return receivers.size() > 1 || receivers[0] != source;
  }
};
// Returns the pieces of a redistribution, ordered by source and then by first receiver.
std::vector<CodedPiece> coded_pieces(const Redistribution& what);
// Returns whether a codec may be used for the redistribution. Its elements must be floating and
// must be copied or summed. Any two boxes must be equal or disjoint, because ranks that should hold
// the same value would otherwise decode it from different messages.
bool can_code(const Redistribution& what);
// Returns the bytes and messages that a member sends if these redistributions are executed in one
// call.
Traffic coded_traffic(const std::vector<const Redistribution*>& items, const Codec& codec,
                      size_t member);
// Returns the number of elements that a member encodes, which is the length of its error feedback.
int64_t coded_elements(const Redistribution& what, size_t member);

}  // namespace tessera
