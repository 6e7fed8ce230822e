#include "tessera/data/data_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tessera/base/json_text.h"
#include "tessera/base/text.h"
#include "tessera/base/toml_reader.h"
#include "tessera/base/units.h"
#include "tessera/data/token_file.h"

namespace tessera {
namespace {

constexpr std::string_view kRandom = "random";

tl::unexpected<Error> expected(std::string_view key, std::string_view what,
                               const toml::node& node) {
  return invalid_input(
      fmt::format("expected {} to be {}, found {}", key, what, type_text(node.type())));
}

Result<std::vector<std::string>> read_globs(std::string_view key, const toml::node& node) {
  std::vector<std::string> globs;
  if (const auto* text = node.as_string()) globs.push_back(text->get());
  if (const auto* list = node.as_array()) {
    for (const toml::node& item : *list) {
      if (!item.is_string()) return expected(key, "a list of strings", node);
      globs.push_back(item.as_string()->get());
    }
  }
  const bool blank = std::any_of(globs.begin(), globs.end(), [](auto& t) { return t.empty(); });
  if (globs.empty() || blank) return expected(key, "a file glob or a list of them", node);
  return globs;
}

Status read_one_of(const std::string& key, const std::vector<std::string>& names,
                   const toml::node& node, std::string& value) {
  const auto* text = node.as_string();
  if (text == nullptr) return expected(key, "one of " + join(names, ", "), node);
  if (std::find(names.begin(), names.end(), text->get()) == names.end()) {
    return invalid_input(fmt::format("expected {} to be one of {}, found '{}'", key,
                                     join(names, ", "), text->get()));
  }
  value = text->get();
  return {};
}

Status read_positive(const std::string& key, const toml::node& node, double& value) {
  const auto number = node.value<double>();
  if (!node.is_number() || !number) return expected(key, "a number above 0", node);
  if (!std::isfinite(*number) || *number <= 0) {
    return invalid_input(
        fmt::format("expected {} to be a number above 0, found {:g}", key, *number));
  }
  value = *number;
  return {};
}

Status read_token_key(const std::string& key, const toml::node& node, TokenFilesConfig& config) {
  const std::string full = "data." + key;
  if (key == "files") {
    TESSERA_TRY(config.files, read_globs(full, node));
  } else if (key == "format") {
    return read_one_of(full, token_format_names(), node, config.format);
  } else if (key == "weight") {
    return read_positive(full, node, config.weight);
  } else if (key == "documents") {
    std::string mode;
    TESSERA_TRY_VOID(read_one_of(full, {"packed", "padded"}, node, mode));
    config.padded = mode == "padded";
  } else if (key == "end_of_document") {
    const auto* number = node.as_integer();
    if (number == nullptr || number->get() < 0) return expected(full, "a token", node);
    config.end_of_document = number->get();
  } else {
    static const std::vector<std::string> kKeys = {"files", "format", "weight", "documents",
                                                   "end_of_document"};
    return invalid_input(fmt::format("unknown key 'data.{}'{}", key, did_you_mean(key, kKeys)));
  }
  return {};
}

Result<TokenFilesConfig> read_tokens(const toml::table& table) {
  TokenFilesConfig config;
  for (const auto& [key, node] : table) {
    TESSERA_TRY_VOID(read_token_key(std::string(key.str()), node, config));
  }
  if (config.files.empty()) {
    return invalid_input(
        "data: expected the key 'files', 'arrays', 'hdf5', 'clicks' or 'nodes', found none of "
        "them");
  }
  return config;
}

Status read_count(const std::string& key, const toml::node& node, int64_t& value) {
  constexpr int64_t kMost = 1 << 20;
  const auto* number = node.as_integer();
  if (number == nullptr || number->get() < 0 || number->get() > kMost) {
    return expected(key, fmt::format("a whole number from 0 to {}", kMost), node);
  }
  value = number->get();
  return {};
}

Status read_ahead(const toml::node& node, DataConfig& config) {
  const toml::table* inputs = node.as_table();
  if (inputs == nullptr) return expected("data.ahead", "a table of steps by input", node);
  for (const auto& [input, steps] : *inputs) {
    const std::string name(input.str());
    TESSERA_TRY_VOID(read_count("data.ahead." + name, steps, config.ahead[name]));
  }
  return {};
}

// Reads the bytes that a rank may keep in memory: "16 GiB", or a number of bytes.
Status read_store(const toml::node& node, DataConfig& config) {
  const auto wrong = [&] {
    return expected("data.store", "what a rank may keep of the samples, as \"16 GiB\"", node);
  };
  if (const auto* text = node.as_string()) {
    const auto bytes = parse_quantity(text->get(), Quantity::kBytes);
    if (!bytes) return invalid_input("data.store: " + bytes.error().message);
    if (*bytes < 1 || *bytes > 1e18) {
      return invalid_input(
          fmt::format("expected data.store to be above 0, found \"{}\"", text->get()));
    }
    config.store_bytes = std::llround(*bytes);
    return {};
  }
  const auto* number = node.as_integer();
  if (number == nullptr || number->get() < 1) return wrong();
  config.store_bytes = number->get();
  return {};
}

// Reads a key of a table that has the key `arrays`.
Status read_array_key(const std::string& name, const toml::node& node, DataConfig& config) {
  if (name == "scale") return read_positive("data.scale", node, config.scale);
  if (name == "ahead") return read_ahead(node, config);
  if (name == "store") return read_store(node, config);
  if (name == "shift") return read_count("data.shift", node, config.shift);
  if (name == "flip") {
    const auto* flip = node.as_boolean();
    if (flip == nullptr) return expected("data.flip", "true or false", node);
    config.flip = flip->get();
    return {};
  }
  return invalid_input(fmt::format(
      "data: expected the keys 'arrays', 'scale', 'ahead', 'shift', 'flip' and 'store' together, "
      "found '{}'",
      name));
}

Result<DataConfig> read_arrays(const toml::table& table) {
  DataConfig config;
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    if (name != "arrays") {
      TESSERA_TRY_VOID(read_array_key(name, node, config));
      continue;
    }
    const toml::table* arrays = node.as_table();
    if (arrays == nullptr || arrays->empty()) {
      return expected("data.arrays", "a table of files by input of the model", node);
    }
    for (const auto& [input, file] : *arrays) {
      const auto* path = file.as_string();
      if (path == nullptr || path->get().empty()) {
        return expected(fmt::format("data.arrays.{}", input.str()),
                        "the path of a .npy file, or 'FILE.h5:DATASET'", file);
      }
      config.arrays[std::string(input.str())] = path->get();
    }
  }
  for (const auto& [input, steps] : config.ahead) {
    if (config.arrays.contains(input)) continue;
    return invalid_input(
        fmt::format("data.ahead: expected an input that has an array, found '{}'", input));
  }
  return config;
}

Result<DataConfig> read_hdf5(const toml::table& table) {
  DataConfig config;
  const std::vector<std::pair<std::string, std::string*>> texts = {{"hdf5", &config.hdf5.file},
                                                                   {"inputs", &config.hdf5.inputs},
                                                                   {"labels", &config.hdf5.labels}};
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    if (name == "scale") {
      TESSERA_TRY_VOID(read_positive("data.scale", node, config.scale));
      continue;
    }
    if (name == "store") {
      TESSERA_TRY_VOID(read_store(node, config));
      continue;
    }
    const auto text = std::find_if(texts.begin(), texts.end(),
                                   [&](const auto& one) { return one.first == name; });
    if (text == texts.end()) {
      return invalid_input(
          fmt::format("data: expected the keys 'hdf5', 'inputs', 'labels', 'scale' and 'store' "
                      "together, found '{}'",
                      name));
    }
    const auto* value = node.as_string();
    if (value == nullptr || value->get().empty()) {
      return expected("data." + name,
                      name == "hdf5" ? "the path of an HDF5 file" : "the name of a dataset", node);
    }
    *text->second = value->get();
  }
  for (const auto& [name, value] : texts) {
    if (!value->empty()) continue;
    return invalid_input(
        fmt::format("data: expected the key '{}' beside 'hdf5', found none", name));
  }
  return config;
}

