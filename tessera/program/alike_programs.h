// Programs that are made of one another. Where places have equal texts, as copies have
// (copied_stages.h), the programs of their ranks differ only in ranks and peers, in the tags of
// messages, in the order in which the schedule runs their blocks, and in what follows from that
// order: the number of micro-batches in flight and the offsets of buffers.
//
//   AlikePrograms alike(lowering.texts(), lowering.plan());
//   if (const auto other = alike.like(rank))  // whose program is `known`
//     program = alike.program(known, rank, offsets);  // as lowering.lower(rank, offsets)
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
  // Compares the places. `texts` and `plan` must outlive the object.
  AlikePrograms(const std::vector<PlaceText>& texts, const ResolvedPlan& plan);

  // Returns the rank whose program this rank's program is like, if there is such a rank; that
  // rank's own program is like no other.
  std::optional<int> like(int rank) const;
  // Returns the rank's program. `known`: the program of like(rank). Returns nothing if `known` has
  // micro-batches of two sizes or rows in caches.
  std::optional<Program> program(const Program& known, int rank, bool offsets) const;

 private:
  // A message of this place, and the peer place of its equal in the first place's text.
  struct Message {
    const TextCross* cross = nullptr;
    PlaceId other;
  };
  struct AlikePlace {
    PlaceId first;                                  // the first of the places that are alike
    std::unordered_map<int64_t, Message> messages;  // by tag at the first place; for look-up only
  };
  class Comparison;

  void direct_messages(Program& program, const AlikePlace& place) const;

  const std::vector<PlaceText>& texts_;
  const ResolvedPlan& plan_;
  std::vector<std::optional<AlikePlace>> places_;  // by place
};

}  // namespace tessera
