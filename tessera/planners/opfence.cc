#include "tessera/planners/opfence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tessera/base/codec.h"
#include "tessera/base/text.h"
#include "tessera/planners/unit_rows.h"

namespace tessera {
namespace {

using published::FencePlan;
using published::FenceProblem;

// The search is exact up to so many steps; a question asks for some dozens of searches.
constexpr double kExactSteps = 5e7;
constexpr double kWithoutLimit = 1e30;  // bytes of a device without a limit
// Compressed plans that are simulated.
constexpr size_t kMostLossy = 6;
constexpr double kMostRatio = 1000;

double passes_of(const UnitPrices& prices) {
  double out = 0;
  for (const UnitPrice& unit : prices.units) out += unit.forward_s + unit.backward_s;
  return out;
}

// Returns a problem with the sizes of Top-K messages (base/codec.h): a kept element is a float32 value
// with an index of as many bits as the largest message needs, or with one bit of each element.
FenceProblem codec_sizes(DType compute, const std::vector<double>& bytes) {
  const auto dense = static_cast<double>(dtype_bytes(compute));
  const double most = bytes.empty() ? 0 : *std::max_element(bytes.begin(), bytes.end());
  const auto elements = std::max<int64_t>(2, std::llround(most / dense));
  FenceProblem out;
  out.phi = (4 + top_index_bits(elements) / 8.) / dense;
  out.value_share = 4 / dense;
  out.bitmap_share = 1 / (8 * dense);
  return out;
}

}  // namespace

FenceSpace::FenceSpace(PlanSearch& search)
    : search_(search),
      estimator_(*search.question().cluster, search.question().options.style, search.fold().units,
                 search.question().memory_limit_bytes),
      devices_(fixed_or(search.question(), "devices", search.question().cluster->devices())),
      links_(device_links(estimator_.collectives(), devices_)) {
  const PlanQuestion& question = search.question();
  const std::vector<FoldUnit>& units = search.fold().units;
  std::vector<double> work(units.size(), 1);
  if (const UnitPrices* priced = prices({question.batch, "none", "1f1b"}, 0)) {
    for (size_t u = 0; u < units.size(); ++u) {
      const UnitPrice& own = priced->units[static_cast<size_t>(units[u].stand_in)];
      work[u] = own.forward_s + own.backward_s;
    }
  }
  firsts_ = join_units(work, kMostFenceOps);
  std::vector<size_t> op_of(units.size());
  for (size_t u = 0, op = 0; u < units.size(); ++u) {
    if (op + 1 < firsts_.size() && firsts_[op + 1] == u) ++op;
    op_of[u] = op;
  }
  const double width = static_cast<double>(dtype_bytes(question.compute)) /
                       static_cast<double>(dtype_bytes(storage_dtype(question.compute)));
  for (const GroupBorder& border : group_borders(search.forward(), units, op_of)) {
    const size_t last = *std::max_element(border.to.begin(), border.to.end());
    if (last <= border.from) continue;
    const bool is_narrow = is_floating(search.forward().tensor(border.tensor).dtype);
    crossings_.push_back(
        {border.from, last,
         (is_narrow ? width : 1) * border.bytes / static_cast<double>(question.batch),
         border.tensor});
  }
}

int64_t FenceSpace::sequences(const FenceSetting& setting) const {
  return (search_.question().batch + setting.micro_batches - 1) / setting.micro_batches;
}

const UnitPrices* FenceSpace::prices(const FenceSetting& setting, size_t kind) {
  UnitQuestion question{{}, sequences(setting), setting.recompute};
  if (estimator_.kinds().count() > 1) question.on = &estimator_.kinds().cluster(kind);
  const auto found = search_.pricer().price(question);
  if (found) return *found;
  refusal_ = found.error().message;
  return nullptr;
}

std::optional<FenceProblem> FenceSpace::problem(const FenceSetting& setting) {
  const PlanQuestion& question = search_.question();
  const std::vector<FoldUnit>& units = search_.fold().units;
  std::vector<const UnitPrices*> by_kind;
  for (size_t kind = 0; kind < estimator_.kinds().count(); ++kind) {
    by_kind.push_back(prices(setting, kind));
    if (by_kind.back() == nullptr) return std::nullopt;
  }
  FenceProblem out;
  out.micro_batches = setting.micro_batches;
  out.stages = static_cast<size_t>(fixed_number(question, "pp"));
  out.latency_seconds = links_.latency_seconds;
  out.bytes_per_second = links_.bytes_per_second;
  // Micro-batches whose activations a device holds, at most.
  const auto in_flight =
      static_cast<double>(setting.schedule == "gpipe" ? setting.micro_batches
                                                      : std::min(setting.micro_batches, devices_));
  double overhead = 0;
  for (const UnitPrices* priced : by_kind)
    overhead = std::max(overhead, priced->transient_bytes + priced->overhead_bytes);
  const UnitPrices& first = *by_kind.front();
  for (size_t op = 0; op < firsts_.size(); ++op) {
    const size_t end = op + 1 < firsts_.size() ? firsts_[op + 1] : units.size();
    double work = 0, memory = 0, gathered = 0;
    for (size_t u = firsts_[op]; u < end; ++u) {
      const UnitPrice& own = first.units[static_cast<size_t>(units[u].stand_in)];
      const UnitCost cost = estimator_.unit_cost(own, question.compute, 0, {}, 1);
      work += own.forward_s + own.backward_s;
      memory += cost.resting_bytes + in_flight * cost.activation_bytes;
      gathered = std::max(gathered, cost.gathered_bytes);
    }
    out.work.push_back(work);
    out.memory.push_back(memory + gathered);
    out.bytes.push_back(0);
  }
  for (const Crossing& crossing : crossings_) {
    for (size_t op = crossing.from; op < crossing.to; ++op)
      out.bytes[op] += crossing.bytes * static_cast<double>(sequences(setting));
  }
  for (size_t p = 0; p < static_cast<size_t>(devices_); ++p) {
    out.speed.push_back(passes_of(first) / passes_of(*by_kind[kind_of(p)]));
    out.capacity.push_back(search_.limit_bytes() > 0
                               ? std::max(0.0, search_.limit_bytes() - overhead)
                               : kWithoutLimit);
  }
  const FenceProblem sizes = codec_sizes(question.compute, out.bytes);
  out.phi = sizes.phi;
  out.value_share = sizes.value_share;
  out.bitmap_share = sizes.bitmap_share;
  return out;
}

PlanCandidate FenceSpace::candidate(const FenceSetting& setting, const FencePlan& plan) {
  const PlanQuestion& question = search_.question();
  const size_t stages = plan.devices.size();
  PlanCandidate out;
  Choice& choice = out.choice;
  choice.axes = {{"dp", 1, {"batch"}}};
  choice.stages = static_cast<int64_t>(stages);
  choice.schedule = setting.schedule;
  choice.micro_batches = setting.micro_batches;
  choice.recompute = setting.recompute;
  choice.compute = question.compute;
  std::vector<const UnitPrices*> by_unit;
  double once_s = 0;
  for (size_t s = 0, op = 0; s < stages; ++s) {
    choice.device_order.push_back(static_cast<int64_t>(plan.devices[s]));
    if (stages > 1) choice.cuts.push_back(firsts_[op]);
    op = plan.ends[s];
    const size_t end = op < firsts_.size() ? firsts_[op] : search_.fold().units.size();
    const UnitPrices* own = prices(setting, kind_of(plan.devices[s]));
    double once = 0;
    for (size_t u = by_unit.size(); u < end; ++u) {
      by_unit.push_back(own);
      once += own->units[static_cast<size_t>(search_.fold().units[u].stand_in)].once_s;
    }
    once_s = std::max(once_s, once);
  }
  out.estimate = estimator_.estimate_units(choice, by_unit, sequences(setting));
  out.estimate.step_s = plan.seconds + once_s;
  return out;
}

std::string FenceSpace::compress_entries(const FencePlan& plan) const {
  const PlanQuestion& question = search_.question();
  // Where Top-K barely pays, a bit for each element is smaller than indices of any size.
  const double dense = dense_up_to(codec_sizes(question.compute, {}));
  // A tensor that passes several borders goes straight to its readers; the slowest border counts.
  std::map<double, std::vector<std::string>> by_ratio;
  for (const Crossing& crossing : crossings_) {
    const Tensor& tensor = search_.forward().tensor(crossing.tensor);
    if (!is_floating(tensor.dtype)) continue;
    double ratio = 0;
    for (size_t s = 0; s + 1 < plan.ends.size(); ++s) {
      if (crossing.from < plan.ends[s] && plan.ends[s] <= crossing.to)
        ratio = std::max(ratio, plan.ratios[s]);
    }
    if (ratio > dense) by_ratio[ratio].push_back(tensor.name);
  }
  std::string out;
  for (const auto& [ratio, names] : by_ratio) {
    std::vector<std::string> gradients;
    for (const std::string& name : names)
      gradients.push_back(fmt::format("grad.{},grad.{}.from.*", name, name));
    const auto add = [&](const std::vector<std::string>& tensors, const char* more) {
      out += fmt::format("  {{ tensors = \"{{{}}}\", on = \"send\", with = \"topk:{:.4g}\"{} }},\n",
                         join(tensors, ","), 1 / ratio, more);
    };
    add(names, "");
    add(gradients, ", error_feedback = true");
  }
  return out;
}

namespace {

class FencePlanning {
 public:
  explicit FencePlanning(PlanSearch& search) : search_(search), space_(search) {}

