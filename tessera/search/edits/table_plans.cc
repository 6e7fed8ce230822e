#include "tessera/search/edits/table_plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "tessera/base/text.h"
#include "tessera/compile/compile.h"
#include "tessera/graph/optimizers.h"
#include "tessera/search/choices/spaces.h"
#include "tessera/search/constants.h"
#include "tessera/search/plan_search.h"
#include "tessera/search/question/question.h"
#include "tessera/search/question/with_part.h"
#include "tessera/search/rank/ranking.h"
#include "tessera/tables/closed_form.h"
#include "tessera/tables/shard.h"

namespace tessera {
namespace {

constexpr const char* kAuto = "auto";

using Spreads = std::vector<TableSpread>;

// Returns the look-ups of each table. Tables are in the order of their first look-ups.
std::vector<std::vector<LookUp>> by_table(const Graph& forward) {
  std::vector<std::vector<LookUp>> out;
  std::map<TensorId, size_t> known;
  for (LookUp& one : look_ups_of(forward)) {
    const auto [it, is_new] = known.try_emplace(one.table, out.size());
    if (is_new) out.emplace_back();
    out[it->second].push_back(std::move(one));
  }
  return out;
}

// Returns the tables' bytes as a share of the bytes of all parameters.
double share_of_tables(const Graph& forward) {
  std::set<TensorId> tables;
  for (const LookUp& one : look_ups_of(forward)) tables.insert(one.table);
  double own = 0, all = 0;
  for (const Tensor& tensor : forward.tensors()) {
    if (tensor.role != Role::kParameter) continue;
    const auto bytes = static_cast<double>(tensor.bytes());
    all += bytes;
    own += tables.contains(tensor.id) ? bytes : 0;
  }
  return all > 0 ? own / all : 0;
}

// The devices that plans use: whole nodes, or some devices of one node.
struct TableShape {
  int64_t nodes = 1, devices = 1;  // of each node
  int64_t all() const { return nodes * devices; }
};
TableShape shape_of(const PlanQuestion& question) {
  const int64_t fixed = fixed_number(question, "devices");
  const int64_t all = fixed > 0 ? fixed : question.cluster->devices();
  const int64_t node = question.cluster->type_of(0).devices;
  return all > node && all % node == 0 ? TableShape{all / node, node} : TableShape{1, all};
}

bool are_degrees_open(const PlanQuestion& question) {
  return !question.part && fixed_number(question, "dp") == 0 && fixed_number(question, "tp") == 0 &&
         fixed_number(question, "pp") == 0;
}

// Returns how much optimizer state the rows of a table have, as the optimizer of the planner of
// tables with as much state.
tables::Optimizer state_of(const OptimizerSpec& spec, const std::string& parameter) {
  const Optimizer* optimizer = find_optimizer(optimizer_of(spec, parameter));
  const KindInfo* kind = optimizer == nullptr ? nullptr : find_kind(optimizer->rows);
  if (kind == nullptr || !kind->optimizer) return tables::Optimizer::kAdam;
  const OptimizerInfo& info = *kind->optimizer;
  if (info.states.empty()) return tables::Optimizer::kSgd;
  if (info.state_a_row) return tables::Optimizer::kRowWiseAdagrad;
  return info.states.size() == 1 ? tables::Optimizer::kAdagrad : tables::Optimizer::kAdam;
}

class TablePlans {
 public:
  TablePlans(const PlanQuestion& question, std::shared_ptr<const Graph> forward)
      : question_(question),
        forward_(std::move(forward)),
        tables_(by_table(*forward_)),
        shape_(shape_of(question)) {
    options_ = question.options;
    options_.memory_details = options_.critical_path = options_.events = false;
    most_ =
        std::clamp(kSearchOps / static_cast<size_t>(shape_.all()), kLeastPrograms, kMostPrograms);
  }

  bool has_tables() const { return !tables_.empty(); }
  int64_t devices() const { return shape_.all(); }

  // Returns the best spreads; nothing if no seed of the planner can be simulated.
  Result<std::optional<Spreads>> find(const std::string& planner) {
    TESSERA_TRY(const std::vector<Spreads> starts, seeds(planner));
    std::optional<Tried> best;
    for (const Spreads& spreads : starts) keep_better(spreads, best);
    if (best && planner == kAuto) improve(*best);
    if (!best) return std::optional<Spreads>();
    return std::optional<Spreads>(best->spreads);
  }

