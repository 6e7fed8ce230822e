#include "brute_force.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <set>

#include "tessera/base/text.h"
#include "tessera/compile/compile.h"
#include "tessera/planners/all_planners.h"
#include "tessera/search/price/fold.h"
#include "tessera/search/price/step_bound.h"
#include "tessera/search/rank/estimate.h"

namespace tessera::planner_test {
namespace {

constexpr double kWorthALine = 1.002;  // a plan that is this much slower is printed
constexpr size_t kAllBorders = 64;     // ways to place the borders; more are too many

std::string random_model(std::mt19937_64& random, int64_t devices, Size size) {
  const auto pick = [&](const std::vector<int64_t>& values) {
    return values[random() % values.size()];
  };
  const auto mlp = [&](const std::vector<int64_t>& layers) {
    return fmt::format("mlp:layers={},in={},hidden={},out={}", pick(layers), pick({16, 64, 1024}),
                       pick({64, 512, 4096}), pick({10, 256, 4096}));
  };
  if (size == Size::kTiny) {
    if (devices > 4) return mlp({1});
    return devices > 2 ? mlp({1, 2}) : mlp({1, 2, 3});
  }
  if (devices > 2) return devices > 4 ? mlp({1, 2}) : mlp({1, 2, 3});
  switch (random() % 8) {
    case 0:
      return fmt::format("gpt:layers=1,hidden={},heads=4,seq={},vocab={}", pick({64, 256, 1024}),
                         pick({32, 128, 512}), pick({64, 1024, 16384}));
    case 1:
      return fmt::format("llama:layers=1,hidden={},heads=4,kv_heads=2,ffn={},seq={},vocab={}",
                         pick({64, 256}), pick({128, 1024}), pick({32, 256}), pick({64, 1024}));
    default: return mlp({1, 2, 3, 4, 5});
  }
}

// Returns the first unit of each stage, in all ways if they are few; else balanced by ops.
std::vector<std::vector<size_t>> borders(const Fold& fold, size_t stages) {
  if (stages == 1) return {{}};
  std::vector<double> ops;
  for (const FoldUnit& unit : fold.units) ops.push_back(static_cast<double>(unit.ops.size()));
  std::vector<std::vector<size_t>> out;
  std::vector<size_t> cuts = {0};
  const std::function<void()> place = [&] {
    if (out.size() > kAllBorders) return;
    if (cuts.size() == stages) out.push_back(cuts);
    if (cuts.size() == stages) return;
    for (size_t border = cuts.back() + 1; border < ops.size(); ++border) {
      cuts.push_back(border);
      place();
      cuts.pop_back();
    }
  };
  place();
  if (out.size() > kAllBorders) return {balance_stages(ops, stages)};
  return out;
}

// Returns lists of one or two dims that cut the model in different ways.
std::vector<std::vector<std::string>> all_lists(const Graph& forward, int64_t size) {
  std::vector<std::vector<std::string>> lists;
  std::vector<std::string> dims = dims_to_cut(forward, 0);
  std::erase_if(dims, [](const std::string& dim) { return !parse_entry(dim).scope.empty(); });
  for (const std::string& a : dims) {
    lists.push_back({a});
    for (const std::string& b : dims) {
      if (a != b) lists.push_back({a, b});
    }
  }
  std::vector<std::vector<std::string>> out;
  std::set<std::string> known;
  for (const auto& list : lists) {
    if (known.insert(cuts_of(forward, {{"tp", size, list}})).second) out.push_back(list);
  }
  return out;
}

class Enumeration {
 public:
  Enumeration(const PlanQuestion& question, std::vector<SimulatedPlan>& out)
      : question_(question), out_(out) {
    model_ =
        compiler_.model(question.model, question.batch, storage_dtype(question.compute)).value();
    fold_ = fold_layers(model_->graph).value();
  }

  void all() {
    const int64_t most = question_.cluster->devices();
    const int64_t least = question_.fixed.contains("devices") ? most : 1;
    for (int64_t devices = least; devices <= most; ++devices) on(devices);
  }

