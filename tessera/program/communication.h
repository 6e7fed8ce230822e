// Facts about a program's communication, for reports and traces. The facts are the same for a
// simulated and for a real step of the program.
#pragma once

#include <string>
#include <vector>

#include "tessera/plan/plan.h"
#include "tessera/program/program.h"

namespace tessera {

// Returns what a member of the issue's group sends. `member`: its index in the group.
Traffic sent_traffic(const Issue& issue, size_t member);

// Returns the rows of the table that each member of an exchange of named rows holds, by member.
std::vector<Interval> owned_rows(const Issue& issue);
// Returns how many of the rows that member `owner` holds are named by the ids of member `names`. If
// NamedRows::counted is set, this is the counted number. Otherwise it is the expected number,
// rounded, for ids that are drawn evenly from all rows of the table: H (1 - (1 - 1/N)^d), where the
// owner holds H of N rows and the other member has d ids. d is estimated as NamedRows::most times
// the member's share of the op's rows.
int64_t named_count(const Issue& issue, size_t names, size_t owner);
// Returns the bytes of the rows that member `from` sends to member `to`, with the number of rows
// from named_count.
int64_t named_bytes(const Issue& issue, size_t from, size_t to);

// Returns the names of what an issue moves: "blocks.0.attn.q.weight", or "blocks.0.attn.q.weight
// and 3 more".
std::string moved_tensors(const Issue& issue, const Graph& graph);

}  // namespace tessera
