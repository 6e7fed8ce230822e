#include "changes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <utility>
#include <vector>

#include "matrix_cases.h"
#include "support/seed.h"
#include "tessera/runtime/session.h"
#include "tessera/test/source_dir.h"

namespace tessera {
namespace {

const std::string kSourceRoot = TESSERA_SOURCE_DIR;

std::string plan_of(const MatrixCase& one) {
  return one.plan.ends_with(".toml") ? kSourceRoot + "/" + one.plan : one.plan;
}

class PlanChanges : public testing::Test {
 public:
  explicit PlanChanges(int pairs) : pairs_(pairs) {}
  void TestBody() override {
    SCOPED_TRACE(seed_text());
    std::mt19937_64 random(test_seed(20));
    const auto cases = load_plans(kSourceRoot);
    ASSERT_TRUE(cases) << cases.error().message;
    // Plans of one model and one batch may follow each other.
    std::map<std::pair<std::string, int64_t>, std::vector<const MatrixCase*>> groups;
    for (const MatrixCase& one : *cases) groups[{one.spec, one.batch}].push_back(&one);
    std::vector<const std::vector<const MatrixCase*>*> choices;
    for (const auto& [model, group] : groups) {
      if (group.size() > 1) choices.push_back(&group);
    }
    ASSERT_FALSE(choices.empty());
    for (int i = 0; i < pairs_; ++i) {
      const auto& group = *choices[random() % choices.size()];
      const size_t first = random() % group.size();
      const size_t second = (first + 1 + random() % (group.size() - 1)) % group.size();
      expect_equal(*group[first], *group[second]);
    }
  }

 private:
  static void expect_equal(const MatrixCase& from, const MatrixCase& to) {
    VerifyConfig config;
    config.model = from.spec;
    config.plan = plan_of(from);
    config.changes = {{1, plan_of(to)}};
    config.batch = from.batch;
    const auto report = verify_plan(config);
    const std::string what = fmt::format("tessera verify {} --plan '{}' --change '1:{}' --batch {}",
                                         from.spec, from.plan, to.plan, from.batch);
    ASSERT_TRUE(report) << what << ": " << report.error().message;
    EXPECT_TRUE(report->ok) << what << ": " << report->why;
  }

  int pairs_;
};

}  // namespace

void register_plan_changes(int pairs) {
  testing::RegisterTest("PlanChanges", "equal_the_serial_run", nullptr, nullptr, __FILE__, __LINE__,
                        [pairs]() -> testing::Test* { return new PlanChanges(pairs); });
}

}  // namespace tessera
