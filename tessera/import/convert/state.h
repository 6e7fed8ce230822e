// The state of a training run in whatever form it is stored: parameters and, if they are there, the
// states of AdamW, all under our names ("optimizer.m.blocks.0.attn.q.weight"), from
//
//   tessera     a checkpoint of Tessera, or a folder of them (the newest)
//   dcp         a folder of torch.distributed.checkpoint
//   torch_dist  such a folder by Megatron Core (megatron.h)
//   hf          a Hugging Face folder (parameters alone)
//
//   TESSERA_TRY(const TrainingState state, open_state("run/step-100", "llama/config.json"));
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/models/model.h"
#include "tessera/state/source.h"

namespace tessera {

// The states that AdamW has of each parameter: our name, and PyTorch's.
struct AdamState {
  const char *ours, *theirs;
};
inline constexpr AdamState kAdamStates[] = {{"optimizer.m.", "exp_avg"},
                                            {"optimizer.v.", "exp_avg_sq"}};

// A setting of AdamW: PyTorch's name, and the keys of a run file that have its numbers.
struct AdamSetting {
  const char* theirs;
  std::vector<const char*> ours;
};
const std::vector<AdamSetting>& adam_settings();

struct TrainingState {
  std::string format;      // "tessera", "dcp", "torch_dist", "hf"
  std::string model_text;  // MODEL, as the caller gave it, or as the checkpoint says
  Model model;
  std::shared_ptr<TensorSource> tensors;  // under our names
  std::shared_ptr<TensorSource> theirs;   // the parameters under Hugging Face's names; may be null
  bool has_optimizer = false;             // `tensors` has kAdamStates of each parameter
  std::string unread_optimizer;           // why states that it has are not read; "": they are
  std::optional<int64_t> step;            // steps done, if it says so
  std::optional<int64_t> samples;         // of those steps, if it says so
  std::optional<int64_t> seed;
  std::optional<int64_t> vocabulary_rows;  // of the padded vocabulary, in a torch_dist folder
  // Numbers of the optimizer that it states, by PyTorch's names: {"lr", {0.001}}, {"betas", ...}.
  std::vector<std::pair<std::string, std::vector<double>>> settings;
  std::vector<std::string> notes;  // sentences that say what of its optimizer is not read
};

// Returns the settings as keys of a run file, one a line.
std::string run_of(const TrainingState& state);

// Opens what is at a path. `model` may be empty for a checkpoint, which names its model, and for a
// Hugging Face folder. Errors (invalid input), one line each: there is nothing of the three; an
// array of the model is missing, or has another shape; states of a parameter are missing.
Result<TrainingState> open_state(const std::string& path, const std::string& model);

}  // namespace tessera
