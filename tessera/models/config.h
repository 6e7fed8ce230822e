// Keys of model specs: a family lists its keys once, with target, default and meaning. From that
// list follow the reading of `key=value` arguments, the canonical spec and the help.
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

// A key of a spec. Integers, also those of a list (2-2-6-2), are at least `minimum` and at most
// kMaxModelSize. Other numbers are not negative.
struct ModelKey {
  std::string name;
  std::variant<int64_t*, double*, bool*, std::string*, DType*, std::vector<int64_t>*> target;
  std::string meaning;
  std::string otherwise = {};             // text of a default that is computed ("4 * hidden")
  std::vector<std::string> choices = {};  // for a text; none: any
  int64_t minimum = 1;                    // for an integer
};

// Returns a key that several language models have: `window` of attention, and `eod`, the token that
// ends a document (its rule: check_eod).
ModelKey window_key(int64_t& window);
ModelKey eod_key(int64_t& eod);

inline constexpr int64_t kMaxModelSize = 1'000'000'000;

using ModelArguments = std::vector<std::pair<std::string, std::string>>;

// Sets the targets. Errors name the family: an unknown key (with the nearest one), or a value that
// the key does not allow.
Status set_keys(std::string_view family, const std::vector<ModelKey>& keys,
                const ModelArguments& arguments);
// Returns the spec of the present values: "gpt:layers=12,hidden=768,...".
std::string canonical_spec(std::string_view family, const std::vector<ModelKey>& keys);
// A key as shown to people: its present value, or the text of a default that is computed.
struct ModelKeyText {
  std::string name, value, meaning;
  std::vector<std::string> choices;
};
std::vector<ModelKeyText> key_texts(const std::vector<ModelKey>& keys);

// Returns an error of wrong input: "model '<family>': <message>".
tl::unexpected<Error> model_error(std::string_view family, std::string_view message);
// Checks the token that ends documents. Returns an error if it is not in the vocabulary.
Status check_eod(std::string_view family, int64_t eod, int64_t vocab);

}  // namespace tessera
