#include "tessera/search/choices/spaces.h"

#include <algorithm>
#include <utility>

#include "tessera/search/choices/grid.h"
#include "tessera/search/choices/offload.h"
#include "tessera/search/plan_search.h"
#include "tessera/search/question/question.h"

namespace tessera {
namespace {

const std::vector<int64_t> kMoreChunks = {2, 3, 4, 6, 8};

}  // namespace

Result<Space> whole_space(Ranking& ranking) {
  Space space;
  ranking.find_dims(space);
  space.recompute = {"none", "selective", "full"};
  space.schedules = {{"1f1b"}, {"interleaved", kMoreChunks}, {"zb_h1"}, {"zb_h2"}};
  space.own_units = space.own_lists = space.offloads = true;
  return space;
}

Result<Space> megatron_space(Ranking& ranking) { return space_of_grid(megatron_grid(), ranking); }

Result<PlanAnswer> find_in_space(const PlanQuestion& question, const SpaceMaker& space_of) {
  TESSERA_TRY(const auto search, PlanSearch::begin(question));
  Ranking ranking(question, search->fold(), search->pricer());
  TESSERA_TRY(Space space, space_of(ranking));
  const auto edits = [&](const PlanCandidate& best) { return ranking.edits(best, space); };
  std::vector<PlanCandidate> ranked = ranking.rank(space);
  if (space.offloads) add_offloaded(question, ranked);
  const std::string refusal = ranking.last_refusal();
  // Estimates simulate schedules only if programs are dear. Cheap programs are simulated
  // whole instead.
  ranking.play(question.uses(Mechanism::kPlayedSchedules) && !is_small(question, search->fold()) &&
               !search->has_cheap_programs());
  const auto refine = [&](PlanCandidate& candidate) { ranking.refine(candidate); };
  TESSERA_TRY(PlanAnswer answer, search->answer(std::move(ranked), refusal, edits, refine));
  answer.lists = space.lists;
  answer.estimated += ranking.left_out();
  return answer;
}

}  // namespace tessera
