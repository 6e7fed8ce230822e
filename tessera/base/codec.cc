#include "tessera/base/codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

#include "tessera/base/text.h"

namespace tessera {
namespace {

constexpr std::string_view kTopKPrefix = "topk:";

}  // namespace

Result<Codec> parse_codec(std::string_view text) {
  if (text == "int8") return Codec{Codec::Kind::kInt8, 0};
  if (text == "float16") return Codec{Codec::Kind::kFloat16, 0};
  if (text == "bfloat16") return Codec{Codec::Kind::kBFloat16, 0};
  if (text.starts_with(kTopKPrefix)) {
    const std::string number(text.substr(kTopKPrefix.size()));
    char* end = nullptr;
    const double ratio = std::strtod(number.c_str(), &end);
    if (!number.empty() && *end == '\0' && ratio > 0 && ratio <= 1)
      return Codec{Codec::Kind::kTopK, ratio};
    return invalid_input(fmt::format("expected topk:R with 0 < R <= 1, found '{}'", text));
  }
  return invalid_input(
      fmt::format("expected a codec (int8, float16, bfloat16, topk:R), found '{}'; nearest: '{}'",
                  text, nearest(text, {"int8", "float16", "bfloat16", "topk:0.01"})));
}

std::string codec_text(const Codec& codec) {
  switch (codec.kind) {
    case Codec::Kind::kInt8: return "int8";
    case Codec::Kind::kFloat16: return "float16";
    case Codec::Kind::kBFloat16: return "bfloat16";
    case Codec::Kind::kTopK: return fmt::format("{}{}", kTopKPrefix, codec.ratio);
  }
  return "?";
}

int64_t kept_elements(const Codec& codec, int64_t elements) {
  if (codec.kind != Codec::Kind::kTopK) return elements;
  const auto kept = static_cast<int64_t>(std::floor(codec.ratio * static_cast<double>(elements)));
  return std::min(elements, std::max<int64_t>(1, kept));
}

namespace {

int64_t encoded_bytes(const Codec& codec, int64_t elements) {
  switch (codec.kind) {
    case Codec::Kind::kInt8: return elements + 4 * ((elements + kInt8Chunk - 1) / kInt8Chunk);
    case Codec::Kind::kFloat16:
    case Codec::Kind::kBFloat16: return 2 * elements;
    case Codec::Kind::kTopK: {
      const int64_t values = 4 * kept_elements(codec, elements);
      return values + std::min(values, (elements + 7) / 8);  // indices, or bits
    }
  }
  return 0;
}

}  // namespace

bool is_smaller(const Codec& codec, DType dtype, int64_t elements) {
  return is_floating(dtype) && encoded_bytes(codec, elements) < elements * dtype_bytes(dtype);
}

int64_t message_bytes(const std::optional<Codec>& codec, DType dtype, int64_t elements) {
  if (codec && is_smaller(*codec, dtype, elements)) return encoded_bytes(*codec, elements);
  return elements * dtype_bytes(dtype);
}

std::vector<CodedPiece> coded_pieces(const Redistribution& what) {
  std::vector<std::vector<CodedPiece>> by_source(what.hold.size());
  const auto add = [&](size_t source, Box box, size_t receiver) {
    std::vector<CodedPiece>& pieces = by_source[source];
    const auto known = std::find_if(pieces.begin(), pieces.end(),
                                    [&](const CodedPiece& piece) { return piece.box == box; });
    if (known == pieces.end()) {
      pieces.push_back({source, std::move(box), {receiver}});
    } else {
      known->receivers.push_back(receiver);
    }
  };
  for (size_t receiver = 0; receiver < what.need.size(); ++receiver) {
    if (what.need[receiver].empty()) continue;
    if (!what.combiner) {
      for (Take& take : takes(what, receiver)) add(take.source, std::move(take.box), receiver);
      continue;
    }
    for (size_t source = 0; source < what.hold.size(); ++source) {
      if (what.hold[source].empty()) continue;
      Box common = intersect(what.hold[source], what.need[receiver]);
      if (!common.empty()) add(source, std::move(common), receiver);
    }
  }
  std::vector<CodedPiece> out;
  for (std::vector<CodedPiece>& pieces : by_source)
    std::move(pieces.begin(), pieces.end(), std::back_inserter(out));
  return out;
}

bool can_code(const Redistribution& what) {
  if (!is_floating(what.dtype) || (what.combiner && what.combiner != Combiner::kSum)) return false;
  std::vector<Box> boxes;
  for (const CodedPiece& piece : coded_pieces(what)) {
    if (std::find(boxes.begin(), boxes.end(), piece.box) == boxes.end()) boxes.push_back(piece.box);
  }
  for (size_t i = 0; i < boxes.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (!intersect(boxes[i], boxes[j]).empty()) return false;
    }
  }
  return true;
}

Traffic coded_traffic(const std::vector<const Redistribution*>& items, const Codec& codec,
                      size_t member) {
  Traffic out;
  std::set<size_t> peers;
  for (const Redistribution* what : items) {
    for (const CodedPiece& piece : coded_pieces(*what)) {
      if (piece.source != member) continue;
      const int64_t bytes = message_bytes(codec, what->dtype, piece.box.volume());
      for (const size_t receiver : piece.receivers) {
        if (receiver == member || bytes == 0) continue;
        out.bytes += bytes;
        peers.insert(receiver);
      }
    }
  }
  out.messages = static_cast<int64_t>(peers.size());
  return out;
}

int64_t coded_elements(const Redistribution& what, size_t member) {
  int64_t elements = 0;
  for (const CodedPiece& piece : coded_pieces(what)) {
    if (piece.source == member) elements += piece.box.volume();
  }
  return elements;
}

}  // namespace tessera