  std::string text(const Spreads& spreads, const std::string& heading) const {
    return table_plan_text(*forward_, shape_.nodes, shape_.devices, spreads, heading);
  }
  size_t simulated() const { return simulated_; }
  const std::string& refusal() const { return refusal_; }

 private:
  struct Tried {
    Spreads spreads;
    double step_s = 0, excess_bytes = 0;  // bytes that the fullest device lacks
    bool is_better_than(const Tried& other) const {
      if (excess_bytes > 0 || other.excess_bytes > 0) return excess_bytes < other.excess_bytes;
      return step_s < kGain * other.step_s;
    }
  };

  // ---- seeds
  tables::ClosedConstants constants() const {
    const NodeType& node = question_.cluster->type_of(0);
    tables::ClosedConstants out;
    constexpr double kMsASecond = 1e3;
    out.batch = static_cast<double>(question_.batch);
    if (node.device.memory_rate > 0) out.memory_bytes_per_ms = node.device.memory_rate / kMsASecond;
    const Link& link = shape_.nodes > 1 && node.nics > 0 ? node.nic : node.inner;
    if (link.rate > 0) out.link_bytes_per_ms = link.rate / kMsASecond;
    // The launch cost does not depend on the placement, so it is left out.
    out.launch_ms = 0;
    out.backward_latency_ms = out.forward_latency_ms = link.latency_s * kMsASecond;
    return out;
  }

  tables::Problem problem(const tables::CostModel& cost, bool cut) const {
    tables::Problem out;
    for (const std::vector<LookUp>& look_ups : tables_) {
      const Tensor& weight = forward_->tensor(look_ups.front().table);
      tables::Table table;
      table.name = weight.name;
      table.rows = weight.dims[0].size;
      table.dim = weight.dims[1].size;
      table.element_bytes = dtype_bytes(weight.dtype);
      double ids = 0, vectors = 0;
      for (const LookUp& one : look_ups) {
        const Op& op = forward_->op(one.op);
        ids += static_cast<double>(forward_->tensor(op.inputs[0]).elements());
        vectors += static_cast<double>(forward_->tensor(op.outputs[0]).elements()) /
                   static_cast<double>(table.dim);
      }
      table.bags = std::max(1.0, vectors / static_cast<double>(question_.batch));
      table.pooling_factor = std::max(1.0, ids / vectors);
      out.tables.push_back(std::move(table));
    }
    out.devices = static_cast<int>(shape_.all());
    const double limit = memory_limit(question_);
    out.memory_bytes = limit > 0 ? std::llround((1 - kLittle) * limit) : int64_t{1} << 60;
    out.cost = &cost;
    out.optimizer = state_of(question_.optimizer, out.tables.front().name);
    out.splits = {.columns = cut, .rows = cut, .replicas = cut};
    return out;
  }

  // Turns a placement into spreads, which is all that a plan can express.
  Spreads rounded(const tables::Placement& placement) const {
    Spreads out(tables_.size());
    std::vector<bool> seen(tables_.size());
    for (const auto& [piece, device] : placement) {
      TableSpread& spread = out[piece.table];
      const Tensor& weight = forward_->tensor(tables_[piece.table].front().table);
      if (piece.kind == tables::Sharding::kReplicated) {
        spread = {TableSpread::kReplica};
      } else if (piece.rows < weight.dims[0].size) {
        spread = {TableSpread::kRows};
      } else if (piece.columns < weight.dims[1].size) {
        if (!seen[piece.table] || spread.kind != TableSpread::kRows)
          spread = {TableSpread::kColumns};
      } else {
        spread = {TableSpread::kWhole, device};
      }
      seen[piece.table] = true;
    }
    return out;
  }

