// Keys of model specs. A family lists its keys once, with target, default and meaning. The reader
// of `key=value` arguments, the writer of the canonical spec and the help all use that list.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/base/dtype.h"
#include "tessera/base/result.h"

namespace tessera {

// A key of a spec. An integer, also in a list (2-2-6-2), is at least `minimum` and at most
// kMaxModelSize. Any other number is not negative.
struct ModelKey {
  std::string name;
  std::variant<int64_t*, double*, bool*, std::string*, DType*, std::vector<int64_t>*> target;
  std::string meaning;
  std::string otherwise = {};             // text that describes a computed default ("4 * hidden")
  std::vector<std::string> choices = {};  // allowed values of a text key; none: any value
  int64_t minimum = 1;                    // the least value of an integer key
};

// Returns a key that several language models have: `window` is the window of attention, and `eod`
// is the token that ends a document (its values: check_eod).
ModelKey window_key(int64_t& window);
ModelKey eod_key(int64_t& eod);

inline constexpr int64_t kMaxModelSize = 1'000'000'000;

using ModelArguments = std::vector<std::pair<std::string, std::string>>;

// Sets the targets of the keys. Returns an error that names the family, for an unknown key (with
// the most similar known key) or for a value that the key does not allow.
Status set_keys(std::string_view family, const std::vector<ModelKey>& keys,
                const ModelArguments& arguments);
// Returns the spec with the present values of all keys: "gpt:layers=12,hidden=768,...".
std::string canonical_spec(std::string_view family, const std::vector<ModelKey>& keys);
// A key as shown to people. `value` is the present value, or the text that describes a
// computed default.
struct ModelKeyText {
  std::string name, value, meaning;
  std::vector<std::string> choices;
};
std::vector<ModelKeyText> key_texts(const std::vector<ModelKey>& keys);

// Returns an error of wrong input: "model '<family>': <message>".
tl::unexpected<Error> model_error(std::string_view family, std::string_view message);
// Checks the token that ends documents. Returns an error if `eod` is neither -1 (none) nor in
// the vocabulary.
Status check_eod(std::string_view family, int64_t eod, int64_t vocab);

}  // namespace tessera
