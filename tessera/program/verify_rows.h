// What the verifier says of caches of rows (RowCache), one program alone: that they fit together, and
// that nothing but ops that name rows by ids touches what they hold. Private to tessera/program.
#pragma once

#include <optional>

#include "tessera/program/verify_prepare.h"
#include "tessera/program/verify_state.h"

namespace tessera::verifying {

Failure problem_of_caches(const Program& program);
// Of an instruction that is no compute: it moves no buffer that a cache holds.
Failure problem_of_moves(const Program& program, const Instruction& instruction);
// Which rows an op touches of a cache, if any: of its table and states, those that its ids name.
Failure find_row_use(const Program& program, const Compute& compute, const Op& op,
                     std::optional<RowUse>& use);
// Of an exchange of named rows: it is one of a table that its op reads or adds to, by all ids, and says
// the same of every member.
Failure problem_of_names(const Program& program, const Graph& graph, const Issue& issue);

}  // namespace tessera::verifying
