// What an instruction of a place text reads and writes. Private to tessera/program.
#pragma once

#include <algorithm>
#include <variant>

#include "tessera/program/place_text.h"

namespace tessera {

// Calls reads(buffer) and writes(buffer) of an instruction's operands until one is true.
template <class Reads, class Writes>
bool touches(const TextInstruction& instruction, const Reads& reads, const Writes& writes) {
  if (const auto* compute = std::get_if<TextCompute>(&instruction.body)) {
    return std::any_of(compute->inputs.begin(), compute->inputs.end(),
                       [&](const TextView& view) { return reads(view.buffer); }) ||
           std::any_of(compute->outputs.begin(), compute->outputs.end(),
                       [&](const TextOutput& output) { return writes(output.view.buffer); });
  }
  if (const auto* issue = std::get_if<TextIssue>(&instruction.body)) {
    return std::any_of(
        issue->transfers.begin(), issue->transfers.end(),
        [&](const TextTransfer& t) { return reads(t.from.buffer) || writes(t.to.buffer); });
  }
  if (const auto* cross = std::get_if<TextCross>(&instruction.body))
    return cross->sends ? reads(cross->from.buffer) : writes(cross->to.buffer);
  if (const auto* copy = std::get_if<TextCopy>(&instruction.body))
    return reads(copy->from.buffer) || writes(copy->to.buffer);
  if (const auto* load = std::get_if<TextLoad>(&instruction.body)) return writes(load->to.buffer);
  return false;
}

}  // namespace tessera
