#include "tessera/predict/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <numeric>
#include <thread>
#include <utility>

#include "tessera/base/csv.h"
#include "tessera/base/text.h"
#include "tessera/cluster/cluster.h"
#include "tessera/cost/style.h"
#include "tessera/predict/assumptions.h"
#include "tessera/predict/corrections.h"
#include "tessera/predict/lowered.h"
#include "tessera/simulate/simulate.h"

namespace tessera {
namespace {

constexpr std::string_view kPlan = "plan.";

// ---- settings

bool is_framework(std::string_view name) {
  const auto& all = all_frameworks();
  return std::any_of(all.begin(), all.end(),
                     [&](const Framework& framework) { return framework.name == name; });
}

bool is_preset(std::string_view name) {
  const std::vector<std::string> names = preset_names();
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Returns the scope of a key, or "" if it has none. Tries each dot of the key as the end of the
// scope, because names of presets may contain dots.
std::string scope_of(std::string_view key) {
  for (size_t dot = key.find('.'); dot != std::string_view::npos; dot = key.find('.', dot + 1)) {
    const std::string_view scope = key.substr(0, dot);
    if (is_framework(scope) || is_preset(scope)) return std::string(scope);
  }
  return "";
}

Status check_setting(const Setting& setting) {
  if (setting.key == "cluster") {
    TESSERA_TRY(Cluster cluster, load_cluster("dgx-a100:1"));
    return apply_what_if(cluster, setting.value);
  }
  if (setting.key.starts_with(kPlan)) {
    Framework framework = all_frameworks().front();
    return set_option(framework, std::string_view(setting.key).substr(kPlan.size()), setting.value);
  }
  if (setting.key.find('.') != std::string::npos) {
    std::vector<std::string> scopes = preset_names();
    for (const Framework& framework : all_frameworks()) scopes.push_back(framework.name);
    const std::string scope = setting.key.substr(0, setting.key.find('.'));
    return invalid_input(
        fmt::format("'{}' is neither a framework nor a machine, did you mean '{}'?", scope,
                    nearest(scope, scopes)));
  }
  TESSERA_TRY(const Style style,
              parse_style(fmt::format("tessera,{}={}", setting.key, setting.value)));
  static_cast<void>(style);
  return {};
}

// ---- one row

// A row with everything that its simulation needs.
struct Case {
  Expressed expressed;
  double capacity = 0;  // memory of a GPU, bytes
  std::optional<Lighter> lighter;
  std::string lowering_key() const {
    return fmt::format("{}\n{}\n{}", expressed.model, expressed.batch, expressed.plan);
  }
  std::string key() const {
    return fmt::format("{}\n{}\n{}\n{}\n{}", lowering_key(), expressed.cluster,
                       expressed.gpus_a_node, expressed.changes, expressed.style);
  }
};

// Makes the case of a job. If the row was made lighter, `said` is the reason, which is added to the
// reasons.
Result<Case> case_of(const PredictJob& job, const std::string& said = "") {
  const Row& row = *job.row;
  const PredictSettings& settings = *job.settings;
  std::vector<FrameworkOption> options;
  for (const Setting& setting : settings) {
    if (!setting.key.starts_with(kPlan)) continue;
    if (!setting.scope.empty() && !is_framework(setting.scope)) continue;
    options.push_back({setting.scope, setting.key.substr(kPlan.size()), setting.value});
  }
  TESSERA_TRY(Run run, infer(row, options));
  if (!said.empty()) run.reasons.push_back(said);
  Case found;
  found.capacity = static_cast<double>(run.machine.memory_bytes);
  found.lighter = lighter(row, run);
  TESSERA_TRY(found.expressed, express(run));
  TESSERA_TRY(const Cluster cluster, load_cluster(found.expressed.cluster));
  const Corrections corrections = corrections_of(settings, run.framework.name, cluster);
  found.expressed.style += corrections.style;
  std::string& changes = found.expressed.changes;
  if (!corrections.cluster.empty()) changes += (changes.empty() ? "" : ",") + corrections.cluster;
  return found;
}

Result<Cluster> cluster_of(const Case& item) {
  TESSERA_TRY(Cluster cluster, load_cluster(item.expressed.cluster));
  NodeType& node = cluster.parts.front().type;
  if (node.devices != item.expressed.gpus_a_node) {
    // Keeps the preset's number of NICs for each device, rounded down, but at least one NIC.
    node.nics = std::max<int64_t>(1, node.nics * item.expressed.gpus_a_node / node.devices);
    node.devices = item.expressed.gpus_a_node;
  }
  if (!item.expressed.changes.empty())
    TESSERA_TRY_VOID(apply_what_if(cluster, item.expressed.changes));
  return cluster;
}

// Simulates a case. If `detailed`, also collects details of memory and the critical path, which a
// prediction does not need.
Result<Simulation> simulate_case(const Case& item, bool detailed, Simulator& simulator) {
  TESSERA_TRY(const Cluster cluster, cluster_of(item));
  SimulateOptions options;
  options.fold_places = true;
  options.memory_details = detailed;
  options.critical_path = detailed;
  TESSERA_TRY(options.style, parse_style(item.expressed.style));
  return simulator.run(cluster, options);
}

double counted_bytes(const MemoryUse& memory, CountedMemory what) {
  switch (what) {
    case CountedMemory::kDevice: return static_cast<double>(memory.total_bytes());
    case CountedMemory::kReserved: return static_cast<double>(memory.reserved_bytes);
    case CountedMemory::kAllocated: return static_cast<double>(memory.live_bytes);
  }
  return 0;
}

Prediction summary(const Case& item, const Simulation& simulation) {
  Prediction out;
  out.ok = true;
  out.step_time_s = simulation.step_time_s * item.expressed.step_scale;
  for (const RankResult& role : simulation.roles) {
    const auto largest = [&role](double& bytes, CountedMemory what) {
      bytes = std::max(bytes, counted_bytes(role.memory, what));
    };
    largest(out.memory_bytes, item.expressed.memory);
    largest(out.device_bytes, CountedMemory::kDevice);
  }
  if (simulation.device_s > 0) {
    out.uncertainty =
        item.expressed.uncertainty_factor * simulation.uncertain_s / simulation.device_s;
  }
  out.style = item.expressed.style;
  out.reason = join(item.expressed.reasons, "; ");
  return out;
}

Prediction refusal(std::string reason) {
  Prediction out;
  out.reason = std::move(reason);
  return out;
}

// Returns the reason for which the lighter row is tried: the change, and the memory needed without
// it.
std::string reason_of(const Case& item, const Prediction& found) {
  return fmt::format("{}: else {:.0f} of {:.0f} GB", item.lighter->change, found.device_bytes / 1e9,
                     item.capacity / 1e9);
}

bool surely_too_large(const Case& item, const Prediction& found) {
  return item.lighter && found.device_bytes > assumed("surely_too_much_memory") * item.capacity;
}

// Predicts groups of rows with equal programs. Lowers the program of a group once, and simulates it
// once for each machine and style.
class Pricer {
 public:
  Pricer(const std::vector<PredictJob>& jobs, const std::vector<std::optional<Case>>& cases,
         std::vector<Prediction>& out)
      : jobs_(jobs), cases_(cases), out_(out) {}

  void price(const std::vector<size_t>& group) {
    known_.clear();
    const Case& first = *cases_[group.front()];
    const auto lowering = lower_row(rows_, first.expressed, for_price());
    std::optional<Simulator> simulator;
    if (lowering) simulator.emplace(**lowering);
    for (const size_t row : group) {
      const Case& item = *cases_[row];
      if (!lowering) {
        out_[row] = refusal(lowering.error().message);
        continue;
      }
      auto found = known_.find(item.key());
      if (found == known_.end())
        found = known_.emplace(item.key(), simulate_case(item, false, *simulator)).first;
      if (!found->second) {
        out_[row] = refusal(found->second.error().message);
      } else {
        out_[row] = summary(item, *found->second);
      }
      if (surely_too_large(item, out_[row])) out_[row] = price_lighter(jobs_[row], item, out_[row]);
    }
  }

 private:
  Prediction price_alone(const Case& item) {
    auto found = known_.find(item.key());
    if (found == known_.end()) found = known_.emplace(item.key(), simulate_alone(item)).first;
    if (!found->second) return refusal(found->second.error().message);
    return summary(item, *found->second);
  }

  Result<Simulation> simulate_alone(const Case& item) {
    TESSERA_TRY(const auto lowering, lower_row(alone_, item.expressed, for_price()));
    Simulator simulator(*lowering);
    return simulate_case(item, false, simulator);
  }

  // Changes values that the row does not state (lighter() in infer.h) until the run may fit in
  // memory. If it never does, returns `heavy`, the prediction without changes.
  Prediction price_lighter(const PredictJob& job, const Case& first, const Prediction& heavy) {
    Row row = first.lighter->row;
    std::string said = reason_of(first, heavy);
    while (true) {
      const PredictJob next{&row, job.settings};
      const auto item = case_of(next, said);
      if (!item) return heavy;
      Prediction found = price_alone(*item);
      if (!found.ok) return heavy;
      if (found.device_bytes <= assumed("surely_too_much_memory") * item->capacity) return found;
      if (!item->lighter) return heavy;
      said += "; " + reason_of(*item, found);
      row = Row(item->lighter->row);
    }
  }

  const std::vector<PredictJob>& jobs_;
  const std::vector<std::optional<Case>>& cases_;
  std::vector<Prediction>& out_;
  // A compiler keeps what the last program had. alone_ compiles lighter rows, so that rows_ keeps
  // the program of the ordinary rows.
  Compiler rows_{1}, alone_{1};
  // Results of simulations by Case::key(), for the rows of the current group and for their lighter
  // rows.
  std::map<std::string, Result<Simulation>> known_;
};

}  // namespace

Result<PredictSettings> parse_settings(const std::vector<std::string>& texts) {
  PredictSettings settings;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos) {
      return invalid_input(fmt::format("expected [SCOPE.]KEY=VALUE, found '{}'", text));
    }
    Setting setting;
    setting.key = std::string(trim(std::string_view(text).substr(0, equals)));
    setting.value = std::string(trim(std::string_view(text).substr(equals + 1)));
    setting.scope = scope_of(setting.key);
    if (!setting.scope.empty()) setting.key = setting.key.substr(setting.scope.size() + 1);
    TESSERA_TRY_VOID(check_setting(setting));
    settings.push_back(std::move(setting));
  }
  return settings;
}

