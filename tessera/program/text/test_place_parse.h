// For tests: reads the text form of place texts (docs/reference/place-text.md). Printing then
// parsing gives an equal text, so the printed form leaves nothing out.
//
//   const Result<PlaceText> same = parse_place_text(text, lowering.graph());
#pragma once

#include <fmt/format.h>

#include <string_view>

#include "tessera/program/text/place_text_form.h"

namespace tessera {

// Reads a place text. Returns an error that names file and line.
inline Result<PlaceText> parse_place_text(std::string_view text, const Graph& graph,
                                          std::string_view file = "<place>") {
  PlaceId place;
  program_text::Meshes meshes;
  PlaceText out;
  program_text::Reader in(graph);
  program_text::PlaceForm form(in, graph, place, meshes, out);
  TESSERA_TRY_VOID(in.read(text, file, form.kUsage, [&] { form.lines(true); }));
  const auto mesh = meshes.find(place);
  if (mesh == meshes.end()) {
    return invalid_input(fmt::format("{}: expected 'mesh {} from ...', found none for this place",
                                     file, place.value));
  }
  out.mesh = mesh->second;
  return out;
}

}  // namespace tessera
