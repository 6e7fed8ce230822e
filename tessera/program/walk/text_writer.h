// Writes the place texts of all places. A `TextWriter` gives out buffers, handles and tags, and
// numbers the instructions of all texts in the order of writing (TextInstruction::order). Private
// to tessera/program.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "tessera/program/walk/facts.h"

namespace tessera {

class TextWriter {
 public:
  explicit TextWriter(const Facts& facts);  // `facts` must outlive the writer

  void emit(PlaceId place, BlockRef block, TextInstruction instruction);
  template <class Body>
  void emit(const Site& site, Body body) {
    emit(site.place, site.block, {std::move(body), site.when, site.cause});
  }

  // Makes a new buffer of the place and returns its index. The buffer's name is the tensor's name,
  // followed by "@" and `what` unless `what` is empty.
  int new_buffer(PlaceId place, TensorId tensor, std::string_view what, Region region);
  TextBuffer& buffer(PlaceId place, int index) {
    return text(place).buffers[static_cast<size_t>(index)];
  }
  int new_handle() { return next_handle_++; }
  // Gives the handle, which is under way, a due mark (PlaceText::due): the handle is awaited before
  // the next instruction that is written to its block.
  void due(PlaceId place, int handle) { text(place).due.try_emplace(handle, next_order_); }
  int64_t new_tag() { return next_tag_++; }

  size_t places() const { return texts_.size(); }
  PlaceText& text(PlaceId place) { return texts_[place.index()]; }
  std::vector<PlaceText> take() { return std::move(texts_); }  // must be the last call

 private:
  const Facts& facts_;
  std::vector<PlaceText> texts_;
  int next_handle_ = 0;
  int64_t next_tag_ = 0;
  int64_t next_order_ = 0;
};

}  // namespace tessera
