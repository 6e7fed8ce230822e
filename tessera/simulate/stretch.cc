#include "tessera/simulate/stretch.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>

namespace tessera::engine {
namespace {

Suffix no_items(size_t end) {
  return {static_cast<int32_t>(end), 0, 0, -std::numeric_limits<double>::infinity()};
}

// Returns the bundle that begins with item `first`; nothing if none begins there. Between the issue
// and the wait of a bundle there are only kernels and host items.
std::optional<Bundle> bundle_at(std::span<const Item> items, size_t first) {
  const Item& issue = items[first];
  if (issue.kind != ItemKind::kIssue || issue.parties != 1 || issue.use.nic > 0) return {};
  for (size_t i = first + 1; i < items.size(); ++i) {
    const Item& item = items[i];
    if (item.kind == ItemKind::kCompute || item.kind == ItemKind::kHost) continue;
    const bool ends = item.kind == ItemKind::kWait && item.handle == issue.handle && item.lag == 0;
    if (!ends || item.blocks_host) return {};
    return Bundle{static_cast<int32_t>(first), static_cast<int32_t>(i), {}, {}};
  }
  return {};
}

// Plays the bundle until the time `until`, relative to its issue, and returns its state then. Sets
// `started`, if given, to the times at which its items begin.
InBundle play(const RunItems& run_items, const Bundle& bundle, Beside beside, double until,
              std::vector<double>* started) {
  const Item& issue = run_items.items[static_cast<size_t>(bundle.issue)];
  const bool inner = issue.use.inner > 0;
  const double alone = 1 / run_items.slowed(beside);
  const double crowded = inner ? 1 / run_items.crowded(beside) : alone;
  const double shared = inner ? 1 / run_items.rules.collective_slowdown : 1;
  InBundle now{bundle.issue + 1, 0, issue.latency_s, issue.work_s, 0};
  double time = 0;
  // Moves the time on by `step`, which must be short enough for the collective to stay in its
  // phase.
  const auto go = [&](double step, double rate) {
    if (now.latency_left > 0) {
      now.latency_left = step < now.latency_left ? now.latency_left - step : 0;
      if (now.latency_left == 0 && now.collective_left == 0) now.collective_end = time + step;
    } else if (now.collective_left > 0) {
      const bool ends = step * rate >= now.collective_left;
      now.collective_left = ends ? 0 : now.collective_left - step * rate;
      if (ends) now.collective_end = time + step;
    }
    time += step;
  };
  const auto phase_end = [&](double rate) {
    if (now.latency_left > 0) return now.latency_left;
    if (now.collective_left > 0) return now.collective_left / rate;
    return std::numeric_limits<double>::infinity();
  };
  for (; now.item < bundle.wait; ++now.item) {
    if (started != nullptr) (*started)[static_cast<size_t>(now.item)] = time;
    const Item& item = run_items.items[static_cast<size_t>(now.item)];
    now.left = device_time(item);
    while (now.left > 0) {
      const bool flows = now.latency_left == 0 && now.collective_left > 0;
      const double rate = flows ? crowded : alone;
      const double kernel = now.left / rate, phase = phase_end(shared), rest = until - time;
      if (rest < std::min(kernel, phase)) {
        now.left -= rest * rate;
        go(rest, shared);
        return now;
      }
      now.left = kernel <= phase ? 0 : now.left - phase * rate;
      go(std::min(kernel, phase), shared);
    }
  }
  if (started != nullptr) (*started)[static_cast<size_t>(now.item)] = time;
  while (now.latency_left > 0 || now.collective_left > 0) {
    const double rest = until - time;
    if (rest < phase_end(1)) {
      go(rest, 1);
      return now;
    }
    go(phase_end(1), 1);
  }
  return now;
}

// Finds the bundles among the items and adds them, with their times, to `out`.
void find_bundles(const RunItems& run_items, Stretches& out) {
  for (size_t i = 0; i < run_items.items.size(); ++i) {
    if (run_items.items[i].kind != ItemKind::kIssue || is_waited_for_at_once(run_items.items, i))
      continue;
    auto bundle = bundle_at(run_items.items, i);
    if (!bundle) continue;
    for (auto& started : out.started) started.resize(run_items.items.size());
    for (const Beside beside : {Beside::kNothing, Beside::kMessages}) {
      const auto b = static_cast<size_t>(beside);
      const InBundle end = play(run_items, *bundle, beside, std::numeric_limits<double>::infinity(),
                                &out.started[b]);
      bundle->collective[b] = end.collective_end;
      bundle->total[b] =
          std::max(end.collective_end, out.started[b][static_cast<size_t>(bundle->wait)]);
    }
    for (int32_t k = bundle->issue; k <= bundle->wait; ++k) {
      out.bundle_of[static_cast<size_t>(k)] = static_cast<int32_t>(out.bundles.size());
    }
    i = static_cast<size_t>(bundle->wait);
    out.bundles.push_back(*bundle);
  }
}

std::vector<bool> items_inside(const RunItems& run_items, Manner manner) {
  const std::span<const Item> items = run_items.items;
  std::vector<bool> inside(items.size(), false);
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].kind == ItemKind::kCompute || items[i].kind == ItemKind::kHost ||
        (manner.rigid && run_items.bundle(i) != nullptr)) {
      inside[i] = true;
    } else if (is_waited_for_at_once(items, i) &&
               (manner.beside == Beside::kNothing || items[i].use.nic == 0)) {
      inside[i] = inside[i + 1] = true;
    }
  }
  return inside;
}

