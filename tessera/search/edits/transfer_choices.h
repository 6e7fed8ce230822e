// Makes edits of how replicas exchange gradients and parameters: of the size up to which small
// collectives are joined, and of how early parameters in shards are gathered. No formula predicts
// what such an edit saves, and it saves nothing if ranks do not wait for replicas. So a search
// tries the edits on choices whose simulated programs show that ranks wait.
//
//   for (const PlanCandidate& edit : transfer_edits(best, question)) ...
#pragma once

#include <string>
#include <vector>

#include "tessera/search/question/answer.h"
#include "tessera/search/question/question.h"

namespace tessera {

// Returns the settings that a question fixes with the keys `prefetch` and `bucket_bytes`, and the
// default for a key that is not fixed.
TransferChoice fixed_transfers(const PlanQuestion& question);

// Returns the seconds for which a rank waits for collectives over axes that cut the batch, of the
// rank that waits longest.
double exposed_between_replicas(const Simulation& simulation, const Plan& plan);

// Returns edits of the candidate: collectives joined up to four times the size, up to a quarter of
// the size, and parameters gathered one block earlier. Each estimate assumes that the edit saves a
// certain share of the time for which ranks wait for replicas. Returns none if ranks wait so little
// that a program is not worth its cost.
std::vector<PlanCandidate> transfer_edits(const PlanCandidate& from, const PlanQuestion& question);

// An edit of a plan that is no choice.
struct TransferEdit {
  TransferChoice transfers;
  double saves = 0;  // assumed saving, as a share of the time for which ranks wait
};
std::vector<TransferEdit> transfer_edits_of(const Plan& plan, const PlanCandidate& from,
                                            const PlanQuestion& question);
void set_transfers(Plan& plan, const TransferChoice& transfers);
// Returns the settings that differ from the default: "prefetch=2 bucket_bytes=104857600".
std::string transfers_text(const TransferChoice& transfers);

}  // namespace tessera
