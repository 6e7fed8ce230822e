// Selectors: they say which ops or tensors an entry of a plan selects. A pattern is a glob
// (base/text.h, glob_match); it selects a name if it matches the whole name or a prefix of it that
// ends before a '.', an '@' or a '#'. So "blocks.*.attn" takes everything below it, and
// "blocks.0.ln_1" also takes the ops that transforms made of that op ("blocks.0.ln_1.moments",
// "blocks.0.ln_1@recompute", "blocks.0.ln_1#2").
//
//   PathIndex index(paths);  // made once
//   // By position in `paths`. The answer is kept for the next call with this pattern.
//   const std::vector<bool>& hit = index.select("blocks.*.mlp");
//
// A pattern is compiled once and tried once on each distinct prefix; below a prefix that matches,
// it is not tried at all. 20 patterns on 10,000 paths take some tens of milliseconds.
#pragma once

#include <bitset>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera {

// A compiled glob; matches(text) == glob_match(pattern, text).
class Glob {
 public:
  explicit Glob(std::string_view pattern);
  bool matches(std::string_view text) const;
  // Returns whether a longer text that begins with this one may match. True if only a search could
  // tell.
  bool may_begin(std::string_view text) const;
  // Returns whether a match may end with this character.
  bool may_end(char last) const { return last_.all() || last_[static_cast<unsigned char>(last)]; }

 private:
  struct Token {
    enum class Kind : uint8_t { kChar, kAny, kStar, kNumber } kind = Kind::kChar;
    char character = 0;
    bool after_digit = false;  // of a number: the pattern has a digit before it
    std::vector<std::pair<int64_t, int64_t>> ranges{};  // of a number, inclusive
  };
  using Sequence = std::vector<Token>;

  static std::vector<Sequence> expand(std::string_view pattern, size_t begin, size_t end);
  static bool matches(const Sequence& sequence, std::string_view text);
  // Returns the position after `token` at `position` of the text, or npos.
  static size_t first_start(const Token& token, std::string_view text, size_t position);
  static size_t step(const Token& token, std::string_view text, size_t position);

  // The literal text that a match must begin and end with: most texts are refused by it.
  struct Ends {
    std::string head, tail;
    bool whole = false;  // the sequence is its head alone
  };
  static Ends ends_of(const Sequence& sequence);

  std::string pattern_;
  std::vector<Sequence> alternatives_;  // empty: too many; glob_match decides
  std::vector<Ends> ends_;              // of each alternative
  std::bitset<256> last_;               // characters with which a match can end
};

class PathIndex {
 public:
  // Makes an index of the paths. The texts that the views refer to must outlive it.
  explicit PathIndex(const std::vector<std::string_view>& paths);
  // Returns by position whether `pattern` selects the path. The reference is valid until the next
  // call.
  const std::vector<bool>& select(const std::string& pattern);

 private:
  struct Node {
    std::string_view text;  // a prefix
    int parent = -1;        // the next shorter prefix; always an earlier node
    char last = 0;          // character of the text
  };
  std::vector<Node> nodes_;
  std::vector<int> node_of_path_;
  std::map<std::string, std::vector<bool>> cache_;
};

}  // namespace tessera
