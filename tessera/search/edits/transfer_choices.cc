#include "tessera/search/edits/transfer_choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tessera/base/text.h"
#include "tessera/search/constants.h"
#include "tessera/search/question/question.h"

namespace tessera {
namespace {

bool gathers_parameters(const Choice& choice) {
  return choice.sharded >= 3 ||
         std::any_of(choice.units.begin(), choice.units.end(),
                     [](const UnitChoice& unit) { return unit.sharded.value_or(0) >= 3; });
}

}  // namespace

TransferChoice fixed_transfers(const PlanQuestion& question) {
  TransferChoice out;
  if (question.fixed.contains("prefetch")) out.ahead = fixed_number(question, "prefetch");
  out.bucket_bytes = fixed_number(question, "bucket_bytes");
  return out;
}

double exposed_between_replicas(const Simulation& simulation, const Plan& plan) {
  std::set<std::string> of_batch;
  for (const SplitEntry& entry : plan.splits) {
    if (entry.dim == plan.micro_batch_dim) of_batch.insert(entry.over.begin(), entry.over.end());
  }
  double most = 0;
  for (const RankResult& role : simulation.roles) {
    double waits = 0;
    for (const TrafficRow& row : role.traffic) {
      const std::vector<std::string> over = split_text(row.axes, ' ');
      if (std::any_of(over.begin(), over.end(),
                      [&](const std::string& axis) { return of_batch.contains(axis); }))
        waits += row.exposed_s;
    }
    most = std::max(most, waits);
  }
  return most;
}

namespace {

std::vector<TransferEdit> edits_of(const TransferChoice& now, bool gathers,
                                   const PlanCandidate& from, const PlanQuestion& question) {
  std::vector<TransferEdit> out;
  if (!from.step_s || from.exposed_s < kLittle * *from.step_s) return out;
  if (!question.fixed.contains("bucket_bytes")) {
    const int64_t bucket = now.bucket_bytes > 0 ? now.bucket_bytes : kPlainBucket;
    const auto add = [&](int64_t bytes) {
      out.push_back({{now.ahead, bytes == kPlainBucket ? 0 : bytes}});
    };
    const auto widest =
        static_cast<int64_t>(std::pow(static_cast<double>(kBucketStep), static_cast<double>(kFew)));
    if (bucket < kPlainBucket * widest) add(bucket * kBucketStep);
    if (bucket > kPlainBucket / widest) add(bucket / kBucketStep);
  }
  if (!question.fixed.contains("prefetch") && gathers && now.ahead < static_cast<int64_t>(kFew))
    out.push_back({{now.ahead + 1, now.bucket_bytes}});
  // The assumed saving of each edit, as a share of the time for which ranks wait: the edit that most
  // often gains comes first and has the largest share, so that it is tried first.
  for (size_t i = 0; i < out.size(); ++i) out[i].saves = 1 / static_cast<double>(i + 2);
  return out;
}

}  // namespace

std::vector<PlanCandidate> transfer_edits(const PlanCandidate& from, const PlanQuestion& question) {
  std::vector<PlanCandidate> out;
  if (!question.uses(Mechanism::kTransfers)) return out;
  for (const TransferEdit& edit :
       edits_of(from.choice.transfers, gathers_parameters(from.choice), from, question)) {
    PlanCandidate candidate;
    candidate.choice = from.choice;
    candidate.choice.transfers = edit.transfers;
    candidate.estimate = from.estimate;
    candidate.estimate.step_s *= 1 - edit.saves * from.exposed_s / *from.step_s;
    out.push_back(std::move(candidate));
  }
  return out;
}

std::vector<TransferEdit> transfer_edits_of(const Plan& plan, const PlanCandidate& from,
                                            const PlanQuestion& question) {
  const TransferChoice now{plan.prefetch ? plan.prefetch->ahead : TransferChoice{}.ahead,
                           plan.bucket_bytes == kPlainBucket ? 0 : plan.bucket_bytes};
  return edits_of(now, plan.prefetch.has_value(), from, question);
}

void set_transfers(Plan& plan, const TransferChoice& transfers) {
  plan.bucket_bytes = transfers.bucket_bytes > 0 ? transfers.bucket_bytes : kPlainBucket;
  if (plan.prefetch) plan.prefetch->ahead = transfers.ahead;
}

std::string transfers_text(const TransferChoice& transfers) {
  std::vector<std::string> parts;
  if (transfers.ahead != TransferChoice{}.ahead)
    parts.push_back(fmt::format("prefetch={}", transfers.ahead));
  if (transfers.bucket_bytes > 0)
    parts.push_back(fmt::format("bucket_bytes={}", transfers.bucket_bytes));
  return join(parts, " ");
}

}  // namespace tessera
