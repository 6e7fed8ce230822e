// The timeline of the page: lanes, runs of blocks, merged runs of what repeats, and the single
// instructions of one or two stretches of the step.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "tessera/report/page_data.h"

namespace tessera::page {
namespace {

// A lane of the timeline. Computations of a rank have one lane, and every kind of transfer over the
// same axes has one: "all_reduce tp".
using Row = std::tuple<int32_t, Lane, std::string>;  // rank, lane, kind of transfer

Row row_of(const Simulation& simulation, const TraceEvent& event) {
  return {event.rank, event.lane,
          event.lane == Lane::kCompute ? std::string()
                                       : simulation.labels[static_cast<size_t>(event.what)]};
}

struct Lanes {
  std::map<Row, int32_t> index;
  std::vector<int64_t> busy_ns, events;  // by index
};

Lanes lanes_of(const Simulation& simulation) {
  Lanes lanes;
  for (const TraceEvent& event : simulation.events) {
    if (event.lane != Lane::kHost) lanes.index.emplace(row_of(simulation, event), 0);
  }
  int32_t next = 0;
  for (auto& [row, index] : lanes.index) index = next++;
  lanes.busy_ns.assign(lanes.index.size(), 0);
  lanes.events.assign(lanes.index.size(), 0);
  return lanes;
}

struct Bar {
  int64_t start = 0, end = 0;
  int32_t row = 0;
  const TraceEvent* event = nullptr;
};

// Neighbouring transfers of a lane, drawn as one bar.
struct MergedRun {
  int64_t start = 0, end = 0;
  int32_t row = 0;
  int64_t count = 0, busy_ns = 0, bytes = 0;
};

// Merges the transfers of each lane between which less than `gap` nanoseconds pass.
std::vector<MergedRun> merged(const std::vector<Bar>& bars, size_t lanes, int64_t gap) {
  std::vector<MergedRun> out;
  std::vector<int64_t> open(lanes, -1);  // by lane: the run that the next transfer may join
  for (const Bar& bar : bars) {
    if (bar.event->lane == Lane::kCompute) continue;
    int64_t& at = open[static_cast<size_t>(bar.row)];
    if (at < 0 || bar.start - out[static_cast<size_t>(at)].end > gap) {
      at = static_cast<int64_t>(out.size());
      out.push_back({bar.start, bar.end, bar.row, 0, 0, 0});
    }
    MergedRun& run = out[static_cast<size_t>(at)];
    run.end = std::max(run.end, bar.end);
    run.busy_ns += bar.end - bar.start;
    run.bytes += bar.event->bytes;
    ++run.count;
  }
  return out;
}

// Returns merged runs, at most `most`, unless each lane has one already. Transfers that are nearer
// to each other than one of 2,000 parts of the step are always merged, because no screen shows
// more.
std::vector<MergedRun> merged_within(const std::vector<Bar>& bars, size_t lanes, int64_t end,
                                     int64_t most) {
  constexpr int64_t kParts = 2000;
  for (int64_t gap = std::max<int64_t>(1, end / kParts);; gap *= 2) {
    std::vector<MergedRun> runs = merged(bars, lanes, gap);
    if (std::ssize(runs) <= most || gap > end) return runs;
  }
}

// Returns the stretches of the step whose single instructions are kept: all of it if there are
// few, else its beginning and its middle.
std::vector<std::pair<int64_t, int64_t>> windows_of(const std::vector<Bar>& bars, int64_t end,
                                                    int64_t most) {
  if (std::ssize(bars) <= most) return {{0, end}};
  const auto start_of = [&](size_t index) { return index < bars.size() ? bars[index].start : end; };
  const auto half = static_cast<size_t>(most / 2);
  const auto middle = std::lower_bound(bars.begin(), bars.end(), end / 2,
                                       [](const Bar& bar, int64_t at) { return bar.start < at; });
  const auto from = static_cast<size_t>(middle - bars.begin());
  if (start_of(half) >= end / 2) return {{0, start_of(2 * half)}};
  return {{0, start_of(half)}, {end / 2, start_of(from + half)}};
}

OrderedJson rows_json(const Simulation& simulation, const Lanes& lanes) {
  std::map<int32_t, int64_t> ranks;
  for (const RankResult& role : simulation.roles) ranks[role.representative] = role.ranks;
  OrderedJson out = OrderedJson::array();
  for (const auto& [row, index] : lanes.index) {
    const auto& [rank, lane, kind] = row;
    const auto same = ranks.find(rank);
    out.push_back({{"rank", rank},
                   {"ranks", same == ranks.end() ? 1 : same->second},
                   {"lane", lane_name(lane)},
                   {"kind", kind},
                   {"events", lanes.events[static_cast<size_t>(index)]},
                   {"busy_ns", lanes.busy_ns[static_cast<size_t>(index)]}});
  }
  return out;
}

// Returns the runs of blocks on compute lanes, each from its first instruction to the end of its
// last.
OrderedJson blocks_json(const std::vector<Bar>& bars, Labels& labels) {
  std::map<std::tuple<int32_t, BlockRef, int64_t>, std::pair<int64_t, int64_t>> blocks;
  for (const Bar& bar : bars) {
    if (bar.event->lane != Lane::kCompute) continue;
    const auto [found, is_new] =
        blocks.emplace(std::tuple{bar.row, bar.event->block, bar.event->micro_batch},
                       std::pair{bar.start, bar.end});
    if (!is_new) found->second.second = std::max(found->second.second, bar.end);
  }
  std::vector<std::tuple<int64_t, int32_t, int64_t, int32_t, int64_t>> sorted;
  for (const auto& [key, span] : blocks) {
    const auto& [row, ref, micro_batch] = key;
    sorted.emplace_back(span.first, row, span.second, labels(block_name(ref)), micro_batch);
  }
  std::sort(sorted.begin(), sorted.end());
  OrderedJson out = OrderedJson::array();
  for (const auto& [start, row, end, label, micro_batch] : sorted)
    out.push_back({row, start, end, label, micro_batch});
  return out;
}

}  // namespace

void add_timeline(const Simulation& simulation, const Detail& detail, OrderedJson& run) {
  Lanes lanes = lanes_of(simulation);
  Labels labels;
  std::vector<Bar> bars;
  for (const TraceEvent& event : simulation.events) {
    if (event.lane == Lane::kHost) continue;
    const int32_t row = lanes.index.at(row_of(simulation, event));
    bars.push_back({nanoseconds(event.start_s), nanoseconds(event.end_s), row, &event});
    ++lanes.events[static_cast<size_t>(row)];
    lanes.busy_ns[static_cast<size_t>(row)] += bars.back().end - bars.back().start;
  }
  std::stable_sort(bars.begin(), bars.end(),
                   [](const Bar& a, const Bar& b) { return a.start < b.start; });
  const int64_t end = nanoseconds(simulation.step_time_s);
  const auto windows = windows_of(bars, end, detail.instructions);
  OrderedJson events = OrderedJson::array();
  for (const Bar& bar : bars) {
    const bool kept = std::any_of(windows.begin(), windows.end(), [&](const auto& window) {
      return bar.start >= window.first &&
             (bar.start < window.second || (window.second == end && bar.start <= end));
    });
    if (!kept) continue;
    const TraceEvent& event = *bar.event;
    events.push_back({bar.row, bar.start, bar.end, labels(block_name(event.block)),
                      event.micro_batch, event.instruction,
                      labels(simulation.labels[static_cast<size_t>(event.label)]),
                      labels(simulation.labels[static_cast<size_t>(event.what)]), event.bytes});
  }
  OrderedJson runs = OrderedJson::array();
  for (const MergedRun& one : merged_within(bars, lanes.index.size(), end, detail.merged))
    runs.push_back({one.row, one.start, one.end, one.count, one.busy_ns, one.bytes});
  run["rows"] = rows_json(simulation, lanes);
  run["windows"] = windows;
  run["events"] = std::move(events);
  run["merged"] = std::move(runs);
  run["blocks"] = blocks_json(bars, labels);
  run["labels"] = labels.list();
}

}  // namespace tessera::page
