// Text from a language model: its forward graph is run on the tokens so far, the next token is drawn
// from the logits behind the last of them, and so on. No torch in this header.
//
//   SampleConfig config{"gpt:…", "weights", ...};
//   TESSERA_TRY(const std::vector<int64_t> tokens, sample_tokens(config));
//
// The graph is the model's at its own sequence length, under any plan that it can be lowered by (its
// stages, splits and stores of parameters; there is no backward pass). Every token takes a whole
// forward pass. Once there are more tokens than the model's sequence has, it sees the last of them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tessera/base/result.h"

namespace tessera {

struct SampleConfig {
  std::string model;            // reads tokens and predicts the next one
  std::string weights;          // a path for open_source (state/source.h)
  std::string plan = "serial";  // file or recipe call; ranks are threads
  std::string precision = "float32";
  std::vector<int64_t> prompt;  // at least one token
  int64_t count = 200;          // tokens to make
  double temperature = 1;       // logits are divided by it; 0: the likeliest token each time
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

// Chooses one token by its logits; among equal ones the lowest. `draw` is in [0, 1).
int64_t choose_token(const std::vector<double>& logits, double temperature, int64_t top_k,
                     double draw);

}  // namespace tessera
