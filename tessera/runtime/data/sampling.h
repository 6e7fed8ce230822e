// Generates text by a language model, token by token: the model's forward graph is run on the
// tokens so far, and the next token is drawn from the logits at the last token. No torch in
// this header.
//
//   SampleConfig config{"gpt:…", "weights", ...};
//   TESSERA_TRY(const std::vector<int64_t> tokens, sample_tokens(config));
//
// The graph has the model's own sequence length. It runs under any plan by which it can be lowered;
// the plan's stages, splits and stores of parameters apply, and there is no backward pass. Every
// new token takes a whole forward pass. When there are more tokens than the model's sequence
// length, the model sees only the last ones.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tessera/base/result.h"

namespace tessera {

struct SampleConfig {
  std::string model;            // a model that reads tokens and predicts the next one
  std::string weights;          // a path for open_source (state/source.h)
  std::string plan = "serial";  // file or recipe call; ranks are threads
  std::string precision = "float32";
  std::vector<int64_t> prompt;  // at least one token
  int64_t count = 200;          // number of tokens to generate
  double temperature = 1;       // divides the logits; 0: takes the likeliest token each time
  int64_t top_k = 0;            // draws from the k likeliest tokens; 0: from all
  int64_t seed = 1;
  double timeout_s = 60;
};

// Returns the generated tokens, without the prompt. Calls `made` for each token when it is
// generated. Errors, one line each: a model that does not predict the next token; a prompt that is
// empty or has tokens that the vocabulary lacks; weights that lack a parameter, or have it in
// another shape.
Result<std::vector<int64_t>> sample_tokens(const SampleConfig& config,
                                           const std::function<void(int64_t)>& made = {});

// Chooses a token at random by the softmax of the logits; `draw` is the random number, in [0, 1).
// `temperature` and `top_k` are those of SampleConfig. With temperature 0 returns the token with
// the largest logit. Among tokens with equal logits the lowest counts as the likeliest.
int64_t choose_token(const std::vector<double>& logits, double temperature, int64_t top_k,
                     double draw);

}  // namespace tessera
