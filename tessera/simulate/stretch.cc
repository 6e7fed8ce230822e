#include "tessera/simulate/stretch.h"

#include <algorithm>
#include <limits>

namespace tessera::engine {
namespace {

Suffix no_items(size_t end) {
  return {static_cast<int32_t>(end), 0, 0, -std::numeric_limits<double>::infinity()};
}

// A collective without partners whose wait follows.
bool is_pair(const std::vector<Item>& items, size_t i) {
  if (i + 1 >= items.size()) return false;
  const Item &issue = items[i], &wait = items[i + 1];
  return issue.kind == ItemKind::kIssue && issue.parties == 1 && wait.kind == ItemKind::kWait &&
         wait.handle == issue.handle && wait.lag == 0 && !wait.blocks_host;
}

void find_stretches(Text& text, Beside beside) {
  const std::vector<Item>& items = text.items;
  std::vector<Suffix>& suffixes = text.suffixes[static_cast<size_t>(beside)];
  std::vector<bool> inside(items.size(), false);
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].kind == ItemKind::kCompute || items[i].kind == ItemKind::kHost) {
      inside[i] = true;
    } else if (is_pair(items, i) && (beside == Beside::kNothing || items[i].use.nic == 0)) {
      inside[i] = inside[i + 1] = true;
    }
  }
  // A stretch must not begin at the wait of a pair: the issue is then outside.
  for (size_t i = items.size(); i-- > 0;) {
    Suffix& suffix = suffixes[i];
    if (!inside[i]) continue;
    const Item& item = items[i];
    const bool more = i + 1 < items.size() && inside[i + 1];
    const Suffix next = more ? suffixes[i + 1] : no_items(i + 1);
    suffix.end = next.end;
    suffix.device = device_time(item, text, beside) + next.device;
    suffix.host = item.host_s + next.host;
    suffix.lead = item.host_s + next.lead;
    if (!only_host(item)) {
      suffix.lead = std::max(suffix.lead, item.host_s + item.launch_s + suffix.device);
    }
  }
}

}  // namespace

Text make_text(const Block& block, bool first, bool last, double slower, const Rules& rules,
               bool compact) {
  Text text;
  text.ref = block.ref;
  text.slowed = std::max(1.0, rules.nic_slowdown);
  text.items.reserve(block.items.size());
  for (const Item& item : block.items) {
    if ((item.when == When::kFirst && !first) || (item.when == When::kLast && !last)) continue;
    if (item.kind == ItemKind::kReceive && item.ahead) {
      text.receives.push_back(static_cast<int32_t>(text.items.size()));
      text.host_before.push_back(text.host);
    }
    text.items.push_back(item);
    if (item.kind == ItemKind::kCompute) text.items.back().work_s *= slower;
    text.host += item.host_s;
  }
  for (const Beside beside : {Beside::kNothing, Beside::kMessages}) {
    for (size_t i = 0; i <= text.items.size(); ++i) {
      text.suffixes[static_cast<size_t>(beside)].push_back(no_items(i));
    }
    if (compact) find_stretches(text, beside);
  }
  return text;
}

Texts::Texts(const Play& play) : play_(play) {
  for (const Player& player : play.players) {
    index_.emplace_back().assign(player.blocks.size(), {-1, -1, -1, -1});
  }
}

int32_t Texts::index_of(int32_t player, int32_t block, bool first, bool last) {
  int32_t& index = index_[static_cast<size_t>(player)][static_cast<size_t>(block)]
                         [(first ? 1u : 0u) + (last ? 2u : 0u)];
  if (index >= 0) return index;
  index = static_cast<int32_t>(texts_.size());
  const Player& whose = play_.players[static_cast<size_t>(player)];
  texts_.push_back(make_text(
      whose.blocks[static_cast<size_t>(block)], first, last, whose.slower, play_.rules,
      play_.rules.compact && play_.rules.jitter == 0 && !play_.rules.events && whose.pool < 0));
  return index;
}

}  // namespace tessera::engine
