// tessera sample: prints each token as soon as it is made.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tessera/cli/output.h"
#include "tessera/cli/with_runtime/commands.h"
#include "tessera/models/model.h"
#include "tessera/runtime/data/sampling.h"

namespace tessera::cli::with_runtime {
namespace {

constexpr int64_t kByteVocab = 256;

// Returns whether the model's tokens are bytes; if so, they are shown as text.
Result<bool> reads_bytes(const std::string& model) {
  TESSERA_TRY(const Model built, build_model_of(model, 0, 1));
  return built.vocab == kByteVocab;
}

Result<std::vector<int64_t>> prompt_of(const SampleOptions& options, bool bytes) {
  if (!options.tokens.empty()) {
    if (!options.prompt) return options.tokens;
    return invalid_input("sample: expected --prompt or --tokens, found both");
  }
  if (!bytes) {
    return invalid_input(
        "sample: expected --tokens, for a model whose tokens are not bytes (vocab = 256), found "
        "none");
  }
  std::vector<int64_t> tokens;
  for (const char one : options.prompt.value_or("\n")) {
    tokens.push_back(static_cast<unsigned char>(one));
  }
  return tokens;
}

std::string as_text(const std::vector<int64_t>& tokens) {
  std::string text;
  for (const int64_t token : tokens) text += static_cast<char>(token);
  return text;
}

}  // namespace

Result<int> sample(const SampleOptions& options) {
  TESSERA_TRY(const bool bytes, reads_bytes(options.model));
  SampleConfig config;
  config.model = options.model;
  config.weights = options.weights;
  config.plan = options.plan;
  config.precision = options.precision;
  config.count = options.count;
  config.temperature = options.temperature;
  config.top_k = options.top_k;
  config.seed = options.seed;
  config.timeout_s = options.timeout_s;
  TESSERA_TRY(config.prompt, prompt_of(options, bytes));
  const bool text = bytes && !options.ids;
  if (options.json) {
    TESSERA_TRY(const std::vector<int64_t> tokens, sample_tokens(config));
    nlohmann::ordered_json json{{"prompt", config.prompt}, {"tokens", tokens}};
    // Bytes that are not UTF-8 are replaced by U+FFFD.
    if (text) json["text"] = as_text(tokens);
    return print(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  }
  int code = 0;
  bool first = true;
  TESSERA_TRY_VOID(sample_tokens(config, [&](int64_t token) {
    if (text && first) code = print(as_text(config.prompt));  // nothing stands before an error
    code = std::max(code, print(text ? std::string(1, static_cast<char>(token))
                                     : fmt::format("{}{}", first ? "" : " ", token)));
    first = false;
  }));
  if (text && first) code = print(as_text(config.prompt));
  return std::max(code, print("\n"));
}

}  // namespace tessera::cli::with_runtime
