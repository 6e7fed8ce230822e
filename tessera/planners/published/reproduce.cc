#include "tessera/planners/published/reproduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "tessera/base/data_file.h"
#include "tessera/base/json_text.h"
#include "tessera/base/text.h"
#include "tessera/planners/published/systems.h"

namespace tessera {
const TextFiles& published_claims_files();
const TextFiles& worked_example_files();
}  // namespace tessera

namespace tessera::published {
namespace {

struct System {
  PublishedSystem about;
  Result<Json> (*run)(const JsonTable& in, const Progress& progress);
};

const std::vector<System>& systems() {
  static const std::vector<System> all{
      {{"galvatron", "a strategy of its own for each layer, under a memory limit",
        "docs/planners/galvatron.md"},
       run_galvatron},
      {{"alpa", "layers of ops, stages of layers, and a split of its own for each op",
        "docs/planners/alpa.md"},
       run_alpa},
      {{"terapipe", "slices of a sequence that pass a pipeline one after another",
        "docs/strategies/terapipe.md"},
       run_terapipe},
      {{"opfence", "a chain of ops on devices with unequal links, messages compressed",
        "docs/theory/fusionllm.md"},
       run_opfence},
      {{"rannc", "any graph cut into components, blocks and replicated stages",
        "docs/planners/rannc.md"},
       run_rannc},
      {{"dtfm", "devices of several regions as pipeline stages of replicas",
        "docs/theory/fusionllm.md"},
       run_dtfm},
      {{"splitbrain", "convolutions replicated, dense layers sharded within groups",
        "docs/strategies/split-brain.md"},
       run_splitbrain},
  };
  return all;
}

Result<const System*> find_system(std::string_view name) {
  std::vector<std::string> names;
  for (const System& system : systems()) {
    if (system.about.name == name) return &system;
    names.push_back(system.about.name);
  }
  return invalid_input(
      fmt::format("reproduce: unknown system '{}', expected one of {}", name, join(names, ", ")));
}

// The keys of every instance; the other keys belong to the system.
struct Frame {
  Json base;  // without the keys below
  Json cases, expected;
  std::optional<int64_t> decimals;
};

Result<Json> parse_json(std::string_view text, std::string_view file) {
  try {
    return Json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    std::string what = error.what();
    what = what.substr(what.find("] ") == std::string::npos ? 0 : what.find("] ") + 2);
    return invalid_input(fmt::format("{}: expected JSON: {}", file, what));
  }
}

Status read_decimals(const JsonTable& in, std::optional<int64_t>& decimals) {
  if (!in.has("decimals")) return {};
  return in.whole("decimals", decimals.emplace(), 0, 15);
}

Result<Frame> read_frame(Json json, const std::string& file) {
  TESSERA_TRY(const JsonTable in, JsonTable::make(json, file));
  std::string text;
  TESSERA_TRY_VOID(in.text("about", text));
  TESSERA_TRY_VOID(in.text("source", text));
  Frame frame;
  TESSERA_TRY_VOID(read_decimals(in, frame.decimals));
  TESSERA_TRY(const auto cases, in.tables("cases"));
  if (in.has("cases")) frame.cases = json["cases"];
  if (in.has("expected")) frame.expected = json["expected"];
  if (in.has("cases") && in.has("expected")) {
    return in.error("expected", "an instance with cases states what it expects in each of them");
  }
  if (in.has("cases") && cases.empty()) return in.error("cases", "expected at least one case");
  for (const char* key : {"about", "source", "decimals", "cases", "expected"}) json.erase(key);
  frame.base = std::move(json);
  return frame;
}

class Comparison {
 public:
  Comparison(std::optional<int64_t> decimals, Reproduction& out) : decimals_(decimals), out_(out) {}

  void compare(const Json& expected, const Json& found, const std::string& path) {
    if (expected.is_object() && found.is_object()) {
      for (const auto& [key, value] : expected.items()) {
        const auto at = found.find(key);
        compare(value, at == found.end() ? Json() : *at, fmt::format("{}.{}", path, key));
      }
      return;
    }
    if (expected.is_array() && found.is_array() && expected.size() == found.size()) {
      for (size_t i = 0; i < expected.size(); ++i) {
        compare(expected[i], found[i], fmt::format("{}[{}]", path, i));
      }
      return;
    }
    ++out_.checked;
    if (!agree(expected, found)) {
      out_.differences.push_back(
          fmt::format("{}: expected {}, found {}", path, short_json(expected), short_json(found)));
    }
  }

