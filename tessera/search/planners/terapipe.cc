#include "tessera/search/planners/terapipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "tessera/plan/recipes/parts.h"
#include "tessera/search/dim_lists.h"
#include "tessera/search/published/terapipe.h"
#include "tessera/search/question.h"

namespace tessera {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr int64_t kMostPositions = 64;  // slices are multiples of this part of the sequence
constexpr int64_t kMostSequences = 32;  // of a micro-batch and replica
constexpr double kSaturated = .995;     // of the time of a sequence: more sequences save nothing
constexpr size_t kMostAnswers = 6;      // candidates whose programs are to decide
const char* const kSlicedDim = "seq";
const std::vector<std::string> kTensorDims = {"heads", "ffn", "vocab"};

// Every `stride`th device.
std::vector<int64_t> devices_of(int64_t count, int64_t stride) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(i * stride);
  return out;
}

}  // namespace

Result<SliceTable> SliceTable::measure(UnitPricer& pricer, const UnitQuestion& question,
                                       int64_t length, int64_t shortest) {
  std::vector<int64_t> lengths;
  for (int64_t l = shortest; 3 * l < length; l *= 4) lengths.push_back(l);
  if (length % 2 == 0 && (length / 2) % shortest == 0) lengths.push_back(length / 2);
  SliceTable out;
  for (const int64_t l : lengths) {
    UnitQuestion sliced = question;
    std::vector<size_t> own = {0, 1};  // slices of this length
    sliced.slices = {l, l};
    if (length > 3 * l) {
      sliced.slices = {l, l, length - 3 * l, l};
      own.push_back(3);
    }
    TESSERA_TRY(const UnitPrices* prices, pricer.price(sliced));
    Row row{l, {}};
    for (const size_t i : own)
      row.points.push_back({i == 3 ? length - l : static_cast<int64_t>(i) * l, prices->slice_s[i]});
    out.rows_.push_back(std::move(row));
  }
  TESSERA_TRY(const UnitPrices* whole, pricer.price(question));
  Row row{length, {{0, {}}}};
  for (const UnitPrice& unit : whole->units)
    row.points[0].seconds.push_back(unit.forward_s + unit.backward_s);
  out.rows_.push_back(std::move(row));
  return out;
}

double SliceTable::in_row(const Row& row, int64_t context, const Read& read) {
  if (row.points.size() == 1) return read(row.points[0]);
  size_t i = 1;
  while (i + 1 < row.points.size() && row.points[i].context < context) ++i;
  const Point &a = row.points[i - 1], &b = row.points[i];
  const double share =
      static_cast<double>(context - a.context) / static_cast<double>(b.context - a.context);
  return read(a) + share * (read(b) - read(a));
}

double SliceTable::read_at(int64_t slice, int64_t context, const Read& read) const {
  // What the tokens before it add to the whole sequence, if it had any: as to the row before.
  const auto of_row = [&](size_t r) {
    if (r + 1 < rows_.size() || r == 0) return in_row(rows_[r], context, read);
    const Row& before = rows_[r - 1];
    const double added = in_row(before, context, read) - in_row(before, 0, read);
    return in_row(rows_[r], 0, read) +
           added * static_cast<double>(rows_[r].slice) / static_cast<double>(before.slice);
  };
  size_t r = 0;
  while (r < rows_.size() && rows_[r].slice < slice) ++r;
  if (r == rows_.size()) --r;
  if (rows_[r].slice == slice || r == 0) return of_row(r);
  const double share = static_cast<double>(slice - rows_[r - 1].slice) /
                       static_cast<double>(rows_[r].slice - rows_[r - 1].slice);
  return (1 - share) * of_row(r - 1) + share * of_row(r);
}

double SliceTable::seconds(size_t unit, int64_t slice, int64_t context) const {
  return read_at(slice, context, [&](const Point& point) { return point.seconds[unit]; });
}

double SliceTable::seconds(const std::vector<double>& counts, int64_t slice,
                           int64_t context) const {
  return read_at(slice, context, [&](const Point& point) {
    double sum = 0;
    for (size_t u = 0; u < counts.size(); ++u) sum += counts[u] * point.seconds[u];
    return sum;
  });
}

