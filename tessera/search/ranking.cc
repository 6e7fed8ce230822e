#include "tessera/search/ranking.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tessera/base/text.h"

namespace tessera {
namespace {

constexpr int64_t kMostSequences = 32;  // of a micro-batch and replica
constexpr size_t kBeam = 4;             // lists of dims that are made longer at a time
constexpr double kGain = .998;          // of the time, or less: a longer list is better
constexpr double kMostLoss = 1.03;      // of the time, for less memory
constexpr int64_t kAllCounts = 16;      // on so few devices any number of them may be used

std::vector<int64_t> divisors(int64_t n) {
  std::vector<int64_t> out;
  for (int64_t i = 1; i <= n; ++i) {
    if (n % i == 0) out.push_back(i);
  }
  return out;
}

bool has(const DimList& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

// Of a micro-batch of the whole model.
double block_time(const UnitPrices& costs, const std::vector<int64_t>& counts) {
  double out = 0;
  for (size_t u = 0; u < counts.size(); ++u) {
    out += static_cast<double>(counts[u]) * (costs.units[u].forward_s + costs.units[u].backward_s);
  }
  return out;
}
double block_activations(const UnitPrices& costs, const std::vector<int64_t>& counts) {
  double out = 0;
  for (size_t u = 0; u < counts.size(); ++u)
    out += static_cast<double>(counts[u]) * costs.units[u].activation_bytes;
  return out;
}
double block_memory(const UnitPrices& costs, const std::vector<int64_t>& counts) {
  double out = 0;
  for (size_t u = 0; u < counts.size(); ++u) {
    const UnitPrice& unit = costs.units[u];
    out += static_cast<double>(counts[u]) *
           (unit.parameter_bytes + unit.gradient_bytes + unit.state_bytes + unit.copy_bytes +
            unit.activation_bytes);
  }
  return out;
}

}  // namespace

Ranking::Ranking(const PlanQuestion& question, const Fold& fold, UnitPricer& pricer)
    : question_(question),
      fold_(fold),
      pricer_(pricer),
      estimator_(*question.cluster, question.options.style, fold.units) {
  for (const ClusterPart& part : question.cluster->parts) {
    const auto memory = static_cast<double>(part.type.device.memory_bytes);
    if (memory > 0) limit_ = limit_ > 0 ? std::min(limit_, memory) : memory;
  }
  const auto asked = static_cast<double>(question.memory_limit_bytes);
  if (asked > 0) limit_ = limit_ > 0 ? std::min(limit_, asked) : asked;
}

int64_t Ranking::fixed(const std::string& key) const {
  const auto it = question_.fixed.find(key);
  return it == question_.fixed.end() ? 0 : parse_int(it->second).value_or(0);
}

bool Ranking::allows(const std::string& key, int64_t value) const {
  const auto it = question_.fixed.find(key);
  return it == question_.fixed.end() || parse_int(it->second) == value;
}

bool Ranking::allows(const std::string& key, const std::string& value) const {
  const auto it = question_.fixed.find(key);
  return it == question_.fixed.end() || it->second == value;
}

std::vector<Ranking::Shape> Ranking::shapes() const {
  const int64_t all = question_.cluster->devices();
  std::set<int64_t> counts = {all};
  for (int64_t n = 1; n <= std::min(all, kAllCounts); ++n) counts.insert(n);
  if (all > kAllCounts && all % 2 == 0) counts.insert(all / 2);
  if (fixed("devices") > 0) counts = {fixed("devices")};
  // Twice a node's devices: beyond it the inner axis crosses the network in every layer.
  const int64_t most_inner =
      std::max<int64_t>(2 * question_.cluster->type_of(0).devices, fixed("tp"));
  std::vector<Shape> out;
  for (const int64_t used : counts) {
    if (used > all) continue;
    for (const int64_t stages : divisors(used)) {
      if (stages > static_cast<int64_t>(fold_.units.size()) || !allows("pp", stages)) continue;
      for (const int64_t inner : divisors(used / stages)) {
        const int64_t replicas = used / stages / inner;
        if (inner > most_inner || replicas > question_.batch) continue;
        if (!allows("tp", inner) || !allows("dp", replicas)) continue;
        out.push_back({stages, replicas, inner});
      }
    }
  }
  return out;
}

void Ranking::rank_shape(const Shape& shape, const Space& space, const std::string& recompute,
                         std::vector<PlanCandidate>& out) {
  const int64_t batch = question_.batch;
  const std::vector<DimList> none = {{}};
  const auto counts = fold_.counts();
  for (const DimList& list : shape.inner == 1 ? none : space.lists) {
    const int64_t least = has(list, "batch") ? shape.inner : 1;
    double before = 0;  // seconds a sequence, with half the sequences
    for (int64_t sequences = least;
         sequences * shape.replicas <= batch && sequences <= kMostSequences * least;
         sequences *= 2) {
      if (batch % (sequences * shape.replicas) != 0) break;
      Choice choice;
      choice.axes = {{"dp", shape.replicas, {"batch"}}, {"tp", shape.inner, list}};
      choice.stages = shape.stages;
      choice.micro_batches = batch / (sequences * shape.replicas);
      choice.recompute = recompute;
      choice.compute = question_.compute;
      UnitQuestion units{{}, sequences, recompute};
      if (shape.inner > 1) units.axes = {choice.axes[1]};
      const auto costs = pricer_.price(units);
      if (!costs) {
        refusal_ = costs.error().message;
        if (before > 0) break;
        continue;  // fewer sequences than the model can be cut into
      }
      const double each = block_time(**costs, counts) / static_cast<double>(sequences);
      if (before > 0 && each > .995 * before) break;
      before = each;
      if (!allows("micro_batches", choice.micro_batches)) continue;
      for (const std::string& schedule : space.schedules) {
        if (!allows("schedule", schedule)) continue;
        if (shape.stages == 1 && schedule != space.schedules.front()) continue;
        for (const int64_t chunks : space.chunks) {
          if ((chunks > 1) != (schedule == "interleaved") || !allows("chunks", chunks)) continue;
          if (chunks * shape.stages > static_cast<int64_t>(fold_.units.size())) continue;
          // A weight pass that waits would hold what was computed again for it.
          if (schedule == "zb_h1" && recompute != "none") continue;
          if (chunks > 1 && choice.micro_batches % shape.stages != 0) continue;
          for (int64_t sharded = 0; sharded <= (shape.replicas > 1 ? 3 : 0); ++sharded) {
            if (!allows("zero", sharded)) continue;
            PlanCandidate candidate;
            choice.schedule = schedule;
            choice.chunks = chunks;
            choice.sharded = sharded;
            candidate.estimate = estimator_.estimate(choice, **costs, sequences);
            candidate.choice = choice;
            const bool fits = limit_ <= 0 || candidate.estimate.memory_bytes <= limit_;
            if (fits && (best_s_ == 0 || candidate.estimate.step_s < best_s_))
              best_s_ = candidate.estimate.step_s;
            out.push_back(std::move(candidate));
          }
        }
      }
    }
  }
}

std::vector<PlanCandidate> Ranking::rank(const Space& space) {
  std::vector<PlanCandidate> out;
  const std::vector<Shape> all = shapes();
  std::vector<std::string> levels;
  for (const std::string& level : space.recompute) {
    if (allows("recompute", level)) levels.push_back(level);
  }
  if (levels.empty()) levels = {question_.fixed.at("recompute")};
  for (const std::string& level : levels) {
    if (question_.progress) question_.progress("ranking choices, recompute " + level);
    for (const Shape& shape : all) {
      if (question_.stop && question_.stop() && !out.empty()) return out;
      // Is there a choice of this shape that recomputation may help: too large, and fast enough?
      const bool is_first = level == levels.front();
      const bool helps =
          is_first || std::any_of(out.begin(), out.end(), [&](const PlanCandidate& one) {
            return one.choice.stages == shape.stages && one.choice.axes[1].size == shape.inner &&
                   one.choice.axes[0].size == shape.replicas && limit_ > 0 &&
                   one.estimate.memory_bytes > limit_ &&
                   (best_s_ == 0 || one.estimate.step_s < best_s_);
          });
      if (helps) rank_shape(shape, space, level, out);
    }
  }
  return out;
}

std::vector<DimList> Ranking::find_lists() {
  struct Tried {
    DimList list;
    double time = 0, memory = 0, activations = 0;
  };
  std::vector<Tried> tried;
  // The smallest inner axis that the devices allow.
  int64_t size = 0;
  for (const Shape& shape : shapes()) {
    if (shape.inner > 1 && (size == 0 || shape.inner < size)) size = shape.inner;
  }
  if (size == 0) return {};
  const auto counts = fold_.counts();
  const auto price = [&](const DimList& list, int64_t sequences) {
    for (const Tried& one : tried) {
      if (one.list == list) return;
    }
    const auto costs = pricer_.price({{{"tp", size, list}}, sequences, "none", true});
    if (!costs) {
      refusal_ = costs.error().message;
      return;
    }
    const double each = block_time(**costs, counts) / static_cast<double>(sequences);
    tried.push_back(
        {list, each, block_memory(**costs, counts), block_activations(**costs, counts)});
  };
  // A beam: the best lists so far, each with every dim at every place, until none gets better.
  const std::vector<std::string> dims = dims_to_cut(fold_.graph);
  const auto grow = [&](DimList first, int64_t sequences) {
    tried.clear();
    price(first, sequences);
    std::vector<DimList> beam = {std::move(first)};
    for (double best = 0; !beam.empty();) {
      for (const DimList& from : beam) {
        if (question_.progress)
          question_.progress(fmt::format("which dims to cut: [{}]", join(from, ",")));
        for (const std::string& dim : dims) {
          if (has(from, dim)) continue;
          for (size_t at = 0; at <= from.size(); ++at) {
            DimList list = from;
            list.insert(list.begin() + static_cast<std::ptrdiff_t>(at), dim);
            price(list, sequences);
          }
        }
      }
      std::stable_sort(tried.begin(), tried.end(),
                       [](const Tried& a, const Tried& b) { return a.time < b.time; });
      if (tried.empty() || (best > 0 && tried.front().time > kGain * best)) return;
      best = tried.front().time;
      // The longest lists are those that this round made.
      size_t longest = 0;
      for (const DimList& one : beam) longest = std::max(longest, one.size() + 1);
      beam.clear();
      for (const Tried& one : tried) {
        if (one.list.size() == longest && beam.size() < kBeam) beam.push_back(one.list);
      }
    }
  };
  std::vector<DimList> out;
  const auto keep = [&](size_t most) {
    double least = 0;
    size_t kept = 0;
    for (const Tried& one : tried) {
      if (kept == most) break;
      if (one.list.empty() || one.list == DimList{"batch"}) continue;  // replicas have an axis
      if (kept > 0 && one.memory >= .99 * least) continue;
      least = one.memory;
      ++kept;
      if (std::find(out.begin(), out.end(), one.list) == out.end()) out.push_back(one.list);
    }
  };
  // Dims at the end of a list cut what no dim before them does. They need not save time if they save
  // activations, of which a pipeline holds many micro-batches.
  const auto save_memory = [&](DimList list, int64_t sequences) {
    const auto known = [&](const DimList& wanted) -> std::optional<Tried> {
      for (const Tried& one : tried) {
        if (one.list == wanted) return one;
      }
      return {};
    };
    std::optional<Tried> best = known(list);
    for (bool grows = best.has_value(); grows;) {
      grows = false;
      const Tried from = *best;
      for (const std::string& dim : dims) {
        if (has(from.list, dim)) continue;
        DimList longer = from.list;
        longer.push_back(dim);
        price(longer, sequences);
        const auto one = known(longer);
        if (!one || one->time > kMostLoss * from.time ||
            one->activations >= .99 * best->activations)
          continue;
        best = one;
        grows = true;
      }
    }
    if (best && std::find(out.begin(), out.end(), best->list) == out.end())
      out.push_back(best->list);
  };
  const auto grow_and_keep = [&](const DimList& first, int64_t sequences, size_t most) {
    grow(first, sequences);
    const size_t before = out.size();
    keep(most);
    const size_t kept = out.size();
    for (size_t i = before; i < kept; ++i) save_memory(out[i], sequences);
  };
  // The smallest micro-batch: nothing is gained by cutting its batch.
  int64_t least = 1;
  while (2 * least <= question_.batch && !pricer_.price({{}, least, "none"})) least *= 2;
  grow_and_keep({}, least, 3);
  grow_and_keep({"batch"}, least * size, 2);
  return out;
}

Result<Space> whole_space(Ranking& ranking) {
  Space space;
  space.lists = ranking.find_lists();
  space.recompute = {"none", "selective", "full"};
  space.schedules = {"1f1b", "interleaved", "zb_h1"};
  space.chunks = {1, 2, 3, 4, 6, 8};
  return space;
}

Result<Space> megatron_space(Ranking& ranking) {
  (void)ranking;
  Space space;
  space.lists = {{"heads", "ffn", "vocab"}, {"heads", "ffn", "vocab", "seq"}};
  space.recompute = {"none", "selective", "full"};
  space.schedules = {"1f1b", "interleaved"};
  space.chunks = {1, 2, 3, 4, 6, 8};
  return space;
}

}  // namespace tessera
