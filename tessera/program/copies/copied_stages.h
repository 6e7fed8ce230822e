// The place texts of copied places, whose ops the graph lacks because they equal the ops of another
// place, the original (equal_stages.h). Private to tessera/program.
//
//   place      0   1   2   3 ... 14   15          in the graph: 0, 1, 2 and 15
//   text       0   1   2   2 ...  2   15          3 to 14 are copies; 2 is the original
//
// Why this is right: the text that the walk and the passes write for a place follows from the ops
// of the place, from the layouts in which the neighbouring places hold the tensors that enter it,
// and from the layouts in which the neighbours want the tensors that leave it. The ops of places 1
// to 14 are equal. Let the texts of places 1 and 2 be equal too, including the layouts on both
// sides of every message. Then place 3 receives from place 2 in the same layouts as place 2
// receives from place 1, so the text of place 3 is that of place 2. By this argument the text of
// each place up to 14 is that of place 2. In the graph the neighbour after place 2 is place 15, so
// place 15 receives the same layouts from place 14 as from place 2.
//
// A copy has the ids of the original's ops, tensors and buffers, and blocks of its own stages. A
// message between two neighbours among these places has the tensor of the corresponding message
// between the original and the first place after the copies, and a tag of its own. If a far place,
// which is neither a neighbour nor a copy, sends a message to the original, it sends one to each
// copy right after it.
#pragma once

#include <vector>

#include "tessera/program/copies/equal_stages.h"
#include "tessera/program/needs.h"
#include "tessera/program/place_text.h"

namespace tessera {

struct PlaceTexts {
  const Graph* graph = nullptr;  // the shorter one
  const ResolvedPlan* plan = nullptr;
  const std::vector<BlockOrder>* orders = nullptr;  // by place
  std::vector<PlaceText>* texts = nullptr;          // by place; empty where places are copies
};

// Writes the texts of the copies. The texts of the other places must have all waits but those for
// sends. `next_handle`: the first handle that no text uses. Returns false, and the texts are not to
// be used, if the original's text differs from that of the place before it or if the places differ
// in another way that matters.
bool copy_places(const PlaceTexts& in, const CopiedPlaces& copied, int next_handle);

}  // namespace tessera
