// Pass: bucket_collectives. Joins collectives of one block that have the same kind, group,
// combiner, dtype and When, if the wait of the earlier one comes after the issue of the later one
// (nothing needs its result in between), up to a size. Afterwards fewer and larger messages move;
// every result is still there before its first use, because waits of all members become waits of
// the bucket.
#include <algorithm>
#include <map>
#include <set>

#include "tessera/program/place_text.h"

namespace tessera {
namespace {

int64_t elements(const TextTransfer& transfer, const PlaceText& text, const ShapeRule& shapes) {
  const std::vector<int64_t> origin(text.mesh.axes.size(), 0);
  const std::vector<int64_t> shape = shapes.shape(transfer.tensor);
  return std::max(evaluate(transfer.from.region, text.mesh, shape, origin).volume(),
                  evaluate(transfer.to.region, text.mesh, shape, origin).volume());
}

bool alike(const TextInstruction& a, const TextIssue& x, const TextInstruction& b,
           const TextIssue& y, const ShapeRule& shapes) {
  const auto dtype = [&](const TextIssue& issue) {
    return shapes.graph->tensor(issue.transfers[0].tensor).dtype;
  };
  return a.when == b.when && x.kind == y.kind && x.axes == y.axes && x.combiner == y.combiner &&
         dtype(x) == dtype(y) && x.compression == y.compression && !x.classify && !y.classify &&
         x.unit == y.unit;
}

// Does an instruction touch a buffer of the transfers other than by being its issue? Then the issue
// may not move behind it.
bool touches(const TextInstruction& instruction, const std::set<int>& inputs,
             const std::set<int>& outputs) {
  const auto reads = [&](const TextView& view) { return outputs.contains(view.buffer); };
  const auto writes = [&](const TextView& view) {
    return outputs.contains(view.buffer) || inputs.contains(view.buffer);
  };
  if (const auto* compute = std::get_if<TextCompute>(&instruction.body)) {
    return std::any_of(compute->inputs.begin(), compute->inputs.end(), reads) ||
           std::any_of(compute->outputs.begin(), compute->outputs.end(),
                       [&](const TextOutput& output) { return writes(output.view); });
  }
  if (const auto* issue = std::get_if<TextIssue>(&instruction.body)) {
    return std::any_of(issue->transfers.begin(), issue->transfers.end(),
                       [&](const TextTransfer& t) { return reads(t.from) || writes(t.to); });
  }
  if (const auto* cross = std::get_if<TextCross>(&instruction.body)) {
    return cross->sends ? reads(cross->from) : writes(cross->to);
  }
  if (const auto* copy = std::get_if<TextCopy>(&instruction.body))
    return reads(copy->from) || writes(copy->to);
  if (const auto* load = std::get_if<TextLoad>(&instruction.body)) return writes(load->to);
  return false;
}

}  // namespace

void bucket_collectives(PlaceText& text, const ShapeRule& shapes, int64_t bytes) {
  for (auto& [ref, block] : text.blocks) {
    std::map<int, int> renamed;  // handle -> handle of the bucket
    // Open buckets: position of their (latest) issue.
    std::vector<size_t> open;
    std::vector<bool> dropped(block.size(), false);
    for (size_t i = 0; i < block.size(); ++i) {
      if (const auto* wait = std::get_if<TextWait>(&block[i].body)) {
        const auto it = renamed.find(wait->handle);
        const int handle = it == renamed.end() ? wait->handle : it->second;
        std::erase_if(
            open, [&](size_t at) { return std::get<TextIssue>(block[at].body).handle == handle; });
        continue;
      }
      auto* issue = std::get_if<TextIssue>(&block[i].body);
      // What touches an open bucket's buffers closes it: it may not move behind this instruction.
      std::erase_if(open, [&](size_t at) {
        const auto& bucket = std::get<TextIssue>(block[at].body);
        std::set<int> inputs, outputs;
        for (const TextTransfer& transfer : bucket.transfers) {
          inputs.insert(transfer.from.buffer);
          outputs.insert(transfer.to.buffer);
        }
        return touches(block[i], inputs, outputs);
      });
      if (issue == nullptr || issue->classify) continue;
      const auto it = std::find_if(open.begin(), open.end(), [&](size_t at) {
        const auto& bucket = std::get<TextIssue>(block[at].body);
        if (!alike(block[at], bucket, block[i], *issue, shapes)) return false;
        int64_t size = 0;
        for (const TextIssue* part : {&bucket, static_cast<const TextIssue*>(issue)}) {
          for (const TextTransfer& transfer : part->transfers) {
            size += elements(transfer, text, shapes) *
                    dtype_bytes(shapes.graph->tensor(transfer.tensor).dtype);
          }
        }
        return size <= bytes;
      });
      if (it == open.end()) {
        open.push_back(i);
        continue;
      }
      TextIssue& bucket = std::get<TextIssue>(block[*it].body);
      for (auto& [handle, to] : renamed) {
        if (to == bucket.handle) to = issue->handle;
      }
      renamed[bucket.handle] = issue->handle;
      std::vector<TextTransfer> joined = std::move(bucket.transfers);
      joined.insert(joined.end(), issue->transfers.begin(), issue->transfers.end());
      issue->transfers = std::move(joined);
      dropped[*it] = true;
      *it = i;
    }
    std::vector<TextInstruction> kept;
    for (size_t i = 0; i < block.size(); ++i) {
      if (!dropped[i]) kept.push_back(std::move(block[i]));
    }
    block = std::move(kept);
    // Waits of joined handles, in this and later blocks, become waits of the bucket; repeats are
    // dropped.
    std::set<std::pair<int, int>> waited;
    for (auto& [where, later] : text.blocks) {
      std::erase_if(later, [&](TextInstruction& instruction) {
        auto* wait = std::get_if<TextWait>(&instruction.body);
        if (wait == nullptr) return false;
        const auto it = renamed.find(wait->handle);
        if (it != renamed.end()) wait->handle = it->second;
        return !waited.emplace(wait->handle, wait->lag).second;
      });
    }
  }
}

}  // namespace tessera
