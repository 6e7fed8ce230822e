#include "tessera/planners/published/galvatron.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/base/check.h"
#include "tessera/base/text.h"
#include "tessera/planners/published/layer_chain.h"

namespace tessera::published {
namespace {

double real(int64_t value) { return static_cast<double>(value); }

int64_t whole_mb(double mb) { return static_cast<int64_t>(std::ceil(mb)); }

// Counts ordered lists of distinct dimensions with degrees of at least 2 whose product is
// `devices`. There are `data` dimensions of data parallelism and `tensor` of tensor parallelism.
int64_t leaves(int64_t devices, int64_t data, int64_t tensor, bool mixed) {
  if (devices == 1) return 1;
  int64_t count = 0;
  for (int64_t degree = 2; degree <= devices; degree *= 2) {
    if (data > 0) count += data * leaves(devices / degree, mixed ? data - 1 : 0, tensor, mixed);
    if (tensor > 0) count += leaves(devices / degree, data, 0, mixed);
  }
  return count;
}

struct Space {
  std::string_view name;
  bool (*takes)(const GalvatronStrategy&);
};
constexpr std::array<Space, 7> kSpaces{{
    {"dp", [](const GalvatronStrategy& s) { return s.stages == 1 && s.tensor == 1 && !s.sharded; }},
    {"sdp", [](const GalvatronStrategy& s) { return s.stages == 1 && s.tensor == 1 && s.sharded; }},
    {"tp", [](const GalvatronStrategy& s) { return s.stages == 1 && s.data == 1; }},
    {"pp", [](const GalvatronStrategy& s) { return s.stages == kGalvatronDevices; }},
    {"dp+tp", [](const GalvatronStrategy& s) { return s.stages == 1 && !s.sharded; }},
    {"dp+pp", [](const GalvatronStrategy& s) { return s.tensor == 1 && !s.sharded; }},
    {"full", [](const GalvatronStrategy&) { return true; }},
}};

std::vector<GalvatronStrategy> all_strategies() {
  std::vector<GalvatronStrategy> out;
  for (int64_t stages = 1; stages <= kGalvatronDevices; stages *= 2) {
    for (int64_t tensor = 1; tensor <= kGalvatronDevices / stages; tensor *= 2) {
      const int64_t data = kGalvatronDevices / stages / tensor;
      std::vector<Neighbours> orders{Neighbours::kNone};
      if (tensor > 1 && data > 1) orders = {Neighbours::kTensor, Neighbours::kData};
      for (const Neighbours order : orders) {
        out.push_back({stages, tensor, data, false, order});
        if (data > 1) out.push_back({stages, tensor, data, true, order});
      }
    }
  }
  return out;
}

// A backward pass and a gradient all-reduce that run at the same time, each 1.3 times slower. both:
// the time until the shorter one ends; rest: the time of the rest of the longer one.
struct Overlap {
  double both = 0, rest = 0;
  bool rest_is_transfer = false;
};
Overlap overlap(double volume, double coefficient, double compute) {
  constexpr double kSlower = 1.3;
  const double a = volume * coefficient * kSlower;
  const double c = compute * kSlower;
  if (a > c) return {c, (volume - c / (coefficient * kSlower)) * coefficient, true};
  if (a < c) return {a, compute - a / kSlower, false};
  return {c, 0, false};
}

double group_coefficient(const GalvatronLinks& links, const GalvatronStrategy& strategy,
                         bool of_tensor) {
  const GroupLinks& group = links.at(strategy.stages);
  if (strategy.tensor == 1 || strategy.data == 1) return group.whole;
  const bool neighbours = (strategy.neighbours == Neighbours::kTensor) == of_tensor;
  return (neighbours ? group.neighbours : group.strided)
      .at(of_tensor ? strategy.tensor : strategy.data);
}

// Number of layers whose time the artifact computes, to divide it at the end.
constexpr double kDummyLayers = 24;

}  // namespace

std::string to_string(const GalvatronStrategy& s) {
  return fmt::format("{}-{}{}-{}{}{}", s.stages, s.tensor,
                     s.neighbours == Neighbours::kTensor ? "*" : "", s.data,
                     s.neighbours == Neighbours::kData ? "*" : "", s.sharded ? "f" : "");
}

std::vector<GalvatronStrategy> strategies_of(std::string_view space) {
  std::vector<GalvatronStrategy> out;
  for (const Space& known : kSpaces) {
    if (known.name != space) continue;
    for (const GalvatronStrategy& strategy : all_strategies()) {
      if (known.takes(strategy)) out.push_back(strategy);
    }
  }
  return out;
}

std::vector<std::string> galvatron_spaces() {
  std::vector<std::string> out;
  for (const Space& space : kSpaces) out.emplace_back(space.name);
  return out;
}

int64_t count_strategies(int64_t devices, bool mixed, bool checkpoint) {
  int64_t count = 0;
  for (int64_t stages = 1; stages <= devices; stages *= 2) {
    count += leaves(devices / stages, 2, 1, mixed);
  }
  return checkpoint ? 2 * count : count;
}

std::optional<GalvatronModel> galvatron_model(std::string_view name) {
  const auto vit_like = [](int64_t count, double forward_ms, double a1, double a2, double a4,
                           double a8, int64_t sequence) {
    return GalvatronLayer{count,    76.98, forward_ms, {{1, a1}, {2, a2}, {4, a4}, {8, a8}},
                          sequence, 1280,  false};
  };
  for (const int64_t depth : {32, 48}) {
    if (name == fmt::format("BERT-Huge-{}", depth)) {
      return GalvatronModel{
          {vit_like(depth, 55.0 / 24, 94.07, 52.475, 31.754375, 21.61171875, 512)},
          793,
          313,
          100,
          MicroBatchRule::kBert,
          {}};
    }
    if (name == fmt::format("ViT-Huge-{}", depth)) {
      return GalvatronModel{{vit_like(depth, 18.0 / 24, 20.27, 12.12, 7.97, 5.93, 196)},
                            45.56,
                            13,
                            0,
                            MicroBatchRule::kVit,
                            {}};
    }
    if (name == fmt::format("Swin-Huge-{}", depth)) {
      const auto stage = [](int64_t count, double parameters, double forward_ms,
                            std::array<double, 4> a, int64_t sequence, int64_t hidden) {
        return GalvatronLayer{
            count,    parameters, forward_ms, {{1, a[0]}, {2, a[1]}, {4, a[2]}, {8, a[3]}},
            sequence, hidden,     false};
      };
      return GalvatronModel{
          {stage(2, 4.80, 1.25, {72.584, 43.318, 29.716, 22.360}, 3136, 320),
           stage(2, 18.82, 0.8875, {36.423, 21.330, 14.708, 11.237}, 784, 640),
           stage(depth - 6, 77.05, 0.8, {18.317, 11.252, 7.561, 5.611}, 196, 1280),
           stage(2, 302.22, 1.225, {9.183, 5.076, 3.835, 2.802}, 49, 2560)},
          312,
          70,
          0,
          MicroBatchRule::kSwin,
          {}};
    }
  }
  if (name == "T5-Large-48") {
    return GalvatronModel{{{24,
                            48.01,
                            35.0 / 24,
                            {{1, 91.003}, {2, 54.004}, {4, 32.785}, {8, 22.8175}},
                            512,
                            1024,
                            false},
                           {24,
                            64.012,
                            65.0 / 24,
                            {{1, 157.755}, {2, 90.756}, {4, 56.384}, {8, 39.117}},
                            512,
                            1024,
                            true}},
                          900,
                          350,
                          60,
                          MicroBatchRule::kT5,
                          {}};
  }
  return std::nullopt;
}

std::vector<std::string> galvatron_models() {
  return {"BERT-Huge-32", "BERT-Huge-48", "ViT-Huge-32", "ViT-Huge-48",
          "T5-Large-48",  "Swin-Huge-32", "Swin-Huge-48"};
}

GalvatronLinks rtx_titan_links() {
  return {
      {1, {0.21530878, {{4, 0.226519097}, {2, 0.277994792}}, {{4, 0.220138889}, {2, 0.271614583}}}},
      {2, {0.230750868, {{2, 0.275195313}}, {{2, 0.224153646}}}},
      {4, {0.264908854, {}, {}}},
      {8, {}}};
}

double micro_batches(const GalvatronModel& model, const GalvatronStrategy& s, int64_t batch) {
  if (model.micro_batches) return *model.micro_batches;
  const double b = real(batch) / real(s.data);
  switch (model.rule) {
    case MicroBatchRule::kBert:
      if (s.stages == 1) return 1;
      if (s.data == 1 && s.stages * s.tensor == kGalvatronDevices && s.tensor > 1) return b / 4;
      return b < 6 ? b / 2 : b / 8 + 2;
    case MicroBatchRule::kVit: return b == 8 ? 1 : 2;
    case MicroBatchRule::kT5: return b == 2 ? 1 : s.stages == 8 ? 3 : 2;
    case MicroBatchRule::kSwin: return b <= 8 ? 1 : b < 32 ? 2 : b <= 96 ? 3 : 4;
  }
  return 1;
}

LayerCost layer_cost(const GalvatronModel& model, const GalvatronLayer& layer,
                     const GalvatronLinks& links, const GalvatronStrategy& s, int64_t batch) {
  const double p = layer.parameters_mb / real(s.tensor);
  const double b = real(batch) / real(s.data);
  const double stages = real(s.stages);
  double states = 4 * p;
  if (s.sharded) states *= 1 / real(s.data) + 0.025;

  const double forward = layer.forward_ms * b / real(s.tensor) * kDummyLayers;
  const double backward = 2 * forward;
  const double data_volume = 2 * real(s.data - 1) / real(s.data) * p * kDummyLayers;
  const double reductions = layer.cross_attention ? 6 : 4;
  const double message = b * real(layer.sequence) * real(layer.hidden) * reductions * 4 / 1048576;
  const double tensor_volume = 2 * real(s.tensor - 1) / real(s.tensor) * message * kDummyLayers;
  const double dc = group_coefficient(links, s, false);
  const double tensor_ms = tensor_volume * group_coefficient(links, s, true);
  const double m = micro_batches(model, s, batch);
  const auto pipe = [&](double x, double y) { return x * (stages + m - 1) / (stages * m) + y; };

  double ms = 0;
  if (s.data == 1) {
    ms = pipe(forward + backward + tensor_ms, 0);  // there is one stage, so the factor is 1
  } else if (s.stages > 1 && s.tensor == 1) {
    const Overlap o = overlap(data_volume / stages, dc, backward / stages);
    const double rest = o.rest * (o.rest_is_transfer && !s.sharded ? 1 : stages);
    const double all = forward + o.both * stages + rest + model.overhead_ms;
    ms = pipe(forward + backward, all - (forward + backward));
  } else {
    // The share of the backward pass that overlaps with the reduction of gradients. The rest of the
    // pass waits for tensor-parallel transfers.
    double beside = 1;
    if (s.tensor > 1 && layer.cross_attention && s.stages == 1) {
      beside = 2.0 / 3;
    } else if (s.tensor > 2 || s.stages > 1) {
      beside = 0.5;
    }
    const Overlap o = overlap(data_volume, dc, backward * beside);
    const double all =
        forward + o.both + o.rest + backward * (1 - beside) + tensor_ms + model.overhead_ms;
    const double x = forward + backward + tensor_ms;
    ms = s.stages == 1 ? all : pipe(x, all - x);
  }
  if (s.sharded) ms += 0.5 * data_volume * dc;
  return {states + layer.activation_mb.at(s.tensor) * b, ms * 0.0011 / kDummyLayers};
}

double other_memory_mb(const GalvatronModel& model, int64_t stages, int64_t batch) {
  return model.other_states_mb +
         model.other_activation_mb * real(batch) / (real(kGalvatronDevices) / real(stages)) +
         kGalvatronContextMb;
}

double change_seconds(const GalvatronLinks& links, const GalvatronStrategy& from,
                      const GalvatronStrategy& to, int64_t batch) {
  const bool other_ranks = from.neighbours != to.neighbours;
  const bool moves = to.tensor > from.tensor || (to.tensor == from.tensor && other_ranks) ||
                     (to.stages == 1 && from.tensor == 4 && to.tensor == 2 && other_ranks);
  double seconds = 0;
  if (moves) {
    constexpr double kSampleMb = 2;  // 512 x 1024 in float32, whatever the model is
    seconds = real(to.tensor - 1) / real(to.tensor) * (kSampleMb * real(batch) / real(to.data)) *
              group_coefficient(links, to, true) * 1e-3;
  }
  // A small cost for a change from sharded to unsharded replicas breaks ties.
  const bool unshards = from.sharded && !to.sharded && from.tensor == to.tensor &&
                        from.data == to.data && !other_ranks;
  return unshards ? seconds + 1e-4 : seconds;
}

std::vector<size_t> divide_by_memory(const std::vector<double>& layers,
                                     const std::vector<double>& extra) {
  const size_t stages = extra.size();
  TESSERA_CHECK(layers.size() >= stages, "{} layers for {} stages", layers.size(), stages);
  double sum = 0;
  for (const double memory : layers) sum += memory;
  for (const double memory : extra) sum += memory;
  const double average = sum / static_cast<double>(stages);
  std::vector<int64_t> sizes(stages, 0);
  std::vector<double> used = extra;
  size_t stage = stages - 1;
  for (size_t l = layers.size(); l-- > 0;) {
    while (stage > 0 && average - used[stage] < 0.5 * layers[l]) --stage;
    used[stage] += layers[l];
    ++sizes[stage];
  }
  // A stage without layers takes a layer of its neighbour. (The artifact mends the first stage
  // only.)
  const auto mend = [&](size_t empty, size_t from) {
    const int64_t missing = std::max<int64_t>(0, 1 - sizes[empty]);
    sizes[empty] += missing;
    sizes[from] -= missing;
  };
  for (size_t i = stages - 1; i > 0; --i) mend(i, i - 1);
  for (size_t i = 0; i + 1 < stages; ++i) mend(i, i + 1);
  return {sizes.begin(), sizes.end()};
}

namespace {

// All layers of the chain, each with its costs by strategy of the group.
struct Group {
  std::vector<GalvatronStrategy> strategies;
  std::vector<ChainLayer> layers;
  std::vector<double> weights;  // weights of the layers for the cut into stages
  int64_t other = 0;
};

// Returns the weight of a layer in the cut into stages.
double weight_of(const GalvatronSearch& search, const Group& group, const GalvatronLayer& layer,
                 int64_t batch) {
  double least = 0;
  for (size_t s = 0; s < group.strategies.size(); ++s) {
    const GalvatronStrategy& strategy = group.strategies[s];
    const double own = layer_cost(search.model, layer, search.links, strategy, batch).memory_mb;
    if (search.cut.layers_by_data_parallelism) {
      const GalvatronStrategy plain{strategy.stages, 1, kGalvatronDevices / strategy.stages};
      return layer_cost(search.model, layer, search.links, plain, batch).memory_mb;
    }
    least = s == 0 ? own : std::min(least, own);
  }
  return least;
}

// Returns for each stage the memory that the cut counts in addition to the layers.
std::vector<double> extra_of(const GalvatronSearch& search, int64_t batch, int64_t stages) {
  const double context = search.cut.context_on_every_stage ? kGalvatronContextMb : 0;
  std::vector<double> extra(static_cast<size_t>(stages), context);
  extra[0] = other_memory_mb(search.model, search.cut.other_by_stages ? stages : 1, batch);
  return extra;
}

std::optional<GalvatronPlan> plan_stages(const GalvatronSearch& search, const Group& group,
                                         int64_t batch, int64_t stages) {
  const auto solve = [&](std::vector<ChainLayer> layers, int64_t limit) {
    ChainProblem problem;
    problem.layers = std::move(layers);
    problem.limit = limit;
    problem.change = [&](size_t, size_t from, size_t to) {
      return change_seconds(search.links, group.strategies[from], group.strategies[to], batch);
    };
    return best_chain(problem);
  };
  const auto stage_of = [&](const ChainPlan& chain, int64_t extra) {
    GalvatronStage stage;
    for (const size_t s : chain.strategies) stage.layers.push_back(group.strategies[s]);
    stage.memory_mb = chain.memory + extra;
    stage.left_mb = search.memory_mb - stage.memory_mb;
    return stage;
  };
  GalvatronPlan plan;
  plan.batch = batch;
  plan.stages = stages;
  const int64_t context =
      // Context of all stages but the first.
      search.cut.context_on_every_stage ? whole_mb(kGalvatronContextMb) : 0;
  const size_t count = group.layers.size();
  const auto number = static_cast<size_t>(stages);
  if (search.model.layers.size() == 1) {  // layers of one type: one search for all stages
    const size_t share = count / number;
    if (share * number != count) return std::nullopt;
    const auto chain =
        solve({group.layers.begin(), group.layers.begin() + static_cast<int64_t>(share)},
              search.memory_mb - group.other);
    if (!chain) return std::nullopt;
    plan.seconds = chain->seconds * real(stages);
    for (int64_t i = 0; i < stages; ++i) {
      plan.stage.push_back(stage_of(*chain, i == 0 ? group.other : context));
    }
    return plan;
  }
  auto first = group.layers.begin();
  for (const size_t size : divide_by_memory(group.weights, extra_of(search, batch, stages))) {
    const int64_t extra = plan.stage.empty() ? group.other : context;
    const auto last = first + static_cast<int64_t>(size);
    const auto chain = solve({first, last}, search.memory_mb - extra);
    if (!chain) return std::nullopt;
    plan.seconds += chain->seconds;
    plan.stage.push_back(stage_of(*chain, extra));
    first = last;
  }
  return plan;
}

}  // namespace

std::optional<GalvatronPlan> best_plan(const GalvatronSearch& search, int64_t batch) {
  std::optional<GalvatronPlan> best;
  for (int64_t stages = 1; stages <= kGalvatronDevices; stages *= 2) {
    Group group;
    for (const GalvatronStrategy& strategy : search.strategies) {
      if (strategy.stages == stages) group.strategies.push_back(strategy);
    }
    if (group.strategies.empty()) continue;
    for (const GalvatronLayer& layer : search.model.layers) {
      ChainLayer costs;
      for (const GalvatronStrategy& strategy : group.strategies) {
        const LayerCost cost = layer_cost(search.model, layer, search.links, strategy, batch);
        costs.seconds.push_back(cost.seconds);
        costs.memory.push_back(whole_mb(cost.memory_mb));
      }
      group.layers.insert(group.layers.end(), static_cast<size_t>(layer.count), costs);
      group.weights.insert(group.weights.end(), static_cast<size_t>(layer.count),
                           weight_of(search, group, layer, batch));
    }
    if (group.layers.size() < static_cast<size_t>(stages)) continue;
    group.other = whole_mb(other_memory_mb(search.model, stages, batch));
    const auto plan = plan_stages(search, group, batch, stages);
    if (plan && (!best || plan->throughput() > best->throughput())) best = plan;
  }
  return best;
}

}  // namespace tessera::published
