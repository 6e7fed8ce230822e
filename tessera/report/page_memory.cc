// The memory of a rank over the step, as bands that add up to the figure at the top of the page:
// what is held outside of buffers (context, libraries, communication), the buffers by what they
// are, and what the allocator holds beyond the live buffers.
#include <algorithm>
#include <bit>
#include <cmath>

#include "tessera/base/text.h"
#include "tessera/report/page_data.h"

namespace tessera::page {
namespace {

// Thins a timeline. Cuts it into `parts` parts of equal length and keeps the highest and the last
// sample of each, and the first of all.
std::vector<MemorySample> thinned(const std::vector<MemorySample>& timeline, int64_t parts) {
  if (std::ssize(timeline) <= 2 * parts) return timeline;
  const double part_s = timeline.back().time_s / static_cast<double>(parts);
  std::vector<MemorySample> out{timeline.front()};
  for (size_t from = 0, to = 0; from < timeline.size(); from = to) {
    const double part = std::floor(timeline[from].time_s / part_s);
    while (to < timeline.size() && std::floor(timeline[to].time_s / part_s) == part) ++to;
    size_t highest = from;
    for (size_t i = from; i < to; ++i) {
      if (timeline[i].bytes > timeline[highest].bytes) highest = i;
    }
    if (highest > 0) out.push_back(timeline[highest]);
    if (highest + 1 < to) out.push_back(timeline[to - 1]);
  }
  return out;
}

// Buffers of one name, up to the number of their layer, and of one size.
struct Kind {
  std::string name, what;
  int64_t bytes = 0;  // of one copy
  friend auto operator<=>(const Kind&, const Kind&) = default;
};

// Returns, for each kind of buffer, how many copies live at each sample.
std::map<Kind, std::vector<int64_t>> copies_of(const MemoryUse& memory,
                                               const std::vector<MemorySample>& samples) {
  const auto sample_at = [&](double time_s) {
    const auto found =
        std::lower_bound(samples.begin(), samples.end(), time_s,
                         [](const MemorySample& sample, double at) { return sample.time_s < at; });
    return static_cast<size_t>(found - samples.begin());
  };
  std::map<Kind, std::vector<int64_t>> out;
  for (const LiveInterval& live : memory.intervals) {
    std::vector<int64_t>& changes =
        out.try_emplace(Kind{NumberedPath(live.name).pattern(), live.what, live.bytes},
                        samples.size() + 1, 0)
            .first->second;
    ++changes[sample_at(live.start_s)];
    --changes[sample_at(live.end_s)];
  }
  for (auto& [kind, counts] : out) {
    for (size_t i = 1; i < counts.size(); ++i) counts[i] += counts[i - 1];
    counts.resize(samples.size());
  }
  return out;
}

// Buffers that live at the peak, those of all layers together.
struct AtPeak {
  std::string name, what;
  int64_t copies = 0, bytes = 0;
};

std::vector<AtPeak> at_peak(const MemoryUse& memory) {
  std::map<Kind, AtPeak> kinds;
  for (const LiveBuffer& live : memory.at_peak) {
    const size_t times = live.name.rfind(" x ");
    int64_t copies = 1;
    if (times != std::string::npos) {
      if (const auto parsed = parse_int(std::string_view(live.name).substr(times + 3)))
        copies = *parsed;
    }
    const std::string name = NumberedPath(live.name.substr(0, times)).pattern();
    AtPeak& sum =
        kinds.try_emplace(Kind{name, live.what, live.bytes / copies}, AtPeak{name, live.what, 0, 0})
            .first->second;
    sum.copies += copies;
    sum.bytes += live.bytes;
  }
  std::vector<AtPeak> out;
  for (const auto& [kind, sum] : kinds) out.push_back(sum);
  std::stable_sort(out.begin(), out.end(),
                   [](const AtPeak& a, const AtPeak& b) { return a.bytes > b.bytes; });
  return out;
}

// Returns the bytes of each value of LiveBuffer::what at each sample. At the highest sample they
// are those of `at_peak`, which lists everything; elsewhere what has no name is "smaller buffers".
std::map<std::string, std::vector<int64_t>> bands_of(
    const MemoryUse& memory, const std::vector<MemorySample>& samples,
    const std::map<Kind, std::vector<int64_t>>& copies) {
  std::map<std::string, std::vector<int64_t>> bands;
  std::vector<int64_t> named(samples.size(), 0);
  const auto band = [&](const std::string& what) -> std::vector<int64_t>& {
    return bands.try_emplace(what, samples.size(), 0).first->second;
  };
  for (const auto& [kind, counts] : copies) {
    std::vector<int64_t>& sums = band(kind.what);
    for (size_t i = 0; i < samples.size(); ++i) {
      sums[i] += counts[i] * kind.bytes;
      named[i] += counts[i] * kind.bytes;
    }
  }
  const auto peak = std::max_element(
      samples.begin(), samples.end(),
      [](const MemorySample& a, const MemorySample& b) { return a.bytes < b.bytes; });
  for (size_t i = 0; i < samples.size(); ++i) {
    if (samples.begin() + static_cast<std::ptrdiff_t>(i) == peak && !memory.at_peak.empty()) {
      for (auto& [what, sums] : bands) sums[i] = 0;
      for (const LiveBuffer& live : memory.at_peak) band(live.what)[i] += live.bytes;
    } else if (samples[i].bytes > named[i]) {
      band("smaller buffers")[i] = samples[i].bytes - named[i];
    }
  }
  return bands;
}

// Writes counts as pairs of a count and how many samples in a row have it.
OrderedJson run_lengths(const std::vector<int64_t>& counts) {
  OrderedJson out = OrderedJson::array();
  for (size_t from = 0, to = 0; from < counts.size(); from = to) {
    while (to < counts.size() && counts[to] == counts[from]) ++to;
    out.push_back(counts[from]);
    out.push_back(to - from);
  }
  return out;
}

}  // namespace

OrderedJson memory_json(const MemoryUse& memory, const Detail& detail) {
  const std::vector<MemorySample> samples =
      thinned(memory.timeline, std::max<int64_t>(1, detail.samples / 2));
  const auto copies = copies_of(memory, samples);
  // Sizes are whole multiples of a power of two that is at most one of 8,192 parts of the total:
  // the page shows three digits.
  const auto total = static_cast<uint64_t>(std::max<int64_t>(1, memory.total_bytes()));
  const int64_t unit = int64_t{1} << std::max(0, static_cast<int>(std::bit_width(total)) - 14);
  const auto in_units = [&](int64_t bytes) { return (bytes + unit / 2) / unit; };
  OrderedJson times = OrderedJson::array(), bands = OrderedJson::object(),
              live = OrderedJson::array(), peak = OrderedJson::array();
  for (const MemorySample& sample : samples) times.push_back(nanoseconds(sample.time_s));
  for (const auto& [what, sums] : bands_of(memory, samples, copies)) {
    OrderedJson values = OrderedJson::array();
    for (const int64_t bytes : sums) values.push_back(in_units(bytes));
    bands[what] = std::move(values);
  }
  std::vector<std::pair<int64_t, const Kind*>> order;
  for (const auto& [kind, counts] : copies)
    order.emplace_back(kind.bytes * *std::max_element(counts.begin(), counts.end()), &kind);
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& [most, kind] : order) {
    if (std::ssize(live) == detail.live) break;
    live.push_back({kind->name, kind->what, kind->bytes, run_lengths(copies.at(*kind))});
  }
  for (const AtPeak& one : at_peak(memory)) {
    if (std::ssize(peak) == 2 * detail.live) break;
    peak.push_back({one.name, one.what, one.copies, one.bytes});
  }
  return {{"total_bytes", memory.total_bytes()},
          {"live_bytes", memory.live_bytes},
          {"reserved_bytes", memory.reserved_bytes},
          {"overhead_bytes", memory.overhead_bytes},
          {"low_bytes", static_cast<int64_t>(memory.low)},
          {"high_bytes", static_cast<int64_t>(memory.high)},
          {"peak_time_ns", nanoseconds(memory.peak_time_s)},
          {"unit", unit},
          {"times", std::move(times)},
          {"bands", std::move(bands)},
          {"live", std::move(live)},
          {"at_peak", std::move(peak)}};
}

}  // namespace tessera::page