std::vector<Prediction> predict(const std::vector<PredictJob>& jobs, int threads) {
  std::vector<Prediction> out(jobs.size());
  std::vector<std::optional<Case>> cases(jobs.size());
  std::map<std::string, std::vector<size_t>> by_program;
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (auto item = case_of(jobs[i])) {
      by_program[item->lowering_key()].push_back(i);
      cases[i] = std::move(*item);
    } else {
      out[i] = refusal(item.error().message);
    }
  }
  std::vector<const std::vector<size_t>*> groups;
  for (const auto& [key, group] : by_program) groups.push_back(&group);
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    Pricer pricer(jobs, cases, out);
    for (size_t g = next++; g < groups.size(); g = next++) pricer.price(*groups[g]);
  };
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(work);
  work();
  for (std::thread& thread : others) thread.join();
  for (size_t i = 0; i < jobs.size(); ++i) out[i].id = jobs[i].row->id;
  return out;
}

std::vector<Prediction> predict(const std::vector<Row>& rows, const PredictSettings& settings,
                                int threads) {
  std::vector<PredictJob> jobs;
  for (const Row& row : rows) jobs.push_back({&row, &settings});
  return predict(jobs, threads);
}

namespace {

Result<Explained> explain_case(Case item, const std::string& id, Simulator& simulator) {
  Explained out;
  TESSERA_TRY(out.simulation, simulate_case(item, true, simulator));
  out.prediction = summary(item, out.simulation);
  out.prediction.id = id;
  out.expressed = std::move(item.expressed);
  return out;
}

}  // namespace

