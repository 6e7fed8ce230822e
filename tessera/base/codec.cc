#include "tessera/base/codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "tessera/base/text.h"

namespace tessera {
namespace {

constexpr std::string_view kTopKPrefix = "topk:";
constexpr std::string_view kDctPrefix = "dct:";
constexpr std::string_view kDecayPrefix = "decay=";

// Reads a number in (0, 1].
std::optional<double> parse_share(std::string_view text) {
  const auto number = parse_double(text);
  if (!number || !(*number > 0) || *number > 1) return std::nullopt;
  return *number;
}

Result<Codec> parse_kind(std::string_view text) {
  for (const auto& [name, kind] : {std::pair{"int8", Codec::Kind::kInt8},
                                   {"int4", Codec::Kind::kInt4},
                                   {"float16", Codec::Kind::kFloat16},
                                   {"bfloat16", Codec::Kind::kBFloat16}}) {
    if (text == name) return Codec{.kind = kind};
  }
  if (text.starts_with(kTopKPrefix)) {
    const auto ratio = parse_share(text.substr(kTopKPrefix.size()));
    if (ratio) return Codec{.kind = Codec::Kind::kTopK, .ratio = *ratio};
    return invalid_input(fmt::format("expected topk:R with 0 < R <= 1, found '{}'", text));
  }
  if (text.starts_with(kDctPrefix)) {
    const auto kept = parse_int(text.substr(kDctPrefix.size()));
    if (kept && *kept >= 1 && *kept <= kDctSide * kDctSide)
      return Codec{.kind = Codec::Kind::kDct, .kept = *kept};
    return invalid_input(
        fmt::format("expected dct:K with 1 <= K <= {}, found '{}'", kDctSide * kDctSide, text));
  }
  return invalid_input(fmt::format(
      "expected a codec (int8, int4, float16, bfloat16, topk:R, dct:K), found '{}'; nearest: '{}'",
      text, nearest(text, {"int8", "int4", "float16", "bfloat16", "topk:0.01", "dct:32"})));
}

}  // namespace

Result<Codec> parse_codec(std::string_view text) {
  const size_t comma = text.find(',');
  TESSERA_TRY(Codec codec, parse_kind(text.substr(0, comma)));
  if (comma == std::string_view::npos) return codec;
  const std::string_view rest = trim(text.substr(comma + 1));
  const auto decay =
      rest.starts_with(kDecayPrefix) ? parse_share(rest.substr(kDecayPrefix.size())) : std::nullopt;
  if (!decay) {
    return invalid_input(
        fmt::format("expected a codec and ',decay=R' with 0 < R <= 1, found '{}'", text));
  }
  codec.decay = *decay;
  return codec;
}

std::string codec_text(const Codec& codec) {
  std::string out;
  switch (codec.kind) {
    case Codec::Kind::kInt8: out = "int8"; break;
    case Codec::Kind::kInt4: out = "int4"; break;
    case Codec::Kind::kFloat16: out = "float16"; break;
    case Codec::Kind::kBFloat16: out = "bfloat16"; break;
    case Codec::Kind::kTopK: out = fmt::format("{}{}", kTopKPrefix, codec.ratio); break;
    case Codec::Kind::kDct: out = fmt::format("{}{}", kDctPrefix, codec.kept); break;
  }
  return codec.decay == 1 ? out : fmt::format("{},{}{}", out, kDecayPrefix, codec.decay);
}

int64_t kept_elements(const Codec& codec, int64_t elements) {
  if (codec.kind == Codec::Kind::kDct) {
    constexpr int64_t kChunk = kDctSide * kDctSide;
    return codec.kept * ((elements + kChunk - 1) / kChunk);
  }
  if (codec.kind != Codec::Kind::kTopK) return elements;
  const auto kept = static_cast<int64_t>(std::floor(codec.ratio * static_cast<double>(elements)));
  return std::min(elements, std::max<int64_t>(1, kept));
}

int top_index_bits(int64_t elements) {
  return std::max(1, static_cast<int>(std::bit_width(static_cast<uint64_t>(elements - 1))));
}

bool top_has_bitmap(int64_t kept, int64_t elements) {
  return elements < kept * top_index_bits(elements);
}

int64_t top_index_bytes(int64_t kept, int64_t elements) {
  return (std::min(elements, kept * top_index_bits(elements)) + 7) / 8;
}

namespace {

int64_t encoded_bytes(const Codec& codec, int64_t elements) {
  const int64_t scales = 4 * ((elements + kIntegerChunk - 1) / kIntegerChunk);
  const int64_t kept = kept_elements(codec, elements);
  switch (codec.kind) {
    case Codec::Kind::kInt8: return elements + scales;
    case Codec::Kind::kInt4: return (elements + 1) / 2 + scales;
    case Codec::Kind::kFloat16:
    case Codec::Kind::kBFloat16: return 2 * elements;
    case Codec::Kind::kTopK: return 4 * kept + top_index_bytes(kept, elements);
    case Codec::Kind::kDct: return 6 * kept;
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
