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

// Of an exchange of named rows: whose rows they are, by member.
std::vector<Interval> owned_rows(const Issue& issue);
// How many rows of member `owner` member `names` names: as counted, or, if they are not, as many as are
// expected if ids are drawn evenly from all rows of the tensor: with H of N rows and d ids,
// H (1 - (1 - 1/N)^d), rounded. A member's ids are its rows' share of NamedRows::most.
int64_t named_count(const Issue& issue, size_t names, size_t owner);
// Bytes of the rows that the member gives to the other, by the same count.
int64_t named_bytes(const Issue& issue, size_t from, size_t to);

// "blocks.0.attn.q.weight", "blocks.0.attn.q.weight and 3 more": what an issue moves.
std::string moved_tensors(const Issue& issue, const Graph& graph);

}  // namespace tessera
