#include "tessera/data/token_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "tessera/base/check.h"

namespace tessera {
namespace {

constexpr std::array<std::pair<std::string_view, TokenFormat>, 5> kFormats{
    {{"bytes", TokenFormat::kBytes},
     {"uint16", TokenFormat::kUint16},
     {"uint32", TokenFormat::kUint32},
     {"npy", TokenFormat::kNpy},
     {"megatron", TokenFormat::kMegatron}}};

// Returns the type of number that a code in Megatron's index stands for.
Result<Number> number_of_code(uint8_t code) {
  switch (code) {
    case 1: return Number::kUint8;
    case 2: return Number::kInt8;
    case 3: return Number::kInt16;
    case 4: return Number::kInt32;
    case 5: return Number::kInt64;
    case 8: return Number::kUint16;
    default: break;
  }
  return invalid_input(
      fmt::format("expected the code of an integer (1 to 5, or 8) for its tokens, found {}", code));
}

tl::unexpected<Error> in_file(const std::string& path, const Error& error) {
  return invalid_input(fmt::format("'{}': {}", path, error.message));
}

// The contents of the head of an index, and where the index's lists begin. After the head come the
// lengths of the sequences (int32), the first byte of each sequence (int64), and the first sequence
// of each document (int64) with the number of sequences as last entry. Newer indexes then have one
// byte for each sequence.
struct Index {
  Number number = Number::kUint8;
  // `documents` is the length of the list of first sequences, which is the number of documents plus
  // one.
  int64_t sequences = 0, documents = 0;
  int64_t lengths = 0, pointers = 0, firsts = 0;
};

Result<Index> read_index(const std::byte* bytes, int64_t size) {
  constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
  constexpr int64_t kHead = 34;
  const std::string_view text(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
  if (size < kHead || !text.starts_with(kMagic)) {
    return invalid_input("expected an index of Megatron (MMIDIDX), found another head");
  }
  const auto version = read_number<uint64_t>(bytes + 9);
  if (version != 1) {
    return invalid_input(fmt::format("expected an index of version 1, found {}", version));
  }
  Index index;
  TESSERA_TRY(index.number, number_of_code(read_number<uint8_t>(bytes + 17)));
  const auto sequences = read_number<uint64_t>(bytes + 18),
             documents = read_number<uint64_t>(bytes + 26);
  const auto room = static_cast<uint64_t>(size - kHead);
  const bool fits = sequences <= room / 12 && documents <= (room - 12 * sequences) / 8;
  const uint64_t rest = fits ? room - 12 * sequences - 8 * documents : 1;
  if (!fits || (rest != 0 && rest != sequences)) {
    return invalid_input(
        fmt::format("expected lists of {} sequences and {} documents, found a "
                    "file of {} bytes",
                    sequences, documents, size));
  }
  index.sequences = static_cast<int64_t>(sequences);
  index.documents = static_cast<int64_t>(documents);
  index.lengths = kHead;
  index.pointers = index.lengths + 4 * index.sequences;
  index.firsts = index.pointers + 8 * index.sequences;
  return index;
}

// Checks that the sequences follow one another without gaps and fill the file of the tokens.
Status check_sequences(const std::byte* bytes, const Index& index, int64_t token_bytes) {
  int64_t expected = 0;
  for (int64_t i = 0; i < index.sequences; ++i) {
    const auto length = read_number<int32_t>(bytes + index.lengths + 4 * i);
    const auto pointer = read_number<int64_t>(bytes + index.pointers + 8 * i);
    if (length < 0 || pointer != expected) {
      return invalid_input(
          fmt::format("sequence {}: expected it to begin at byte {}, found byte {} and a length "
                      "of {} tokens",
                      i, expected, pointer, length));
    }
    expected += int64_t{length} * number_bytes(index.number);  // below 2^31 * 2^31 * 8
    if (expected > token_bytes) break;
  }
  if (expected != token_bytes) {
    return invalid_input(
        fmt::format("expected sequences of {} bytes in all, as the file of the "
                    "tokens has, found {}",
                    token_bytes, expected));
  }
  return {};
}

Status check_documents(const std::byte* bytes, const Index& index) {
  int64_t before = 0;
  for (int64_t i = 0; i < index.documents; ++i) {
    const auto first = read_number<int64_t>(bytes + index.firsts + 8 * i);
    const bool last = i + 1 == index.documents;
    if ((i == 0 && first != 0) || first < before || first > index.sequences ||
        (last && first != index.sequences)) {
      return invalid_input(fmt::format(
          "document {}: expected its first sequence from {} to {}, found {}", i,
          last ? index.sequences : before, i == 0 && !last ? 0 : index.sequences, first));
    }
    before = first;
  }
  return {};
}

}  // namespace

std::vector<std::string> token_format_names() {
  std::vector<std::string> names;
  for (const auto& [name, format] : kFormats) names.emplace_back(name);
  return names;
}

std::optional<TokenFormat> token_format_of_name(std::string_view name) {
  for (const auto& [known, format] : kFormats) {
    if (known == name) return format;
  }
  return std::nullopt;
}

std::optional<TokenFormat> token_format_of_file(std::string_view path) {
  if (path.ends_with(".npy")) return TokenFormat::kNpy;
  if (path.ends_with(".idx")) return TokenFormat::kMegatron;
  if (path.ends_with(".bin")) return std::nullopt;
  return TokenFormat::kBytes;
}

Result<TokenFile> TokenFile::open(const std::string& path, TokenFormat format) {
  TokenFile result;
  result.format_ = format;
  result.path_ = path;
  std::string index_path = path;
  if (format == TokenFormat::kMegatron) {
    const std::string_view name(path);
    if (!name.ends_with(".idx") && !name.ends_with(".bin")) {
      return invalid_input(fmt::format("'{}': expected NAME.idx or NAME.bin of a pair", path));
    }
    const std::string stem(name.substr(0, name.size() - 4));
    result.path_ = stem + ".bin";
    index_path = stem + ".idx";
  }
  TESSERA_TRY(result.file_, MappedFile::open(result.path_));
  const int64_t size = result.file_.size();
  switch (format) {
    case TokenFormat::kBytes: break;
    case TokenFormat::kUint16: result.number_ = Number::kUint16; break;
    case TokenFormat::kUint32: result.number_ = Number::kUint32; break;
    case TokenFormat::kNpy: TESSERA_TRY_VOID(result.open_npy()); return result;
    case TokenFormat::kMegatron: TESSERA_TRY_VOID(result.open_index(index_path)); return result;
  }
  if (size % number_bytes(result.number_) != 0) {
    return invalid_input(fmt::format("'{}': expected whole tokens of {}, found {} bytes", path,
                                     number_name(result.number_), size));
  }
  result.tokens_ = size / number_bytes(result.number_);
  return result;
}

Status TokenFile::open_npy() {
  const auto header = read_npy_header(file_.bytes(), file_.size());
  if (!header) return in_file(path_, header.error());
  if (header->shape.size() != 1 || !is_integer(header->number)) {
    return invalid_input(
        fmt::format("'{}': expected an array of one dim of integers, found the shape ({}) of {}",
                    path_, fmt::join(header->shape, ", "), number_name(header->number)));
  }
  number_ = header->number;
  offset_ = header->offset;
  tokens_ = header->volume();
  return {};
}

Status TokenFile::open_index(const std::string& index_path) {
  TESSERA_TRY(index_, MappedFile::open(index_path));
  const auto index = read_index(index_.bytes(), index_.size());
  if (!index) return in_file(index_path, index.error());
  if (auto status = check_sequences(index_.bytes(), *index, file_.size()); !status) {
    return in_file(index_path, status.error());
  }
  if (auto status = check_documents(index_.bytes(), *index); !status) {
    return in_file(index_path, status.error());
  }
  number_ = index->number;
  tokens_ = file_.size() / number_bytes(number_);
  documents_ = index->documents;
  sequences_ = index->sequences;
  document_list_ = index->firsts;
  pointer_list_ = index->pointers;
  return {};
}

bool TokenFile::holds_only_below(int64_t vocab) const {
  return !is_signed(number_) && largest(number_) < vocab;
}

void TokenFile::read(int64_t position, int64_t count, int64_t* out) const {
  TESSERA_CHECK(position >= 0 && count >= 0 && position <= tokens_ - count,
                "tokens {} + {} of {} in '{}'", position, count, tokens_, path_);
  const std::byte* from = file_.bytes() + offset_ + position * number_bytes(number_);
  with_number(number_, [&](auto type) {
    using T = decltype(type);
    for (int64_t i = 0; i < count; ++i) {
      // The unary plus turns the types narrower than int into int and keeps the sign.
      out[i] = static_cast<int64_t>(+read_number<T>(from + i * static_cast<int64_t>(sizeof(T))));
    }
  });
}

std::vector<int64_t> TokenFile::documents(int64_t end) const {
  std::vector<int64_t> begins{0};
  const auto add = [&](int64_t position) {
    if (position > begins.back()) begins.push_back(position);
  };
  if (has_index()) {
    for (int64_t i = 0; i < documents_; ++i) {
      const auto first = read_number<int64_t>(index_.bytes() + document_list_ + 8 * i);
      if (first == sequences_) continue;
      add(read_number<int64_t>(index_.bytes() + pointer_list_ + 8 * first) / number_bytes(number_));
    }
  } else if (end >= 0) {
    constexpr int64_t kAtOnce = 1 << 16;
    std::vector<int64_t> part(static_cast<size_t>(std::min(kAtOnce, tokens_)));
    for (int64_t at = 0; at < tokens_; at += kAtOnce) {
      const int64_t count = std::min(kAtOnce, tokens_ - at);
      read(at, count, part.data());
      for (int64_t i = 0; i < count; ++i) {
        if (part[static_cast<size_t>(i)] == end) add(at + i + 1);
      }
    }
  }
  add(tokens_);
  return begins;
}

}  // namespace tessera
