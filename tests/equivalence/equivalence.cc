#include "equivalence.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>

#include "random_case.h"
#include "random_stream.h"
#include "random_windows.h"
#include "tessera/base/broken_invariant.h"
#include "tessera/models/model.h"
#include "tessera/runtime/session.h"

namespace tessera {

CaseSource all_cases() { return {"random graphs", random_case, all_features()}; }
CaseSource window_cases() {
  return {"random networks of windows", random_windows, all_window_features()};
}
CaseSource mesh_cases() {
  return {"stages on unlike meshes", random_mesh_case, all_mesh_features(), true};
}

namespace {

std::string text_of(const RandomCase& random) {
  return fmt::format("---- plan\n{}\n---- graph\n{}", random.plan, to_text(random.graph));
}

// Writes the case to the file of TESSERA_LAST_CASE, where a case that stops the process is found.
void keep_last(const RandomCase& random) {
  const char* path = std::getenv("TESSERA_LAST_CASE");
  if (path != nullptr) std::ofstream(path) << text_of(random);
}

}  // namespace

Comparison compare_to_serial(const CaseSource& source, const std::vector<uint32_t>& stream) {
  const RandomCase random = source.draw(stream);
  keep_last(random);
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
  // Updates by rows are not drawn where a loop cuts look-ups, which is refused, nor where the plan
  // names things that such a step may not have: the gradient of a table, its op, other states.
  const auto mentions = [&](const char* word) {
    return random.plan.find(word) != std::string::npos;
  };
  const bool dense = mentions("[[loop]]") || mentions(".dtable") || mentions("role:") ||
                     mentions("optimizer.") || mentions("grad.");
  config.optimizer.kind = kKinds[stream.empty() ? 0 : stream[0] % (dense ? 2 : kKinds.size())];
  config.optimizer.eps = 1e-3;
  BrokenInvariants broken;
  const Result<VerifyReport> report =
      broken.run([&] { return verify_model(model, random.plan, config); });
  const bool is_refused = !report && report.error().code == ErrorCode::kInvalidInput &&
                          report.error().message.starts_with("plan:") &&
                          report.error().message.find('\n') == std::string::npos;
  if (source.may_be_refused && is_refused) return {"", true};
  const std::string why = report ? report->why : report.error().message;
  if (why.empty()) return {};
  return {why + "\n" + text_of(random), false};
}

constexpr int kCasesForAll = 1000;  // in which the rarest feature, of one case in 100, is drawn

void expect_equal_to_serial(const CaseSource& source, int cases) {
  SCOPED_TRACE(seed_text());
  default_properties(cases);
  std::map<std::string, int> drawn;
  for (const std::string& feature : source.features) drawn[feature] = 0;
  int passed = 0;
  int refused = 0;
  bool failed = false;
  const auto say = [&] {
    fmt::print("{} under random plans: {} cases equal the serial run, {} are refused\n",
               source.name, passed - refused, refused);
    std::fflush(stdout);  // a run may be ended before its last case
  };
  const bool holds = rc::check(source.name + " under random plans equal the serial run", [&] {
    const std::vector<uint32_t> stream = random_stream();
    const auto [what, is_refused] = compare_to_serial(source, stream);
    // Finding a simpler case takes minutes, so the drawn case is shown at once.
    if (!failed && !what.empty())
      fmt::print(stderr, "first case that fails, after {}: {}\n", passed, what);
    failed = failed || !what.empty();
    if (!what.empty()) RC_FAIL(what);
    if (failed) return;  // simpler cases
    for (const std::string& feature : source.draw(stream).features) ++drawn[feature];
    if (is_refused) ++refused;
    if (++passed % 1000 == 0) say();
  });
  if (passed % 1000 != 0) say();
  std::string counts = fmt::format("{} cases pass; with:\n", passed);
  for (const auto& [feature, count] : drawn)
    counts += fmt::format("  {:<36}{:>6}\n", feature, count);
  EXPECT_TRUE(holds) << counts;
  EXPECT_LE(5 * refused, passed) << "too many random plans are refused";
  // Few cases of any seed may lack a feature that is rare; those without a seed have them all.
  const bool may_lack = passed < kCasesForAll && std::getenv("TESSERA_SEED") != nullptr;
  for (const auto& [feature, count] : drawn) {
    EXPECT_TRUE(source.features.contains(feature)) << feature << " is missing in the features";
    if (may_lack && count == 0) {
      fmt::print("{} is not drawn\n", feature);
      continue;
    }
    EXPECT_GT(count, 0) << feature << " is not drawn; " << counts;
  }
  if (std::getenv("TESSERA_SHOW_DRAWN") != nullptr) fmt::print("{}", counts);
}

}  // namespace tessera
