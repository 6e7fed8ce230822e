#include "tessera/report/headline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>

#include "tessera/base/text.h"

namespace tessera {
namespace {

struct Shown {
  std::string_view family, name;
};
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
    {"mlp", "Multi-layer perceptron"},
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

// Returns the part of a device's name that people say: "A100" of "a100-sxm-80", "RTX 3090" of
// "rtx-3090". The first part that has a digit ends it.
std::string short_device(const std::string& name) {
  std::string out;
  for (const std::string& part : split_text(name, '-')) {
    out += (out.empty() ? "" : " ") + part;
    if (std::any_of(part.begin(), part.end(), [](unsigned char c) { return std::isdigit(c) != 0; }))
      break;
  }
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return out;
}

}  // namespace

std::string model_headline(std::string_view model, int64_t parameters) {
  const std::string_view family = model.substr(0, model.find(':'));
  const Shown* shown = shown_of(family);
  std::string out(shown != nullptr
                      ? shown->name
                      : std::filesystem::path(std::string(family)).filename().string());
  if (const auto call = parse_call(model); call && shown != nullptr) {
    for (const auto& [key, value] : call->arguments) {
      if (key == "layers") out += fmt::format(", {} layer{}", value, value == "1" ? "" : "s");
    }
  }
  if (parameters > 0) out += fmt::format(", {} parameters", short_count(parameters));
  return out;
}

std::string machine_headline(const Cluster& cluster) {
  std::vector<std::pair<std::string, int64_t>> kinds;
  for (const ClusterPart& part : cluster.parts) {
    const std::string name = short_device(part.type.device.name);
    const int64_t devices = part.nodes * part.type.devices;
    const auto found = std::find_if(kinds.begin(), kinds.end(),
                                    [&](const auto& kind) { return kind.first == name; });
    if (found == kinds.end()) {
      kinds.emplace_back(name, devices);
    } else {
      found->second += devices;
    }
  }
  std::vector<std::string> parts;
  for (const auto& [name, devices] : kinds) parts.push_back(fmt::format("{} {}", devices, name));
  return join(parts, ", ");
}

}  // namespace tessera