 private:
  void on(int64_t devices) {
    for (int64_t stages = 1; stages <= devices; ++stages) {
      if (devices % stages != 0 || stages > static_cast<int64_t>(fold_.units.size())) continue;
      for (int64_t inner = 1; inner <= devices / stages; ++inner) {
        if (devices / stages % inner == 0) shape(stages, devices / stages / inner, inner);
      }
    }
  }

  void shape(int64_t stages, int64_t replicas, int64_t inner) {
    Choice choice;
    choice.compute = question_.compute;
    choice.stages = stages;
    choice.axes = {{"dp", replicas, {"batch"}}};
    std::vector<std::vector<std::string>> lists = {{}};
    if (inner > 1) lists = all_lists(model_->graph, inner);
    for (const auto& list : lists) {
      choice.axes.own().resize(1);
      if (inner > 1) choice.axes.push_back({"tp", inner, list});
      for (int64_t m = 1; m <= question_.batch; m *= 2) {
        if (question_.batch % m != 0 || question_.batch / m % replicas != 0) continue;
        choice.micro_batches = m;
        for (const char* schedule : {"1f1b", "zb_h1", "interleaved"}) schedules(choice, schedule);
      }
    }
  }

  void schedules(Choice choice, const std::string& schedule) {
    choice.schedule = schedule;
    const bool is_chunked = schedule == "interleaved";
    if (choice.stages == 1 && schedule != "1f1b") return;
    choice.chunks = is_chunked ? 2 : 1;
    if (is_chunked && choice.micro_batches % choice.stages != 0) return;
    const auto count = static_cast<size_t>(choice.stages * choice.chunks);
    if (count > fold_.units.size()) return;
    const bool is_divided =
        std::any_of(choice.axes.begin(), choice.axes.end(),
                    [&](const ChoiceAxis& axis) { return holds_copies(axis, model_->graph); });
    for (const auto& cuts : borders(fold_, count)) {
      choice.cuts = cuts;
      for (int64_t sharded = 0; sharded <= (is_divided ? 3 : 0); ++sharded) {
        choice.sharded = sharded;
        for (const char* recompute : {"none", "selective", "full"}) {
          if (schedule == "zb_h1" && recompute != std::string("none")) continue;
          choice.recompute = recompute;
          simulate_one(choice);
        }
      }
    }
  }

  void simulate_one(const Choice& choice) {
    const auto text = write_plan(choice, model_->graph, fold_.units, "brute force");
    if (!text) return;
    const auto plan = parse_plan(*text);
    if (!plan) return;
    const auto lowering = compiler_.lower(forward_of(model_), *plan);
    if (!lowering) return;
    SimulateOptions options = question_.options;
    options.memory_details = options.critical_path = options.events = false;
    const auto simulation = simulate(**lowering, *question_.cluster, options);
    if (!simulation) return;
    double bytes = 0;
    for (const RankResult& role : simulation->roles) bytes = std::max(bytes, role.memory.high);
    out_.push_back({choice.str(), simulation->step_time_s, bytes, choice.ranks()});
  }