Result<Explained> explain(const Row& row, const PredictSettings& settings) {
  std::optional<Explained> first;
  Row taken = row;
  std::string said;
  while (true) {
    TESSERA_TRY(Case item, case_of({&taken, &settings}, said));
    Compiler compiler(1);
    TESSERA_TRY(const auto lowering, lower_row(compiler, item.expressed));
    Simulator simulator(*lowering);
    TESSERA_TRY(Explained found, explain_case(item, row.id, simulator));
    if (found.prediction.device_bytes <= assumed("surely_too_much_memory") * item.capacity)
      return found;
    if (!item.lighter) return first ? std::move(*first) : std::move(found);
    said += (said.empty() ? "" : "; ") + reason_of(item, found.prediction);
    taken = Row(item.lighter->row);
    if (!first) first = std::move(found);
  }
}

std::string predictions_csv(const std::vector<Prediction>& predictions) {
  std::string out =
      csv_line({"row_id", "step_time_s", "mem_GB", "relative_uncertainty", "style", "reason"});
  for (const Prediction& row : predictions) {
    if (row.ok) {
      out += csv_line({row.id, fmt::format("{:.6g}", row.step_time_s),
                       fmt::format("{:.6g}", row.memory_bytes / 1e9),
                       fmt::format("{:.3g}", row.uncertainty), row.style, row.reason});
    } else {
      out += csv_line({row.id, "", "", "", "", row.reason});
    }
  }
  return out;
}

}  // namespace tessera
