// The pass bucket_collectives. It joins collectives of one block into buckets of up to a given
// size, so that fewer and larger messages move. Two collectives may be joined if they have the same
// kind, group, combiner, dtype and When, and if the earlier one is first needed (needs.h) in the
// same block after the later one is issued.
//
// A group runs its collectives in the order of their issues, and a bucket is issued with its last
// member. So while a bucket is open, other collectives of its group are issued before it. If they
// are needed later than the bucket, they delay it. Therefore a bucket is closed once more than the
// given size of such collectives has been issued. Otherwise a few bytes, collected over a whole
// model and needed by its first layer, would wait for everything that the last layer needs.
#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "tessera/program/memory/touches.h"
#include "tessera/program/needs.h"
#include "tessera/program/place_text.h"

namespace tessera {
namespace {

int64_t elements(const TextTransfer& transfer, const PlaceText& text, const ShapeRule& shapes) {
  const std::vector<int64_t> origin(text.mesh.axes.size(), 0);
  const std::vector<int64_t> shape = shapes.shape(transfer.tensor);
  return std::max(evaluate(transfer.from.region, text.mesh, shape, origin).volume(),
                  evaluate(transfer.to.region, text.mesh, shape, origin).volume());
}

// Returns whether the issue moves one chunk of a tensor. Chunks are not joined, because they exist
// so that the first one can move early.
bool in_chunks(const TextIssue& issue) {
  return std::ranges::any_of(issue.transfers,
                             [](const TextTransfer& t) { return bool(t.to.region.piece); });
}

bool alike_instructions(const TextInstruction& a, const TextIssue& x, const TextInstruction& b,
                        const TextIssue& y, const ShapeRule& shapes) {
  const auto dtype = [&](const TextIssue& issue) {
    return shapes.graph->tensor(issue.transfers[0].tensor).dtype;
  };
  return a.when == b.when && x.kind == y.kind && x.axes == y.axes && x.combiner == y.combiner &&
         dtype(x) == dtype(y) && x.compression == y.compression && !x.classify && !y.classify &&
         !in_chunks(x) && !in_chunks(y) && x.unit == y.unit && !x.named && !y.named;
}

// `OpenBuckets` has the buckets to which collectives may still be added, and for each buffer how
// many of these buckets read it (inputs_) and write it (outputs_).
class OpenBuckets {
 public:
  struct Bucket {
    size_t at = 0;  // position of the issue of its last member
    int64_t bytes = 0;
    size_t before = 0;  // position at which the first of its members is needed
    // Bytes of other collectives of the group that were issued since the first member and are
    // needed later than the bucket.
    int64_t passed = 0;
  };

  OpenBuckets(const std::vector<TextInstruction>& block, size_t buffers)
      : block_(block), inputs_(buffers, 0), outputs_(buffers, 0) {}

  std::vector<Bucket>& buckets() { return buckets_; }
  void add(Bucket bucket) {
    buckets_.push_back(bucket);
    count(issue(bucket), 1);
  }
  void count(const TextIssue& issue, int by) {
    for (const TextTransfer& transfer : issue.transfers) {
      inputs_[static_cast<size_t>(transfer.from.buffer)] += by;
      outputs_[static_cast<size_t>(transfer.to.buffer)] += by;
    }
  }
  void close(int handle) {
    close_if([&](const Bucket& bucket) { return issue(bucket).handle == handle; });
  }
  // Counts a collective of these bytes as issued: adds the bytes to `passed` of each bucket for
  // which passes(bucket) is true. Closes buckets for which `passed` is now more than `most`.
  template <class Passes>
  void pass(int64_t bytes, int64_t most, const Passes& passes) {
    for (Bucket& bucket : buckets_) {
      if (passes(bucket)) bucket.passed += bytes;
    }
    close_if([&](const Bucket& bucket) { return bucket.passed > most; });
  }
  // Closes buckets with buffers that the instruction touches, because the issue of such a bucket
  // may not move past the instruction.
  void close_touched(const TextInstruction& instruction) {
    const auto index = [](int buffer) { return static_cast<size_t>(buffer); };
    const auto reads = [&](int buffer) { return outputs_[index(buffer)] > 0; };
    const auto writes = [&](int buffer) { return reads(buffer) || inputs_[index(buffer)] > 0; };
    if (!touches(instruction, reads, writes)) return;
    close_if([&](const Bucket& open) {
      const TextIssue& bucket = issue(open);
      const auto fills = [&](int buffer) {
        return std::any_of(bucket.transfers.begin(), bucket.transfers.end(),
                           [&](const TextTransfer& t) { return t.to.buffer == buffer; });
      };
      const auto uses = [&](int buffer) {
        return std::any_of(bucket.transfers.begin(), bucket.transfers.end(),
                           [&](const TextTransfer& t) {
                             return t.to.buffer == buffer || t.from.buffer == buffer;
                           });
      };
      return touches(instruction, fills, uses);
    });
  }

