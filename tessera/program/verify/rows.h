// The verifier's checks of row caches (RowCache) that need one program alone. The members of a
// cache must fit together, and only ops that name rows by ids may touch the buffers that a cache
// holds. Private to tessera/program.
#pragma once

#include <optional>

#include "tessera/program/verify/prepare.h"
#include "tessera/program/verify/state.h"

namespace tessera::verifying {

Failure problem_of_caches(const Program& program);
// Checks that an instruction other than a compute touches no buffer that a cache holds.
Failure problem_of_moves(const Program& program, const Instruction& instruction);
// Sets `use` to the cache whose buffers the compute touches and to the inputs whose ids name the
// rows; unset if the compute touches no cache.
Failure find_row_use(const Program& program, const Compute& compute, const Op& op,
                     std::optional<RowUse>& use);
// Checks an exchange of named rows (NamedRows): the op that names the rows must read or add to the
// array that moves, all ids of the op must be given, and the rows of every member must be rows of
// the op's iteration space.
Failure problem_of_names(const Program& program, const Graph& graph, const Issue& issue);

}  // namespace tessera::verifying