 private:
  bool agree(const Json& expected, const Json& found) const {
    if (!expected.is_number() || !found.is_number()) return expected == found;
    const double a = expected.get<double>();
    const double difference = std::abs(a - found.get<double>());
    if (!decimals_) return difference <= 1e-9 * std::abs(a);
    // The expected value is rounded to so many decimals. The factor 1 + 1e-6 allows for rounding in
    // the computed sums.
    return difference <= 0.5 * std::pow(10.0, -static_cast<double>(*decimals_)) * (1 + 1e-6);
  }

  std::optional<int64_t> decimals_;
  Reproduction& out_;
};

// Renders a value for people: objects as lines "key  value", lists of objects as tables.
class Renderer {
 public:
  std::string text(const Json& value) {
    object(value, "");
    return std::move(out_);
  }

 private:
  static bool plain(const Json& value) { return !value.is_structured(); }
  static bool flat_list(const Json& value) {
    return value.is_array() && std::all_of(value.begin(), value.end(), [](const Json& item) {
             return plain(item) ||
                    (item.is_array() && std::all_of(item.begin(), item.end(), plain));
           });
  }
  static bool is_row(const Json& value) {
    return value.is_object() && !value.empty() &&
           std::all_of(value.begin(), value.end(),
                       [](const Json& cell) { return plain(cell) || flat_list(cell); });
  }
  static std::string cell(const Json& value) {
    if (value.is_null()) return "-";
    if (value.is_string()) return value.get<std::string>();
    if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
    if (value.is_number_integer()) return value.dump();
    if (value.is_number()) return fmt::format("{:.9g}", value.get<double>());
    std::vector<std::string> items;
    for (const Json& item : value) {
      items.push_back(item.is_array() ? "[" + cell(item) + "]" : cell(item));
    }
    return join(items, !value.empty() && value[0].is_array() ? " " : ", ");
  }

  void object(const Json& value, const std::string& indent) {
    size_t width = 0;
    for (const auto& [key, item] : value.items()) width = std::max(width, key.size());
    for (const auto& [key, item] : value.items()) {
      if (plain(item) || flat_list(item)) {
        out_ += fmt::format("{}{:<{}}  {}\n", indent, key, width, cell(item));
      } else {
        out_ += indent + key + "\n";
        nested(item, indent + "  ");
      }
    }
  }
  void nested(const Json& value, const std::string& indent) {
    if (std::all_of(value.begin(), value.end(), is_row)) return table(value, indent);
    if (value.is_object()) return object(value, indent);
    for (size_t i = 0; i < value.size(); ++i) {
      out_ += fmt::format("{}{}:\n", indent, i);
      if (value[i].is_structured()) nested(value[i], indent + "  ");
    }
  }
  void table(const Json& value, const std::string& indent) {
    std::vector<std::string> head;
    if (value.is_object()) head.emplace_back();
    for (const Json& row : value) {
      for (const auto& [key, item] : row.items()) {
        if (std::find(head.begin(), head.end(), key) == head.end()) head.push_back(key);
      }
    }
    std::vector<std::vector<std::string>> rows{head};
    for (const auto& [name, row] : value.items()) {
      auto& cells = rows.emplace_back();
      for (size_t i = 0; i < head.size(); ++i) {
        const auto found = row.find(head[i]);
        if (i == 0 && value.is_object()) {
          cells.push_back(name);
        } else {
          cells.push_back(found == row.end() ? "" : cell(*found));
        }
      }
    }
    std::vector<size_t> width(head.size(), 0);
    for (const auto& row : rows) {
      for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
    }
    for (const auto& row : rows) {
      std::string line = indent;
      for (size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}  ", row[i], width[i]);
      line.erase(line.find_last_not_of(' ') + 1);
      out_ += line + "\n";
    }
  }

