#include "tessera/simulate/stretch_counts.h"

namespace tessera::engine {

std::vector<int64_t>& StretchCounts::of(int32_t index, Manner manner) {
  const auto i = static_cast<size_t>(index);
  if (i >= played_.size()) played_.resize(i + 1);
  std::vector<int64_t>& played = played_[i][manner.index()];
  if (played.empty()) played.assign(run_items_[index].items.size() + 1, 0);
  return played;
}

void StretchCounts::add_to(int32_t index, Manner manner, PlayerResult& result) const {
  if (static_cast<size_t>(index) >= played_.size()) return;
  const std::vector<int64_t>& played = played_[static_cast<size_t>(index)][manner.index()];
  if (played.empty()) return;
  const RunItems& of_run = run_items_[index];
  const auto b = static_cast<size_t>(manner.beside);
  int64_t count = 0;
  for (size_t i = 0; i < of_run.items.size(); ++i) {
    count += played[i];
    const Item& item = of_run.items[i];
    if (count == 0 || only_host(item)) continue;
    const auto times = static_cast<double>(count);
    double busy = device_time(item, of_run, manner.beside), spent = busy;
    if (const Bundle* bundle = manner.rigid ? of_run.bundle(i) : nullptr) {
      const auto& started = of_run.started(manner.beside);
      const bool issue = bundle->issue == static_cast<int32_t>(i);
      busy = issue ? bundle->collective[b] : started[i + 1] - started[i];
      spent = issue ? bundle->total[b] - started[static_cast<size_t>(bundle->wait)] : busy;
    }
    result.spent_s[static_cast<size_t>(item.spent)] += times * spent;
    result.busy_s[static_cast<size_t>(item.lane)] += times * busy;
    if (item.account < 0) continue;
    Account& account = result.accounts[static_cast<size_t>(item.account)];
    account.busy_s += times * busy;
    account.exposed_s += times * spent;
  }
}

void StretchCounts::add_to(std::span<PlayerResult> results) const {
  for (int32_t index = 0; index < run_items_.size(); ++index) {
    for (const Beside beside : {Beside::kNothing, Beside::kMessages}) {
      PlayerResult& result = results[static_cast<size_t>(run_items_[index].player)];
      add_to(index, {beside, false}, result);
      add_to(index, {beside, true}, result);
    }
  }
}

}  // namespace tessera::engine
