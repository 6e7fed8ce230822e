#include "every_export.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "matrix_cases.h"
#include "tessera/export/export.h"
#include "tessera/test/source_dir.h"

namespace tessera {
namespace {

constexpr int64_t kTimes = 32;  // as wide as the matrix has them

// Returns the number of targets that can express the plan.
size_t expect_comes_back(const MatrixCase& one, const Cluster& cluster,
                         std::map<std::string, size_t>& said) {
  const std::string plan =
      one.plan.ends_with(".toml") ? std::string(TESSERA_SOURCE_DIR) + "/" + one.plan : one.plan;
  SimulateOptions options;
  options.critical_path = false;
  options.memory_details = false;
  size_t count = 0;
  for (const ExportTarget& target : export_targets()) {
    SCOPED_TRACE(target.name);
    const ExportRequest request{widened(one.spec, kTimes), plan, one.batch, "bfloat16", &target, 8};
    const auto exported = export_plan(request);
    if (!exported) {
      const std::string& message = exported.error().message;
      EXPECT_EQ(exported.error().code, ErrorCode::kInvalidInput);
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
      EXPECT_TRUE(message.starts_with(plan)) << message;
      continue;
    }
    ++count;
    ++said[target.name];
    const auto trip = check_export(request, *exported, cluster, options);
    if (!trip) {
      ADD_FAILURE() << trip.error().message << "\n" << exported->text;
      continue;
    }
    // Where settings are not expressed exactly, a note says so, and the difference is small.
    constexpr double kMostWithNotes = .1;
    double most = exported->notes.empty() ? kMostRoundTripChange : kMostWithNotes;
    // Targets that sum gradients in 16 bits send half of what the plan sends, and say so.
    if (trip->back.settings.gradient != exported->settings.gradient) most = .5;
    EXPECT_LE(std::abs(trip->change()), most) << exported->text;
  }
  return count;
}

}  // namespace

void expect_every_export_comes_back(bool only_quick) {
  const auto cases = load_plans(TESSERA_SOURCE_DIR);
  ASSERT_TRUE(cases.has_value()) << cases.error().message;
  const auto cluster = load_cluster("dgx-a100:16");
  ASSERT_TRUE(cluster.has_value()) << cluster.error().message;
  size_t tried = 0, plans = 0;
  std::map<std::string, size_t> said;
  for (const MatrixCase& one : *cases) {
    if (only_quick && !one.quick) continue;
    SCOPED_TRACE(one.spec + " " + one.plan);
    ++tried;
    plans += expect_comes_back(one, *cluster, said) > 0 ? 1 : 0;
  }
  std::string text = fmt::format("{} of {} plans can be said", plans, tried);
  for (const auto& [target, count] : said) text += fmt::format(", {} by {}", count, target);
  fmt::print("{}\n", text);
  for (const ExportTarget& target : export_targets())
    EXPECT_GT(said[target.name], 0U) << target.name;
}

}  // namespace tessera
