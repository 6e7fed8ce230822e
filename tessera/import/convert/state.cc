#include "tessera/import/convert/state.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string_view>
#include <utility>

#include "tessera/base/text.h"
#include "tessera/import/convert/dcp_state.h"
#include "tessera/import/dcp/source.h"
#include "tessera/import/huggingface/folder.h"
#include "tessera/import/huggingface/source.h"
#include "tessera/state/checkpoint.h"

namespace tessera {
namespace {

// Returns the numbers of a run file that has one key a line, as checkpoints keep it.
std::map<std::string, double, std::less<>> numbers_of(const std::string& run) {
  std::map<std::string, double, std::less<>> out;
  std::string_view rest = run;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const size_t equals = line.find(" = ");
    if (equals == std::string_view::npos) continue;
    if (const auto number = parse_double(line.substr(equals + 3)))
      out[std::string(line.substr(0, equals))] = *number;
  }
  return out;
}

Result<TrainingState> open_checkpoint_state(const std::string& path, const std::string& text) {
  TESSERA_TRY(auto source, open_checkpoint(path, /*compares=*/true));
  TrainingState state;
  state.format = "tessera";
  state.model_text = text.empty() ? source->manifest().model : text;
  TESSERA_TRY(state.model, build_model(state.model_text, 1));
  TESSERA_TRY_VOID(check_no_others(*source, state.model));
  state.step = source->manifest().step;
  state.seed = source->manifest().seed;
  for (const SourceArray& array : source->arrays()) {
    state.has_optimizer = state.has_optimizer || array.name.starts_with(kAdamStates[0].ours);
  }
  const auto numbers = numbers_of(source->manifest().run);
  if (const auto batch = numbers.find("batch"); batch != numbers.end())
    state.samples = *state.step * static_cast<int64_t>(batch->second);
  for (const AdamSetting& setting : adam_settings()) {
    std::vector<double> values;
    for (const char* key : setting.ours) {
      if (const auto found = numbers.find(key); found != numbers.end())
        values.push_back(found->second);
    }
    if (values.size() == setting.ours.size()) state.settings.emplace_back(setting.theirs, values);
  }
  state.tensors = std::move(source);
  return state;
}

Result<TrainingState> open_huggingface_state(const std::string& path, const std::string& text) {
  TrainingState state;
  state.format = "hf";
  // The file is no name of a family or of a published model, as its folder's may be.
  state.model_text = text.empty() ? (std::filesystem::path(path) / "config.json").string() : text;
  TESSERA_TRY(state.model, build_model(state.model_text, 1));
  TESSERA_TRY(state.tensors, open_huggingface(path, state.model));
  TESSERA_TRY(state.theirs, open_safetensors(huggingface_weights(path)));
  return state;
}

}  // namespace

const std::vector<AdamSetting>& adam_settings() {
  static const std::vector<AdamSetting> all{{"lr", {"optimizer.lr"}},
                                            {"betas", {"optimizer.beta1", "optimizer.beta2"}},
                                            {"eps", {"optimizer.eps"}},
                                            {"weight_decay", {"optimizer.weight_decay"}}};
  return all;
}

std::string run_of(const TrainingState& state) {
  std::string text;
  for (const AdamSetting& setting : adam_settings()) {
    for (const auto& [name, values] : state.settings) {
      if (name != setting.theirs) continue;
      for (size_t i = 0; i < values.size(); ++i)
        text += fmt::format("{} = {}\n", setting.ours[i], values[i]);
    }
  }
  return text;
}

Result<TrainingState> open_state(const std::string& path, const std::string& model) {
  if (dcp::is_dcp(path)) return open_dcp_state(path, model);
  if (is_checkpoint(path)) return open_checkpoint_state(path, model);
  FileSystem disk;
  TESSERA_TRY(const std::vector<CheckpointFolder> found, checkpoints_in(disk, path));
  if (!found.empty()) return open_checkpoint_state(found.back().path, model);
  if (is_huggingface_folder(path)) return open_huggingface_state(path, model);
  return invalid_input(fmt::format(
      "{}: expected a folder of torch.distributed.checkpoint (.metadata), a checkpoint of Tessera, "
      "or a Hugging Face folder, found none",
      path));
}

}  // namespace tessera