 private:
  const TextIssue& issue(const Bucket& bucket) const {
    return std::get<TextIssue>(block_[bucket.at].body);
  }
  template <class Test>
  void close_if(const Test& test) {
    std::erase_if(buckets_, [&](const Bucket& bucket) {
      if (!test(bucket)) return false;
      count(issue(bucket), -1);
      return true;
    });
  }

  const std::vector<TextInstruction>& block_;
  std::vector<Bucket> buckets_;
  std::vector<int> inputs_, outputs_;  // by buffer
};

int64_t bytes_of(const TextIssue& issue, const PlaceText& text, const ShapeRule& shapes) {
  int64_t size = 0;
  for (const TextTransfer& transfer : issue.transfers) {
    size +=
        elements(transfer, text, shapes) * dtype_bytes(shapes.graph->tensor(transfer.tensor).dtype);
  }
  return size;
}

// A `JoinedHandles` knows in which bucket each joined collective is. A bucket has the handle of the
// member that joined it last.
class JoinedHandles {
 public:
  void join(int bucket, int member) { later_[bucket] = member; }
  // Returns the handle of the bucket that the collective is in; its own if it was not joined.
  int bucket_of(int handle) {
    int bucket = handle;
    for (auto it = later_.find(bucket); it != later_.end(); it = later_.find(bucket))
      bucket = it->second;
    while (handle != bucket) handle = std::exchange(later_.at(handle), bucket);
    return bucket;
  }

 private:
  std::unordered_map<int, int> later_;  // by handle: a member that joined the bucket later
};

// Joins the collectives of a block. `needs`: the first need of each handle; `ends`: by position in
// this block, the handles that are first needed there.
void join_collectives(std::vector<TextInstruction>& block, PlaceText& text,
                      const std::map<int, Need>& needs, const std::multimap<size_t, int>& ends,
                      const BlockOrder& order, const ShapeRule& shapes, int64_t bytes) {
  JoinedHandles joined_handles;
  OpenBuckets open(block, text.buffers.size());
  std::vector<bool> dropped(block.size(), false);
  bool joined = false;
  for (size_t i = 0; i < block.size(); ++i) {
    for (auto [end, last] = ends.equal_range(i); end != last; ++end)
      open.close(joined_handles.bucket_of(end->second));
    auto* issue = std::get_if<TextIssue>(&block[i].body);
    open.close_touched(block[i]);
    if (issue == nullptr || issue->classify) continue;
    const int64_t own = bytes_of(*issue, text, shapes);
    const Need& need = needs.at(issue->handle);
    const auto joins = [&](const OpenBuckets::Bucket& b) {
      const TextIssue& bucket = std::get<TextIssue>(block[b.at].body);
      return alike_instructions(block[b.at], bucket, block[i], *issue, shapes) &&
             needs.at(bucket.handle).block == need.block;
    };
    open.pass(own, bytes, [&](const OpenBuckets::Bucket& b) {
      const TextIssue& bucket = std::get<TextIssue>(block[b.at].body);
      if (bucket.axes != issue->axes || joins(b)) return false;
      const BlockRef block_of_bucket = needs.at(bucket.handle).block;
      return block_of_bucket == need.block ? b.before < need.before
                                           : order.always_before(block_of_bucket, need.block);
    });
    const auto it = std::find_if(open.buckets().begin(), open.buckets().end(), joins);
    if (it == open.buckets().end()) {
      open.add({i, own, need.before});
      continue;
    }
    // A full bucket is issued at once, because waiting for something small would only delay it.
    if (it->bytes + own > bytes) {
      open.close(std::get<TextIssue>(block[it->at].body).handle);
      open.add({i, own, need.before});
      continue;
    }
    TextIssue& bucket = std::get<TextIssue>(block[it->at].body);
    joined_handles.join(bucket.handle, issue->handle);
    if (const auto due = text.due.extract(bucket.handle)) {
      const auto [own_due, fresh] = text.due.try_emplace(issue->handle, due.mapped());
      if (!fresh) own_due->second = std::min(own_due->second, due.mapped());
    }
    open.count(*issue, 1);
    std::vector<TextTransfer> all = std::move(bucket.transfers);
    all.insert(all.end(), issue->transfers.begin(), issue->transfers.end());
    issue->transfers = std::move(all);
    dropped[it->at] = true;
    joined = true;
    *it = {i, it->bytes + own, std::min(it->before, need.before), it->passed};
  }
  if (!joined) return;
  size_t kept = 0;
  for (size_t i = 0; i < block.size(); ++i) {
    if (dropped[i]) continue;
    if (kept != i) block[kept] = std::move(block[i]);
    ++kept;
  }
  block.resize(kept);
}

}  // namespace

void bucket_collectives(PlaceText& text, const ShapeRule& shapes, const BlockOrder& order,
                        int64_t bytes) {
  std::map<int, Need> needs;
  ByBlock<std::multimap<size_t, int>> ends;
  for (const Need& need : find_needs(text, order)) {
    needs.emplace(need.handle, need);
    if (need.block == need.issued) ends[need.block].emplace(need.before, need.handle);
  }
  for (auto& [ref, block] : text.blocks)
    join_collectives(block, text, needs, ends[ref], order, shapes, bytes);
}

}  // namespace tessera