namespace {

// A schedule of slices, and its like where a single slice is a whole micro-batch.
struct SliceSchedule {
  const char *of_slices, *of_wholes;
};
constexpr SliceSchedule kSchedules[] = {{"token", "gpipe"}, {"token_1f1b", "1f1b"}};

// The first one, or the one that is fixed; null: a fixed one that is none of slices.
const SliceSchedule* asked_schedule(const PlanQuestion& question) {
  const std::string name = texts_of(question, "schedule", {kSchedules->of_slices}).front();
  const auto* found = std::find_if(std::begin(kSchedules), std::end(kSchedules),
                                   [&](const SliceSchedule& one) { return one.of_slices == name; });
  return found == std::end(kSchedules) ? nullptr : found;
}

class SliceSearch {
 public:
  SliceSearch(PlanSearch& search, int64_t length)
      : search_(search),
        question_(search.question()),
        estimator_(*question_.cluster, question_.options.style, search.fold().units,
                   question_.memory_limit_bytes),
        length_(length) {
    for (const int64_t shortest : divisors_of(length)) {
      if (length / shortest <= kMostPositions) {
        shortest_ = shortest;
        break;
      }
    }
  }

  std::vector<PlanCandidate> run() {
    std::vector<Ranked> ranked;
    const double limit = search_.limit_bytes();
    for (const std::string& level : texts_of(question_, "recompute", {"none", "full"})) {
      search_.say("slices of sequences, recompute " + level);
      const bool is_first = ranked.empty();
      for (const Shape& shape : shapes()) {
        if (question_.stop && question_.stop() && !ranked.empty()) break;
        // Recomputation takes time: it is for what does not fit without.
        const bool helps =
            is_first || std::any_of(ranked.begin(), ranked.end(), [&](const Ranked& one) {
              return one.shape == shape && limit > 0 &&
                     one.candidate.estimate.memory_bytes > limit &&
                     one.candidate.estimate.step_s < best_s_;
            });
        if (helps) rank(shape, level, ranked);
      }
    }
    return with_measured_slices(ranked);
  }
  const std::string& last_refusal() const { return refusal_; }

 private:
  struct Shape {
    int64_t stages = 1, replicas = 1, tensor = 1;
    friend bool operator==(const Shape&, const Shape&) = default;
  };
  struct Ranked {
    Shape shape;
    PlanCandidate candidate;
    UnitQuestion asked;
  };

  std::vector<Shape> shapes() const {
    const int64_t fixed = fixed_number(question_, "devices");
    const int64_t used = fixed > 0 ? fixed : question_.cluster->devices();
    const int64_t most =
        std::max(2 * question_.cluster->type_of(0).devices, fixed_number(question_, "tp"));
    std::vector<Shape> out;
    if (used > question_.cluster->devices()) return out;
    for (const int64_t stages : divisors_of(used)) {
      if (stages > static_cast<int64_t>(search_.fold().units.size())) break;
      for (const int64_t tensor : divisors_of(used / stages)) {
        const Shape shape{stages, used / stages / tensor, tensor};
        if (tensor <= most && question_.batch % shape.replicas == 0 &&
            allows(question_, "pp", stages) && allows(question_, "tp", tensor) &&
            allows(question_, "dp", shape.replicas))
          out.push_back(shape);
      }
    }
    return out;
  }

  void rank(const Shape& shape, const std::string& recompute, std::vector<Ranked>& out) {
    double each_s = kNever;  // of a sequence
    const int64_t own = question_.batch / shape.replicas;
    for (int64_t sequences = 1; sequences <= std::min(own, kMostSequences); sequences *= 2) {
      if (own % sequences != 0) break;
      UnitQuestion asked;
      if (shape.tensor > 1) asked.axes = {{"tp", shape.tensor, kTensorDims}};
      asked.sequences = sequences;
      asked.recompute = recompute;
      asked.slice_dim = kSlicedDim;
      const auto prices = search_.pricer().price(asked);
      if (!prices) {
        refusal_ = prices.error().message;
        continue;
      }
      const double now_s =
          passes_s(**prices, search_.fold().counts()) / static_cast<double>(sequences);
      if (now_s > kSaturated * each_s) break;
      each_s = now_s;
      if (!allows(question_, "micro_batches", own / sequences)) continue;
      for (const int64_t sharded : numbers_of(question_, "zero", {0})) {
        if (sharded > 0 && shape.replicas == 1) continue;
        Ranked one{shape, {}, asked};
        one.candidate.choice = choice_of(shape, asked, sharded);
        if (!slice(one, **prices)) continue;
        const Estimate& estimate = one.candidate.estimate;
        if (search_.limit_bytes() <= 0 || estimate.memory_bytes <= search_.limit_bytes())
          best_s_ = std::min(best_s_, estimate.step_s);
        out.push_back(std::move(one));
      }
    }
  }

  Choice choice_of(const Shape& shape, const UnitQuestion& asked, int64_t sharded) const {
    Choice out;
    out.axes = {{"dp", shape.replicas, {"batch"}}};
    out.axes.insert(out.axes.end(), asked.axes.begin(), asked.axes.end());
    out.stages = shape.stages;
    out.micro_batches = question_.batch / shape.replicas / asked.sequences;
    out.sharded = sharded;
    out.recompute = asked.recompute;
    out.compute = question_.compute;
    out.slice_dim = kSlicedDim;
    return out;
  }

