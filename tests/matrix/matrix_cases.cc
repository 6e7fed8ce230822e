// Reads matrix.toml and the example plans.
#include "matrix_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <regex>

#include "tessera/base/text.h"
#include "tessera/base/toml.h"

namespace tessera {
namespace {

std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> out;
  for (const std::string& word : split_text(text, ' ')) {
    if (!word.empty()) out.push_back(word);
  }
  return out;
}

Result<std::vector<MatrixCase>> read_case(const toml::table& entry, const std::string& where,
                                          const toml::table& models, MatrixCase common) {
  common.plan = entry["plan"].value_or("");
  common.ranks = entry["ranks"].value_or(int64_t{0});
  common.batch = entry["batch"].value_or(common.batch);
  if (common.plan.empty() || common.ranks < 1) {
    return invalid_input(fmt::format("{}: a case needs plan = \"...\" and ranks = N", where));
  }
  for (const auto& [key, value] : entry) {
    const std::vector<std::string> known{"plan", "ranks", "batch", "models", "quick", "narrow"};
    if (std::find(known.begin(), known.end(), key.str()) != known.end()) continue;
    return invalid_input(fmt::format("{}: unknown key '{}', did you mean '{}'?", where, key.str(),
                                     nearest(key.str(), known)));
  }
  const std::vector<std::string> quick = words(entry["quick"].value_or(""));
  const std::vector<std::string> narrow = words(entry["narrow"].value_or(""));
  std::vector<MatrixCase> cases;
  for (const std::string& model : words(entry["models"].value_or(""))) {
    MatrixCase one = common;
    one.model = model;
    one.spec = models[model].value_or("");
    if (one.spec.empty())
      return invalid_input(fmt::format("{}: model '{}' is not in [models]", where, model));
    one.quick = std::find(quick.begin(), quick.end(), model) != quick.end();
    one.narrow = std::find(narrow.begin(), narrow.end(), model) != narrow.end();
    cases.push_back(std::move(one));
  }
  const auto count = [&](bool MatrixCase::*mark) {
    return static_cast<size_t>(
        std::count_if(cases.begin(), cases.end(), [&](const auto& one) { return one.*mark; }));
  };
  if (!cases.empty() && count(&MatrixCase::quick) == quick.size() &&
      count(&MatrixCase::narrow) == narrow.size())
    return cases;
  return invalid_input(fmt::format(
      "{}: a case needs models = \"...\", and quick and narrow name some of them", where));
}

Result<std::vector<MatrixCase>> load_matrix(const std::string& path) {
  TESSERA_TRY(const std::string text, read_file(path));
  TESSERA_TRY(const toml::table root, parse_toml(text, path));
  const toml::table no_models;
  const toml::table* models = root["models"].as_table();
  MatrixCase common;
  common.batch = root["batch"].value_or(int64_t{0});
  std::vector<MatrixCase> all;
  const toml::array* groups = root["group"].as_array();
  if (groups == nullptr || models == nullptr || common.batch < 1)
    return invalid_input(path + ": expected batch, [models] and [[group]] tables");
  for (const toml::node& group : *groups) {
    const toml::table* table = group.as_table();
    const toml::array* cases = table == nullptr ? nullptr : (*table)["cases"].as_array();
    if (cases == nullptr) {
      return invalid_input(fmt::format("{}:{}: a group needs name and cases", path,
                                       static_cast<int>(group.source().begin.line)));
    }
    common.group = (*table)["name"].value_or("");
    for (const toml::node& entry : *cases) {
      const std::string where =
          fmt::format("{}:{}", path, static_cast<int>(entry.source().begin.line));
      if (!entry.is_table()) return invalid_input(where + ": a case is a table { plan = ... }");
      TESSERA_TRY(const auto more, read_case(*entry.as_table(), where, *models, common));
      all.insert(all.end(), more.begin(), more.end());
    }
  }
  return all;
}

Result<std::vector<MatrixCase>> load_examples(const std::string& folder, int64_t batch) {
  constexpr std::string_view kMark = "# Model: ";
  std::vector<std::string> paths;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().extension() == ".toml") paths.push_back(file.path().string());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<MatrixCase> cases;
  for (const std::string& path : paths) {
    TESSERA_TRY(const std::string text, read_file(path));
    const std::string line = text.substr(0, text.find('\n'));
    if (!line.starts_with(kMark))
      return invalid_input(fmt::format("{}:1: expected '{}...', found '{}'", path, kMark, line));
    MatrixCase one;
    one.group = "example plans";
    one.model = line.substr(kMark.size());
    one.plan = "examples/plans/" + path.substr(path.rfind('/') + 1);
    one.spec = one.model;
    one.ranks = 0;
    one.batch = batch;
    one.quick = true;
    cases.push_back(std::move(one));
  }
  return cases;
}

}  // namespace

Result<std::vector<MatrixCase>> load_plans(const std::string& root) {
  TESSERA_TRY(auto cases, load_matrix(root + "/tests/matrix/matrix.toml"));
  TESSERA_TRY(const auto examples, load_examples(root + "/examples/plans", cases.front().batch));
  cases.insert(cases.end(), examples.begin(), examples.end());
  return cases;
}

std::string widened(const std::string& spec, int64_t times) {
  // Models of embedding tables have the width of a row, and lists of the widths of dense layers, of which the
  // last one of `top` is the number of answers.
  const bool has_tables = spec.find("bottom=") != std::string::npos;
  static const std::regex usual(
      "\\b(hidden|ffn|expert_ffn|q_rank|kv_rank|shared_ffn|dense_ffn|pair|head_dim|ssm_head_dim)="
      "([0-9]+)"),
      of_tables("\\b(width|bottom|top|ffn)=([0-9-]+)");
  const std::regex& width = has_tables ? of_tables : usual;
  std::string out;
  auto rest = spec.cbegin();
  for (std::sregex_iterator it(spec.begin(), spec.end(), width), end; it != end; ++it) {
    out.append(rest, spec.cbegin() + it->position());
    std::vector<std::string> sizes = split_text(it->str(2), '-');
    const size_t grow = sizes.size() - (it->str(1) == "top" ? 1 : 0);
    for (size_t i = 0; i < grow; ++i) sizes[i] = std::to_string(times * std::stoll(sizes[i]));
    out += it->str(1) + "=" + join(sizes, "-");
    rest = spec.cbegin() + it->position() + it->length();
  }
  return out.append(rest, spec.cend());
}

}  // namespace tessera
