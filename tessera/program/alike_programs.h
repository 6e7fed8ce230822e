// Programs that are made of one another. Places whose texts are equal, as copies are
// (copied_stages.h), have ranks whose programs differ in little: in ranks and peers, in the tags of
// messages, in the order in which the schedule runs their blocks, and in what follows from that order:
// how many micro-batches are in flight and where buffers lie.
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
  // Both outlive it.
  AlikePrograms(const std::vector<PlaceText>& texts, const ResolvedPlan& plan);

  // The rank whose program that of the rank is like, if there is one; that is like no other.
  std::optional<int> like(int rank) const;
  // `known`: the program of like(rank). Nothing if it has micro-batches of two sizes or rows in caches.
  std::optional<Program> program(const Program& known, int rank, bool offsets) const;

 private:
  struct Message {  // of a place, and the place to or from which the first place has its equal
    const TextCross* cross = nullptr;
    PlaceId other;
  };
  struct AlikePlace {
    PlaceId first;                                  // of those that are alike
    std::unordered_map<int64_t, Message> messages;  // by tag at the first place; for look-up only
  };
  class Comparison;

  void direct_messages(Program& program, const AlikePlace& place) const;

  const std::vector<PlaceText>& texts_;
  const ResolvedPlan& plan_;
  std::vector<std::optional<AlikePlace>> places_;  // by place
};

}  // namespace tessera
