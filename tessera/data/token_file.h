// One file of tokens, memory-mapped, and the documents in it.
//
//   TESSERA_TRY(const TokenFile file, TokenFile::open("train.bin", TokenFormat::kUint16));
//   file.read(/*position=*/0, /*count=*/4, tokens);
//
// Formats:
//   bytes     any file; a byte is a token
//   uint16    raw little-endian numbers without a head, as nanoGPT writes them
//   uint32    the same with numbers of 32 bits
//   npy       a NumPy array of one dim, of integers
//   megatron  Megatron's pair of files: NAME.bin has the tokens, one after the other; NAME.idx has
//             an index of the sequences and documents. The name of either file opens the pair.
//
// open() compares everything that a head or an index says with the sizes of the files, and checks
// that it does not contradict itself. So reading never leaves the mapping, and no memory is
// allocated for a size that a damaged file states. Errors are one line and name the file.
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
// Returns the format that the suffix of a path implies: npy for ".npy", megatron for ".idx", bytes
// for any other suffix but ".bin". Returns nothing for ".bin", because files of several formats
// have that suffix.
std::optional<TokenFormat> token_format_of_file(std::string_view path);

class TokenFile {
 public:
  static Result<TokenFile> open(const std::string& path, TokenFormat format);

  const std::string& path() const { return path_; }  // the file that has the tokens
  TokenFormat format() const { return format_; }
  int64_t tokens() const { return tokens_; }
  int64_t bytes() const { return tokens_ * number_bytes(number_); }
  // Returns whether every number that the format can store is below `vocab`.
  bool holds_only_below(int64_t vocab) const;

  // Reads `count` tokens from `position` on, all of which must be in the file. Thread-safe.
  void read(int64_t position, int64_t count, int64_t* out) const;

  // Returns the position of the first token of each document and, at the end, the number of tokens.
  // For a file with an index, the documents are those of the index. For another file, each token
  // `end` is the last token of a document, and tokens after the last `end` are one more document;
  // if `end` is -1, the whole file is one document. To find `end`, every token of the file is read.
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
  // For an index: the numbers of documents and sequences, and the offsets in the index's file of
  // two lists: the first sequence of each document, and the first byte of each sequence.

  int64_t documents_ = 0, sequences_ = 0, document_list_ = 0, pointer_list_ = 0;
};

}  // namespace tessera
