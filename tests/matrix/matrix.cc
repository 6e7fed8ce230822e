#include "matrix.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>

#include "matrix_cases.h"
#include "tessera/base/text.h"
#include "tessera/runtime/session.h"
#include "tessera/test/source_dir.h"

namespace tessera {
namespace {

const std::string kRoot = TESSERA_SOURCE_DIR;

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
    if (std::getenv("TESSERA_WRITE_MATRIX") == nullptr || rows().empty()) return;
    EXPECT_EQ(rows().size(), cases_) << "docs/matrix.md is written from all cases";
    if (rows().size() != cases_) return;
    const Status written = write_file(kRoot + "/docs/matrix.md", page());
    EXPECT_TRUE(written.has_value()) << written.error().message;
  }

 private:
  size_t cases_;
};

}  // namespace

std::string matrix_test_name(const MatrixCase& one) {
  std::string name = one.model == one.spec ? one.plan : one.model + "_" + one.plan;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

void register_matrix(bool only_quick) {
  const auto cases = load_plans(kRoot);
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
    testing::RegisterTest("Matrix", matrix_test_name(one).c_str(), nullptr, nullptr, __FILE__,
                          __LINE__, [one]() -> testing::Test* { return new MatrixTest(one); });
  }
  if (!only_quick) testing::AddGlobalTestEnvironment(new PageWriter(count));
}

}  // namespace tessera
