// The pass place_waits (place_text.h). First it writes the waits for all that is started except
// sends, each where it is first needed (await_needs, needs.h). Then it writes the waits for sends,
// for which the rows of the schedule are played against each other (send_waits.cc).
#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "tessera/program/needs.h"
#include "tessera/program/passes/send_waits.h"

namespace tessera {

void await_needs(PlaceText& text, const BlockOrder& order) {
  ByBlock<std::vector<Need>> needs;
  for (const Need& need : find_needs(text, order)) needs[need.block].push_back(need);
  for (auto& [ref, here] : needs) {
    std::ranges::stable_sort(here, {}, [](const Need& need) { return need.before; });
    std::vector<TextInstruction>& block = text.blocks[ref];
    std::vector<TextInstruction> out;
    out.reserve(block.size() + here.size());
    auto need = here.begin();
    for (size_t i = 0; i <= block.size(); ++i) {
      const bool end = i == block.size();
      // A wait gets the order of writing of the instruction that follows it.
      for (; need != here.end() && need->before == i; ++need) {
        out.push_back({TextWait{need->handle, 0}, need->when, need->cause,
                       end ? std::numeric_limits<int64_t>::max() : block[i].order});
      }
      if (!end) out.push_back(std::move(block[i]));
    }
    block = std::move(out);
  }
  text.due.clear();
}

void place_waits(std::vector<PlaceText>& texts, const ResolvedPlan& plan,
                 const std::vector<BlockOrder>& orders) {
  for (size_t place = 0; place < texts.size(); ++place) await_needs(texts[place], orders[place]);
  place_send_waits(texts, plan);
}

}  // namespace tessera
