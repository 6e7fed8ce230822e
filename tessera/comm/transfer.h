// Decides which member takes which elements from which member in a redistribution. The accounting
// (traffic.cc) and all back ends use these functions, so that the predicted bytes and the moved
// bytes cannot differ.
//
//   copy        A member takes an element from itself if it holds the element, else from the first
//               member after it (cyclically) that does. So copies on several members are used
//               evenly.
//   combine     A member takes each element that it needs from every member that holds the element,
//               in member order.
//   all-reduce  If all boxes are equal, their elements (row-major) are cut into one chunk for each
//               member. The owner of a chunk reduces it in member order and sends the result to
//               all.
//
// Elements that nobody holds stay as they are in the output. A box without dims has one element and
// so is never empty; to broadcast or reduce a scalar, use boxes of one dim, which can be empty on
// the members that hold or need nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tessera/comm/communicator.h"

namespace tessera::comm {

bool overlaps(const Box& a, const Box& b);

// Returns the disjoint boxes that `receiver` takes from `source` (possibly itself); {} if nothing.
std::vector<Box> taken(const Redistribution& what, size_t receiver, size_t source);
bool takes(const Redistribution& what, size_t receiver, size_t source);

// Returns whether this is an all-reduce in which all members hold and need the same box. Such an
// all-reduce is done by chunks of the row-major sequence of elements. Any other all-reduce is done
// by boxes, like an exchange.
bool is_chunked(const Redistribution& what);
bool is_chunked(const std::vector<Item>& items);  // all items are chunked
// Returns the chunk of `member` in a chunked all-reduce: begin and size of a range of elements, in
// row-major order of the box. A cut never separates the triple (count, mean, M2) of the moments
// combiner.
Interval chunk(const Redistribution& what, size_t member);

// Adds a part of an array to parts that were added before, whose disjoint boxes are in `covered`.
// Calls `combine` for each box of elements that have a value already, then `copy` for each box of
// elements that have none yet.
void add_part(std::vector<Box>& covered, const Box& part,
              const std::function<void(const Box&)>& copy,
              const std::function<void(const Box&)>& combine);

// Collects the elements that one member takes for one item. Without a combiner, an Assembly copies
// them; with one, it combines them in the order of the calls of take().
class Assembly {
 public:
  explicit Assembly(const Item& item) : item_(&item) {}
  // Takes the elements of `boxes` from a view that contains them.
  void take(const ArrayView& from, const std::vector<Box>& boxes);

 private:
  void combine(const ArrayView& from, const Box& box);

  const Item* item_;
  std::vector<Box> covered_;  // disjoint; these elements have a value already
};

int64_t bytes_of(const Redistribution& what, const std::vector<Box>& boxes);

// Returns a number that is equal on two members if they issued the same call, and otherwise differs
// except for hash collisions.
uint64_t signature(const std::vector<int>& members, const std::vector<Item>& items);
// Describes a call: "all_reduce of 2 arrays of float32 with sum, the first [0:4, 0:8]".
std::string describe(const std::vector<Item>& items);
// Adds the traffic `sent` to the counter of the items' kind. Adds nothing if there are no items.
void add_traffic(const std::vector<Item>& items, const Traffic& sent, Counters& counters);

// Stops the program with a message when a caller errs: items differ in kind, or views differ from
// their box.
void check_items(const std::vector<Item>& items, size_t members, size_t me);

std::string label_text(const Label& label);            // "op a.b, tensor y, axis tp"
std::string rank_list(const std::vector<int>& ranks);  // "{1, 2}"
std::string timeout_text(int rank, const Label& label, const std::vector<int>& missing,
                         std::chrono::milliseconds timeout);
std::string mismatch_text(int rank, const std::string& mine, int peer, const std::string& theirs);

}  // namespace tessera::comm
