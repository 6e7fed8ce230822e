// The keys that a framework's configuration may have, and what a reader does with each. The tables
// are data files, one for each format: data/megatron.toml has the flags of Megatron-LM, and so on.
// Every key of a text is in the table or is refused, so nothing of a text vanishes without a word.
//
//   read      decides a setting of the plan (settings.h)
//   size      a size of the model; MODEL states it
//   style     changes how fast the plan's ops run or what they keep; the style states it (--style)
//   plain     changes nothing of the plan
//   refused   asks for something that a plan read from such a text does not have. Values in
//             `without` ask for nothing and pass.
//
//   TESSERA_TRY(const KeyUses uses, sort_keys(key_table("megatron"), said));
//   uses.unread()   // "not read, as it does not change the plan: --lr, --data-path"
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"

namespace tessera {

// A key as a text states it. `name` is the full path of the key, "parallelism.tensor_parallel_degree".
struct SaidKey {
  std::string name, value;
  int line = 0;  // 0: unknown
};
using SaidKeys = std::vector<SaidKey>;

enum class KeyUse : uint8_t { kRead, kSize, kStyle, kPlain, kRefused };

struct KnownKey {
  KeyUse use = KeyUse::kPlain;
  std::string meaning;               // of a refused key: why
  std::vector<std::string> without;  // values of a refused key that ask for nothing
};

struct KeyTable {
  std::string name;    // of the target
  std::string prefix;  // what people write before a key: "--"
  // A name that ends with ".*" stands for all keys that begin with the rest.
  std::map<std::string, KnownKey, std::less<>> keys;
  // Returns the key's row; null if the framework does not know it.
  const KnownKey* find(std::string_view key) const;
};
// Returns the table of a target of that name; there must be one.
const KeyTable& key_table(std::string_view target);

// The keys of a text that no setting was read from, as lists of names, by what became of them.
struct KeyUses {
  std::vector<std::string> size, style, plain;
  // Returns a line for each list that has entries.
  std::vector<std::string> unread() const;
};
// Sorts the keys by their use. Errors: an unknown key (the message has the nearest known one), and a
// refused one; both with the line of the text.
Result<KeyUses> sort_keys(const KeyTable& table, const SaidKeys& said);

// Returns how many of the keys the table knows, for finding out what a text is.
int64_t known_keys(const KeyTable& table, const SaidKeys& said);

// Finds a key's last value in a text.
class SaidValues {
 public:
  SaidValues(const SaidKeys& said, std::string_view target) : said_(said), target_(target) {}
  const SaidKey* find(std::string_view key) const;  // null if the text lacks it
  std::string text(std::string_view key, std::string_view otherwise) const;
  // Returns a number of at least `least`.
  Result<int64_t> number(std::string_view key, int64_t otherwise, int64_t least = 1) const;
  Result<bool> flag(std::string_view key, bool otherwise) const;
  // Returns the error "job.toml:7: key: expected ..., found 'x'".
  tl::unexpected<Error> refuse(std::string_view key, std::string_view expected) const;

 private:
  const SaidKeys& said_;
  std::string target_;
};

}  // namespace tessera
