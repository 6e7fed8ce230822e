#include "tessera/models/model_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <utility>
#include <vector>

#include "tessera/base/text.h"
#include "tessera/models/architecture.h"
#include "tessera/models/architecture_table.h"
#include "tessera/models/architecture_text.h"
#include "tessera/models/family_names.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Kind = ModelName::Kind;

constexpr std::string_view kConfigSuffix = ".json", kArchiveSuffix = ".pt2";

// A text in two parts: what is named, and ":key=value,..." or "".
struct Parts {
  std::string name, changes;
};

// Splits at the first colon. The path of a configuration may have colons of its own.
Parts split(std::string_view text) {
  for (const std::string_view suffix : {kConfigSuffix, kGraphSuffix, kArchiveSuffix}) {
    if (text.ends_with(suffix)) return {std::string(text), ""};
  }
  size_t at = text.find(':');
  for (const std::string_view suffix : {kConfigSuffix, kArchiveSuffix}) {
    const size_t end = text.find(std::string(suffix) + ":");
    if (end != std::string_view::npos) at = end + suffix.size();
  }
  if (at == std::string_view::npos) return {std::string(text), ""};
  return {std::string(text.substr(0, at)), std::string(text.substr(at))};
}

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// A file of a known kind, by its name's end, or in a folder.
struct FoundFile {
  Kind kind = Kind::kCall;  // kCall: none
  std::string path;
};

FoundFile find_file(const std::string& name) {
  if (name.ends_with(kConfigSuffix)) return {Kind::kConfig, name};
  if (name.ends_with(kGraphSuffix)) return {Kind::kGraph, name};
  if (name.ends_with(kArchiveSuffix)) return {Kind::kArchive, name};
  if (name.empty() || !is_folder(name)) return {};
  for (const auto& [kind, file] :
       {std::pair{Kind::kConfig, "config.json"}, std::pair{Kind::kGraph, "model.graph"}}) {
    const fs::path path = fs::path(name) / file;
    if (is_file(path)) return {kind, path.string()};
  }
  return {};
}

// Returns the name without the organisation, "Meta-Llama-3-8B" for "meta-llama/Meta-Llama-3-8B";
// "" if the text is a path and no such name.
std::string without_organisation(const std::string& name) {
  const bool of_a_name = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("-_./ ").find(c) != std::string_view::npos;
  });
  if (!of_a_name || name.starts_with('.') || name.starts_with('/')) return "";
  const size_t slash = name.find('/');
  if (slash == std::string::npos) return name;
  const std::string rest = name.substr(slash + 1);
  return rest.find('/') == std::string::npos ? rest : "";
}

Result<ModelName> published(const Architecture& known, const std::string& title,
                            const std::string& changes) {
  if (known.form == Form::kUnbuilt) {
    return invalid_input(
        fmt::format("the model '{}' is {}, which no family builds "
                    "(tessera inspect --models)",
                    title, known.remark));
  }
  TESSERA_TRY(std::string call, architecture_text(known));
  std::vector<std::string> remarks;
  if (!known.remark.empty()) remarks.push_back(known.remark);
  const auto& approximations = architecture_table().approximations;
  if (const auto found = approximations.find(known.name); found != approximations.end())
    remarks.push_back(found->second);
  return ModelName{
      .changes = changes, .call = std::move(call), .title = title, .remark = join(remarks, "; ")};
}

// Returns the family or published name that is most similar to `name`.
std::string nearest_model(const std::string& name) {
  const std::string published = nearest_architecture(name);
  std::vector<std::string> both = family_names();
  both.push_back(published);
  return nearest(lower_case(name), both);
}

tl::unexpected<Error> unknown_model(const std::string& name) {
  constexpr std::string_view kKinds =
      "a model is family:key=value, a config.json, .graph or .pt2, a folder with one, or a "
      "published name; tessera inspect --models";
  std::error_code ignored;
  if (is_folder(name)) {
    return invalid_input(fmt::format(
        "the folder '{}' holds no model: expected config.json or model.graph in it", name));
  }
  const std::string last = name.substr(name.find_last_of('/') + 1);
  if (name.find('/') != std::string::npos) {
    return invalid_input(
        fmt::format("no folder '{}' and no published model of this name, did you mean '{}'? ({})",
                    name, nearest_model(last), kKinds));
  }
  return invalid_input(fmt::format("unknown model '{}', did you mean '{}'? ({})", name,
                                   nearest_model(last), kKinds));
}

// Returns the reader of archives, which is empty until a program sets it.
ArchiveReader& archive_reader() {
  static ArchiveReader reader;
  return reader;
}

}  // namespace

Result<ModelName> resolve_model(std::string_view given) {
  const std::string text(trim(given));
  if (names_family(trim(std::string_view(text).substr(0, text.find_first_of("(:")))))
    return ModelName{.call = text};
  const auto [name, changes] = split(text);
  if (FoundFile file = find_file(name); file.kind != Kind::kCall) {
    if (file.kind == Kind::kGraph && !changes.empty()) {
      return invalid_input(fmt::format(
          "'{}': expected no keys after a graph, whose sizes its file fixes, found '{}'", text,
          changes));
    }
    return ModelName{.kind = file.kind, .path = std::move(file.path), .changes = changes};
  }
  if (const std::string title = without_organisation(name); !title.empty()) {
    if (const auto known = find_architecture(title)) return published(*known, title, changes);
  }
  return unknown_model(text.substr(0, text.find_first_of("(:")));
}

bool names_graph_file(std::string_view text) {
  const auto named = resolve_model(text);
  return named && (named->kind == Kind::kGraph || named->kind == Kind::kArchive);
}

std::string config_file_of(std::string_view text) {
  auto named = resolve_model(text);
  return named && named->kind == Kind::kConfig ? std::move(named->path) : "";
}

void set_archive_reader(ArchiveReader reader) { archive_reader() = std::move(reader); }

Result<std::string> read_archive(const std::string& path, const std::string& keys, int64_t batch) {
  if (archive_reader()) return archive_reader()(path, keys, batch);
  return invalid_input(fmt::format(
      "{}: this command needs the weights of an archive: tessera import {} --out FOLDER, then "
      "FOLDER is the model",
      path, path));
}

}  // namespace tessera
