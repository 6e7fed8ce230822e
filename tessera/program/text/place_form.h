// Text form of place texts (docs/reference/place-text.md), for people, golden tests and `tessera
// inspect --place`. Tensors and ops have their names in the graph. The form leaves nothing out:
// tests parse it back (test_place_parse.h).
//
//   const std::string text = to_text(lowering.texts(), PlaceId(0), lowering.graph());
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/program/place_text.h"

namespace tessera {

// Returns the text form of the place text of one place. `texts`: the texts of all places, because
// the other place's mesh has the axis names for the layouts of crossings. `with_order`: also writes
// TextInstruction::order, which matters where ranks are at several places.
std::string to_text(const std::vector<PlaceText>& texts, PlaceId place, const Graph& graph,
                    bool with_order = false);

// Returns one instruction's line, without indentation.
std::string to_text(const TextInstruction& instruction, const std::vector<PlaceText>& texts,
                    PlaceId place, const Graph& graph);
// Returns a region's text: "[batch: dp, seq: tp*4] partial(cp: sum) step 1 of 2 along 0 inside 1
// aligned".
std::string to_text(const Region& region, const Mesh& mesh, const std::vector<Dim>& dims);

}  // namespace tessera