// Returns the device time from item i to the end of its stretch. `next`: the suffix that begins at
// the next item.
double device_from(const RunItems& run_items, Manner manner, size_t i, const Suffix& next) {
  const Bundle* bundle = manner.rigid ? run_items.bundle(i) : nullptr;
  if (bundle == nullptr)
    return device_time(run_items.items[i], run_items, manner.beside) + next.device;
  const auto b = static_cast<size_t>(manner.beside);
  const auto& started = run_items.started(manner.beside);
  const double end = static_cast<int32_t>(i) == bundle->wait ? bundle->total[b] : started[i + 1];
  return end - started[i] + next.device;
}

void find_stretches(const RunItems& run_items, Manner manner, std::vector<Suffix>& suffixes) {
  const std::span<const Item> items = run_items.items;
  const std::vector<bool> inside = items_inside(run_items, manner);
  // A stretch must not begin at the wait of a pair, because the issue would then be outside.
  for (size_t i = items.size(); i-- > 0;) {
    Suffix& suffix = suffixes[i];
    if (!inside[i]) continue;
    const Item& item = items[i];
    const bool more = i + 1 < items.size() && inside[i + 1];
    const Suffix next = more ? suffixes[i + 1] : no_items(i + 1);
    suffix.end = next.end;
    suffix.device = device_from(run_items, manner, i, next);
    suffix.host = item.host_s + next.host;
    suffix.lead = item.host_s + next.lead;
    if (!only_host(item)) {
      suffix.lead = std::max(suffix.lead, item.host_s + item.launch_s + suffix.device);
    }
  }
}

bool is_in(const Item& item, bool first, bool last) {
  return (item.when != When::kFirst || first) && (item.when != When::kLast || last);
}

// Returns whether two items have the same effect in stretches.
bool alike(const Item& a, const Item& b) {
  if (a.kind != b.kind || a.parties != b.parties) return false;
  if (a.kind == ItemKind::kSend || a.kind == ItemKind::kReceive || a.parties != 1) return true;
  return a.host_s == b.host_s && a.launch_s == b.launch_s && a.latency_s == b.latency_s &&
         a.work_s == b.work_s && a.use.inner == b.use.inner && a.use.nic == b.use.nic &&
         a.handle == b.handle && a.lag == b.lag && a.blocks_host == b.blocks_host;
}

