#include "tessera/models/model_title.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/text.h"
#include "tessera/graph/graph.h"

namespace tessera {
namespace {

// How families are written whose names are not a word with a capital letter.
constexpr std::array<std::pair<std::string_view, std::string_view>, 15> kWritten = {
    {{"gpt", "GPT"},
     {"bert", "BERT"},
     {"t5", "T5"},
     {"vit", "ViT"},
     {"vgg", "VGG"},
     {"smc", "SMC"},
     {"mlp", "MLP"},
     {"dlrm", "DLRM"},
     {"dhen", "DHEN"},
     {"imam", "IMAM"},
     {"resnet", "ResNet"},
     {"alexnet", "AlexNet"},
     {"mobilenet_v2", "MobileNetV2"},
     {"nemotron_h", "Nemotron-H"},
     {"ga_planes", "GA-Planes"}}};

std::string family_title(const Model& model) {
  if (model.family == "graph") return model.spec;
  for (const auto& [name, written] : kWritten) {
    if (name == model.family) return std::string(written);
  }
  std::string out = model.family;
  if (!out.empty()) out[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(out[0])));
  return out;
}

// Returns the number of blocks: of different numbers i in paths "blocks.<i>.x" of ops.
size_t blocks_of(const Graph& graph) {
  std::set<std::string> numbers;
  for (const Op& op : graph.ops()) {
    const std::vector<std::string> parts = split_text(op.path, '.');
    if (parts.size() > 2 && parts[0] == "blocks") numbers.insert(parts[1]);
  }
  return numbers.size();
}

// Returns the number in three digits with its unit, "8.03 B", "124 M", "9".
std::string three_digits(double value) {
  constexpr std::array<std::string_view, 5> kUnits = {"", " K", " M", " B", " T"};
  size_t unit = 0;
  for (; value >= 999.5 && unit + 1 < kUnits.size(); value /= 1000) ++unit;
  if (unit == 0) return fmt::format("{:.0f}", value);
  const int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}{}", value, digits, kUnits[unit]);
}

}  // namespace

std::string model_title(const Model& model) {
  std::string out = model.title.empty() ? "" : model.title + ": ";
  out += family_title(model);
  if (const size_t blocks = blocks_of(model.graph); blocks > 0)
    out += fmt::format(", {} layer{}", blocks, blocks == 1 ? "" : "s");
  out += fmt::format(", {} parameters",
                     three_digits(static_cast<double>(parameter_count(model.graph))));
  if (!model.remark.empty()) out += fmt::format(" (approximate: {})", model.remark);
  return out;
}

}  // namespace tessera
