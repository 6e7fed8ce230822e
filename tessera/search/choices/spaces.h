// Defines the spaces that planners search, and the search that these planners share: it ranks the
// choices of a space, simulates the best ones and edits of them, and answers with the fastest.
//
//   TESSERA_TRY(PlanAnswer answer, find_in_space(question, whole_space));
#pragma once

#include <functional>

#include "tessera/search/question/answer.h"
#include "tessera/search/question/question.h"
#include "tessera/search/rank/ranking.h"

namespace tessera {

using SpaceMaker = std::function<Result<Space>(Ranking&)>;
Result<PlanAnswer> find_in_space(const PlanQuestion& question, const SpaceMaker& space_of);

Result<Space> whole_space(Ranking& ranking);     // planner auto
Result<Space> megatron_space(Ranking& ranking);  // planner megatron_grid

}  // namespace tessera
