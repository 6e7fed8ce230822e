// Text form of place texts (docs/reference/place-text.md), for people, golden tests and `tessera
// inspect --place`. Tensors and ops are named by the graph. Tests parse it (test_place_parse.h): it
// leaves nothing out.
//
//   const std::string text = to_text(lowering.texts(), PlaceId(0), lowering.graph());
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/program/place_text.h"

namespace tessera {

// Returns the text of one place. `texts`: of all places, whose meshes name the layouts of
// crossings. `with_order`: writes each instruction's position in the order of writing too, which
// matters where ranks are at several places.
std::string to_text(const std::vector<PlaceText>& texts, PlaceId place, const Graph& graph,
                    bool with_order = false);

// Returns one instruction's line, without indentation.
std::string to_text(const TextInstruction& instruction, const std::vector<PlaceText>& texts,
                    PlaceId place, const Graph& graph);
// Returns a region's text: "[batch: dp, seq: tp*4] partial(cp: sum) step 1 of 2 along 0 inside 1
// aligned".
std::string to_text(const Region& region, const Mesh& mesh, const std::vector<Dim>& dims);

}  // namespace tessera
