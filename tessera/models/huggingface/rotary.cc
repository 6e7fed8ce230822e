// Rotary positions of decoders, and windows of attention.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/base/json_text.h"
#include "tessera/base/text.h"
#include "tessera/models/huggingface/rows.h"

namespace tessera::huggingface {
namespace {

struct RotaryType {
  const char* name;
  Texts keys;  // names of the numbers that the type has
};
constexpr const char* kFirstPositions = "original_max_position_embeddings";
// Scalings that are read but not computed: the frequencies stay as they are without scaling.
constexpr std::array kUnscaledTypes{"dynamic", "yarn", "longrope", "su"};
const std::vector<RotaryType>& rotary_types() {
  static const std::vector<RotaryType> types = {
      {"default", {}},
      {"linear", {"factor"}},
      {"llama3", {"factor", "low_freq_factor", "high_freq_factor", kFirstPositions}}};
  return types;
}

// Adds the values of our key rope_scaling that a type of scaling has in the object `rotary`. The
// number of positions of the first training may be outside the object. If it is missing, it is that
// of all positions.
void add_scaling(const RotaryType& type, const json& rotary, ConfigReader& reader) {
  const json* outside = reader.given(kFirstPositions);
  Texts values;
  for (const std::string& key : type.keys) {
    json found = rotary.value(key, json(nullptr));
    if (key == kFirstPositions && outside != nullptr && !outside->is_null()) found = *outside;
    if (key == kFirstPositions && found.is_null()) found = number(reader.get("seq"));
    const double value = found.is_number() ? found.get<double>() : 0;
    if (value < 1 || value > 1e9 || value != std::floor(value)) {
      return reader.fail(
          fmt::format("rope_parameters: {} must be a whole number of at least 1", key));
    }
    values.push_back(fmt::format("{}", static_cast<int64_t>(value)));
  }
  // Our scaling needs high above low. Where they are equal (Llama 4), no frequencies lie between.
  if (values.size() == 4 && values[1] == values[2]) {
    reader.approximate("rotary frequencies are not scaled (low_freq_factor = high_freq_factor)");
  } else if (!values.empty()) {
    reader.add("rope_scaling", join(values, "-"));
  }
}

// Reads the scaling of rope_parameters.
void read_scaling(const json& rotary, ConfigReader& reader) {
  reader.given(kFirstPositions);
  const json type = rotary.value("rope_type", rotary.value("type", json("default")));
  Texts known;
  for (const RotaryType& one : rotary_types()) {
    known.push_back(fmt::format("\"{}\"", one.name));
    if (type == one.name) return add_scaling(one, rotary, reader);
  }
  for (const char* name : kUnscaledTypes) {
    known.push_back(fmt::format("\"{}\"", name));
    if (type == name) {
      return reader.approximate(
          fmt::format("rotary frequencies are not scaled (rope_type \"{}\")", name));
    }
  }
  reader.unsupported("rope_type", type, join(known, ", "));
}

// Returns the object with the rotary settings. If it has an object for each type of layer, returns
// that of layers with full attention, and says so.
json rotary_settings(ConfigReader& reader) {
  const json* old = reader.given("rope_scaling");
  json rotary = reader.value("rope_parameters");
  if (old != nullptr && !old->is_null() && !old->empty()) rotary = *old;
  if (rotary.is_null()) rotary = json::object();
  if (!rotary.is_object()) {
    reader.fail(fmt::format("rope_parameters must be an object, found {}", shown(rotary)));
    return json::object();
  }
  const auto full = rotary.find("full_attention");
  if (full != rotary.end() && full->is_object()) {
    if (rotary.size() > 1) {
      reader.approximate(
          "rotary positions of layers with a window are those of layers with full attention");
    }
    return *full;
  }
  for (const auto& [key, value] : rotary.items()) {
    if (!value.is_object()) continue;
    reader.fail(fmt::format(
        "rope_parameters: expected one object for all layers or one for 'full_attention', found "
        "one for '{}'",
        key));
  }
  return rotary;
}

}  // namespace

void read_rotary(ConfigReader& reader) {
  const json rotary = rotary_settings(reader);
  read_scaling(rotary, reader);
  const json part = reader.value("partial_rotary_factor", "1.0");
  reader.translate(near("partial_rotary_factor", {"1.0"},
                        "rotary positions turn whole heads (partial_rotary_factor {})"),
                   rotary.value("partial_rotary_factor", part));
  const json theta = reader.value("rope_theta");
  reader.add("theta", reader.text_of("rope_theta", rotary.value("rope_theta", theta)));
}

void spell_rotary(const Keys& keys, OrderedJson& out) {
  const double theta = number(of(keys, "theta")).get<double>();
  OrderedJson parameters = {{"rope_type", "default"}};
  const Texts values = split_text(of(keys, "rope_scaling"), '-');
  for (const RotaryType& type : rotary_types()) {
    if (values == Texts{"1"} || type.keys.size() != values.size()) continue;
    parameters["rope_type"] = type.name;
    for (size_t i = 0; i < values.size(); ++i) {
      const json value = number(values[i]);
      // In such files factors are written as real numbers, positions as integers.
      parameters[type.keys[i]] =
          type.keys[i] == kFirstPositions ? value : json(value.get<double>());
    }
  }
  out["rope_theta"] = theta;
  if (parameters.size() > 1) {
    out["rope_scaling"] = parameters;
  } else {
    out.erase("rope_scaling");
  }
  parameters["rope_theta"] = theta;
  out["rope_parameters"] = std::move(parameters);
}

// ---- windows

void add_window(const json& window, ConfigReader& reader) {
  if (window.is_null()) return;
  const json size = number(reader.text_of("sliding_window", window));
  if (size.get<double>() < 1)
    return reader.unsupported("sliding_window", window, "null, 1, 2, ...");
  reader.add("window", size.dump());
}

void read_window(ConfigReader& reader) {
  read_rotary(reader);
  add_window(reader.value("sliding_window"), reader);
}

std::vector<bool> full_layers(const char* other, std::vector<bool> otherwise,
                              ConfigReader& reader) {
  const json given = reader.value("layer_types", "null");
  const auto layers = static_cast<size_t>(reader.count("layers"));
  if (given.is_null() || layers == 0) return otherwise;
  std::vector<bool> full;
  for (const json& type : given.is_array() ? given : json::array()) {
    if (type == "full_attention" || type == other) full.push_back(type == "full_attention");
  }
  if (full.size() != layers || given.size() != layers) {
    reader.fail(fmt::format(
        "layer_types: expected \"full_attention\" or \"{}\" for each of {} layers", other, layers));
  }
  return full;
}

void add_layer_windows(const json& window, const std::vector<bool>& full, ConfigReader& reader) {
  const auto layers = static_cast<int64_t>(full.size());
  const int64_t without = std::count(full.begin(), full.end(), true);
  if (window.is_null() || without == layers) return;
  add_window(window, reader);
  if (without == 0) return;
  // The first full layer gives the distance, if the others follow it.
  int64_t every = std::find(full.begin(), full.end(), true) - full.begin() + 1;
  int64_t equal = 0;
  for (int64_t i = 0; i < layers; ++i)
    equal += full[static_cast<size_t>(i)] == ((i + 1) % every == 0) ? 1 : 0;
  if (equal < layers) {
    every = std::max<int64_t>(
        1, std::llround(static_cast<double>(layers) / static_cast<double>(without)));
    reader.approximate(fmt::format(
        "full attention is in one of {} blocks, not in the {} of {} that the file names", every,
        without, layers));
  }
  reader.add("full_every", fmt::format("{}", every));
}

}  // namespace tessera::huggingface
