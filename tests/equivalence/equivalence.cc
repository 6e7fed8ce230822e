#include "equivalence.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <map>

#include "random_case.h"
#include "random_stream.h"
#include "tessera/models/model.h"
#include "tessera/runtime/session.h"

namespace tessera {

std::string disagreement(const std::vector<uint32_t>& stream) {
  const RandomCase random = random_case(stream);
  Model model;
  model.graph = random.graph;
  model.family = "random";
  model.spec = "random";
  model.vocab = 4;  // the smallest vocabulary that random_case draws tokens for is larger
  VerifyConfig config;
  config.steps = 2;
  config.timeout_s = 60;
  // A plain optimizer: Adam divides by the root of a gradient that may be rounding noise around
  // zero, which would measure the noise. The last three update tables by rows.
  constexpr std::array kKinds = {"sgd", "adamw", "row_sgd", "adagrad", "rowwise_adagrad"};
  // Not where a loop cuts look-ups, which is refused, and not where the plan names what a step with
  // updates by rows may not have: the gradient of a table, the op that makes it, other states.
  const auto mentions = [&](const char* word) {
    return random.plan.find(word) != std::string::npos;
  };
  const bool dense = mentions("[[loop]]") || mentions(".dtable") || mentions("role:");
  config.optimizer.kind = kKinds[stream.empty() ? 0 : stream[0] % (dense ? 2 : kKinds.size())];
  config.optimizer.eps = 1e-3;
  const Result<VerifyReport> report = verify_model(model, random.plan, config);
  std::string why = report ? report->why : report.error().message;
  if (why.empty()) return "";
  return fmt::format("{}\n---- plan\n{}\n---- graph\n{}", why, random.plan, to_text(random.graph));
}

void expect_random_plans_equal_serial(int cases) {
  SCOPED_TRACE(seed_text());
  default_properties(cases);
  std::map<std::string, int> drawn;
  for (const std::string& feature : all_features()) drawn[feature] = 0;
  int passed = 0;
  bool failed = false;
  const bool holds = rc::check("random graphs under random plans equal the serial run", [&] {
    const std::vector<uint32_t> stream = random_stream();
    const std::string what = disagreement(stream);
    // Finding a simpler case takes minutes: what was drawn is shown at once.
    if (!failed && !what.empty())
      fmt::print(stderr, "first case that fails, after {}: {}\n", passed, what);
    failed = failed || !what.empty();
    if (!what.empty()) RC_FAIL(what);
    if (failed) return;  // simpler cases
    for (const std::string& feature : random_case(stream).features) ++drawn[feature];
    ++passed;
  });
  std::string counts = fmt::format("{} cases pass; with:\n", passed);
  for (const auto& [feature, count] : drawn)
    counts += fmt::format("  {:<36}{:>6}\n", feature, count);
  EXPECT_TRUE(holds) << counts;
  for (const auto& [feature, count] : drawn) {
    EXPECT_TRUE(all_features().contains(feature)) << feature << " is missing in all_features()";
    EXPECT_GT(count, 0) << feature << " is not drawn; " << counts;
  }
  if (std::getenv("TESSERA_SHOW_DRAWN") != nullptr) fmt::print("{}", counts);
}

}  // namespace tessera
