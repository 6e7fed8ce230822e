#include "tessera/search/transfer_choices.h"

#include <algorithm>

#include "tessera/base/text.h"
#include "tessera/search/question.h"

namespace tessera {
namespace {

constexpr double kWaits = .04;  // of a step at least: else edits are not worth a program
constexpr int64_t kFactor = 4;  // between the sizes of buckets
constexpr int64_t kLeast = 1 << 20, kMost = 1600 << 20;  // bytes
constexpr int64_t kMostAhead = 4;
// Of the time for which ranks wait: what edits promise, the likeliest the most.
constexpr double kLargerSaves = .5, kSmallerSaves = .3, kAheadSaves = .2;

bool cuts_batch(const ChoiceAxis& axis) {
  return std::find(axis.dims.begin(), axis.dims.end(), "batch") != axis.dims.end();
}

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

double exposed_between_replicas(const Simulation& simulation, const Choice& choice) {
  double most = 0;
  for (const RankResult& role : simulation.roles) {
    double waits = 0;
    for (const TrafficRow& row : role.traffic) {
      const std::vector<std::string> over = split_text(row.axes, ' ');
      const bool is_of_batch =
          std::any_of(choice.axes.begin(), choice.axes.end(), [&](const ChoiceAxis& axis) {
            return cuts_batch(axis) && std::find(over.begin(), over.end(), axis.name) != over.end();
          });
      if (is_of_batch) waits += row.exposed_s;
    }
    most = std::max(most, waits);
  }
  return most;
}

std::vector<PlanCandidate> transfer_edits(const PlanCandidate& from, const PlanQuestion& question) {
  std::vector<PlanCandidate> out;
  if (!from.step_s || from.exposed_s < kWaits * *from.step_s) return out;
  const TransferChoice& now = from.choice.transfers;
  const auto add = [&](const TransferChoice& transfers, double saves) {
    PlanCandidate edit;
    edit.choice = from.choice;
    edit.choice.transfers = transfers;
    edit.estimate = from.estimate;
    edit.estimate.step_s *= 1 - saves * from.exposed_s / *from.step_s;
    out.push_back(std::move(edit));
  };
  if (!question.fixed.contains("bucket_bytes")) {
    const int64_t bucket = now.bucket_bytes > 0 ? now.bucket_bytes : kPlainBucket;
    const auto sized = [&](int64_t bytes) {
      return TransferChoice{now.ahead, bytes == kPlainBucket ? 0 : bytes};
    };
    if (bucket * kFactor <= kMost) add(sized(bucket * kFactor), kLargerSaves);
    if (bucket / kFactor >= kLeast) add(sized(bucket / kFactor), kSmallerSaves);
  }
  if (!question.fixed.contains("prefetch") && gathers_parameters(from.choice) &&
      now.ahead < kMostAhead)
    add({now.ahead + 1, now.bucket_bytes}, kAheadSaves);
  return out;
}

}  // namespace tessera