  Result<PlanAnswer> run() {
    const PlanQuestion& question = search_.question();
    const auto most = std::min(question.batch, kMostLinkedMicroBatches);
    std::vector<int64_t> counts;
    for (int64_t m = 1; m <= most; m *= 2) counts.push_back(m);
    for (const int64_t m : numbers_of(question, "micro_batches", counts)) {
      for (const std::string& recompute : texts_of(question, "recompute", {"none", "full"})) {
        if (question.stop && question.stop()) break;
        search_.say(fmt::format("{} micro-batches, recompute {}", m, recompute));
        if (look(m, recompute)) break;  // the next recomputation would only be slower
      }
    }
    std::vector<PlanCandidate> dense;
    for (const auto& [setting, plan] : found_) dense.push_back(space_.candidate(setting, plan));
    TESSERA_TRY(PlanAnswer answer,
                search_.answer(dense, dense.empty() && space_.last_refusal().empty()
                                          ? "the model does not fit the devices, one a stage"
                                          : space_.last_refusal()));
    if (question.allows_lossy) return with_codecs(std::move(answer));
    return answer;
  }

 private:
  struct Found {
    FenceSetting setting;
    FencePlan plan;
  };

  static std::optional<FencePlan> solve(const FenceProblem& problem) {
    return published::exact_fence_steps(problem) <= kExactSteps ? published::exact_fence(problem)
                                                                : published::op_fence(problem);
  }

