// Questions about any instruction of a place text, whatever its kind. They are the questions that
// instructions.h answers for the instructions of a program. Private to tessera/program.
#pragma once

#include "tessera/program/instructions.h"
#include "tessera/program/place_text.h"

namespace tessera {

struct TextAccess {
  const TextView* view = nullptr;
  AccessMode mode = AccessMode::kRead;
};

// Calls visit(TextAccess) for every view that the instruction reads or writes. For a TextCross this
// is only the view at this place: `from` if the place sends, else `to`.
template <class Visit>
void accesses(const TextInstruction& instruction, const Visit& visit) {
  const auto touch = [&](const TextView& view, AccessMode mode) { visit(TextAccess{&view, mode}); };
  match(
      instruction,
      [&](const TextCompute& compute) {
        for (const TextView& view : compute.inputs) touch(view, AccessMode::kRead);
        for (const TextOutput& output : compute.outputs)
          touch(output.view, access_mode(output.write));
      },
      [&](const TextIssue& issue) {
        for (const TextTransfer& transfer : issue.transfers) {
          touch(transfer.from, AccessMode::kRead);
          touch(transfer.to, AccessMode::kSet);
        }
        if (issue.named) {
          for (const TextView& ids : issue.named->ids) touch(ids, AccessMode::kRead);
        }
      },
      [&](const TextCross& cross) {
        if (cross.sends) touch(cross.from, AccessMode::kRead);
        if (!cross.sends) touch(cross.to, AccessMode::kSet);
      },
      [](const TextWait&) {},
      [&](const TextCopy& copy) {
        touch(copy.from, AccessMode::kRead);
        touch(copy.to, access_mode(copy.write));
      },
      [&](const TextLoad& load) { touch(load.to, AccessMode::kSet); });
}

// Returns whether reads(buffer) is true for the buffer of any view that the instruction reads, or
// writes(buffer) for the buffer of any view that it writes. A view that is added to counts as
// written only.
template <class Reads, class Writes>
bool touches(const TextInstruction& instruction, const Reads& reads, const Writes& writes) {
  bool found = false;
  accesses(instruction, [&](const TextAccess& access) {
    if (found) return;
    found =
        access.mode == AccessMode::kRead ? reads(access.view->buffer) : writes(access.view->buffer);
  });
  return found;
}

// Returns the instruction's handle, if it may still run while later instructions do; -1 if it is
// done when the next instruction begins.
inline int handle_of(const TextInstruction& instruction) {
  return match(
      instruction,
      [](const OneOf<TextIssue, TextCross, TextCopy> auto& body) { return body.handle; },
      [](const OneOf<TextCompute, TextWait, TextLoad> auto&) { return -1; });
}

}  // namespace tessera
