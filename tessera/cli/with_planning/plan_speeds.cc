#include "tessera/cli/with_planning/plan_speeds.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "tessera/base/csv.h"
#include "tessera/base/memory_text.h"
#include "tessera/base/text.h"
#include "tessera/compile/compile.h"
#include "tessera/plan/load.h"
#include "tessera/planners/all_planners.h"
#include "tessera/search/fit.h"
#include "tessera/simulate/simulate.h"

namespace tessera::cli {
namespace {

constexpr std::string_view kGpus = "{}", kMicro = "{micro}", kAuto = "auto";
constexpr int kMostGpusANode = 1024, kMostNodes = 64;  // as the reader of tables takes

std::string with_number(const std::string& text, std::string_view name, int64_t number) {
  std::string out = text;
  for (size_t at = out.find(name); at != std::string::npos; at = out.find(name, at))
    out.replace(at, name.size(), std::to_string(number));
  return out;
}

int64_t total(const std::vector<int>& placement) {
  return std::accumulate(placement.begin(), placement.end(), int64_t{0});
}

Status check_placement(const std::vector<int>& placement, const Cluster& cluster) {
  const bool has_nodes = static_cast<int64_t>(placement.size()) <= cluster.nodes();
  const bool has_gpus = std::all_of(placement.begin(), placement.end(),
                                    [&](int gpus) { return gpus <= cluster.type_of(0).devices; });
  if (has_nodes && has_gpus) return {};
  return invalid_input(fmt::format(
      "cluster speeds: expected placements on at most {} nodes of {} GPUs, those of {}, found '{}'",
      cluster.nodes(), cluster.type_of(0).devices, cluster.name, placement_text(placement)));
}

// Returns the device of each rank: the first ones of each node.
std::vector<int64_t> devices_of(const std::vector<int>& placement, int64_t gpus_a_node) {
  std::vector<int64_t> out;
  for (size_t node = 0; node < placement.size(); ++node) {
    for (int i = 0; i < placement[node]; ++i)
      out.push_back(static_cast<int64_t>(node) * gpus_a_node + i);
  }
  return out;
}

// Returns the machine that a placement leaves, for the search: nodes with the GPUs of the placement
// and their share of the network cards.
Cluster machine_of(const std::vector<int>& placement, const Cluster& cluster) {
  Cluster out = cluster;
  out.parts.clear();
  for (const int gpus : placement) {
    if (!out.parts.empty() && out.parts.back().type.devices == gpus) {
      ++out.parts.back().nodes;
      continue;
    }
    ClusterPart part = cluster.parts.front();
    part.nodes = 1;
    part.type.nics = std::max<int64_t>(1, part.type.nics * gpus / part.type.devices);
    part.type.devices = gpus;
    out.parts.push_back(std::move(part));
  }
  out.rail_aligned = cluster.rail_aligned && out.parts.size() == 1;
  return out;
}

class Pricer {
 public:
  explicit Pricer(const SpeedQuestion& question) : question_(question) {}

  // Prices the plan on the placement. Adds a row, or a line of what is left out.
  Status add(const NamedPlan& plan, const std::vector<int>& placement, Speeds& out) {
    const auto text = text_on(plan, placement);
    if (!text && text.error().code != ErrorCode::kCheckFailed)
      return tl::unexpected<Error>(text.error());
    std::optional<SpeedRow> best;
    std::optional<Error> failed;
    if (!text) failed = text.error();
    for (int64_t micro = 1; text && micro <= question_.batch; micro *= 2) {
      const std::string tried = with_number(*text, kMicro, micro);
      auto row = price(tried, placement);
      if (!row && row.error().message.empty()) return {};  // of another number of ranks
      if (!row) {
        if (!failed) failed = row.error();
      } else if (!best || row->step_s < best->step_s) {
        best = std::move(*row);
      } else {
        break;  // smaller micro-batches are slower from here on
      }
      if (tried == *text) break;
    }
    found_.insert(plan.name);
    if (best) {
      TESSERA_TRY_VOID(add_state(*best));
      best->plan = plan.name;
      priced_.insert(plan.name);
      out.rows.push_back(std::move(*best));
      return {};
    }
    if (failed->code != ErrorCode::kCheckFailed) failed_.emplace(plan.name, *failed);
    out.left_out.push_back(
        fmt::format("{} on {}: {}", plan.name, placement_text(placement), failed->message));
    return {};
  }

