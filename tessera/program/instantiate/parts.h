// Parts of instantiation (instantiate.cc), which makes a rank's program out of the texts of the
// rank's places. It keeps the places (read), the handles (decided), and a block that is being written.
// Private to tessera/program.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "tessera/program/instantiate/member_boxes.h"
#include "tessera/program/place_text.h"

namespace tessera {

// The numbers of the instructions of the text from which a block's instructions were made.
using Ordinals = ByBlock<std::vector<size_t>>;

// A `RankPlace` is a place that the rank belongs to.
struct RankPlace {
  PlaceId id;
  const PlaceText* text = nullptr;
  std::vector<int64_t> coordinates;
  size_t first_buffer = 0;  // index, among the program's buffers, of the text's first one
};

// Gives the program's handles to the handles of texts. A text's handle stands for several handles
// if its instruction makes several messages, or is in several blocks.
class RankHandles {
 public:
  // Returns the program's handle for the next message or collective that the block makes under a
  // handle of the text. The blocks for both sizes of micro-batches get the same handles.
  int made(int handle, BlockRef block, size_t size);
  // Replaces each wait for a handle of a text by waits for the program's handles that stand for it.
  // All blocks must have been written, because a wait may come before its issue (lag 1, other
  // blocks).
  void fill_in_waits(Program& program, Ordinals& ordinals) const;

  int next = 0;  // the first handle that is not used

 private:
  struct Made {
    int handle;
    // Bit 0, 1: blocks of the larger, smaller micro-batches issue it. Both bits if it is issued
    // once a step.
    unsigned sizes;
  };
  std::map<int, std::vector<Made>> made_;  // by handle of a text
};

struct Instantiating {
  const InstantiateInput& in;
  const Graph& graph;
  Program out;
  std::vector<RankPlace> places;
  std::vector<std::vector<Box>> boxes;  // by size of micro-batches: global region of each buffer
  RankHandles handles;
  Ordinals ordinals;
  std::map<std::pair<PlaceId, Axes>, int> groups;
  std::vector<MemberBoxes::Group*> members;  // by group
};

// A `Writing` is an instruction of a text on its way into a block of the program. `size` says for
// which micro-batches the block is: 0 for the larger, 1 for the smaller ones.
struct Writing {
  Instantiating& r;
  size_t size;
  BlockRef block;
  std::vector<Instruction>& out;
  std::vector<size_t>& ordinals;
  const RankPlace* place = nullptr;
  const TextInstruction* text = nullptr;
  size_t ordinal = 0;

  const Mesh& mesh() const { return place->text->mesh; }
  const ShapeRule& rule() const { return (*r.in.sizes)[size].rule; }
  const std::vector<int64_t>& shape(TensorId tensor) const {
    return (*r.in.sizes)[size].shapes[tensor.index()];
  }
  Box evaluate(TensorId tensor, const Region& region) const {
    return tessera::evaluate(region, mesh(), shape(tensor), place->coordinates);
  }
  // Returns the view of a buffer of the place's text that has the global region.
  View local(int buffer, Box region) const { return local(*place, buffer, std::move(region)); }
  View local(const RankPlace& of, int buffer, Box region) const;
  View local(const TextView& view, TensorId tensor) const {
    return local(view.buffer, evaluate(tensor, view.region));
  }
  int handle(int of_text) const { return r.handles.made(of_text, block, size); }
  template <class Body>
  void push(Body body) const {
    out.push_back({std::move(body), text->when, text->cause});
    ordinals.push_back(ordinal);
  }
};

// Writes the instructions of the rank for the instruction of the text. There may be none, if the
// rank has nothing to do, and several, if it sends to several ranks.
void write_instruction(const Writing& w);

}  // namespace tessera
