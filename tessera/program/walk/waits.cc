// Where waits are written, moved to an earlier use, and closed at the end.
#include "tessera/program/walk/waits.h"

#include <algorithm>
#include <limits>
#include <set>

namespace tessera {
namespace {

// Of every micro-batch, in all rows that have the place.
bool runs_before(const ResolvedPlan& plan, PlaceId place, BlockRef a, BlockRef b) {
  if (a.once() || b.once()) return a.kind == BlockKind::kPrologue || b.kind == BlockKind::kUpdate;
  for (size_t row = 0; row < plan.rows.size(); ++row) {
    const std::vector<PlaceId>& places = plan.rows[row];
    if (std::find(places.begin(), places.end(), place) == places.end()) continue;
    std::set<int64_t> done;  // micro-batches for which `a` has run
    for (const BlockRun& run : plan.schedule[row]) {
      const BlockRef block = block_of(run);
      if (block == a) done.insert(run.micro_batch);
      if (block == b && !done.contains(run.micro_batch)) return false;
    }
    if (done.empty()) return false;
  }
  return true;
}

constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();

}  // namespace

void Waits::settle(const Site& use, int handle) {
  if (handle < 0) return;
  std::map<int, Pending>& pending = places_[use.place.index()].pending;
  const auto it = pending.find(handle);
  if (it == pending.end()) return settle_earlier(use, handle);
  const Pending issued = it->second;
  pending.erase(it);
  Site site = use;
  if (issued.block.kind == BlockKind::kPrologue) site.block = issued.block;
  wait_in(site, handle, issued);
}

void Waits::wait_in(const Site& site, int handle, const Pending& issued) {
  const bool same = issued.block == site.block;
  writer_.emit(site.place, site.block,
               {TextWait{handle, 0}, same ? issued.when : When::kAlways, site.cause});
  if (!same) places_[site.place.index()].awaited[handle] = {issued, site.block};
}

// Blocks are not walked in the order in which the place runs them: what a later block waits for
// may be used in an earlier one too. The wait moves there; to the end of the block if
// neither always runs before the other.
void Waits::settle_earlier(const Site& use, int handle) {
  std::map<int, Awaited>& awaited = places_[use.place.index()].awaited;
  const auto it = awaited.find(handle);
  if (it == awaited.end()) return;
  const auto [issued, late] = it->second;
  const ResolvedPlan& plan = facts_.plan();
  if (use.block == late || runs_before(plan, use.place, late, use.block)) return;
  std::erase_if(writer_.text(use.place).blocks[late], [&](const TextInstruction& instruction) {
    const auto* wait = std::get_if<TextWait>(&instruction.body);
    return wait != nullptr && wait->handle == handle;
  });
  awaited.erase(it);
  Site site = use;
  if (!runs_before(plan, use.place, use.block, late)) site.block = issued.block;
  wait_in(site, handle, issued);
}

void Waits::close() {
  for (size_t p = 0; p < places_.size(); ++p) {
    auto& blocks = writer_.text(PlaceId(p)).blocks;
    for (const auto& [handle, where] : places_[p].pending) {
      blocks[where.block].push_back({TextWait{handle, 0}, where.when, {}, kEnd});
    }
  }
}

}  // namespace tessera