  const PlanQuestion& question_;
  std::vector<SimulatedPlan>& out_;
  Compiler compiler_;
  std::shared_ptr<const Model> model_;
  Fold fold_;
};

}  // namespace

std::string Instance::str() const {
  return fmt::format("{} on {}{} devices of {}, batch {}, limit {} bytes", question.model,
                     question.fixed.contains("devices") ? "" : "at most ", cluster.devices(),
                     machine, question.batch, question.memory_limit_bytes);
}

std::unique_ptr<Instance> random_question(uint64_t seed, int64_t devices, Size size) {
  std::mt19937_64 random(seed);
  auto out = std::make_unique<Instance>();
  const std::vector<std::string> machines = {"dgx-a100:1", "dgx-v100:1", "local:4", "2080ti:4"};
  out->machine = machines[random() % machines.size()];
  out->cluster = load_cluster(out->machine).value();
  ClusterPart& part = out->cluster.parts.front();
  part.nodes = 1;
  part.type.devices = devices;
  PlanQuestion& question = out->question;
  question.model = random_model(random, devices, size);
  question.batch = size == Size::kTiny || random() % 2 == 0 ? 2 : 4;
  question.cluster = &out->cluster;
  question.options.style = parse_style("tessera").value();
  question.compute = random() % 2 == 0 ? DType::kFloat32 : DType::kBFloat16;
  if (random() % 3 > 0) question.fixed["devices"] = std::to_string(devices);
  if (random() % 2 == 1) out->limit_share = static_cast<double>(random() % 1000) / 1000;
  return out;
}

std::unique_ptr<Instance> random_instance(uint64_t seed, int64_t devices, Size size) {
  auto out = random_question(seed, devices, size);
  std::vector<SimulatedPlan>& plans = out->plans;
  Enumeration(out->question, plans).all();
  if (!out->limit_share) return out;
  const double least =
      std::min_element(plans.begin(), plans.end(), [](const auto& a, const auto& b) {
        return a.bytes < b.bytes;
      })->bytes;
  out->question.memory_limit_bytes =
      static_cast<int64_t>(least + *out->limit_share * (out->best()->bytes - least) + 1);
  return out;
}

const SimulatedPlan* Instance::best() const {
  const auto limit = static_cast<double>(question.memory_limit_bytes);
  const SimulatedPlan* out = nullptr;
  for (const SimulatedPlan& plan : plans) {
    if (limit > 0 && plan.bytes > limit) continue;
    if (out == nullptr || plan.step_s < out->step_s) out = &plan;
  }
  return out;
}

namespace {

// Expects that no enumerated plan, fitting or not, is faster than the bound.
void expect_no_plan_beats_the_bound(const Instance& instance) {
  const PlanQuestion& question = instance.question;
  Compiler compiler;
  const auto model =
      compiler.model(question.model, question.batch, storage_dtype(question.compute)).value();
  const auto bound = least_step_s(question, fold_layers(model->graph).value());
  ASSERT_TRUE(bound.has_value()) << instance.str();
  EXPECT_GT(*bound, 0);
  for (const SimulatedPlan& plan : instance.plans)
    EXPECT_LE(*bound, plan.step_s) << instance.str() << ": " << plan.choice;
}

// Returns the answer's step / the best plan's step; nothing if a failure was added or nothing fits.
std::optional<double> ratio_of(const Instance& instance, size_t evaluations) {
  PlanQuestion question = instance.question;
  question.evaluations = evaluations;
  const auto answer = find_plan(question, "auto", all_planners());
  if (!answer) {
    ADD_FAILURE() << instance.str() << ": " << answer.error().message;
    return {};
  }
  const SimulatedPlan* best = instance.best();
  if (best == nullptr) return {};
  if (!answer->best) {
    ADD_FAILURE() << instance.str() << ": " << best->choice << " fits";
    return {};
  }
  const PlanCandidate& found = answer->simulated[*answer->best];
  if (question.memory_limit_bytes > 0) {
    EXPECT_LE(found.need_bytes, static_cast<double>(question.memory_limit_bytes)) << instance.str();
  }
  const double ratio = *found.step_s / best->step_s;
  if (ratio > kWorthALine) {
    fmt::print("{:.4f} times: {}: {} against {} of {} plans\n", ratio, instance.str(),
               found.choice.str(), best->choice, instance.plans.size());
  }
  return ratio;
}

}  // namespace

void expect_as_fast_as_brute_force(Instance& instance) {
  if (const auto ratio = ratio_of(instance, kEnough)) {
    EXPECT_LE(*ratio, 1 + 1e-9) << instance.str();
  }
}

void expect_usually_as_fast_as_brute_force(Instance& instance) {
  if (const auto ratio = ratio_of(instance, 0)) {
    EXPECT_LE(*ratio, 1 + 1e-9) << instance.str();
  }
}

void compare(Instance& instance, Outcome& outcome) {
  ++outcome.instances;
  expect_no_plan_beats_the_bound(instance);
  expect_as_fast_as_brute_force(instance);
  const auto ratio = ratio_of(instance, 0);
  if (!ratio || *ratio <= 1 + 1e-9) ++outcome.equal;
  if (!ratio || *ratio <= outcome.worst) return;
  outcome.worst = *ratio;
  outcome.worst_instance = instance.str();
}

}  // namespace tessera::planner_test
