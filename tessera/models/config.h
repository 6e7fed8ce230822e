// Keys of model specs: a family lists its keys once, with target, default and meaning; reading
// `key=value` arguments, printing the canonical spec and the help all follow from that list.
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

// Integers are at least `minimum` and at most kMaxModelSize, also those of a list (2-2-6-2). Other
// numbers are not negative.
struct ModelKey {
  std::string name;
  std::variant<int64_t*, double*, bool*, std::string*, DType*, std::vector<int64_t>*> target;
  std::string meaning;
  std::string otherwise = {};             // text of a default that is computed ("4 * hidden")
  std::vector<std::string> choices = {};  // of a text; none: any
  int64_t minimum = 1;                    // of an integer
};

// Keys that several language models have: `window` of attention, and `eod`, the token that ends a
// document (its rule: check_eod).
ModelKey window_key(int64_t& window);
ModelKey eod_key(int64_t& eod);

inline constexpr int64_t kMaxModelSize = 1'000'000'000;

using ModelArguments = std::vector<std::pair<std::string, std::string>>;

// Sets the targets. Errors name the family: an unknown key (with the nearest one), or a value that
// the key does not allow.
Status set_keys(std::string_view family, const std::vector<ModelKey>& keys,
                const ModelArguments& arguments);
// "gpt:layers=12,hidden=768,..." of the present values.
std::string canonical_spec(std::string_view family, const std::vector<ModelKey>& keys);
// What people read of a key: its present value, or the text of a default that is computed.
struct ModelKeyText {
  std::string name, value, meaning;
  std::vector<std::string> choices;
};
std::vector<ModelKeyText> key_texts(const std::vector<ModelKey>& keys);

// "model '<family>': <message>" as an error of wrong input.
tl::unexpected<Error> model_error(std::string_view family, std::string_view message);
// Error: a token that ends documents and is none of the vocabulary.
Status check_eod(std::string_view family, int64_t eod, int64_t vocab);

}  // namespace tessera
