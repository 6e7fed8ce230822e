// The texts of places that the graph lacks because they are equal to a place that it has
// (equal_stages.h). Private to tessera/program.
//
//   place      0   1   2   3 ... 14   15          in the graph: 0, 1, 2 and 15
//   text       0   1   2   2 ...  2   15          3 to 14 are copies; 2 is the original
//
// Why this is right: the text that the walk and the passes write for a place follows from its ops,
// from the layouts in which the neighbouring places hold the tensors that enter it, and from the
// layouts that these places want of the tensors that leave it. The ops of places 1 to 14 are equal.
// If the texts of 1 and 2 are equal too, with the layouts on both sides of all that enters and
// leaves, then place 3 finds behind place 2 what place 2 finds behind place 1, and its text is that
// of place 2. This holds on up to place 14, because the place behind it finds what it finds behind
// place 2.
//
// A copy has the ids of the original's ops, tensors and buffers, and blocks of its own stages. A
// message between any two of these places has the ids of the messages between the original and the
// place behind the copies, and a tag of its own. If a place far away sends a message to the
// original, it sends one to each copy right after.
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

// Writes the texts of the copies. The texts already await everything but sends. `next_handle`: the
// first handle that no text uses. Returns false if the original's text is not equal to that of the
// place before it, or something else tells the places apart.
bool copy_places(const PlaceTexts& in, const CopiedPlaces& copied, int next_handle);

}  // namespace tessera