  std::string out_;
};

Result<Json> run_case(const System& system, const Json& instance, const std::string& file,
                      const Progress& progress) {
  TESSERA_TRY(const JsonTable in, JsonTable::make(instance, file));
  TESSERA_TRY(Json answer, system.run(in, progress));
  TESSERA_TRY_VOID(in.done());
  return answer;
}

}  // namespace

std::vector<PublishedSystem> published_systems() {
  std::vector<PublishedSystem> out;
  for (const System& system : systems()) out.push_back(system.about);
  return out;
}

Result<std::vector<std::pair<std::string, std::string>>> worked_examples(std::string_view system) {
  TESSERA_TRY(const System* known, find_system(system));
  std::vector<std::pair<std::string, std::string>> out;
  for (const auto& [name, text] : worked_example_files()) {
    if (name == known->about.name || name.starts_with(known->about.name + "_")) {
      out.emplace_back(name, text);
    }
  }
  return out;
}

Result<Reproduction> reproduce(std::string_view name, std::string_view instance,
                               std::string_view file, const Progress& progress) {
  TESSERA_TRY(const System* system, find_system(name));
  TESSERA_TRY(Json json, parse_json(instance, file));
  TESSERA_TRY(const Frame frame, read_frame(std::move(json), std::string(file)));
  const Progress say = progress ? progress : [](std::string_view) {};
  Reproduction out;
  Json answers{{"system", system->about.name}};
  if (!frame.cases.is_array()) {
    TESSERA_TRY(Json answer, run_case(*system, frame.base, std::string(file), say));
    if (!frame.expected.is_null()) {
      Comparison(frame.decimals, out).compare(frame.expected, answer, "expected");
    }
    answers["answer"] = std::move(answer);
  } else {
    answers["cases"] = Json::array();
    for (size_t i = 0; i < frame.cases.size(); ++i) {
      const std::string at = fmt::format("cases[{}]", i);
      const std::string where = fmt::format("{}: {}", file, at);
      Json given = frame.cases[i];
      const Json expected = given.contains("expected") ? given["expected"] : Json();
      std::optional<int64_t> decimals = frame.decimals;
      TESSERA_TRY_VOID(read_decimals(*JsonTable::make(given, where), decimals));
      given.erase("expected");
      given.erase("decimals");
      Json merged = frame.base;
      for (const auto& [key, value] : given.items()) merged[key] = value;
      TESSERA_TRY(Json answer, run_case(*system, merged, where, say));
      if (!expected.is_null()) {
        Comparison(decimals, out).compare(expected, answer, at + ".expected");
      }
      answers["cases"].push_back({{"given", std::move(given)}, {"answer", std::move(answer)}});
    }
  }
  answers["checked"] = out.checked;
  answers["differences"] = out.differences;
  out.json = dumped(answers);
  if (answers.contains("answer")) {
    out.text = Renderer().text(answers["answer"]);
  } else {
    for (const Json& item : answers["cases"]) {
      out.text += (out.text.empty() ? "" : "\n") + Renderer().text(item);
    }
  }
  return out;
}

Result<std::vector<Claim>> published_claims() {
  std::vector<Claim> out;
  for (const auto& [file, text] : published_claims_files()) {
    TESSERA_TRY(const DataTable root, parse_data(text, file));
    TESSERA_TRY(const auto rows, root.tables("claim"));
    for (const DataTable& row : rows) {
      Claim claim;
      for (const char* key : {"system", "claim", "reproduced", "how"})
        TESSERA_TRY_VOID(row.require(key));
      TESSERA_TRY_VOID(row.text("system", claim.system));
      TESSERA_TRY_VOID(row.text("claim", claim.claim));
      TESSERA_TRY_VOID(row.text("reproduced", claim.reproduced));
      TESSERA_TRY_VOID(row.texts("examples", claim.examples));
      TESSERA_TRY_VOID(row.text("how", claim.how));
      TESSERA_TRY_VOID(row.done());
      out.push_back(std::move(claim));
    }
    TESSERA_TRY_VOID(root.done());
  }
  return out;
}

}  // namespace tessera::published
