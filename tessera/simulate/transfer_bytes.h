// Counts what the members of collectives send. The issues of equal layers and stages move the same
// lists of boxes (program/instantiate/member_boxes.h), so a list's address stands for its boxes, and each list is
// looked at once. If the boxes of a list are all equal or lie apart (those of gathers, reductions and
// all-reduces, also of uneven cuts), the bytes of a member follow from its own boxes and from facts
// of the lists; only other exchanges are added up over the members.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "tessera/cost/collective_cost.h"
#include "tessera/program/program.h"

namespace tessera {

class TransferBytes {
 public:
  // Returns the bytes that a member of the group sends: sent_traffic (communication.h). All issues
  // that one object is asked about must be of programs of one lowering, which outlives the object.
  int64_t sent(const Issue& issue, size_t member);
  // Returns the bytes of the whole array on one member, as collective_cost.h wants them. For an
  // exchange these are the bytes of an array such that, in an all-to-all of it, each member would
  // move as many bytes as the busiest member of the exchange.
  int64_t whole(const Issue& issue);
  // Returns the load of an exchange (exchange_load.h). `nodes`: by member, the number of its node.
  ExchangeLoad load(const Issue& issue, const std::vector<int64_t>& nodes);

 private:
  using Key = std::vector<int64_t>;
  // Facts of a list of boxes, one for each member.
  struct Facts {
    bool equal = true;          // all boxes are equal
    int64_t largest = 0;        // elements of the largest box
    std::optional<bool> apart;  // no two boxes have a common element, as far as lie_apart() sees
  };

  static Key key_of(const Issue& issue);
  Facts& facts(const SharedBoxes& boxes);
  bool lie_apart(const SharedBoxes& boxes);
  int64_t common(const SharedBoxes& boxes, const SharedBoxes& with);
  std::optional<int64_t> elements(const Issue& issue, const Transfer& transfer, size_t member);
  std::optional<int64_t> regular_bytes(const Issue& issue, size_t member);
  int64_t busiest(const Issue& issue);

  std::map<const Box*, Facts> facts_;                            // by list
  std::map<std::pair<const Box*, const Box*>, int64_t> common_;  // by two lists
  std::map<std::pair<Key, size_t>, int64_t> sent_;
  std::map<Key, int64_t> whole_;
  std::map<std::pair<Key, std::vector<int64_t>>, ExchangeLoad> loads_;
};

}  // namespace tessera
