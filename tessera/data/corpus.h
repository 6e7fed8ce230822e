// Sequences of tokens from several sources of token files. The tokens of sequence i of step s are a
// function of (seed, s, i) alone, so every plan trains on the same data, a rank reads only the
// region that it needs, and a run that goes on after a stop reads what it would have read.
//
//   TESSERA_TRY(const TokenCorpus corpus, TokenCorpus::open(sources, {"data", 129, 50257}));
//   TESSERA_TRY_VOID(corpus.read(seed, step, sequence, 0, 129, tokens));
//
// A source is packed or padded.
//   packed   a sequence is a window of consecutive tokens of one file; windows run over the borders
//            of documents. All windows of a source are equally likely.
//   padded   a sequence is one document, all documents equally likely; kNoToken fills the places
//            behind its end. A longer document gives a window. Documents of one token are left out.
// Weights decide between sources; without weights each source counts by its windows (documents), so
// that they are all equally likely.
//
// The draw: words 0 and 1 of Philox(seed, hash(stream, step)) at counter i are a 64-bit number x;
// the upper 53 bits of words 2 and 3 are u in [0, 1). u chooses among several sources. A packed
// source reads window x modulo the number of windows; a padded one reads document d = x modulo the
// number of documents, and of a longer document the window that begins at (x div documents) modulo
// the number of its windows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/data/token_file.h"

namespace tessera {

inline constexpr int64_t kNoToken = -1;  // fills the places behind the end of a padded document

class TokenCorpus {
 public:
  struct Source {
    std::vector<std::string> paths = {};     // each path once
    std::optional<TokenFormat> format = {};  // none: by each file's suffix
    double weight = 0;                       // given for all sources or for none
    bool padded = false;
    int64_t end_of_document = -1;
  };
  struct Wants {
    std::string stream;  // sequences of different streams are drawn independently
    int64_t length = 0;  // tokens of a sequence
    int64_t vocab = 0;   // tokens are in [0, vocab)
  };
  // Opens the sources. Errors, one line each: a file that cannot be read or is damaged; no file of
  // a source is long enough; a format that is not said; weights for only some of the sources. A
  // token that is not in the vocabulary is found here if the format cannot hold it or it is among
  // the first 64 Ki tokens of a file; else read() finds it.
  static Result<TokenCorpus> open(const std::vector<Source>& sources, const Wants& wants);

  int64_t files() const;  // files in use
  int64_t bytes() const;  // bytes of these files

  // Reads tokens offset .. offset + count of a sequence, which has `length` of them. Thread-safe.
  // Errors: a token that is not in the vocabulary, with file, position, token, vocab.
  Status read(int64_t seed, int64_t step, int64_t sequence, int64_t offset, int64_t count,
              int64_t* out) const;

 private:
  struct Document {  // the unit of a padded source: file, first token, tokens
    size_t file;
    int64_t begin, tokens;
  };
  struct Opened {
    bool padded = false;
    std::vector<TokenFile> files;
    std::vector<int64_t> first_window;  // packed: by file, and the number of all at the end
    std::vector<Document> documents;    // padded
    double share = 0;                   // share of the sequences of this source and those before it
    int64_t units() const;
  };
  // The begin of a sequence and its number of tokens at most.
  struct Place {
    const TokenFile* file;
    int64_t begin, tokens;
  };
  static Result<Opened> open_source(const Source& source, const Wants& wants);
  Status set_shares(const std::vector<Source>& sources);
  Place place(int64_t seed, int64_t step, int64_t sequence) const;
  Status check(const TokenFile& file, int64_t position, int64_t count, const int64_t* tokens) const;

  Wants wants_;
  std::vector<Opened> sources_;
};

}  // namespace tessera
