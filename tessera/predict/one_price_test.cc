// A published row costs the same whether `tessera predict` prices it, or whether its model, plan,
// machine and style are priced as those of any user.
#include <gtest/gtest.h>

#include "tessera/base/csv.h"
#include "tessera/base/text.h"
#include "tessera/compile/compile.h"
#include "tessera/predict/constants.h"
#include "tessera/predict/corrections.h"
#include "tessera/predict/predict.h"
#include "tessera/simulate/simulate.h"
#include "tessera/test/source_dir.h"

namespace tessera {
namespace {

constexpr size_t kRows = 50;

std::vector<Row> published_rows() {
  const auto text = read_file(TESSERA_SOURCE_DIR "/data/published-throughput.csv");
  EXPECT_TRUE(text);
  return read_rows(parse_csv(*text, "published-throughput.csv").value(), "published-throughput.csv")
      .value();
}

// Returns the texts of a row if a user can say them: whole nodes of a preset. Null otherwise, and
// for large runs, which would take the test too long.
std::optional<Explained> sayable(const Row& row, const PredictSettings& settings) {
  if (row.gpus.value_or(0) > 32 || row.gpus.value_or(0) % 8 != 0) return std::nullopt;
  auto found = explain(row, settings);
  if (!found) return std::nullopt;
  const Expressed& said = found->expressed;
  const auto cluster = load_cluster(said.cluster);
  if (!cluster || cluster->parts.front().type.devices != said.gpus_a_node) return std::nullopt;
  return std::move(*found);
}

TEST(OnePrice, OfAPublishedRowIsThatOfItsTexts) {
  const Constants constants = load_constants("").value();
  const std::vector<Row> rows = published_rows();
  size_t compared = 0;
  for (size_t i = 0; i < rows.size() && compared < kRows; i += 7) {
    const auto found = sayable(rows[i], constants.all);
    if (!found) continue;
    ++compared;
    const Expressed& said = found->expressed;
    Cluster cluster = load_cluster(said.cluster).value();
    const std::string preset = said.style.substr(0, said.style.find(','));
    const Corrections corrections = corrections_of(constants.all, preset, cluster);
    if (!said.changes.empty()) {
      ASSERT_TRUE(apply_what_if(cluster, said.changes));
    }
    SimulateOptions options;
    // The row's own options come last, as those of a user do.
    options.style =
        parse_style(preset + corrections.style + said.style.substr(preset.size())).value();
    const auto compiled = compile({said.model, said.plan, said.batch});
    ASSERT_TRUE(compiled) << rows[i].id << ": " << compiled.error().message;
    const Simulation simulated = simulate(*compiled->lowering, cluster, options).value();
    EXPECT_EQ(simulated.step_time_s * said.step_scale, found->prediction.step_time_s)
        << rows[i].id << " " << said.style;
  }
  EXPECT_EQ(compared, kRows);
}

}  // namespace
}  // namespace tessera
