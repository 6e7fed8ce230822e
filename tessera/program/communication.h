// Facts about a program's communication for reports and traces, equal for a simulated step and for
// one that ran.
#pragma once

#include <string>
#include <vector>

#include "tessera/plan/plan.h"
#include "tessera/program/program.h"

namespace tessera {

// Returns the traffic that the member of the group sends for an issue.
Traffic sent_traffic(const Issue& issue, size_t member);

// Returns the rows of the table that each member of an exchange of named rows holds, by member.
std::vector<Interval> owned_rows(const Issue& issue);
// Returns the number of rows of member `owner` that member `names` names. This is the counted
// number, if rows were counted. Otherwise it is the expected number if ids are drawn evenly from
// all rows of the table: with H of N rows at the owner and d ids at the other member,
// H (1 - (1 - 1/N)^d), rounded. A member has NamedRows::most times its share of the op's rows as
// ids.
int64_t named_count(const Issue& issue, size_t names, size_t owner);
// Returns the bytes of the rows that member `from` gives to member `to`, by the same count.
int64_t named_bytes(const Issue& issue, size_t from, size_t to);

// Returns the names of what an issue moves: "blocks.0.attn.q.weight", or "blocks.0.attn.q.weight
// and 3 more".
std::string moved_tensors(const Issue& issue, const Graph& graph);

}  // namespace tessera
