#include "matrix.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>

#include "tessera/base/text.h"
#include "tessera/base/toml.h"
#include "tessera/runtime/session.h"

namespace tessera {
namespace {

const std::string kRoot = TESSERA_SOURCE_DIR;

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
    const std::vector<std::string> known{"plan", "ranks", "batch", "models", "quick"};
    if (std::find(known.begin(), known.end(), key.str()) != known.end()) continue;
    return invalid_input(fmt::format("{}: unknown key '{}', did you mean '{}'?", where, key.str(),
                                     nearest(key.str(), known)));
  }
  const std::vector<std::string> quick = words(entry["quick"].value_or(""));
  std::vector<MatrixCase> cases;
  for (const std::string& model : words(entry["models"].value_or(""))) {
    MatrixCase one = common;
    one.model = model;
    one.spec = models[model].value_or("");
    if (one.spec.empty())
      return invalid_input(fmt::format("{}: model '{}' is not in [models]", where, model));
    one.quick = std::find(quick.begin(), quick.end(), model) != quick.end();
    cases.push_back(std::move(one));
  }
  const auto is_quick = [](const MatrixCase& one) { return one.quick; };
  const auto found = std::count_if(cases.begin(), cases.end(), is_quick);
  if (!cases.empty() && found == static_cast<std::ptrdiff_t>(quick.size())) return cases;
  return invalid_input(
      fmt::format("{}: a case needs models = \"...\", and quick names some of them", where));
}

// ---- results
struct Row {
  MatrixCase of;
  VerifyReport report;
};

std::vector<Row>& rows() {
  static std::vector<Row> all;
  return all;
}

std::string page() {
  std::string out =
      "# The combination matrix\n\n"
      "Each line is a plan, run on threads in float64 for two AdamW steps and compared with the "
      "serial "
      "run: the largest relative errors of the loss, the gradients and the updated parameters.\n"
      "Bytes are those that all ranks send, memory is the peak of the rank with the most: "
      "predicted "
      "from the program and counted by the runtime, which must be the same number.\n"
      "The list is [matrix.toml](../tests/matrix/matrix.toml); this page is written by "
      "`TESSERA_WRITE_MATRIX=1 build/tests/matrix_slow_test`. The models:\n\n";
  std::string models, group;
  for (const Row& row : rows()) {
    const std::string line = fmt::format("- {}: `{}`\n", row.of.model, row.of.spec);
    if (row.of.model != row.of.spec && models.find(line) == std::string::npos) models += line;
  }
  out += models;
  for (const Row& row : rows()) {
    if (row.of.group != group) {
      group = row.of.group;
      out += fmt::format(
          "\n## {}\n| plan | model | ranks | loss | gradients | parameters | bytes predicted | "
          "counted | memory predicted | counted | ok "
          "|\n|---|---|---|---|---|---|---|---|---|---|---|\n",
          group);
    }
    const VerifyReport& r = row.report;
    out += fmt::format("| `{}` | {} | {} | {:.0e} | {:.0e} | {:.0e} | {} | {} | {} | {} | {} |\n",
                       row.of.plan, row.of.model, r.ranks, r.loss_error, r.gradients_error,
                       r.parameters_error, r.bytes_predicted, r.bytes_counted, r.peak_predicted,
                       r.peak_counted, r.ok ? "yes" : "**no**");
  }
  return out;
}

class MatrixTest : public testing::Test {
 public:
  explicit MatrixTest(MatrixCase one) : case_(std::move(one)) {}
  void TestBody() override {
    VerifyConfig config;
    config.model = case_.spec;
    config.plan = case_.plan.ends_with(".toml") ? kRoot + "/" + case_.plan : case_.plan;
    config.batch = case_.batch;
    config.ranks = case_.ranks;
    const Result<VerifyReport> report = verify_plan(config);
    ASSERT_TRUE(report.has_value()) << case_.model << " " << report.error().message;
    EXPECT_TRUE(report->ok) << case_.model << " " << case_.plan << ": " << report->why;
    rows().push_back({case_, *report});
  }

 private:
  MatrixCase case_;
};

class PageWriter : public testing::Environment {
 public:
  explicit PageWriter(size_t cases) : cases_(cases) {}
  void TearDown() override {
    if (std::getenv("TESSERA_WRITE_MATRIX") == nullptr) return;
    EXPECT_EQ(rows().size(), cases_) << "docs/matrix.md is written from all cases";
    if (rows().size() != cases_) return;
    const Status written = write_file(kRoot + "/docs/matrix.md", page());
    EXPECT_TRUE(written.has_value()) << written.error().message;
  }

 private:
  size_t cases_;
};

std::string test_name(const MatrixCase& one) {
  std::string name = one.model == one.spec ? one.plan : one.model + "_" + one.plan;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

}  // namespace

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
    one.plan = path.substr(kRoot.size() + 1);
    one.spec = one.model;
    one.ranks = 0;
    one.batch = batch;
    one.quick = true;
    cases.push_back(std::move(one));
  }
  return cases;
}

namespace {

Result<std::vector<MatrixCase>> load_all() {
  TESSERA_TRY(auto cases, load_matrix(kRoot + "/tests/matrix/matrix.toml"));
  TESSERA_TRY(const auto examples, load_examples(kRoot + "/examples/plans", cases.front().batch));
  cases.insert(cases.end(), examples.begin(), examples.end());
  return cases;
}

}  // namespace

void register_matrix(bool only_quick) {
  const auto cases = load_all();
  if (!cases) {
    testing::RegisterTest("Matrix", "loads", nullptr, nullptr, __FILE__, __LINE__,
                          [why = cases.error().message]() -> testing::Test* {
                            ADD_FAILURE() << why;
                            return nullptr;
                          });
    return;
  }
  size_t count = 0;
  for (const MatrixCase& one : *cases) {
    if (only_quick && !one.quick) continue;
    ++count;
    testing::RegisterTest("Matrix", test_name(one).c_str(), nullptr, nullptr, __FILE__, __LINE__,
                          [one]() -> testing::Test* { return new MatrixTest(one); });
  }
  if (!only_quick) testing::AddGlobalTestEnvironment(new PageWriter(count));
}

}  // namespace tessera