  // Finds the slices and estimates the choice with them. False if the model cannot be sliced.
  bool slice(Ranked& one, const UnitPrices& whole) {
    Choice& choice = one.candidate.choice;
    one.candidate.estimate = estimator_.estimate(choice, whole, one.asked.sequences);
    if (choice.stages == 1) return true;
    const SliceTable* table = table_for(one.asked);
    if (table == nullptr) return false;
    const std::vector<double> counts = slowest_stage(choice, whole);
    // By slice and tokens before it, in shortest slices.
    const auto n = static_cast<size_t>(length_ / shortest_);
    std::vector<double> times((n + 1) * n);
    for (size_t k = 1; k <= n; ++k) {
      for (size_t c = 0; c + k <= n; ++c) {
        times[k * n + c] = table->seconds(counts, static_cast<int64_t>(k) * shortest_,
                                          static_cast<int64_t>(c) * shortest_);
      }
    }
    published::SliceProblem problem;
    problem.positions = static_cast<int64_t>(n);
    problem.stages = choice.stages;
    problem.repeats = choice.micro_batches;
    problem.seconds = [&](int64_t, int64_t k, int64_t c) {
      return times[static_cast<size_t>(k) * n + static_cast<size_t>(c)];
    };
    const auto plan = published::best_slices(problem);
    const auto& lengths = plan.parts.front().slices;
    const SliceSchedule* schedule = asked_schedule(question_);
    choice.sliced_stages = lengths.size() > 1;
    choice.schedule = choice.sliced_stages ? schedule->of_slices : schedule->of_wholes;
    if (choice.sliced_stages) {
      for (const int64_t length : lengths) choice.slices.push_back(length * shortest_);
    }
    // The same units with the table's times.
    UnitPrices& sliced = sliced_.emplace_back(whole);
    if (!choice.slices.empty()) {
      int64_t context = 0;
      for (const int64_t length : choice.slices) {
        sliced.slice_s.emplace_back();
        for (size_t u = 0; u < sliced.units.size(); ++u)
          sliced.slice_s.back().push_back(table->seconds(u, length, context));
        context += length;
      }
      for (size_t u = 0; u < sliced.units.size(); ++u) {
        UnitPrice& unit = sliced.units[u];
        const double before = unit.forward_s + unit.backward_s;
        double now = 0;
        for (const auto& slice : sliced.slice_s) now += slice[u];
        unit.forward_s = before > 0 ? unit.forward_s * now / before : now;
        unit.backward_s = now - unit.forward_s;
      }
    }
    one.candidate.estimate = estimate(choice, sliced, one.asked.sequences);
    return true;
  }

  // The step by formula. A parameter that two stages read (a tied table) has a gradient from each
  // slice; these terms are summed over the replicas and cross one by one. Both ends hold them until
  // then, and those of the last micro-batch are waited for.
  Estimate estimate(Choice& choice, const UnitPrices& prices, int64_t sequences) {
    Estimate out = estimator_.estimate(choice, prices, sequences);
    const std::vector<FoldUnit>& units = search_.fold().units;
    const Graph& forward = search_.forward();
    std::vector<int> unit_of(forward.ops().size(), -1);
    for (size_t u = 0; u < units.size(); ++u) {
      for (const OpId op : units[u].ops) unit_of[op.index()] = static_cast<int>(u);
    }
    const auto stage_of = [&](int unit) {
      return std::upper_bound(choice.cuts.begin(), choice.cuts.end(), static_cast<size_t>(unit));
    };
    std::map<TensorId, int> first;  // unit that reads the parameter
    std::set<int> tied;
    for (const Op& op : forward.ops()) {
      const int unit = unit_of[op.id.index()];
      for (const TensorId input : op.inputs) {
        if (unit < 0 || forward.tensor(input).role != Role::kParameter) continue;
        const int before = first.try_emplace(input, unit).first->second;
        if (stage_of(before) != stage_of(unit)) tied.insert(before);
      }
    }
    const auto slices = static_cast<double>(choice.slices.size());
    const int64_t replicas = choice.axes.front().size;
    const int64_t stage = choice.ranks() / choice.stages;
    const int64_t node = question_.cluster->type_of(0).devices;
    const CollectiveCosts& moves = estimator_.collectives();
    const GroupPlacement group =
        place_group(*question_.cluster, devices_of(replicas, stage / replicas),
                    std::min(stage / replicas, node));
    for (const int unit : tied) {
      const auto stand_in = static_cast<size_t>(units[static_cast<size_t>(unit)].stand_in);
      const double bytes = prices.units[stand_in].gradient_bytes;
      const auto whole = static_cast<int64_t>(bytes);
      out.memory_bytes += 2 * slices * bytes;
      out.step_s +=
          slices *
          moves.message(0, (choice.stages - 1) * stage, whole, std::min(stage, node)).seconds();
      if (replicas > 1)
        out.step_s += slices * moves.collective(CollectiveKind::kAllReduce, group, whole).seconds();
    }
    return out;
  }

