// Makes the program of a rank from the known program of another rank. If places have equal texts,
// as copied places have (copied_stages.h), the programs of their ranks differ only in four things:
// ranks and peers, the tags of messages, the order in which the schedule runs the blocks, and what
// follows from that order (the number of micro-batches in flight and the offsets of buffers).
//
//   AlikePrograms alike(lowering.texts(), lowering.plan());
//   if (const auto other = alike.like(rank))  // let `known` be the program of *other
//     program = alike.program(known, rank, offsets);  // equals lowering.lower(rank, offsets)
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "tessera/program/program.h"

namespace tessera {

struct PlaceText;
struct TextCross;

class AlikePrograms {
 public:
  // Finds the places with equal texts. `texts` and `plan` must outlive the object.
  AlikePrograms(const std::vector<PlaceText>& texts, const ResolvedPlan& plan);

  // Returns the rank from whose program this rank's program can be made; nothing if this rank must
  // be lowered for itself. For the returned rank itself, like() returns nothing.
  std::optional<int> like(int rank) const;
  // Returns the rank's program. `known`: the program of like(rank). Returns nothing if `known` has
  // micro-batches of two sizes or rows in caches.
  std::optional<Program> program(const Program& known, int rank, bool offsets) const;

 private:
  // A message of this place, and the place to or from which the corresponding message of the first
  // place goes or comes.
  struct Message {
    const TextCross* cross = nullptr;
    PlaceId other;
  };
  struct AlikePlace {
    PlaceId first;  // the first of the places whose texts are equal to this place's
    // By the tag of the corresponding message of the first place; for look-up only.
    std::unordered_map<int64_t, Message> messages;
  };
  class Comparison;

  void direct_messages(Program& program, const AlikePlace& place) const;

  const std::vector<PlaceText>& texts_;
  const ResolvedPlan& plan_;
  std::vector<std::optional<AlikePlace>> places_;  // by place
};

}  // namespace tessera
