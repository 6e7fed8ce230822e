#include "tessera/tables/cost_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/json_text.h"
#include "tessera/base/text.h"
#include "tessera/tables/closed_form.h"
#include "tessera/tables/neural.h"
#include "tessera/tables/torchrec.h"

namespace tessera::tables {
namespace {

Result<std::shared_ptr<const CostModel>> read_closed(const JsonTable& in) {
  ClosedConstants c;
  TESSERA_TRY_VOID(in.real("batch", c.batch, 1));
  TESSERA_TRY_VOID(in.real("lookup_ms", c.lookup_ms, 0));
  TESSERA_TRY_VOID(in.real("memory_bytes_per_ms", c.memory_bytes_per_ms, 1));
  TESSERA_TRY_VOID(in.real("launch_ms", c.launch_ms, 0));
  TESSERA_TRY_VOID(in.real("warm_ms", c.warm_ms, 1e-9));
  TESSERA_TRY_VOID(in.real("link_bytes_per_ms", c.link_bytes_per_ms, 1));
  TESSERA_TRY_VOID(in.real("backward_latency_ms", c.backward_latency_ms, 0));
  TESSERA_TRY_VOID(in.real("forward_latency_ms", c.forward_latency_ms, 0));
  TESSERA_TRY_VOID(in.real("skew", c.skew, 0));
  if (c.skew > 1)
    return in.error("skew", fmt::format("expected a number from 0 to 1, found {}", c.skew));
  TESSERA_TRY_VOID(in.done());
  return std::make_shared<ClosedForm>(c);
}

Result<std::shared_ptr<const CostModel>> read_torchrec(const JsonTable& in) {
  TorchRecConstants c;
  std::string pipeline = "none";
  TESSERA_TRY_VOID(in.real("batch", c.batch, 1));
  TESSERA_TRY_VOID(in.whole("devices_a_node", c.devices_a_node, 1, 1024));
  TESSERA_TRY_VOID(in.real("hbm_bytes_per_ms", c.hbm_bytes_per_ms, 1));
  TESSERA_TRY_VOID(in.real("ddr_bytes_per_ms", c.ddr_bytes_per_ms, 1));
  TESSERA_TRY_VOID(in.real("host_bytes_per_ms", c.host_bytes_per_ms, 1));
  TESSERA_TRY_VOID(in.real("inside_bytes_per_ms", c.inside_bytes_per_ms, 1));
  TESSERA_TRY_VOID(in.real("between_bytes_per_ms", c.between_bytes_per_ms, 1));
  TESSERA_TRY_VOID(in.real("caching_ratio", c.caching_ratio, 0));
  TESSERA_TRY_VOID(in.real("backward_multiplier", c.backward_multiplier, 0));
  TESSERA_TRY_VOID(in.real("narrow_penalty", c.narrow_penalty, 0));
  TESSERA_TRY_VOID(in.real("medium_penalty", c.medium_penalty, 0));
  TESSERA_TRY_VOID(in.real("weighted_multiplier", c.weighted_multiplier, 0));
  TESSERA_TRY_VOID(in.real("batched_copy_multiplier", c.batched_copy_multiplier, 0));
  TESSERA_TRY_VOID(in.real("replicated_multiplier", c.replicated_multiplier, 0));
  TESSERA_TRY_VOID(in.real("id_bytes", c.id_bytes, 0));
  TESSERA_TRY_VOID(in.real("forward_bytes", c.forward_bytes, 0));
  TESSERA_TRY_VOID(in.real("backward_bytes", c.backward_bytes, 0));
  TESSERA_TRY_VOID(in.flag("cpu", c.cpu));
  TESSERA_TRY_VOID(in.choice("pipeline", pipeline, {"none", "sparse_dist", "prefetch"}));
  TESSERA_TRY_VOID(in.real("prefetch_passes", c.prefetch_passes, 1));
  TESSERA_TRY_VOID(in.whole("ddr_bytes", c.ddr_bytes, 0, int64_t{1} << 50));
  TESSERA_TRY_VOID(in.real("reserved_share", c.reserved_share, 0));
  TESSERA_TRY_VOID(in.real("dense_parameter_bytes", c.dense_parameter_bytes, 0));
  TESSERA_TRY_VOID(in.whole("least_columns", c.least_columns, 4, 65536));
  for (const auto& [key, value] : {std::pair("caching_ratio", c.caching_ratio),
                                   std::pair("reserved_share", c.reserved_share)}) {
    if (value > 1)
      return in.error(key, fmt::format("expected a share from 0 to 1, found {}", value));
  }
  if (pipeline == "sparse_dist") c.pipeline = TorchRecPipeline::kSparseDist;
  if (pipeline == "prefetch") c.pipeline = TorchRecPipeline::kPrefetch;
  TESSERA_TRY_VOID(in.done());
  return std::make_shared<TorchRecEstimator>(c);
}

// Returns the line and the word, "3: 'NaN'", where the JSON text has a word such as NaN in place of
// a number, which parsers refuse; "" if there is none.
std::string not_a_number(std::string_view json) {
  bool inside_text = false;
  int line = 1;
  for (size_t i = 0; i < json.size(); ++i) {
    if (json[i] == '\n') ++line;
    if (json[i] == '"' && (i == 0 || json[i - 1] != '\\')) inside_text = !inside_text;
    if (inside_text) continue;
    for (const std::string_view word : {"NaN", "nan", "Infinity", "inf"}) {
      if (json.substr(i).starts_with(word)) return fmt::format("{}: '{}'", line, word);
    }
  }
  return "";
}

}  // namespace

Status CostModel::check(int) const { return {}; }
bool CostModel::in_range(const Table&, const Piece&) const { return true; }
std::optional<std::pair<double, double>> CostModel::range_of_columns() const {
  return std::nullopt;
}
int64_t CostModel::working_bytes(const Table&, const Piece&, int) const { return 0; }
int64_t CostModel::device_bytes(const Table& table, const Piece& piece, Optimizer optimizer) const {
  return resting_bytes(table, piece, optimizer);
}

Result<std::shared_ptr<const CostModel>> parse_cost_model(std::string_view text,
                                                          std::string_view file) {
  const auto json = parse_ordered_json(text);
  if (!json) {
    const std::string found = not_a_number(text);
    if (!found.empty()) {
      return invalid_input(fmt::format("{}:{}", file, found.substr(0, found.find(' '))) +
                           " expected a finite number, found " + found.substr(found.find(' ') + 1));
    }
    return invalid_input(
        fmt::format("{}: expected JSON of a cost model, found something else", file));
  }
  TESSERA_TRY(const JsonTable in, JsonTable::make(*json, std::string(file)));
  TESSERA_TRY_VOID(in.require({"model"}));
  std::string model;
  TESSERA_TRY_VOID(in.choice("model", model, {"closed", "torchrec", "neural"}));
  if (model == "closed") return read_closed(in);
  if (model == "torchrec") return read_torchrec(in);
  TESSERA_TRY(NeuralCostModel neural, NeuralCostModel::parse(in));
  return std::make_shared<NeuralCostModel>(std::move(neural));
}

Result<std::shared_ptr<const CostModel>> load_cost_model(const std::string& spec) {
  if (spec == "closed") return std::make_shared<ClosedForm>();
  if (spec == "torchrec") return std::make_shared<TorchRecEstimator>();
  if (!spec.ends_with(".json")) {
    return invalid_input(
        fmt::format("cost model: expected closed, torchrec or a file .json, found '{}'", spec));
  }
  TESSERA_TRY(const std::string text, read_file(spec));
  return parse_cost_model(text, spec);
}

}  // namespace tessera::tables