  Result<std::vector<Spreads>> seeds(const std::string& planner) {
    const tables::ClosedForm cost(constants());
    std::vector<std::string> names = {planner};
    std::vector<Spreads> out;
    if (planner == kAuto) {
      for (const tables::TablePlanner& one : tables::table_planners())
        if (one.name != kAuto) names.push_back(one.name);
      for (const TableSpread::Kind kind :
           {TableSpread::kRows, TableSpread::kColumns, TableSpread::kReplica})
        out.emplace_back(tables_.size(), TableSpread{kind});
    }
    for (const std::string& name : names) {
      if (question_.progress) question_.progress("placing tables by " + name);
      for (const bool cut : {true, false}) {
        // Only Tessera's own planner is also run without splits; published planners have their
        // own rules.
        if (!cut && name != kAuto) continue;
        TESSERA_TRY(
            const tables::Answer answer,
            tables::shard(problem(cost, cut), name, {1, static_cast<int64_t>(kSearchOps), {}}));
        if (!answer.found) {
          refusal_ = answer.reason;
          continue;
        }
        const Spreads spreads = rounded(answer.placement);
        if (std::find(out.begin(), out.end(), spreads) == out.end()) out.push_back(spreads);
      }
    }
    return out;
  }

  // ---- programs
  std::optional<Tried> simulate_spreads(const Spreads& spreads) {
    if (simulated_ >= most_) return std::nullopt;
    if (question_.stop && question_.stop()) return std::nullopt;
    ++simulated_;
    const auto simulation = question_.broken->run([&]() -> Result<Simulation> {
      TESSERA_TRY(const Plan plan, parse_plan(text(spreads, kAuto), kAuto));
      TESSERA_TRY(const auto lowering, compiler_.lower(forward_, plan, {question_.optimizer}));
      return simulate(*lowering, *question_.cluster, options_);
    });
    if (!simulation) {
      refusal_ = simulation.error().message;
      return std::nullopt;
    }
    Tried out{spreads, simulation->step_time_s, 0};
    const double limit = memory_limit(question_);
    for (const RankResult& role : simulation->roles) {
      if (limit > 0) out.excess_bytes = std::max(out.excess_bytes, role.memory.high - limit);
    }
    return out;
  }

  bool keep_better(const Spreads& spreads, std::optional<Tried>& best) {
    auto tried = simulate_spreads(spreads);
    if (!tried || (best && !tried->is_better_than(*best))) return false;
    best = std::move(*tried);
    return true;
  }

  // Improves the spreads table by table, the largest table first, until no other way of a table
  // is faster.
  void improve(Tried& start) {
    std::vector<size_t> order(tables_.size());
    for (size_t t = 0; t < order.size(); ++t) order[t] = t;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return forward_->tensor(tables_[a].front().table).elements() >
             forward_->tensor(tables_[b].front().table).elements();
    });
    std::optional<Tried> best = start;
    for (bool better = true; better;) {
      better = false;
      for (size_t at = 0; at < order.size(); ++at) {
        if (question_.progress) {
          question_.progress(fmt::format("table {} of {}, {:.4g} ms a step", at + 1, order.size(),
                                         best->step_s * 1e3));
        }
        for (const TableSpread& other : ways(best->spreads, order[at])) {
          Spreads changed = best->spreads;
          changed[order[at]] = other;
          better = keep_better(changed, best) || better;
        }
      }
    }
    start = *best;
  }

  // Returns other ways for one table: whole on the device with the fewest bytes of tables, cut by
  // rows or columns over all devices, replicated, and on several nodes cut by rows over the devices
  // of the node with the fewest bytes.
  std::vector<TableSpread> ways(const Spreads& spreads, size_t table) const {
    std::vector<double> on_device(static_cast<size_t>(shape_.all())),
        on_node(static_cast<size_t>(shape_.nodes));
    for (size_t t = 0; t < spreads.size(); ++t) {
      if (t == table) continue;
      const auto bytes = static_cast<double>(forward_->tensor(tables_[t].front().table).bytes());
      const auto at = static_cast<size_t>(spreads[t].at);
      const auto a_node = static_cast<size_t>(shape_.devices);
      if (spreads[t].kind == TableSpread::kWhole) {
        on_device[at] += bytes;
        on_node[at / a_node] += bytes;
      }
      if (spreads[t].kind == TableSpread::kNodeRows) on_node[at] += bytes;
    }
    const auto least = [](const std::vector<double>& loads) {
      return static_cast<int64_t>(std::min_element(loads.begin(), loads.end()) - loads.begin());
    };
    std::vector<TableSpread> out = {{TableSpread::kWhole, least(on_device)},
                                    {TableSpread::kRows},
                                    {TableSpread::kColumns},
                                    {TableSpread::kReplica}};
    if (shape_.nodes > 1 && shape_.devices > 1)
      out.push_back({TableSpread::kNodeRows, least(on_node)});
    std::erase(out, spreads[table]);
    return out;
  }

