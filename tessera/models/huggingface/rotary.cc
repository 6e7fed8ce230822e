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
constexpr std::array kUnscaledTypes{"dynamic"};
constexpr std::array kLongTypes{"longrope", "su"};  // the first is written
constexpr const char* kYarn = "yarn";
const std::vector<RotaryType>& rotary_types() {
  static const std::vector<RotaryType> types = {
      {"default", {}},
      {"linear", {"factor"}},
      {"llama3", {"factor", "low_freq_factor", "high_freq_factor", kFirstPositions}}};
  return types;
}

// Returns the keys that an object of rotary settings may have, whatever its type.
const Texts& settings() {
  static const Texts keys = {"rope_type",        "type",
                             "rope_theta",       "factor",
                             kFirstPositions,    "partial_rotary_factor",
                             "low_freq_factor",  "high_freq_factor",
                             "beta_fast",        "beta_slow",
                             "mscale",           "mscale_all_dim",
                             "attention_factor", "truncate",
                             "short_factor",     "long_factor",
                             "short_mscale",     "long_mscale"};
  return keys;
}

// Returns the number of positions of the first training, which may be outside the object `rotary`. If
// it is missing, it is that of all positions.
json first_positions(const json& rotary, ConfigReader& reader) {
  json outside = reader.value(kFirstPositions, "null");
  if (!outside.is_null()) return outside;
  const json inside = rotary.value(kFirstPositions, json(nullptr));
  return inside.is_null() ? number(reader.get("seq")) : inside;
}

// Adds the values of our key rope_scaling that a type of scaling has in the object `rotary`.
void add_scaling(const RotaryType& type, const json& rotary, ConfigReader& reader) {
  Texts values;
  for (const std::string& key : type.keys) {
    const json found =
        key == kFirstPositions ? first_positions(rotary, reader) : rotary.value(key, json(nullptr));
    const double value = found.is_number() ? found.get<double>() : 0;
    if (value < 1 || value > 1e9 || value != std::floor(value)) {
      return reader.fail(
          fmt::format("rope_parameters: {} must be a whole number of at least 1", key));
    }
    values.push_back(fmt::format("{}", static_cast<int64_t>(value)));
  }
  if (!values.empty()) reader.add("rope_scaling", join(values, "-"));
}

// Adds the values of our key rope_scaling of YaRN, and what it changes of attention's scores: both
// queries and keys have a factor, so the scores have its square.
void add_yarn(const json& rotary, ConfigReader& reader) {
  Texts values;
  for (const auto& [key, otherwise] :
       {std::pair{"factor", json(0)}, std::pair{kFirstPositions, json(0)},
        std::pair{"beta_fast", json(32)}, std::pair{"beta_slow", json(1)}}) {
    json found = key == std::string_view(kFirstPositions) ? first_positions(rotary, reader)
                                                          : rotary.value(key, otherwise);
    if (found.is_null()) found = otherwise;
    const double value = found.is_number() ? found.get<double>() : 0;
    if (value < 1 || value > 1e9 || value != std::floor(value)) {
      return reader.fail(
          fmt::format("rope_parameters: {} must be a whole number of at least 1", key));
    }
    values.push_back(fmt::format("{}", static_cast<int64_t>(value)));
  }
  const json whole = rotary.value("truncate", json(true));
  values.emplace_back(whole == false ? "2" : "1");
  reader.add("rope_scaling", join(values, "-"));
  const double factor = number(values[0]).get<double>();
  const auto real = [&](const char* key) {
    const json found = rotary.value(key, json(0));
    return found.is_number() ? found.get<double>() : 0.0;
  };
  const double own = real("mscale"), all = real("mscale_all_dim");
  double turned = own > 0 && all > 0 ? yarn_factor(factor, own) / yarn_factor(factor, all)
                                     : yarn_factor(factor);
  if (real("attention_factor") > 0) turned = real("attention_factor");
  // Latent attention has a factor for its scores beside that of the elements that are turned.
  const bool latent = reader.count("rope_dim") > 0;
  if (latent && std::abs(turned - 1) > 1e-12) {
    return reader.approximate(
        fmt::format("turned elements of queries and keys have no factor ({})", turned));
  }
  const double scores = latent ? (all > 0 ? yarn_factor(factor, all) : 1.0) : turned;
  int64_t width = reader.count("head_dim");
  if (width == 0 && reader.count("heads") > 0)
    width = reader.count("hidden") / reader.count("heads");
  if (width == 0 || scores == 1) return;
  reader.add("score_scale",
             fmt::format("{}", scores * scores / std::sqrt(static_cast<double>(width))));
}

