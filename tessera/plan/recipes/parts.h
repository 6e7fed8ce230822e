// Parts that several recipes share; each adds entries to a plan text. A part over an axis that the
// text's mesh lacks adds nothing.
#pragma once

#include <string>
#include <string_view>

#include "tessera/plan/recipes/writer.h"

namespace tessera::recipes {

// The batch of every op over dp.
Status data_parallel(PlanText& text, const Graph& graph);

// At rest over dp: optimizer state (stage 1), gradients too (2), parameters too (3).
void zero(PlanText& text, int64_t stage);

// The dim of attention to cut into n pieces: key heads; with fewer key heads than pieces, the query
// heads of each. `argument` names n in the error of too few heads.
Result<std::string> heads_dim(const Graph& graph, std::string_view argument, int64_t n);

// Megatron 1-D over tp: heads, ffn, vocab.
Status tensor_parallel(PlanText& text, const Graph& graph);

// Blocks in `pp` runs, the first ones longer by one if they do not divide; what is before them in
// stage 0, what is after them in the last stage.
Status pipeline(PlanText& text, const Graph& graph, int64_t pp, const std::string& schedule);

}  // namespace tessera::recipes
