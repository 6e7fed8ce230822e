// Decides what moves in a redistribution. The accounting (traffic.cc) and all back ends use these
// functions, so that bytes predicted and bytes moved cannot differ.
//
//   copy        The receiver takes an element from itself if it holds it, else from the first
//               member after itself (cyclically) that does. So replicated sources are used evenly.
//   combine     The receiver takes its need from every member that holds part of it, in member
//               order.
//   all-reduce  Over equal boxes the elements, in row-major order, are cut into one chunk for each
//               member. The owner of a chunk reduces it in member order and hands the result to
//               all.
//
// Elements that nobody holds stay as they are. A box of rank 0 is never empty: to broadcast or
// reduce a scalar use boxes of rank 1.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/comm/communicator.h"

namespace tessera::comm {

bool overlaps(const Box& a, const Box& b);

// Returns the disjoint boxes that `receiver` takes from `source` (possibly itself); {} if nothing.
std::vector<Box> taken(const Redistribution& what, size_t receiver, size_t source);
bool takes(const Redistribution& what, size_t receiver, size_t source);

// Returns whether this is an all-reduce over one common box, which is done by flat chunks. Any
// other all-reduce is done by pieces, like an exchange.
bool is_chunked(const Redistribution& what);
bool is_chunked(const std::vector<Item>& items);  // a call is chunked if all its items are
// Returns the elements of a chunked all-reduce that `member` owns: begin and size in row-major
// order of the box. A cut never separates the triple (count, mean, M2) of the moments combiner.
Interval chunk(const Redistribution& what, size_t member);

// Collects what one member takes for one item: copies it, or combines it in the order of the calls.
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

// Returns a number that is equal on two members if and only if (up to hash collisions) they issued
// the same call.
uint64_t signature(const std::vector<int>& members, const std::vector<Item>& items);
// Describes a call: "all_reduce of 2 arrays of float32 with sum, the first [0:4, 0:8]".
std::string describe(const std::vector<Item>& items);
// Adds what was sent for the items to the counter of their kind; adds nothing if there are no
// items.
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
