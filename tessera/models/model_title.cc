#include "tessera/models/model_title.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "tessera/base/text.h"
#include "tessera/graph/graph.h"

namespace tessera {
namespace {

struct Shown {
  std::string_view family, name;
};
// How the families are written.
constexpr std::array<Shown, 21> kFamilies = {{
    {"gpt", "GPT"},
    {"llama", "Llama"},
    {"mixtral", "Mixture of experts"},
    {"nemotron_h", "Nemotron-H"},
    {"bert", "BERT"},
    {"t5", "T5"},
    {"vit", "ViT"},
    {"swin", "Swin"},
    {"resnet", "ResNet"},
    {"vgg", "VGG"},
    {"alexnet", "AlexNet"},
    {"mobilenet_v2", "MobileNetV2"},
    {"smc", "Small convolutional network"},
    {"cosmoflow", "CosmoFlow"},
    {"unet3d", "3-D U-Net"},
    {"ga_planes", "GA-Planes"},
    {"imam", "IMAM"},
    {"dlrm", "DLRM"},
    {"dhen", "DHEN"},
    {"evoformer", "Evoformer"},
    {"mlp", "MLP"},
}};

const Shown* shown_of(std::string_view family) {
  const auto* const found =
      std::find_if(kFamilies.begin(), kFamilies.end(),
                   [&](const Shown& shown) { return shown.family == family; });
  return found == kFamilies.end() ? nullptr : found;
}

// Returns a count with three digits: "8.03 B", "124 M".
std::string short_count(int64_t count) {
  constexpr std::array<std::pair<double, const char*>, 4> kSteps = {
      {{1e12, " T"}, {1e9, " B"}, {1e6, " M"}, {1e3, " K"}}};
  const auto value = static_cast<double>(count);
  for (const auto& [size, unit] : kSteps) {
    if (value < size) continue;
    const double scaled = value / size;
    const int digits = scaled >= 99.95 ? 0 : scaled >= 9.995 ? 1 : 2;
    return fmt::format("{:.{}f}{}", scaled, digits, unit);
  }
  return std::to_string(count);
}

}  // namespace

std::string model_title(std::string_view spec, int64_t parameters) {
  const std::string_view family = spec.substr(0, spec.find(':'));
  const Shown* shown = shown_of(family);
  std::string out(shown != nullptr
                      ? shown->name
                      : std::filesystem::path(std::string(family)).filename().string());
  if (const auto call = parse_call(spec); call && shown != nullptr) {
    for (const auto& [key, value] : call->arguments) {
      if (key == "layers") out += fmt::format(", {} layer{}", value, value == "1" ? "" : "s");
    }
  }
  if (parameters > 0) out += fmt::format(", {} parameters", short_count(parameters));
  return out;
}

std::string model_title(const Model& model) {
  std::string out = model.title.empty() ? "" : model.title + ": ";
  out += model_title(model.spec, parameter_count(model.graph));
  if (!model.remark.empty()) out += fmt::format(" (approximate: {})", model.remark);
  return out;
}

}  // namespace tessera