// Returns the numbers of a list joined by '-', or "" if it is no list of numbers.
std::string joined(const json& list) {
  Texts numbers;
  for (const json& each : list.is_array() ? list : json::array()) {
    if (!each.is_number()) return "";
    numbers.push_back(fmt::format("{}", each.get<double>()));
  }
  return join(numbers, "-");
}

// Returns the factor of turned elements that LongRoPE gives a model whose positions are `factor` times as
// many as `first` (Ding et al. 2024, arXiv 2402.13753, as transformers computes it).
double long_amplitude(double factor, double first) {
  return factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(first));
}

// Adds our key rope_factors, which has the factors of short and of long sequences.
void add_factors(const json& rotary, ConfigReader& reader) {
  const std::string few = joined(rotary.value("short_factor", json())),
                    many = joined(rotary.value("long_factor", json()));
  const json first = first_positions(rotary, reader), factor = rotary.value("factor", json()),
             given = rotary.value("attention_factor", json());
  if (few.empty() || many.empty() || !first.is_number_integer() || first < 2) {
    return reader.fail(fmt::format(
        "rope_parameters: expected lists short_factor and long_factor of numbers and {} of at "
        "least 2",
        kFirstPositions));
  }
  const auto positions = first.get<double>();
  const double times = factor.is_number() ? factor.get<double>()
                                          : number(reader.get("seq")).get<double>() / positions;
  const double amplitude =
      given.is_number() ? given.get<double>() : long_amplitude(times, positions);
  reader.add("rope_factors", fmt::format("{}/{}/{}/{}", first.dump(), amplitude, few, many));
}

// Checks the keys of an object of rotary settings, which `inside` names ("rope_parameters."), and the
// types of their values.
void check_settings(const json& rotary, const std::string& inside, ConfigReader& reader) {
  reader.name_unknown(rotary, inside, settings());
  for (const auto& [key, value] : rotary.items()) {
    const bool known = std::find(settings().begin(), settings().end(), key) != settings().end();
    if (!known || value.is_null() || key == "rope_type" || key == "type") continue;
    const bool list = key == "short_factor" || key == "long_factor", flag = key == "truncate";
    if (list ? value.is_array() : flag ? value.is_boolean() : value.is_number()) continue;
    reader.fail(fmt::format("{}{} must be a {}, found {}", inside, key,
                            list   ? "list"
                            : flag ? "boolean"
                                   : "number",
                            shown(value)));
  }
}

