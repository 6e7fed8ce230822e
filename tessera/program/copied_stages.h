// The texts of places that the graph lacks because they are equal to one that it has
// (equal_stages.h). Private to tessera/program.
//
//   place      0   1   2   3 ... 14   15          in the graph: 0, 1, 2 and 15
//   text       0   1   2   2 ...  2   15          3 to 14 are copies; 2 is the original
//
// Why this is right. What the walk and the passes write of a place follows from its ops, from how
// the tensors that enter it are held in the places beside it, and from what these want of the
// tensors that leave it. The ops of places 1 to 14 are equal. If the texts of 1 and 2 are equal too,
// with the layouts on both sides of what enters and leaves them, then place 3 finds behind place 2
// what place 2 finds behind place 1: its text is that of place 2, and so on up to 14, whose next
// place finds what it finds behind place 2.
//
// A copy has the ids of the original's ops, tensors and buffers, and blocks of its own stages. What
// crosses to the next place and what comes from there has, between any two of these places, the ids
// that it has between the original and the place behind the copies, and tags of its own. What a place
// far away sends to the original it sends to each copy, right after.
#pragma once

#include <vector>

#include "tessera/program/equal_stages.h"
#include "tessera/program/needs.h"
#include "tessera/program/place_text.h"

namespace tessera {

struct PlaceTexts {
  const Graph* graph = nullptr;  // the shorter one
  const ResolvedPlan* plan = nullptr;
  const std::vector<BlockOrder>* orders = nullptr;  // by place
  std::vector<PlaceText>* texts = nullptr;          // by place; empty where places are copies
};

// Writes the texts of the copies. The texts await all but what is sent. `next_handle`: the first
// that no text uses. False: the original's text is not equal to that of the place before it, or
// something else tells the places apart.
bool copy_places(const PlaceTexts& in, const CopiedPlaces& copied, int next_handle);

}  // namespace tessera
