// Patterns by which the entries of a plan select ops and tensors. A pattern is a glob (base/text.h,
// glob_match). It selects a name if it matches the whole name, or a prefix of the name that ends
// before a '.', an '@' or a '#'. So "blocks.*.attn" selects all ops whose paths continue such a
// prefix, as "blocks.0.attn.q" does. And "blocks.0.ln_1" also selects the ops that transforms made
// of that op ("blocks.0.ln_1.moments", "blocks.0.ln_1@recompute", "blocks.0.ln_1#2").
//
//   PathIndex index(paths);  // made once // One value for each of `paths`. The answer is kept for
//   the next call with this pattern. const std::vector<bool>& hit = index.select("blocks.*.mlp");
//
// A pattern is compiled once and tried once on each distinct prefix. If a prefix matches, the
// pattern is not tried on longer names with this prefix. 20 patterns on 10,000 paths take some tens
// of milliseconds.
#pragma once

#include <bitset>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera {

// A `Glob` is a compiled pattern; matches(text) == glob_match(pattern, text).
class Glob {
 public:
  explicit Glob(std::string_view pattern);
  bool matches(std::string_view text) const;
  // Returns false if no longer text that begins with `text` can match; true if one matches, or if
  // finding out would need a search.
  bool may_begin(std::string_view text) const;
  // Returns whether a text that matches may end with this character.
  bool may_end(char last) const { return last_.all() || last_[static_cast<unsigned char>(last)]; }

 private:
  struct Token {
    enum class Kind : uint8_t { kChar, kAny, kStar, kNumber } kind = Kind::kChar;
    char character = 0;
    bool after_digit = false;  // kNumber: the pattern has a digit just before the number
    // kNumber: first and last number of each range
    std::vector<std::pair<int64_t, int64_t>> ranges{};
  };
  using Sequence = std::vector<Token>;

  // Returns the alternatives that the braces in pattern[begin, end) stand for, one sequence each.
  static std::vector<Sequence> expand(std::string_view pattern, size_t begin, size_t end);
  static bool matches(const Sequence& sequence, std::string_view text);
  // Returns the first position, at or after `position`, at which the token may match.
  static size_t first_start(const Token& token, std::string_view text, size_t position);
  // Returns the position after the token if it matches at `position` of the text, else npos.
  static size_t step(const Token& token, std::string_view text, size_t position);

  // `Ends` are the literal texts with which a match must begin and end. Comparing these first
  // refuses most texts quickly.
  struct Ends {
    std::string head, tail;
    bool whole = false;  // the sequence is literal text, all of it in `head`
  };
  static Ends ends_of(const Sequence& sequence);

  std::string pattern_;
  std::vector<Sequence> alternatives_;  // empty if there are too many; then glob_match decides
  std::vector<Ends> ends_;              // by alternative
  std::bitset<256> last_;               // characters with which a text that matches can end
};

class PathIndex {
 public:
  // Makes an index of the paths. The texts of the views must outlive the index.
  explicit PathIndex(const std::vector<std::string_view>& paths);
  // Returns for each path, in the order of the constructor, whether `pattern` selects it. The
  // reference is valid until the next call.
  const std::vector<bool>& select(const std::string& pattern);

 private:
  struct Node {
    std::string_view text;  // a prefix of some path, or a whole path
    int parent = -1;        // node of the next shorter prefix, which is an earlier node; -1: none
    char last = 0;          // last character of `text`
  };
  std::vector<Node> nodes_;
  std::vector<int> node_of_path_;
  std::map<std::string, std::vector<bool>> cache_;
};

}  // namespace tessera