  const PlanQuestion& question_;
  std::shared_ptr<const Graph> forward_;
  std::vector<std::vector<LookUp>> tables_;
  TableShape shape_;
  SimulateOptions options_;
  Compiler compiler_;
  size_t simulated_ = 0, most_ = 0;
  std::string refusal_;
};

}  // namespace

std::string table_plan_text(const Graph& forward, int64_t nodes, int64_t devices_a_node,
                            const std::vector<TableSpread>& spreads, const std::string& heading) {
  const bool many = nodes > 1;
  const std::string all = many ? "[\"dp\", \"nodes\"]" : "\"dp\"";
  std::string splits, pins;
  const auto split = [&](const std::string& ops, const std::string& dim, const std::string& over) {
    splits += fmt::format("  {{ ops = \"{}\", dim = \"{}\", over = {} }},\n", ops, dim, over);
  };
  const auto pin = [&](const std::string& ops, const char* axis, int64_t at) {
    pins += fmt::format("  {{ ops = \"{}\", axis = \"{}\", at = {} }},\n", ops, axis, at);
  };
  split("*", "batch", all);
  const auto tables = by_table(forward);
  for (size_t t = 0; t < tables.size(); ++t) {
    const TableSpread& spread = spreads[t];
    for (const LookUp& one : tables[t]) {
      switch (spread.kind) {
        case TableSpread::kReplica: break;
        case TableSpread::kWhole:
          if (many) pin(one.ops, "nodes", spread.at / devices_a_node);
          pin(one.ops, "dp", spread.at % devices_a_node);
          break;
        case TableSpread::kNodeRows:
          split(one.ops, "batch", "[]");
          split(one.ops, one.rows, "\"dp\"");
          pin(one.ops, "nodes", spread.at);
          break;
        case TableSpread::kRows:
        case TableSpread::kColumns:
          split(one.ops, "batch", "[]");
          split(one.ops, spread.kind == TableSpread::kRows ? one.rows : one.width, all);
          break;
      }
    }
  }
  return fmt::format("# {}\nmesh = {{ {}dp = {} }}\nsplit = [\n{}]\n{}", heading,
                     many ? fmt::format("nodes = {}, ", nodes) : "", devices_a_node, splits,
                     pins.empty() ? "" : "pin = [\n" + pins + "]\n");
}

bool may_spread_tables(const PlanQuestion& question) {
  if (!are_degrees_open(question) || shape_of(question).all() < 2) return false;
  const auto model =
      Compiler().model(question.model, question.batch, storage_dtype(question.compute));
  return model && share_of_tables((*model)->graph) >= kLittle;
}

Result<PlanAnswer> plan_tables(const PlanQuestion& question, const std::string& planner) {
  if (!are_degrees_open(question)) {
    return invalid_input(
        "plan: a planner of tables writes a part of the plan itself: expected no --with, and no "
        "--fix of dp, tp or pp");
  }
  Compiler compiler;
  TESSERA_TRY(const auto model,
              compiler.model(question.model, question.batch, storage_dtype(question.compute)));
  TablePlans search(question, forward_of(model));
  if (!search.has_tables()) {
    return invalid_input(
        fmt::format("plan: planner '{}': expected a model with embedding tables (as dlrm), found "
                    "no op that looks up rows of a parameter",
                    planner));
  }
  if (search.devices() < 2)
    return invalid_input("plan: planners of tables need at least 2 devices, found 1");
  TESSERA_TRY(const auto spreads, search.find(planner));
  if (!spreads) {
    return invalid_input(
        fmt::format("plan: planner '{}' places no tables: {}", planner, search.refusal()));
  }
  const std::string name = "tables by " + planner;
  PlanQuestion rest = question;
  TESSERA_TRY(rest.part, parse_part(search.text(*spreads, name), name, planned_axes()));
  TESSERA_TRY(rest, fixed_by_part(std::move(rest)));
  TESSERA_TRY(PlanAnswer answer, find_in_space(rest, whole_space));
  answer.ended +=
      fmt::format("; {} programs for the tables were simulated before", search.simulated());
  return answer;
}

}  // namespace tessera