// Reads the scaling of rope_parameters.
void read_scaling(const json& rotary, ConfigReader& reader) {
  check_settings(rotary, "rope_parameters.", reader);
  reader.given(kFirstPositions);
  const json type = rotary.value("rope_type", rotary.value("type", json("default")));
  Texts known;
  for (const RotaryType& one : rotary_types()) {
    known.push_back(fmt::format("\"{}\"", one.name));
    if (type == one.name) return add_scaling(one, rotary, reader);
  }
  known.push_back(fmt::format("\"{}\"", kYarn));
  if (type == kYarn) return add_yarn(rotary, reader);
  for (const char* name : kLongTypes) {
    known.push_back(fmt::format("\"{}\"", name));
    if (type == name) return add_factors(rotary, reader);
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
// that of layers with full attention, and adds the base of the others.
json rotary_settings(ConfigReader& reader) {
  const json* old = reader.given("rope_scaling");
  json rotary = reader.value("rope_parameters");
  if (old != nullptr && !old->is_null() && !old->empty()) rotary = *old;
  if (rotary.is_null()) rotary = json::object();
  if (!rotary.is_object()) {
    reader.fail(fmt::format("rope_parameters must be an object, found {}", shown(rotary)));
    return json::object();
  }
  const auto full = rotary.find("full_attention"), windows = rotary.find("sliding_attention");
  if (full != rotary.end() && full->is_object()) {
    reader.name_unknown(rotary, "rope_parameters.", {"full_attention", "sliding_attention"});
    if (windows != rotary.end() && !windows->is_null() && !windows->is_object()) {
      reader.fail(fmt::format("rope_parameters.sliding_attention must be an object, found {}",
                              shown(*windows)));
    }
    if (windows != rotary.end() && windows->is_object()) {
      check_settings(*windows, "rope_parameters.sliding_attention.", reader);
      if (windows->value("rope_type", json("default")) != "default") {
        reader.approximate("rotary positions of layers with a window are not scaled");
      }
      const json theta = windows->value("rope_theta", json(10000.0));
      reader.add("window_theta", reader.text_of("rope_theta", theta));
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

// Adds the number of a head's elements that are turned, if these are not all.
void add_partial(const json& part, ConfigReader& reader) {
  int64_t width = reader.count("head_dim");
  if (width == 0 && reader.count("heads") > 0)
    width = reader.count("hidden") / reader.count("heads");
  if (!part.is_number() || part <= 0 || part > 1)
    return reader.unsupported("partial_rotary_factor", part, "above 0 and at most 1");
  auto turned = static_cast<int64_t>(static_cast<double>(width) * part.get<double>());
  if (turned % 2 != 0) {
    reader.approximate(fmt::format("{} elements of a head are turned, not {}", turned + 1, turned));
    ++turned;
  }
  if (turned == width) return;
  reader.add("rotary_dim", fmt::format("{}", turned));
  if (!reader.get("score_scale").empty()) {
    reader.approximate(
        "elements that positions do not turn have YaRN's factor too, as those that are turned");
  }
}

}  // namespace

double yarn_factor(double factor, double weight) {
  return factor <= 1 ? 1 : 0.1 * weight * std::log(factor) + 1;
}

namespace {

// Reads what all types have. Returns the part of a head that is turned.
json read_turned(ConfigReader& reader, const char* otherwise) {
  const json rotary = rotary_settings(reader);
  read_scaling(rotary, reader);
  const json theta = reader.value("rope_theta");
  reader.add("theta", reader.text_of("rope_theta", rotary.value("rope_theta", theta)));
  const json given = reader.value("partial_rotary_factor", otherwise);
  return rotary.value("partial_rotary_factor", given);
}

}  // namespace

void read_rotary(ConfigReader& reader) {
  reader.translate(near("partial_rotary_factor", {"1.0"},
                        "rotary positions turn whole heads (partial_rotary_factor {})"),
                   read_turned(reader, "1.0"));
}

void read_partial_rotary(ConfigReader& reader, const char* otherwise) {
  add_partial(read_turned(reader, otherwise), reader);
}

namespace {

// Returns YaRN's settings, which rope_scaling of ours has as `values`.
OrderedJson yarn_of(const Texts& values, const Keys& keys) {
  OrderedJson out = {{"rope_type", kYarn},
                     {"factor", number(values[0]).get<double>()},
                     {kFirstPositions, number(values[1])},
                     {"beta_fast", number(values[2]).get<double>()},
                     {"beta_slow", number(values[3]).get<double>()}};
  if (values[4] != "1") out["truncate"] = false;
  const double factor = out["factor"].get<double>(), scale = real_of(keys, "score_scale"),
               width = std::sqrt(real_of(keys, "head_dim"));
  const bool latent = of(keys, "rope_dim") != "0";
  const double scores = scale == 0 ? 1 : scale * width;  // the square of the factor
  const double usual = yarn_factor(factor);
  if (latent) {
    // The factor of the scores is 0.1 m ln(factor) + 1, squared. That of turned elements is 1.
    double weight = (std::sqrt(scores) - 1) / (0.1 * std::log(factor));
    if (std::abs(weight - std::round(weight)) < 1e-9) weight = std::round(weight);
    out["mscale"] = weight;
    out["mscale_all_dim"] = weight;
    if (weight == 0) out["attention_factor"] = 1.0;
  } else if (scale != usual * usual / width) {
    out["attention_factor"] = std::sqrt(scores);
  }
  return out;
}

// Returns LongRoPE's settings, which rope_factors of ours has.
OrderedJson factors_of(const Keys& keys) {
  const Texts parts = split_text(of(keys, "rope_factors"), '/');
  OrderedJson out = {{"rope_type", kLongTypes[0]}};
  for (const auto& [key, part] : {std::pair{"short_factor", 2}, std::pair{"long_factor", 3}}) {
    for (const std::string& each : split_text(parts[static_cast<size_t>(part)], '-'))
      out[key].push_back(number(each).get<double>());
  }
  out[kFirstPositions] = number(parts[0]);
  const double first = out[kFirstPositions].get<double>(),
               amplitude = number(parts[1]).get<double>();
  if (amplitude != long_amplitude(real_of(keys, "seq") / first, first))
    out["attention_factor"] = amplitude;
  return out;
}

}  // namespace

void spell_rotary(const Keys& keys, OrderedJson& out) {
  const double theta = number(of(keys, "theta")).get<double>();
  OrderedJson parameters = {{"rope_type", "default"}};
  if (of(keys, "rope_factors") != "1") parameters = factors_of(keys);
  const Texts values = split_text(of(keys, "rope_scaling"), '-');
  if (values.size() == 5) parameters = yarn_of(values, keys);
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
  if (of(keys, "rope_factors") != "1") {
    // Phi 3 has the number of positions outside in both versions, and version 4 knows the type by its old
    // name and refuses further keys.
    out[kFirstPositions] = parameters[kFirstPositions];
    out["rope_scaling"] = parameters;
    out["rope_scaling"].erase(kFirstPositions);
    out["rope_scaling"].erase("rope_type");
    out["rope_scaling"]["type"] = kLongTypes[0];
  } else if (parameters.size() > 1) {
    out["rope_scaling"] = parameters;
  } else {
    out.erase("rope_scaling");
  }
  parameters["rope_theta"] = theta;
  out["rope_parameters"] = std::move(parameters);
}

bool rotary_says(const Keys& keys, std::string_view key) {
  const auto scaling = keys.find("rope_scaling");
  if (key == "rope_factors") return true;
  return key == "score_scale" && scaling != keys.end() &&
         split_text(scaling->second, '-').size() == 5;
}

void spell_partial_rotary(const Keys& keys, OrderedJson& out) {
  spell_rotary(keys, out);
  const double turned = real_of(keys, "rotary_dim"), width = real_of(keys, "head_dim");
  out["partial_rotary_factor"] = turned == 0 ? 1.0 : turned / width;
  out["rope_parameters"]["partial_rotary_factor"] = out["partial_rotary_factor"];
}

// ---- windows

void add_window(const json& window, ConfigReader& reader) {
  if (window.is_null()) return;
  const json size = number(reader.text_of("sliding_window", window));
  if (size.get<double>() < 1)
    return reader.unsupported("sliding_window", window, "null, 1, 2, ...");
  reader.add("window", size.dump());
}

std::vector<bool> each_of(int64_t layers, int64_t every) {
  std::vector<bool> full(static_cast<size_t>(layers), false);
  for (int64_t i = every; every > 0 && i <= layers; i += every)
    full[static_cast<size_t>(i - 1)] = true;
  return full;
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
