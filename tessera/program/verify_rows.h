// The verifier's checks of caches of rows (RowCache) in one program alone: their members fit
// together, and only ops that name rows by ids touch what they hold. Private to tessera/program.
#pragma once

#include <optional>

#include "tessera/program/verify_prepare.h"
#include "tessera/program/verify_state.h"

namespace tessera::verifying {

Failure problem_of_caches(const Program& program);
// Checks that an instruction that is no compute moves no buffer that a cache holds.
Failure problem_of_moves(const Program& program, const Instruction& instruction);
// Finds the rows of a cache that an op touches, if any: those of its table and states that its ids
// name.
Failure find_row_use(const Program& program, const Compute& compute, const Op& op,
                     std::optional<RowUse>& use);
// Checks an exchange of named rows: the array that it moves is a table that its op reads or adds
// to, all of the op's ids are there, and the rows of every member are those of the op.
Failure problem_of_names(const Program& program, const Graph& graph, const Issue& issue);

}  // namespace tessera::verifying
