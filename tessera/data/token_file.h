// One file of tokens, memory-mapped, and the documents in it.
//
//   TESSERA_TRY(const TokenFile file, TokenFile::open("train.bin", TokenFormat::kUint16));
//   file.read(/*position=*/0, /*count=*/4, tokens);
//
// Formats:
//   bytes     any file; a byte is a token
//   uint16    raw little-endian numbers without a head, as nanoGPT writes them; uint32 likewise
//   npy       a NumPy array of one dim, of integers
//   megatron  Megatron's pair NAME.bin, NAME.idx: tokens one after the other, and an index of
//             sequences and documents. Either name opens the pair.
//
// When the file is opened, everything that a head or an index says is compared with the sizes of
// the files and with itself, so reading never leaves the mapping, and the statements of a damaged
// file decide no allocation. Errors are one line and name the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/data/mapped_file.h"
#include "tessera/data/numbers.h"

namespace tessera {

enum class TokenFormat : uint8_t { kBytes, kUint16, kUint32, kNpy, kMegatron };
std::vector<std::string> token_format_names();
std::optional<TokenFormat> token_format_of_name(std::string_view name);
// Returns the format by the suffix: ".npy", ".idx"; none for ".bin", which does not say what its
// tokens are; bytes for any other name.
std::optional<TokenFormat> token_format_of_file(std::string_view path);

class TokenFile {
 public:
  static Result<TokenFile> open(const std::string& path, TokenFormat format);

  const std::string& path() const { return path_; }  // of the file with the tokens
  TokenFormat format() const { return format_; }
  int64_t tokens() const { return tokens_; }
  int64_t bytes() const { return tokens_ * number_bytes(number_); }
  // Returns whether the format can hold only tokens of a vocabulary of size `vocab`.
  bool holds_only_below(int64_t vocab) const;

  // Reads tokens position .. position + count, which must be in the file. Thread-safe.
  void read(int64_t position, int64_t count, int64_t* out) const;

  // Returns the begins of the documents and, at the end, the number of tokens. An indexed pair
  // takes them from its index. Otherwise each token `end` (unless -1) ends a document, and tokens
  // behind the last one are a document; without `end` the file is one document. Reads every token
  // of a file without index.
  std::vector<int64_t> documents(int64_t end) const;
  bool has_index() const { return format_ == TokenFormat::kMegatron; }

 private:
  Status open_npy();
  Status open_index(const std::string& index_path);

  std::string path_;
  TokenFormat format_ = TokenFormat::kBytes;
  Number number_ = Number::kUint8;
  MappedFile file_, index_;
  int64_t offset_ = 0, tokens_ = 0;
  // For an index: bytes of the documents' first sequences, and of the sequences' first bytes.
  int64_t documents_ = 0, sequences_ = 0, document_list_ = 0, pointer_list_ = 0;
};

}  // namespace tessera
