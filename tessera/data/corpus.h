// Draws sequences of tokens from one or several sources, which are token files. The tokens of
// sequence i of step s are a function of (seed, s, i) alone. So every plan trains on the same data,
// each rank reads only the part that it needs, and a resumed run reads what it would have read
// without the stop.
//
//   TESSERA_TRY(const TokenCorpus corpus, TokenCorpus::open(sources, {"data", 129, 50257}));
//   TESSERA_TRY_VOID(corpus.read(seed, step, sequence, 0, 129, tokens));
//
// A source is packed or padded.
//   packed   A sequence is a window of consecutive tokens of one file; it may cross the borders of
//            documents. All windows of a source are equally likely.
//   padded   A sequence is one document; all documents are equally likely. If the document is
//            shorter than the sequence, kNoToken fills the rest; if it is longer, the sequence is a
//            window of it. Documents of one token are left out.
// Weights say which share of the sequences each source gives. Without weights, a source is drawn in
// proportion to its number of windows (or documents), so that the windows of all sources are
// equally likely.
//
// How sequence i is drawn: words 0 and 1 of Philox(seed, hash(stream, step)) at counter i are a
// 64-bit number x; the upper 53 bits of words 2 and 3 are a number u in [0, 1). If there are
// several sources, u chooses one. In a packed source, the sequence is window number x mod (number
// of windows). In a padded source, it is document number x mod (number of documents). If that
// document is longer than a sequence, its window number (x div number of documents) mod (number of
// the document's windows) is taken.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/data/token_file.h"

namespace tessera {

inline constexpr int64_t kNoToken = -1;  // fills a sequence after the end of its document

class TokenCorpus {
 public:
  struct Source {
    std::vector<std::string> paths = {};     // each path only once
    std::optional<TokenFormat> format = {};  // none: each file's suffix says it
    double weight = 0;                       // above 0 for all sources or for none
    bool padded = false;
    int64_t end_of_document = -1;
  };
  struct Wants {
    std::string stream;  // sequences of different streams are drawn independently
    int64_t length = 0;  // tokens of a sequence
    int64_t vocab = 0;   // tokens are in [0, vocab)
  };
  // Opens the sources. Errors, one line each: a file cannot be read or is damaged; no file of a
  // source is long enough; a file's format is not known; only some of the sources have a weight. If
  // a file's format can store tokens outside the vocabulary, open() looks for such tokens among the
  // file's first 64 Ki tokens; read() finds them elsewhere.
  static Result<TokenCorpus> open(const std::vector<Source>& sources, const Wants& wants);

  int64_t files() const;  // number of files in use
  int64_t bytes() const;  // bytes of the tokens in these files

  // Reads `count` tokens of a sequence from `offset` on; a sequence has Wants::length tokens.
  // Thread-safe. Errors: a token is not in the vocabulary; the message has file, position, token
  // and vocab.
  Status read(int64_t seed, int64_t step, int64_t sequence, int64_t offset, int64_t count,
              int64_t* out) const;

 private:
  // A document of a padded source: its file, first token and number of tokens.
  struct Document {
    size_t file;
    int64_t begin, tokens;
  };
  struct Opened {
    bool padded = false;
    std::vector<TokenFile> files;
    // Packed: by file, the number of its first window; at the end the number of all windows.
    std::vector<int64_t> first_window;
    std::vector<Document> documents;  // padded
    // The share of the sequences that come from this source and those before it.
    double share = 0;
    int64_t units() const;
  };
  // Where a sequence begins, and how many tokens it has before padding.
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
