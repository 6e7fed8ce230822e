// Reads instances of SplitBrain (docs/reference/reproduce.md).
#include <fmt/format.h>

#include <cmath>

#include "tessera/planners/published/splitbrain.h"
#include "tessera/planners/published/systems.h"

namespace tessera::published {
namespace {

Result<SplitNet> read_net(const JsonTable& in) {
  SplitNet net;
  TESSERA_TRY_VOID(in.require({"conv_parameters", "widths"}));
  TESSERA_TRY_VOID(in.real("conv_parameters", net.conv_parameters, 0));
  TESSERA_TRY_VOID(in.reals("widths", net.widths, 1));
  if (net.widths.size() < 2) return in.error("widths", "expected features and at least one layer");
  net.dense_parameters = dense_parameters_of(net.widths);
  TESSERA_TRY_VOID(in.real("dense_parameters", net.dense_parameters, 1));
  return net;
}

Json choice_json(const SplitChoice& choice) {
  return {{"group", choice.group},
          {"seconds", choice.seconds},
          {"memory_bytes", choice.memory_bytes},
          {"fits", choice.fits}};
}

Result<Json> choose(const JsonTable& in) {
  SplitQuestion question;
  int64_t workers = 1;
  TESSERA_TRY(question.net, read_net(in));
  TESSERA_TRY_VOID(in.require({"workers", "batch", "memory_bytes", "bytes_per_second"}));
  TESSERA_TRY_VOID(in.whole("workers", workers, 1, 1 << 20));
  question.workers = static_cast<double>(workers);
  TESSERA_TRY_VOID(in.real("batch", question.batch, 1));
  TESSERA_TRY_VOID(in.real("copies", question.copies, 1));
  TESSERA_TRY_VOID(in.real("element_bytes", question.element_bytes, 0));
  TESSERA_TRY_VOID(in.real("activation_bytes", question.activation_bytes, 0));
  TESSERA_TRY_VOID(in.real("memory_bytes", question.memory_bytes, 0));
  TESSERA_TRY_VOID(in.real("compute_seconds", question.compute_seconds, 0));
  TESSERA_TRY_VOID(in.real("latency_seconds", question.latency_seconds, 0));
  TESSERA_TRY_VOID(in.real("bytes_per_second", question.bytes_per_second, 1));
  Json groups = Json::array();
  for (const SplitChoice& choice : split_choices(question)) groups.push_back(choice_json(choice));
  const auto best = best_group(question);
  return Json{{"fits", best.has_value()},
              {"best", best ? choice_json(*best) : Json()},
              {"groups", std::move(groups)}};
}

Result<Json> formulas(const JsonTable& in) {
  int64_t workers = 1;
  int64_t group = 1;
  double batch = 1;
  double latency = 10e-6;
  TESSERA_TRY(const SplitNet net, read_net(in));
  TESSERA_TRY_VOID(in.require({"workers", "group", "batch"}));
  TESSERA_TRY_VOID(in.whole("workers", workers, 1, 1 << 20));
  TESSERA_TRY_VOID(in.whole("group", group, 1, workers));
  if (workers % group != 0) {
    return in.error("group",
                    fmt::format("expected a divisor of workers = {}, found {}", workers, group));
  }
  TESSERA_TRY_VOID(in.real("batch", batch, 1));
  TESSERA_TRY_VOID(in.real("latency_seconds", latency, 0));
  const auto k = static_cast<double>(group);
  const SplitTraffic traffic = split_traffic(net, static_cast<double>(workers), k, batch);
  const double moved = traffic.border + traffic.shards + traffic.dense_average;
  return Json{{"dense_parameters", net.dense_parameters},
              {"saving_percent", 100 * memory_saving(net, k)},
              {"border_elements", traffic.border},
              {"shard_elements", traffic.shards},
              {"model_parallel_elements", traffic.border + traffic.shards},
              {"dense_average_elements", traffic.dense_average},
              {"conv_average_elements", traffic.conv_average},
              {"dense_elements", moved},
              {"data_parallel_dense_elements", traffic.data_parallel_dense},
              {"times_fewer", traffic.data_parallel_dense / moved},
              {"break_even_batch",
               std::isinf(traffic.break_even_batch) ? Json() : Json(traffic.break_even_batch)},
              {"latency_seconds", split_latency_seconds(net, k, latency)}};
}

Result<Json> share(const JsonTable& in) {
  double saving = 0;
  int64_t group = 2;
  TESSERA_TRY_VOID(in.require({"saving_percent", "group"}));
  TESSERA_TRY_VOID(in.real("saving_percent", saving, 0));
  TESSERA_TRY_VOID(in.whole("group", group, 2));
  return Json{{"dense_share", dense_share_for(saving / 100, static_cast<double>(group))}};
}

}  // namespace

Result<Json> run_splitbrain(const JsonTable& in, const Progress& /*progress*/) {
  std::string ask = "choose";
  TESSERA_TRY_VOID(in.choice("ask", ask, {"choose", "formulas", "share"}));
  if (ask == "formulas") return formulas(in);
  if (ask == "share") return share(in);
  return choose(in);
}

}  // namespace tessera::published