  // Adds the plans of a number of micro-batches and a recomputation. Schedules differ in memory
  // alone, so a plan of one that fits the other is a plan of both. Returns whether memory can bind
  // no plan.
  bool look(int64_t micro_batches, const std::string& recompute) {
    bool is_roomy = false;
    std::vector<std::pair<FencePlan, FenceProblem>> solved;
    for (const std::string& schedule :
         texts_of(search_.question(), "schedule", {"gpipe", "1f1b"})) {
      const FenceSetting setting{micro_batches, recompute, schedule};
      auto problem = space_.problem(setting);
      if (!problem) return false;
      is_roomy = fits_anywhere(*problem);
      if (solved.empty() || !fits_anywhere(solved.front().second)) {
        solved.clear();
        for (FencePlan& plan : plans_of(*problem)) solved.emplace_back(std::move(plan), *problem);
      }
      for (const auto& [plan, of] : solved) {
        const double dense = published::dense_up_to(*problem);
        const bool is_coded = std::any_of(plan.ratios.begin(), plan.ratios.end(),
                                          [&](double k) { return k > dense; });
        (is_coded ? lossy_ : found_).push_back({setting, plan});
      }
    }
    return is_roomy;
  }

  // Returns whether every device has room for the whole chain.
  static bool fits_anywhere(const FenceProblem& problem) {
    double all = 0;
    for (const double bytes : problem.memory) all += bytes;
    return std::all_of(problem.capacity.begin(), problem.capacity.end(),
                       [&](double capacity) { return all <= capacity; });
  }

