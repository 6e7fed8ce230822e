#include "tessera/models/config.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/text.h"

namespace tessera {
namespace {

// Reads one value into the target of its key. The text of an error lacks the beginning
// "model 'x':".
struct SetValue {
  const ModelKey& key;
  const std::string& text;

  Status operator()(int64_t* target) const {
    const auto value = parse_int(text);
    if (!value || *value < key.minimum || *value > kMaxModelSize) {
      return invalid_input(fmt::format("{} must be an integer from {} to {}, found '{}'", key.name,
                                       key.minimum, kMaxModelSize, text));
    }
    *target = *value;
    return {};
  }
  Status operator()(double* target) const {
    const auto value = parse_double(text);
    if (!value || *value < 0) {
      return invalid_input(
          fmt::format("{} must be a number of at least 0, found '{}'", key.name, text));
    }
    *target = *value;
    return {};
  }
  Status operator()(bool* target) const {
    if (text != "0" && text != "1" && text != "false" && text != "true") {
      return invalid_input(fmt::format("{} must be 0 or 1, found '{}'", key.name, text));
    }
    *target = text == "1" || text == "true";
    return {};
  }
  Status operator()(std::string* target) const {
    const bool any = key.choices.empty() && !text.empty();
    if (!any && std::find(key.choices.begin(), key.choices.end(), text) == key.choices.end()) {
      return invalid_input(
          fmt::format("{} must be one of {}, found '{}'", key.name, join(key.choices, ", "), text));
    }
    *target = text;
    return {};
  }
  Status operator()(std::vector<int64_t>* target) const {
    std::vector<int64_t> values;
    for (const std::string& part : split_text(text, '-')) {
      const auto value = parse_int(part);
      if (!value || *value < key.minimum || *value > kMaxModelSize) {
        return invalid_input(
            fmt::format("{} must be integers from {} to {} joined by '-', found '{}'", key.name,
                        key.minimum, kMaxModelSize, text));
      }
      values.push_back(*value);
    }
    *target = std::move(values);
    return {};
  }
  Status operator()(DType* target) const {
    const auto value = parse_dtype(text);
    if (!value || !is_floating(*value)) {
      return invalid_input(fmt::format(
          "{} must be one of float64, float32, bfloat16, float16, found '{}'", key.name, text));
    }
    *target = *value;
    return {};
  }
};

struct PrintValue {
  std::string operator()(const int64_t* value) const { return std::to_string(*value); }
  std::string operator()(const double* value) const { return fmt::format("{}", *value); }
  std::string operator()(const bool* value) const { return *value ? "1" : "0"; }
  std::string operator()(const std::string* value) const { return *value; }
  std::string operator()(const DType* value) const { return std::string(dtype_name(*value)); }
  std::string operator()(const std::vector<int64_t>* value) const {
    return fmt::format("{}", fmt::join(*value, "-"));
  }
};

}  // namespace

ModelKey window_key(int64_t& window) {
  ModelKey key{"window", &window,
               "a token attends to those less than so many positions away; 0: to all"};
  key.minimum = 0;
  return key;
}

ModelKey eod_key(int64_t& eod) {
  ModelKey key{"eod", &eod,
               "the token that ends a document: attention stays within documents; -1: none"};
  key.minimum = -1;
  return key;
}

Status check_eod(std::string_view family, int64_t eod, int64_t vocab) {
  if (eod < vocab) return {};
  return model_error(family, fmt::format("eod={} must be below vocab={}", eod, vocab));
}

tl::unexpected<Error> model_error(std::string_view family, std::string_view message) {
  return invalid_input(fmt::format("model '{}': {}", family, message));
}

Status set_keys(std::string_view family, const std::vector<ModelKey>& keys,
                const ModelArguments& arguments) {
  std::vector<std::string> names;
  for (const ModelKey& key : keys) names.push_back(key.name);
  for (const auto& [name, value] : arguments) {
    if (name.empty()) {
      return model_error(family, fmt::format("expected key=value, found '{}'", value));
    }
    const auto key = std::find_if(keys.begin(), keys.end(),
                                  [&name_ = name](const ModelKey& k) { return k.name == name_; });
    if (key == keys.end()) {
      return model_error(family, fmt::format("unknown key '{}', did you mean '{}'? (keys: {})",
                                             name, nearest(name, names), join(names, ", ")));
    }
    if (auto status = std::visit(SetValue{*key, value}, key->target); !status) {
      return model_error(family, status.error().message);
    }
  }
  return {};
}

std::string canonical_spec(std::string_view family, const std::vector<ModelKey>& keys) {
  std::vector<std::string> parts;
  for (const ModelKey& key : keys) {
    parts.push_back(fmt::format("{}={}", key.name, std::visit(PrintValue{}, key.target)));
  }
  return fmt::format("{}:{}", family, join(parts, ","));
}

std::vector<ModelKeyText> key_texts(const std::vector<ModelKey>& keys) {
  std::vector<ModelKeyText> texts;
  for (const ModelKey& key : keys) {
    texts.push_back({key.name,
                     key.otherwise.empty() ? std::visit(PrintValue{}, key.target) : key.otherwise,
                     key.meaning, key.choices});
  }
  return texts;
}

}  // namespace tessera