  // Returns an error if a plan has no row for a reason that is not memory; says which plans had no
  // placement of their size.
  Status check(const NamedPlan& plan, Speeds& out) const {
    const auto failed = failed_.find(plan.name);
    if (failed != failed_.end() && !priced_.contains(plan.name))
      return invalid_input(fmt::format("--plan {}: {}", plan.name, failed->second.message));
    if (!found_.contains(plan.name))
      out.left_out.push_back(plan.name + ": no placement has as many GPUs as the plan has ranks");
    return {};
  }

 private:
  // Returns the plan's text for the placement, still with {micro}.
  Result<std::string> text_on(const NamedPlan& plan, const std::vector<int>& placement) {
    if (plan.text == kAuto) return search(placement);
    return with_number(plan.text, kGpus, total(placement));
  }

  Result<const Pricing*> pricing_of(const std::string& text) {
    const auto known = pricings_.find(text);
    if (known != pricings_.end()) return &known->second;
    TESSERA_TRY(Pricing pricing, decide_pricing(question_.pricing, question_.cluster,
                                                {question_.model, text, question_.batch,
                                                 question_.named, &compiler_}));
    return &pricings_.emplace(text, std::move(pricing)).first->second;
  }

  // Returns the number of the plan's ranks.
  Result<int64_t> ranks_of(const std::string& text) {
    const auto known = ranks_.find(text);
    if (known != ranks_.end()) return known->second;
    TESSERA_TRY(const auto model, compiler_.model(question_.model, question_.batch));
    TESSERA_TRY(const Plan plan, load_plan(text, model->graph));
    return ranks_[text] = plan.ranks();
  }

  Result<Compiled> compiled(const std::string& text) {
    TESSERA_TRY(const Pricing* pricing, pricing_of(text));
    CompileTexts texts{question_.model, text, question_.batch, pricing->precision};
    texts.optimizer = question_.optimizer;
    return compiler_.compile(texts);
  }

  // Sets the bytes of the state that the plan keeps, from a program of each class of ranks.
  Status add_state(SpeedRow& row) {
    TESSERA_TRY(const Compiled plan, compiled(row.text));
    std::set<TensorId> counted;
    for (const RankClass& one : plan.lowering->roles()) {
      TESSERA_TRY(const Program program, plan.lowering->lower(one.representative, false));
      int64_t held = 0;
      for (const Home& home : program.homes) {
        const int64_t element = dtype_bytes(program.buffer(home.buffer).dtype);
        held += home.region.volume() * element;
        if (counted.insert(home.tensor).second)
          row.state_bytes += plan.graph().tensor(home.tensor).elements() * element;
      }
      row.gpu_state_bytes = std::max(row.gpu_state_bytes, held);
    }
    return {};
  }

  // Returns the plan's row without its name. A plan of another number of ranks is an error without a
  // message.
  Result<SpeedRow> price(const std::string& text, const std::vector<int>& placement) {
    TESSERA_TRY(const int64_t ranks, ranks_of(text));
    if (ranks != total(placement)) return check_failed("");
    TESSERA_TRY(const Pricing* pricing, pricing_of(text));
    TESSERA_TRY(const Compiled plan, compiled(text));
    SimulateOptions options;
    options.style = pricing->style;
    options.memory_details = false;
    options.critical_path = false;
    options.devices = RankDevices(devices_of(placement, pricing->cluster.type_of(0).devices));
    TESSERA_TRY(const Simulation step, simulate(*plan.lowering, pricing->cluster, options));
    if (const auto shortage = find_shortage(step, pricing->cluster)) {
      return check_failed(fmt::format(
          "needs {} of {} a device",
          memory_text(static_cast<double>(shortage->capacity_bytes + shortage->missing_bytes)),
          memory_text(static_cast<double>(shortage->capacity_bytes))));
    }
    SpeedRow row{"", placement, step.step_time_s, 0, 0, 0, text};
    for (const RankResult& role : step.roles)
      row.memory_bytes = std::max(row.memory_bytes, static_cast<int64_t>(role.memory.high));
    return row;
  }

