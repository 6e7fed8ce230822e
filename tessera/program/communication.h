// What reports and traces say of a program's communication, the same for a step that was simulated
// and for one that ran.
#pragma once

#include <string>
#include <vector>

#include "tessera/plan/plan.h"
#include "tessera/program/program.h"

namespace tessera {

// What the member of the group sends for an issue.
Traffic sent_traffic(const Issue& issue, size_t member);

// The rows of the table that each member of an exchange of named rows holds, by member.
std::vector<Interval> owned_rows(const Issue& issue);
// How many of the rows that member `owner` holds are named by member `names`. This is the counted
// number, if rows were counted. Otherwise it is the expected number if ids are drawn evenly from all
// rows of the table: with H of N rows at the owner and d ids at the other member,
// H (1 - (1 - 1/N)^d), rounded. A member has NamedRows::most times its share of the op's rows as ids.
int64_t named_count(const Issue& issue, size_t names, size_t owner);
// Bytes of the rows that the member gives to the other, by the same count.
int64_t named_bytes(const Issue& issue, size_t from, size_t to);

// "blocks.0.attn.q.weight", "blocks.0.attn.q.weight and 3 more": what an issue moves.
std::string moved_tensors(const Issue& issue, const Graph& graph);

}  // namespace tessera
