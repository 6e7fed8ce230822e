#include "equivalence.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

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
  // zero, which would measure the noise.
  config.optimizer.kind = stream.empty() || stream[0] % 2 == 0 ? "sgd" : "adamw";
  config.optimizer.eps = 1e-3;
  const Result<VerifyReport> report = verify_model(model, random.plan, config);
  std::string why = report ? report->why : report.error().message;
  if (why.empty()) return "";
  return fmt::format("{}\n---- plan\n{}\n---- graph\n{}", why, random.plan, to_text(random.graph));
}

void expect_random_plans_equal_serial(int cases) {
  default_properties(cases);
  const bool holds = rc::check("random graphs under random plans equal the serial run", [&] {
    const std::string what = disagreement(random_stream());
    if (!what.empty()) RC_FAIL(what);
  });
  EXPECT_TRUE(holds);
}

}  // namespace tessera