  // By unit of the fold, how many of them the slowest stage has.
  std::vector<double> slowest_stage(const Choice& choice, const UnitPrices& prices) const {
    const auto& units = search_.fold().units;
    std::vector<double> out;
    double slowest = -1;
    for (size_t s = 0; s < choice.cuts.size(); ++s) {
      const size_t end = s + 1 < choice.cuts.size() ? choice.cuts[s + 1] : units.size();
      std::vector<double> counts(prices.units.size());
      double seconds = 0;
      for (size_t u = choice.cuts[s]; u < end; ++u) {
        const auto unit = static_cast<size_t>(units[u].stand_in);
        counts[unit] += 1;
        seconds += prices.units[unit].forward_s + prices.units[unit].backward_s;
      }
      if (seconds <= slowest) continue;
      slowest = seconds;
      out = std::move(counts);
    }
    return out;
  }

  const SliceTable* table_for(const UnitQuestion& asked) {
    const int64_t tensor = asked.axes.empty() ? 1 : asked.axes.front().size;
    const auto [it, is_new] = tables_.try_emplace({tensor, asked.sequences, asked.recompute});
    if (is_new) {
      auto table = SliceTable::measure(search_.pricer(), asked, length_, shortest_);
      if (table) it->second = std::move(*table);
      if (!table) refusal_ = table.error().message;
    }
    return it->second ? &*it->second : nullptr;
  }

  // The best by formula once more, with a folded program that is sliced as they are.
  std::vector<PlanCandidate> with_measured_slices(const std::vector<Ranked>& ranked) {
    std::vector<PlanCandidate> all;
    for (const Ranked& one : ranked) all.push_back(one.candidate);
    const auto order = in_order(all);
    std::vector<PlanCandidate> out;
    for (const PlanCandidate* next : order) {
      if (out.size() == kMostAnswers) break;
      PlanCandidate candidate = *next;
      const Ranked& one = ranked[static_cast<size_t>(next - all.data())];
      const bool stopped = question_.stop && question_.stop();
      if (!candidate.choice.slices.empty() && !stopped) {
        UnitQuestion asked = one.asked;
        asked.slices = candidate.choice.slices;
        const auto prices = search_.pricer().price(asked);
        if (prices) candidate.estimate = estimate(candidate.choice, **prices, asked.sequences);
      }
      out.push_back(std::move(candidate));
    }
    return out;
  }

  PlanSearch& search_;
  const PlanQuestion& question_;
  Estimator estimator_;
  int64_t length_, shortest_ = 1;
  std::map<std::tuple<int64_t, int64_t, std::string>, std::optional<SliceTable>> tables_;
  std::deque<UnitPrices> sliced_;  // what choices were estimated with
  double best_s_ = kNever;         // of the choices that fit by formula
  std::string refusal_;
};

// The length of the sequences that are sliced. Errors: there are none, or a slice would read tokens
// of later ones.
Result<int64_t> sliced_length(const Graph& forward) {
  int64_t length = 0;
  for (const Op& op : forward.ops()) {
    const int dim = op.annotation.find(kSlicedDim);
    if (dim >= 0) length = std::max(length, op.annotation.dims[static_cast<size_t>(dim)].size);
  }
  if (length == 0) {
    return invalid_input(fmt::format(
        "planner terapipe: expected a model with the dim '{}', found none", kSlicedDim));
  }
  if (const Status causal = recipes::check_causal(forward); !causal)
    return invalid_input("planner terapipe: " + causal.error().message);
  return length;
}

}  // namespace

Result<PlanAnswer> find_by_terapipe(const PlanQuestion& question) {
  if (asked_schedule(question) == nullptr) {
    return invalid_input(
        fmt::format("planner terapipe: expected the schedule token or token_1f1b, found '{}'",
                    question.fixed.at("schedule")));
  }
  if (!allows(question, "chunks", 1))
    return invalid_input("planner terapipe: expected one chunk, its pipelines have no more");
  TESSERA_TRY(const auto search, PlanSearch::begin(question));
  TESSERA_TRY(const int64_t length, sliced_length(search->forward()));
  SliceSearch slices(*search, length);
  auto ranked = slices.run();
  return search->answer(ranked, slices.last_refusal());
}

}  // namespace tessera