  // Returns the text of the plan that the planner finds for the placement.
  Result<std::string> search(const std::vector<int>& placement) {
    const Cluster machine = machine_of(placement, question_.cluster);
    TESSERA_TRY(const Pricing pricing,
                decide_pricing(question_.pricing, machine,
                               {question_.model, "", question_.batch, question_.named}));
    PlanQuestion search;
    search.model = question_.model;
    search.batch = question_.batch;
    search.cluster = &pricing.cluster;
    search.options.style = pricing.style;
    search.optimizer = question_.optimizer;
    search.fixed["devices"] = std::to_string(total(placement));
    TESSERA_TRY(search.compute, parse_dtype(pricing.precision));
    TESSERA_TRY(search.memory_limit_bytes, memory_limit_of("", pricing.cluster));
    search.progress = [&](const std::string& what) {
      if (question_.progress)
        question_.progress(fmt::format("{}: {}", placement_text(placement), what));
    };
    TESSERA_TRY(const PlanAnswer answer, find_plan(search, std::string(kAuto), all_planners()));
    if (!answer.best) return check_failed("no plan fits");
    return with_style(answer.plan, pricing);
  }

  const SpeedQuestion& question_;
  Compiler compiler_;
  std::map<std::string, Pricing> pricings_;
  std::map<std::string, int64_t> ranks_;
  std::map<std::string, Error> failed_;   // the first error of a plan, by its name
  std::set<std::string> priced_, found_;  // names of plans with a row, and of those that were tried
};

}  // namespace

Result<Speeds> find_speeds(const SpeedQuestion& question) {
  const bool is_even = std::all_of(
      question.cluster.parts.begin(), question.cluster.parts.end(),
      [&](const ClusterPart& part) { return part.type == question.cluster.type_of(0); });
  if (!is_even) {
    return invalid_input(
        fmt::format("cluster speeds: expected a machine of equal nodes, found {} kinds in {}",
                    question.cluster.parts.size(), question.cluster.name));
  }
  for (const auto& placement : question.placements)
    TESSERA_TRY_VOID(check_placement(placement, question.cluster));
  Pricer pricer(question);
  Speeds out;
  size_t done = 0;
  for (const auto& placement : question.placements) {
    for (const NamedPlan& plan : question.plans) {
      if (question.progress) {
        question.progress(fmt::format("{} on {}, {} of {}", plan.name, placement_text(placement),
                                      ++done, question.placements.size() * question.plans.size()));
      }
      TESSERA_TRY_VOID(pricer.add(plan, placement, out));
    }
  }
  for (const NamedPlan& plan : question.plans) TESSERA_TRY_VOID(pricer.check(plan, out));
  return out;
}

std::vector<int> packed_placement(int64_t gpus, int64_t gpus_a_node) {
  std::vector<int> out;
  for (int64_t left = gpus; left > 0; left -= gpus_a_node)
    out.push_back(static_cast<int>(std::min(left, gpus_a_node)));
  return out;
}

std::string placement_text(const std::vector<int>& placement) {
  const bool has_digits =
      std::all_of(placement.begin(), placement.end(), [](int gpus) { return gpus <= 9; });
  std::string out;
  for (const int gpus : placement)
    out += fmt::format("{}{}", has_digits || out.empty() ? "" : "+", gpus);
  return out;
}

Result<std::vector<int>> parse_placement(const std::string& text) {
  std::vector<std::string> numbers;
  if (text.find('+') != std::string::npos) {
    numbers = split_text(text, '+');
  } else {
    for (const char c : text) numbers.emplace_back(1, c);
  }
  std::vector<int> out;
  for (const std::string& number : numbers) {
    const auto value = parse_int(number);
    const bool is_number = value && *value >= 1 && *value <= kMostGpusANode;
    if (is_number) out.push_back(static_cast<int>(*value));
  }
  if (out.empty() || out.size() != numbers.size() || out.size() > kMostNodes) {
    return invalid_input(fmt::format(
        "--placements: expected a digit from 1 to 9 for each node, as 233, or numbers, as 16+16, "
        "found '{}'",
        text));
  }
  std::sort(out.rbegin(), out.rend());
  return out;
}

std::string to_csv(const Speeds& speeds) {
  std::string out = csv_line({"exec_plan", "placement", "iter_time", "memory_bytes", "state_bytes",
                              "gpu_state_bytes", "plan"});
  for (const SpeedRow& row : speeds.rows) {
    out += csv_line({row.plan, placement_text(row.placement), fmt::format("{:.6g}", row.step_s),
                     std::to_string(row.memory_bytes), std::to_string(row.state_bytes),
                     std::to_string(row.gpu_state_bytes), row.text});
  }
  return out;
}

}  // namespace tessera::cli
