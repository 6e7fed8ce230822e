#include "tessera/cli/with_planning/watched_run.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "tessera/cli/machine.h"
#include "tessera/cli/output.h"
#include "tessera/compile/compile.h"
#include "tessera/compile/optimizer_text.h"
#include "tessera/simulate/simulate.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Predictions {
  std::vector<RankPrediction> ranks;
  std::string said;
};

Result<Predictions> predict_ranks(const WatchStart& start, const std::string& given,
                                  PricingOptions options) {
  const std::string cluster = given.empty() ? fmt::format("local:{}", start.ranks) : given;
  TESSERA_TRY(Cluster machine, load_machine(cluster));
  if (options.precision.empty()) options.precision = start.precision;
  Compiler compiler;
  TESSERA_TRY(Pricing pricing,
              decide_pricing(options, std::move(machine),
                             {start.model, start.plan, start.batch, start.model, &compiler}));
  // Ranks that are processes exchange data in another way than threads do.
  if (options.style.empty() && start.transport == "mpi")
    pricing.style.transport = Style::Transport::kMpi;
  CompileTexts texts{start.model, start.plan, start.batch, pricing.precision};
  TESSERA_TRY(texts.optimizer, parse_optimizer_text(start.optimizer));
  texts.takes_outer = true;
  TESSERA_TRY(const Compiled compiled, compiler.compile(texts));
  SimulateOptions simulated;
  simulated.style = pricing.style;
  simulated.events = true;
  TESSERA_TRY(const Simulation simulation,
              simulate(*compiled.lowering, pricing.cluster, simulated));
  return Predictions{rank_predictions(simulation, compiled.islands()),
                     fmt::format("{} ({})", cluster, pricing.said)};
}

Json pace_json(const Pace& one) {
  return {{"ratio", one.ratio},         {"quartiles", {one.low, one.high}},
          {"lost_s", one.lost_s},       {"slower_steps", one.slower_steps},
          {"certainty", one.certainty}, {"slow", one.is_slow}};
}

Json rank_json(const RankReport& rank) {
  Json ops = Json::array(), waits = Json::array();
  for (const RankReport::Op& op : rank.ops) {
    Json one{{"what", op.what}, {"seconds", op.seconds}};
    one["peers_s"] = op.peers_s > 0 ? Json(op.peers_s) : Json();
    if (rank.predicted) {
      const auto found = rank.predicted->work.find(op.what);
      one["predicted_s"] = found == rank.predicted->work.end() ? Json() : Json(found->second);
    }
    ops.push_back(std::move(one));
  }
  for (const RankWait& wait : rank.waits) {
    waits.push_back({{"for_rank", wait.rank},
                     {"what", wait.what},
                     {"tensor", wait.tensor},
                     {"count", wait.count},
                     {"seconds", wait.seconds}});
  }
  Json out{{"rank", rank.rank},
           {"step_s", rank.step_s},
           {"computing_s", rank.work_s},
           {"transfers_s", rank.transfer_s},
           {"waiting_s", rank.wait_s}};
  if (rank.predicted) {
    out["predicted"] = {{"computing_s", rank.predicted->work_s},
                        {"transfers_s", rank.predicted->transfer_s},
                        {"waiting_s", rank.predicted->wait_s}};
  }
  out["beside_peers"] = pace_json(rank.work);
  out["ops"] = std::move(ops);
  out["waits"] = std::move(waits);
  return out;
}

}  // namespace

Result<std::optional<WatchedRun>> read_watched_run(const std::string& folder,
                                                   const std::string& cluster,
                                                   const PricingOptions& pricing) {
  const std::string path = (std::filesystem::path(folder) / kRankTimesFile).string();
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::optional<WatchedRun>();
  TESSERA_TRY(const std::optional<WatchStart> start, watched_of(path));
  if (!start) return std::optional<WatchedRun>();
  auto predictions = predict_ranks(*start, cluster, pricing);
  WatchedRun out;
  std::vector<RankPrediction> ranks;
  if (predictions) {
    ranks = std::move(predictions->ranks);
    out.predicted_for = std::move(predictions->said);
  } else if (!cluster.empty()) {
    return tl::unexpected(predictions.error());
  } else {
    say_first("no prediction of the step: " + predictions.error().message);
  }
  TESSERA_TRY(out.report, watch_report(path, ranks));
  return std::optional<WatchedRun>(std::move(out));
}

Json watched_json(const WatchedRun& run) {
  const WatchReport& report = run.report;
  Json ranks = Json::array(), links = Json::array();
  for (const RankReport& rank : report.ranks) ranks.push_back(rank_json(rank));
  for (const LinkReport& link : report.links) {
    links.push_back({{"ranks", link.ranks},
                     {"what", link.what},
                     {"seconds", link.seconds},
                     {"beside_others", pace_json(link.time)}});
  }
  return {{"steps", report.steps},
          {"first_step", report.first_step},
          {"last_step", report.last_step},
          {"step_s", report.step_s},
          {"predicted_for", run.predicted_for.empty() ? Json() : Json(run.predicted_for)},
          {"slow_ranks", report.slow},
          {"slow_links", std::move(links)},
          {"ranks", std::move(ranks)},
          {"said", watch_sentences(report)}};
}

}  // namespace tessera::cli