Result<DataConfig> read_clicks(const toml::table& table) {
  DataConfig config;
  for (const auto& [key, node] : table) {
    if (key.str() != "clicks") {
      return invalid_input(
          fmt::format("data: expected the key 'clicks' alone, found '{}'", key.str()));
    }
    const auto* path = node.as_string();
    if (path == nullptr || path->get().empty()) {
      return expected("data.clicks", "the path of a file of clicks", node);
    }
    config.clicks = path->get();
  }
  return config;
}

Result<DataConfig> read_nodes(const toml::table& table) {
  DataConfig config;
  for (const auto& [key, node] : table) {
    if (key.str() == "part") {
      TESSERA_TRY_VOID(read_one_of("data.part", {"train", "val", "test"}, node, config.part));
      continue;
    }
    if (key.str() != "nodes") {
      return invalid_input(fmt::format(
          "data: expected the keys 'nodes' and 'part' together, found '{}'", key.str()));
    }
    const auto* path = node.as_string();
    if (path == nullptr || path->get().empty()) {
      return expected("data.nodes", "what the paths of a graph's files begin with", node);
    }
    config.nodes = path->get();
  }
  return config;
}

}  // namespace

DataConfig::DataConfig(std::initializer_list<std::string> globs)
    : DataConfig(std::vector<std::string>(globs)) {}

