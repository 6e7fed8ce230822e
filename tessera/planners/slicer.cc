#include "tessera/planners/slicer.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/text.h"
#include "tessera/plan/recipes/parts.h"
#include "tessera/planners/published/terapipe.h"
#include "tessera/search/question/question.h"

namespace tessera {
namespace {

// Slices are multiples of the sequence's length divided by at most this number.
constexpr int64_t kMostPositions = 64;

// Returns `count` devices from device 0 on, `stride` apart.
std::vector<int64_t> every_device(int64_t count, int64_t stride) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(i * stride);
  return out;
}

}  // namespace

Result<int64_t> sliced_length(const Graph& forward) {
  int64_t length = 0;
  for (const Op& op : forward.ops()) {
    const int dim = op.annotation.find(kSlicedDim);
    if (dim >= 0) length = std::max(length, op.annotation.dims[static_cast<size_t>(dim)].size);
  }
  if (length == 0) {
    return invalid_input(fmt::format("expected a model with the dim '{}', found none", kSlicedDim));
  }
  if (const Status causal = recipes::check_causal(forward); !causal)
    return invalid_input(causal.error().message);
  return length;
}

Result<SliceTable> SliceTable::measure(UnitPricer& pricer, const UnitQuestion& question,
                                       int64_t length, int64_t shortest) {
  std::vector<int64_t> lengths;
  for (int64_t l = shortest; 3 * l < length; l *= 4) lengths.push_back(l);
  if (length % 2 == 0 && (length / 2) % shortest == 0) lengths.push_back(length / 2);
  SliceTable out;
  for (const int64_t l : lengths) {
    UnitQuestion sliced = question;
    std::vector<size_t> own = {0, 1};  // numbers of the slices that have this length
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
  // For the last row, the whole sequence, extrapolates from the row before: earlier tokens add time
  // in proportion to the slice's length.
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

Slicer::Slicer(PlanSearch& search, Estimator& estimator, int64_t length)
    : search_(search), estimator_(estimator), length_(length) {
  for (const int64_t shortest : divisors_of(length)) {
    if (length / shortest > kMostPositions) continue;
    shortest_ = shortest;
    break;
  }
}

const SliceTable* Slicer::table_for(const UnitQuestion& asked) {
  std::string key = fmt::format("{} {}", asked.sequences, asked.recompute);
  for (const ChoiceAxis& axis : asked.axes)
    key += fmt::format(" {}[{}]", axis.size, join(axis.dims, ","));
  const auto [it, is_new] = tables_.try_emplace(key);
  if (is_new) {
    auto table = SliceTable::measure(search_.pricer(), asked, length_, shortest_);
    if (table) it->second = std::move(*table);
    if (!table) refusal_ = table.error().message;
  }
  return it->second ? &*it->second : nullptr;
}

std::vector<int64_t> Slicer::best_lengths(const Choice& choice, const UnitPrices& whole,
                                          const SliceTable& table) const {
  const std::vector<double> counts = slowest_stage(choice, whole);
  // Times by length of the slice and by number of earlier tokens, both in units of the
  // shortest slice.
  const auto n = static_cast<size_t>(length_ / shortest_);
  std::vector<double> times((n + 1) * n);
  for (size_t k = 1; k <= n; ++k) {
    for (size_t c = 0; c + k <= n; ++c) {
      times[k * n + c] = table.seconds(counts, static_cast<int64_t>(k) * shortest_,
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
  std::vector<int64_t> out = published::best_slices(problem).parts.front().slices;
  for (int64_t& length : out) length *= shortest_;
  return out;
}

bool Slicer::slice(Choice& choice, Estimate& estimate, const UnitQuestion& asked,
                   const UnitPrices& whole, const SliceSchedule& schedule, int64_t count) {
  estimate = estimator_.estimate(choice, whole, asked.sequences);
  if (choice.stages == 1) return true;
  if (count > 0 && length_ % count != 0) return false;
  const SliceTable* table = table_for(asked);
  if (table == nullptr) return false;
  std::vector<int64_t> lengths(static_cast<size_t>(count), count > 0 ? length_ / count : 0);
  if (count == 0) lengths = best_lengths(choice, whole, *table);
  choice.sliced_stages = lengths.size() > 1;
  choice.schedule = choice.sliced_stages ? schedule.of_slices : schedule.of_wholes;
  if (choice.sliced_stages) choice.slices = std::move(lengths);
  // These units have the table's times.
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
  estimate = estimated(choice, sliced, asked.sequences);
  return true;
}

void Slicer::measure(Choice& choice, Estimate& estimate, UnitQuestion asked) {
  asked.slices = choice.slices;
  const auto prices = search_.pricer().price(asked);
  if (prices) estimate = estimated(choice, **prices, asked.sequences);
}

// Returns the estimate of a sliced choice. It adds the cost of parameters that two stages read
// (tied tables), because each slice makes a gradient of them. Each of these gradients is summed
// over the replicas and sent between the two stages by itself. Both stages hold the gradients until
// then, and the step waits for those of the last micro-batch.
Estimate Slicer::estimated(Choice& choice, const UnitPrices& prices, int64_t sequences) {
  Estimate out = estimator_.estimate(choice, prices, sequences);
  // The estimator knows one message, which it takes to be hidden by the passes. The messages of all
  // slices are not.
  const auto terms = static_cast<double>(choice.slices.size());
  const int64_t replicas = choice.axes.front().size;
  const int64_t stage = choice.ranks() / choice.stages;
  const int64_t node = search_.question().cluster->type_of(0).devices;
  const CollectiveCosts& moves = estimator_.collectives();
  const GroupPlacement group =
      place_group(*search_.question().cluster, every_device(replicas, stage / replicas),
                  std::min(stage / replicas, node));
  for (const TiedParameter& tied : prices.tied) {
    if (estimator_.stage_of(choice, tied.first) == estimator_.stage_of(choice, tied.later))
      continue;
    const double bytes = tied.gradient_bytes;
    const auto whole = static_cast<int64_t>(bytes);
    out.memory_bytes += 2 * terms * bytes;
    out.step_s +=
        terms *
        moves.message(0, (choice.stages - 1) * stage, whole, std::min(stage, node)).seconds();
    if (replicas > 1)
      out.step_s += terms * moves.collective(CollectiveKind::kAllReduce, group, whole).seconds();
  }
  return out;
}

// Returns for each unit of the folded model how many units of the slowest stage it stands for.
std::vector<double> Slicer::slowest_stage(const Choice& choice, const UnitPrices& prices) const {
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

}  // namespace tessera