  // Returns the best plan with dense messages and, if codecs are allowed, those of some ratios.
  std::vector<FencePlan> plans_of(FenceProblem problem) const {
    std::vector<FencePlan> out;
    if (auto plan = solve(problem)) out.push_back(*std::move(plan));
    if (!search_.question().allows_lossy) return out;
    for (const double ratio : ratios()) {
      problem.ratio = ratio;
      // The heuristic alone: the optimum needs a search for each time of the slowest message.
      if (const auto lossy = published::op_fence(problem))
        out.push_back(published::with_hidden_ratios(problem, *lossy));
    }
    return out;
  }

  // Returns the ratios r that are tried: what is fixed, or some up to kMostRatio.
  std::vector<double> ratios() const {
    const int64_t fixed = fixed_number(search_.question(), "compression");
    if (fixed == 1) return {};
    if (fixed > 1) return {static_cast<double>(fixed)};
    return {4, 32, kMostRatio};
  }

  // Simulates the best compressed plans, and returns the answer with the best plan of all.
  Result<PlanAnswer> with_codecs(PlanAnswer answer) {
    std::stable_sort(lossy_.begin(), lossy_.end(), [](const Found& a, const Found& b) {
      return a.plan.seconds < b.plan.seconds;
    });
    std::optional<std::pair<size_t, Plan>> best;
    std::string text;
    size_t tried = 0;
    for (const Found& lossy : lossy_) {
      if (tried == kMostLossy) break;
      PlanCandidate candidate = space_.candidate(lossy.setting, lossy.plan);
      const std::string entries = space_.compress_entries(lossy.plan);
      TESSERA_TRY(const std::string own, text_of(candidate.choice, entries));
      TESSERA_TRY(const Plan plan, parse_plan(own, candidate.choice.str()));
      if (std::any_of(plans_.begin(), plans_.end(), [&](const Plan& one) { return one == plan; }))
        continue;
      plans_.push_back(plan);
      ++tried;
      candidate.call = candidate.choice.str() + " with topk on slow borders (lossy)";
      search_.judge_plan(plan, candidate);
      const PlanQuestion& question = search_.question();
      const bool wins = candidate.step_s && candidate.fits &&
                        (!answer.best || merit_of(question, candidate) <
                                             merit_of(question, answer.simulated[*answer.best]));
      answer.simulated.push_back(std::move(candidate));
      if (!wins) continue;
      answer.best = answer.simulated.size() - 1;
      best = {*answer.best, plan};
      text = own;
    }
    if (!best) return answer;
    answer.plan = text;
    answer.blocks.clear();
    return search_.answer_with(std::move(answer), best->second);
  }

  Result<std::string> text_of(const Choice& choice, const std::string& entries) const {
    const std::string codecs = fmt::format("compress = [\n{}]\n", entries);
    if (!search_.question().part) {
      TESSERA_TRY(const std::string text,
                  write_plan(choice, search_.forward(), search_.fold().units,
                             choice.str() + "; lossy: messages over slow links keep only their "
                                            "largest elements"));
      return text + codecs;
    }
    TESSERA_TRY(Plan plan, search_.plan_of(choice));
    TESSERA_TRY(const Plan coded, parse_plan("mesh = { pp = 1 }\n" + codecs));
    plan.compress.insert(plan.compress.end(), coded.compress.begin(), coded.compress.end());
    return fmt::format("# {} with {}; lossy\n{}", choice.str(), search_.question().part->plan.file,
                       to_toml(plan));
  }

  PlanSearch& search_;
  FenceSpace space_;
  std::vector<Found> found_, lossy_;
  std::vector<Plan> plans_;  // compressed ones that were simulated
};

}  // namespace

Result<PlanAnswer> find_by_opfence(const PlanQuestion& question) {
  TESSERA_TRY_VOID(check_linked_question(question, "opfence"));
  if (!allows(question, "dp", 1))
    return refuse_fixed(question, "dp", "opfence has stages of one device each");
  if (!allows(question, "zero", 0))
    return refuse_fixed(question, "zero", "opfence has no replicas");
  if (fixed_number(question, "compression") > 1 && !question.allows_lossy)
    return refuse_fixed(question, "compression", "expected --allow lossy, found none");
  TESSERA_TRY(const auto search, PlanSearch::begin(question));
  return FencePlanning(*search).run();
}

}  // namespace tessera
