#include "narrow.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <iterator>

#include "matrix.h"
#include "matrix_cases.h"
#include "tessera/base/text.h"
#include "tessera/runtime/session.h"
#include "tessera/test/source_dir.h"

namespace tessera {
namespace {

const std::string kSources = TESSERA_SOURCE_DIR;
constexpr const char* kNarrow[] = {"float32", "bfloat16", "float16"};

struct NarrowRow {
  MatrixCase of;
  std::string dtype;
  VerifyReport report;
};

std::vector<NarrowRow>& narrow_rows() {
  static std::vector<NarrowRow> all;
  return all;
}

std::string narrow_page() {
  std::string out =
      "# The combination matrix in narrow dtypes\n\n"
      "Cases of [the matrix](matrix.md), one or more of each family of plans, run in the dtypes in "
      "which models are trained: "
      "computing in float32, bfloat16 or float16 (with a dynamic loss scale), parameters and their "
      "updates in float32. Each run takes three SGD steps and is compared with the serial run in "
      "the same dtype. An error is relative, as in the matrix; the limit follows from the dtype, "
      "the longest path and the longest sum of the model, and "
      "[tolerance.h](../tessera/runtime/arrays/tolerance.h) says how. Bytes and memory are equal "
      "to the "
      "prediction in every row. Models that route tokens are not here: two logits that are equal "
      "but for rounding send a token to another expert, which is no fault and no small error. For "
      "the same reason T5 and Evoformer are here with GELU in place of ReLU: what a ReLU reads may "
      "be zero but for rounding, and in a model of this size one element that passes in one run "
      "and "
      "not in the other is a third of a weight's gradient (T5 in float16: 0.34, more than in "
      "bfloat16; with GELU it is within the limit).\n"
      "Written by `TESSERA_WRITE_MATRIX=1 build/tests/matrix_slow_test "
      "--gtest_filter='NarrowMatrix*'`.\n\n"
      "| plan | model | dtype | loss | gradients | parameters | limit | ok |\n"
      "|---|---|---|---|---|---|---|---|\n";
  for (const NarrowRow& row : narrow_rows()) {
    const VerifyReport& r = row.report;
    out += fmt::format("| `{}` | {} | {} | {:.0e} | {:.0e} | {:.0e} | {:.0e} | {} |\n", row.of.plan,
                       row.of.model, row.dtype, r.loss_error, r.gradients_error, r.parameters_error,
                       r.tolerances.gradients, r.ok ? "yes" : "**no**");
  }
  return out;
}

class NarrowTest : public testing::Test {
 public:
  NarrowTest(MatrixCase one, std::string dtype) : case_(std::move(one)), dtype_(std::move(dtype)) {}
  void TestBody() override {
    VerifyConfig config;
    config.model = case_.spec;
    config.plan = case_.plan.ends_with(".toml") ? kSources + "/" + case_.plan : case_.plan;
    config.batch = case_.batch;
    config.ranks = case_.ranks;
    config.steps = 3;
    config.precision = dtype_;
    config.optimizer.kind = "sgd";  // its step is linear in the gradient: tolerance.h
    config.optimizer.lr = 0.1;
    config.optimizer.warmup = 1;
    const Result<VerifyReport> report = verify_plan(config);
    ASSERT_TRUE(report.has_value()) << case_.model << " " << report.error().message;
    EXPECT_TRUE(report->ok) << case_.model << " " << case_.plan << ": " << report->why;
    narrow_rows().push_back({case_, dtype_, *report});
  }

 private:
  MatrixCase case_;
  std::string dtype_;
};

class NarrowPageWriter : public testing::Environment {
 public:
  explicit NarrowPageWriter(size_t cases) : cases_(cases) {}
  void TearDown() override {
    if (std::getenv("TESSERA_WRITE_MATRIX") == nullptr || narrow_rows().size() != cases_) return;
    const Status written = write_file(kSources + "/docs/matrix-narrow.md", narrow_page());
    EXPECT_TRUE(written.has_value()) << written.error().message;
  }

 private:
  size_t cases_;
};

}  // namespace

void register_narrow_matrix(bool only_quick) {
  const auto cases = load_plans(kSources);
  if (!cases) return;  // the matrix reports it
  size_t count = 0, turn = 0;
  for (const MatrixCase& one : *cases) {
    if (!one.narrow || (only_quick && !one.quick)) continue;
    ++turn;
    for (const char* dtype : kNarrow) {
      if (only_quick && dtype != kNarrow[turn % std::size(kNarrow)]) continue;
      ++count;
      const std::string name = fmt::format("{}_{}", matrix_test_name(one), dtype);
      testing::RegisterTest(
          "NarrowMatrix", name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
          [one, dtype]() -> testing::Test* { return new NarrowTest(one, dtype); });
    }
  }
  if (!only_quick) testing::AddGlobalTestEnvironment(new NarrowPageWriter(count));
}

}  // namespace tessera
