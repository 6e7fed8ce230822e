#include "tessera/cluster/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tessera/base/text.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

// Reads members of one JSON object; errors name the file and the path to the member.
class Object {
 public:
  Object(const Json& json, std::string_view file, std::string where)
      : json_(json), file_(file), where_(std::move(where)) {}

  tl::unexpected<Error> expected(std::string_view key, std::string_view what) const {
    const auto it = json_.find(key);
    const std::string found = it == json_.end() ? "nothing" : it->dump().substr(0, 40);
    return invalid_input(
        fmt::format("{}: expected '{}{}' to be {}, found {}", file_, where_, key, what, found));
  }
  Status text(std::string_view key, std::string& value) const {
    const auto it = json_.find(key);
    if (it == json_.end() || !it->is_string()) return expected(key, "a text");
    value = it->get<std::string>();
    return {};
  }
  // Reads a number that must be at least `minimum`, or, if `open`, larger than `minimum`.
  Status number(std::string_view key, double minimum, bool open, double& value) const {
    const auto it = json_.find(key);
    const std::string what = fmt::format("a number {} {}", open ? "above" : "of at least", minimum);
    if (it == json_.end() || !it->is_number()) return expected(key, what);
    value = it->get<double>();
    if (!std::isfinite(value) || value < minimum || (open && value == minimum)) {
      return expected(key, what);
    }
    return {};
  }
  Status integer(std::string_view key, int64_t minimum, int64_t& value) const {
    const auto it = json_.find(key);
    if (it == json_.end() || !it->is_number_integer() || it->get<int64_t>() < minimum) {
      return expected(key, fmt::format("an integer of at least {}", minimum));
    }
    value = it->get<int64_t>();
    return {};
  }
  Result<const Json*> member(std::string_view key, Json::value_t type,
                             std::string_view what) const {
    const auto it = json_.find(key);
    if (it == json_.end() || it->type() != type) return expected(key, what);
    return &*it;
  }
  std::string inner(std::string_view key) const { return fmt::format("{}{}.", where_, key); }

 private:
  const Json& json_;
  std::string_view file_;
  std::string where_;
};

Result<Family> read_family(const Json& json, std::string_view file, const std::string& where) {
  Family family;
  const Object object(json, file, where);
  TESSERA_TRY(const Json* names, object.member("sizes", Json::value_t::array, "a list of names"));
  for (const Json& name : *names) {
    if (!name.is_string()) return object.expected("sizes", "a list of names");
    family.sizes.push_back(name.get<std::string>());
  }
  TESSERA_TRY(const Json* list, object.member("samples", Json::value_t::array, "a list"));
  for (size_t i = 0; i < list->size(); ++i) {
    const Json& item = (*list)[i];
    const Object at(item, file, object.inner(fmt::format("samples[{}]", i)));
    if (!item.is_object()) return object.expected("samples", "a list of objects");
    Sample sample;
    TESSERA_TRY(const Json* size, at.member("size", Json::value_t::array, "a list of numbers"));
    for (const Json& number : *size) {
      if (!number.is_number()) return at.expected("size", "a list of numbers");
      sample.size.push_back(number.get<double>());
    }
    if (sample.size.size() != family.sizes.size()) {
      return at.expected(
          "size", fmt::format("{} numbers ({})", family.sizes.size(), join(family.sizes, ", ")));
    }
    TESSERA_TRY_VOID(at.number("seconds", 0, true, sample.seconds));
    TESSERA_TRY_VOID(at.number("spread", 0, false, sample.spread));
    family.samples.push_back(std::move(sample));
  }
  std::stable_sort(family.samples.begin(), family.samples.end(),
                   [](const Sample& a, const Sample& b) { return a.size < b.size; });
  return family;
}

}  // namespace

Result<Profile> parse_profile(std::string_view json, std::string_view file) {
  const Json root = Json::parse(json, nullptr, false);
  if (root.is_discarded() || !root.is_object()) {
    return invalid_input(
        fmt::format("{}: expected the JSON object that tessera profile writes, found {}", file,
                    root.is_discarded() ? "text that is not JSON" : root.type_name()));
  }
  Profile profile;
  const Object object(root, file, "");
  int64_t format = 0;
  TESSERA_TRY_VOID(object.integer("format", 1, format));
  if (format != kProfileFormat) {
    return invalid_input(
        fmt::format("{}: expected format {}, found {}; measure anew: tessera profile", file,
                    kProfileFormat, format));
  }
  TESSERA_TRY_VOID(object.text("device", profile.device));
  TESSERA_TRY_VOID(object.text("version", profile.version));
  TESSERA_TRY_VOID(object.text("date", profile.date));
  TESSERA_TRY_VOID(object.integer("ranks", 1, profile.ranks));
  TESSERA_TRY(const Json* scalars, object.member("scalars", Json::value_t::object, "an object"));
  const Object scalar(*scalars, file, "scalars.");
  for (const auto& [name, value] : scalars->items()) {
    if (!value.is_number()) return scalar.expected(name, "a number");
    profile.scalars[name] = value.get<double>();
  }
  TESSERA_TRY(const Json* families, object.member("families", Json::value_t::object, "an object"));
  const Object family(*families, file, "families.");
  for (const auto& [name, value] : families->items()) {
    if (!value.is_object()) return family.expected(name, "an object");
    TESSERA_TRY(profile.families[name], read_family(value, file, family.inner(name)));
  }
  return profile;
}

Result<Profile> load_profile(const std::string& path) {
  TESSERA_TRY(const std::string text, read_file(path));
  return parse_profile(text, path);
}

std::string to_json(const Profile& profile) {
  Json head{{"format", kProfileFormat}, {"device", profile.device}, {"version", profile.version},
            {"date", profile.date},     {"ranks", profile.ranks},   {"scalars", Json::object()}};
  for (const auto& [name, value] : profile.scalars) head["scalars"][name] = value;
  std::string out = head.dump();
  out.pop_back();  // the closing brace
  out += ",\n\"families\":{";
  std::string_view between = "\n";
  for (const auto& [name, family] : profile.families) {
    out += fmt::format("{}{}:{{\"sizes\":{},\"samples\":[", between, Json(name).dump(),
                       Json(family.sizes).dump());
    between = "\n";
    for (const Sample& sample : family.samples) {
      out += fmt::format(
          "{}{}", between,
          Json{{"size", sample.size}, {"seconds", sample.seconds}, {"spread", sample.spread}}
              .dump());
      between = ",\n";
    }
    out += "]}";
    between = ",\n";
  }
  return out + "}}\n";
}

std::string default_profile_path() {
  if (const char* path = std::getenv("TESSERA_PROFILE"); path != nullptr && *path != '\0') {
    return path;
  }
  const char* home = std::getenv("HOME");
  return fmt::format("{}/.local/share/tessera/profile.json", home == nullptr ? "" : home);
}

}  // namespace tessera
