// Appends instructions and buffers to the texts of places.
#include "tessera/program/walk/text_writer.h"

#include <fmt/format.h>

namespace tessera {

TextWriter::TextWriter(const Facts& facts) : facts_(facts), texts_(facts.plan().places.size()) {
  for (size_t p = 0; p < texts_.size(); ++p) texts_[p].mesh = facts.mesh(PlaceId(p));
}

void TextWriter::emit(PlaceId place, BlockRef block, TextInstruction instruction) {
  instruction.order = next_order_++;
  text(place).blocks[block].push_back(std::move(instruction));
}

int TextWriter::new_buffer(PlaceId place, TensorId tensor, std::string_view what, Region region) {
  const Tensor& of = facts_.tensor(tensor);
  check_axes(region.layout, facts_.mesh(place), of);
  TextBuffer buffer;
  buffer.tensor = tensor;
  buffer.name = of.name + (what.empty() ? "" : fmt::format("@{}", what));
  buffer.region = std::move(region);
  buffer.dtype = of.dtype;
  std::vector<TextBuffer>& buffers = text(place).buffers;
  buffers.push_back(std::move(buffer));
  return static_cast<int>(buffers.size()) - 1;
}

}  // namespace tessera
