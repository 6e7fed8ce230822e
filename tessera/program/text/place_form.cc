// The text form of place texts: one form for printing and for parsing (text_io.h).
#include "tessera/program/text/place_form.h"

#include "tessera/program/text/place_text_form.h"

namespace tessera {

std::string_view program_text::order_name(StepOrder order) {
  switch (order) {
    case StepOrder::kAligned: return "aligned";
    case StepOrder::kRotated: return "rotated";
    case StepOrder::kNested: break;
  }
  return "nested";
}

namespace {

using program_text::Meshes;
using program_text::PlaceForm;
using program_text::Writer;

// Adds the meshes of the places that the instruction names.
void add_meshes(const TextInstruction& instruction, const std::vector<PlaceText>& texts,
                Meshes& meshes) {
  const auto* cross = std::get_if<TextCross>(&instruction.body);
  if (cross == nullptr) return;
  for (const PlaceId place : {cross->from_place, cross->to_place})
    meshes.try_emplace(place, texts[place.index()].mesh);
}

}  // namespace

std::string to_text(const Region& region, const Mesh& mesh, const std::vector<Dim>& dims) {
  static const Graph no_names;
  static const PlaceText none;
  PlaceId place(0);
  Meshes meshes{{place, mesh}};
  Writer out(no_names);
  PlaceForm(out, no_names, place, meshes, none).region(region, place, dims);
  return out.take();
}

std::string to_text(const std::vector<PlaceText>& texts, PlaceId place, const Graph& graph,
                    bool with_order) {
  const PlaceText& text = texts[place.index()];
  Meshes meshes{{place, text.mesh}};
  for (const auto& [ref, block] : text.blocks) {
    for (const TextInstruction& instruction : block) add_meshes(instruction, texts, meshes);
  }
  Writer out(graph);
  PlaceForm(out, graph, place, meshes, text).lines(with_order);
  return out.take();
}

std::string to_text(const TextInstruction& instruction, const std::vector<PlaceText>& texts,
                    PlaceId place, const Graph& graph) {
  Meshes meshes{{place, texts[place.index()].mesh}};
  add_meshes(instruction, texts, meshes);
  Writer out(graph);
  PlaceForm(out, graph, place, meshes, texts[place.index()]).instruction(instruction);
  return out.take();
}

}  // namespace tessera
