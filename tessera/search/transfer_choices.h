// Edits how replicas exchange: the size up to which small collectives are joined, and how early
// parameters in shards are gathered. No formula knows what these edits save, and they save nothing
// where ranks do not wait for replicas. So a search tries them on choices whose programs were
// simulated and in which ranks wait.
//
//   for (const PlanCandidate& edit : transfer_edits(best, question)) ...
#pragma once

#include <string>
#include <vector>

#include "tessera/search/answer.h"
#include "tessera/search/question.h"

namespace tessera {

// Returns what a question fixes with `prefetch` and `bucket_bytes`; the default where it fixes
// nothing.
TransferChoice fixed_transfers(const PlanQuestion& question);

// Returns the seconds in which the rank that waits the most waits for collectives over axes that
// cut the batch of the plan.
double exposed_between_replicas(const Simulation& simulation, const Plan& plan);

// Returns the candidate with collectives joined up to four times the size, or a quarter of it, and
// with parameters gathered one block earlier. The estimates promise a part of the time for which
// ranks wait. Empty if that is too little to be worth a program.
std::vector<PlanCandidate> transfer_edits(const PlanCandidate& from, const PlanQuestion& question);

// An edit of a plan that is no choice; transfer_edits_of() returns the most promising one first.
// The program of the plan is that of the candidate.
struct TransferEdit {
  TransferChoice transfers;
  double saves = 0;  // share of the time for which ranks wait
};
std::vector<TransferEdit> transfer_edits_of(const Plan& plan, const PlanCandidate& from,
                                            const PlanQuestion& question);
void set_transfers(Plan& plan, const TransferChoice& transfers);
// Returns the settings that differ from the default: "prefetch=2 bucket_bytes=104857600".
std::string transfers_text(const TransferChoice& transfers);

}  // namespace tessera