DataConfig::DataConfig(const std::vector<std::string>& globs) {
  random = globs.size() == 1 && globs.front() == kRandom;
  if (random) return;
  TokenFilesConfig files;
  files.files = globs;
  files.format = "bytes";
  tokens.push_back(std::move(files));
}

namespace {

// Returns the text in quotes, in the form of JSON, which TOML accepts, too.
std::string quoted(const std::string& text) { return dumped(nlohmann::json(text)); }

std::string list_text(const std::vector<std::string>& texts) {
  std::vector<std::string> parts;
  for (const std::string& text : texts) parts.push_back(quoted(text));
  return "[" + join(parts, ", ") + "]";
}

// Returns the shortest text that gives the same number and that TOML reads as a floating number.
std::string number_text(double value) {
  const std::string text = fmt::format("{}", value);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

std::string store_text(const DataConfig& config) {
  return config.store_bytes > 0 ? fmt::format(", store = {}", config.store_bytes) : "";
}

std::string table_text(const TokenFilesConfig& config) {
  std::string text = "{ files = " + list_text(config.files);
  if (!config.format.empty()) text += ", format = " + quoted(config.format);
  if (config.weight > 0) text += ", weight = " + number_text(config.weight);
  if (config.padded) text += ", documents = \"padded\"";
  if (config.end_of_document >= 0) {
    text += fmt::format(", end_of_document = {}", config.end_of_document);
  }
  return text + " }";
}

}  // namespace

std::string to_text(const DataConfig& config) {
  if (config.random) return quoted(std::string(kRandom));
  if (!config.clicks.empty()) return fmt::format("{{ clicks = {} }}", quoted(config.clicks));
  if (!config.nodes.empty()) {
    return fmt::format("{{ nodes = {}, part = {} }}", quoted(config.nodes), quoted(config.part));
  }
  if (config.hdf5.given()) {
    return fmt::format("{{ hdf5 = {}, inputs = {}, labels = {}, scale = {}{} }}",
                       quoted(config.hdf5.file), quoted(config.hdf5.inputs),
                       quoted(config.hdf5.labels), number_text(config.scale), store_text(config));
  }
  if (!config.arrays.empty()) {
    std::vector<std::string> arrays;
    for (const auto& [input, file] : config.arrays) {
      arrays.push_back(quoted(input) + " = " + quoted(file));
    }
    std::string text = fmt::format("{{ arrays = {{ {} }}, scale = {}", join(arrays, ", "),
                                   number_text(config.scale));
    std::vector<std::string> ahead;
    for (const auto& [input, steps] : config.ahead) {
      ahead.push_back(fmt::format("{} = {}", quoted(input), steps));
    }
    if (!ahead.empty()) text += fmt::format(", ahead = {{ {} }}", join(ahead, ", "));
    if (config.shift > 0) text += fmt::format(", shift = {}", config.shift);
    if (config.flip) text += ", flip = true";
    return text + store_text(config) + " }";
  }
  const bool plain = config.tokens.size() == 1 && config == DataConfig(config.tokens[0].files);
  if (plain) return list_text(config.tokens[0].files);
  std::vector<std::string> tables;
  for (const TokenFilesConfig& files : config.tokens) tables.push_back(table_text(files));
  return "[" + join(tables, ", ") + "]";
}

Result<DataConfig> read_data_config(const toml::node& node) {
  if (const toml::table* table = node.as_table()) {
    if (table->contains("arrays")) return read_arrays(*table);
    if (table->contains("hdf5")) return read_hdf5(*table);
    if (table->contains("clicks")) return read_clicks(*table);
    if (table->contains("nodes")) return read_nodes(*table);
    DataConfig config;
    TESSERA_TRY(TokenFilesConfig files, read_tokens(*table));
    config.tokens.push_back(std::move(files));
    return config;
  }
  const toml::array* list = node.as_array();
  if (list != nullptr && !list->empty() && list->get(0)->is_table()) {
    DataConfig config;
    for (const toml::node& item : *list) {
      const toml::table* table = item.as_table();
      if (table == nullptr) return expected("data", "a list of tables, or one of globs", node);
      TESSERA_TRY(TokenFilesConfig files, read_tokens(*table));
      config.tokens.push_back(std::move(files));
    }
    return config;
  }
  TESSERA_TRY(const std::vector<std::string> globs, read_globs("data", node));
  return DataConfig(globs);
}

}  // namespace tessera