RunItems make_items(const Block& block, bool first, bool last, double slower, const Rules& rules) {
  RunItems run_items;
  run_items.ref = block.ref;
  run_items.rules = rules;
  const auto in = [&](const Item& item) { return is_in(item, first, last); };
  run_items.items = block.items;
  if (slower != 1 || !std::ranges::all_of(block.items, in)) {
    run_items.own.reserve(block.items.size());
    std::ranges::copy_if(block.items, std::back_inserter(run_items.own), in);
    for (Item& item : run_items.own) {
      if (item.kind == ItemKind::kCompute) item.work_s *= slower;
    }
    run_items.items = run_items.own;
  }
  for (size_t i = 0; i < run_items.items.size(); ++i) {
    const Item& item = run_items.items[i];
    if (item.kind == ItemKind::kReceive && item.ahead) {
      run_items.receives.push_back(static_cast<int32_t>(i));
      run_items.host_before.push_back(run_items.host);
    }
    run_items.host += item.host_s;
  }
  return run_items;
}

void add_stretches(RunItems& run_items, bool compact) {
  auto out = std::make_shared<Stretches>();
  run_items.stretches = out;
  const size_t size = run_items.items.size();
  out->bundle_of.assign(size, -1);
  if (compact) find_bundles(run_items, *out);
  for (const Manner manner : {Manner{Beside::kNothing, false}, Manner{Beside::kMessages, false},
                              Manner{Beside::kNothing, true}, Manner{Beside::kMessages, true}}) {
    if (manner.rigid && out->bundles.empty()) continue;
    std::vector<Suffix>& suffixes = out->suffixes[manner.index()];
    suffixes.resize(size + 1);
    for (size_t i = 0; i <= size; ++i) suffixes[i] = no_items(i);
    if (compact) find_stretches(run_items, manner, suffixes);
  }
}

}  // namespace

bool is_waited_for_at_once(std::span<const Item> items, size_t i) {
  if (i + 1 >= items.size()) return false;
  const Item &issue = items[i], &wait = items[i + 1];
  return issue.kind == ItemKind::kIssue && issue.parties == 1 && wait.kind == ItemKind::kWait &&
         wait.handle == issue.handle && wait.lag == 0 && !wait.blocks_host;
}

InBundle play_bundle(const RunItems& run_items, const Bundle& bundle, Beside beside, double until) {
  return play(run_items, bundle, beside, until, nullptr);
}

RunItemsTable::RunItemsTable(const Play& play) : play_(play) {
  size_t blocks = 0;
  for (const Player& player : play.players) {
    index_.emplace_back().assign(player.blocks.size(), {-1, -1, -1, -1});
    blocks = std::max(blocks, player.blocks.size());
  }
  different_.resize(blocks);
}

int32_t RunItemsTable::make(int32_t player, int32_t block, bool first, bool last) {
  const auto b = static_cast<size_t>(block);
  const Player& whose = play_.players[static_cast<size_t>(player)];
  std::array<int32_t, 4>& known = index_[static_cast<size_t>(player)][b];
  // Runs of the block in which the same items take place (Item::when) share their RunItems.
  const std::vector<Item>& items = whose.blocks[b].items;
  const auto any = [&](When when) {
    return std::ranges::any_of(items, [when](const Item& item) { return item.when == when; });
  };
  const bool has_first = first && any(When::kFirst), has_last = last && any(When::kLast);
  int32_t& own = known[(first ? 1u : 0u) + (last ? 2u : 0u)];
  int32_t& plain = known[(has_first ? 1u : 0u) + (has_last ? 2u : 0u)];
  if (plain >= 0) return own = plain;
  own = plain = size();
  run_items_.push_back(make_items(whose.blocks[b], has_first, has_last, whose.slower, play_.rules));
  RunItems& run_items = run_items_.back();
  run_items.player = player;
  const bool compact = play_.rules.compact && play_.rules.jitter == 0 && !play_.rules.events;
  for (const int32_t one : different_[b]) {
    const RunItems& other = run_items_[static_cast<size_t>(one)];
    if (compact && whose.pool < 0 && std::ranges::equal(run_items.items, other.items, alike)) {
      run_items.stretches = other.stretches;
      return own;
    }
  }
  add_stretches(run_items, compact && whose.pool < 0);
  if (whose.pool < 0) different_[b].push_back(own);
  return own;
}

}  // namespace tessera::engine
