#include "tessera/comm/transfer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tessera/base/check.h"
#include "tessera/base/philox.h"

namespace tessera::comm {
namespace {

constexpr int64_t kMomentValues = 3;  // count, mean, M2

void subtract_from(std::vector<Box>& boxes, const Box& cut) {
  std::vector<Box> rest;
  for (Box& box : boxes) {
    if (!overlaps(box, cut)) {
      rest.push_back(std::move(box));
      continue;
    }
    for (Box& part : subtract(box, cut)) rest.push_back(std::move(part));
  }
  boxes = std::move(rest);
}

void check_view(const ArrayView& view, const Box& box) {
  TESSERA_CHECK(view.box == box, "view of {}, expected {}", view.box.to_string(), box.to_string());
  TESSERA_CHECK(view.strides.size() == box.rank(), "{} strides for {}", view.strides.size(),
                box.to_string());
  TESSERA_CHECK(box.empty() || view.data != nullptr, "no memory for {}", box.to_string());
}

void append(std::vector<int64_t>& words, const std::vector<Box>& boxes) {
  for (const Box& box : boxes) {
    words.push_back(static_cast<int64_t>(box.rank()));
    for (const Interval& dim : box.dims) {
      words.push_back(dim.begin);
      words.push_back(dim.size);
    }
  }
}

}  // namespace

bool overlaps(const Box& a, const Box& b) {
  TESSERA_CHECK(a.rank() == b.rank(), "boxes {} and {}", a.to_string(), b.to_string());
  for (size_t i = 0; i < a.rank(); ++i) {
    const int64_t begin = std::max(a.dims[i].begin, b.dims[i].begin);
    if (std::min(a.dims[i].end(), b.dims[i].end()) <= begin) return false;
  }
  return true;
}

std::vector<Box> taken(const Redistribution& what, size_t receiver, size_t source) {
  if (!overlaps(what.hold[source], what.need[receiver])) return {};
  std::vector<Box> boxes = {intersect(what.hold[source], what.need[receiver])};
  if (what.combiner) return boxes;
  const size_t members = what.hold.size();
  for (size_t other = receiver; other != source; other = (other + 1) % members) {
    subtract_from(boxes, what.hold[other]);
  }
  return boxes;
}

bool takes(const Redistribution& what, size_t receiver, size_t source) {
  return overlaps(what.hold[source], what.need[receiver]) &&
         (what.combiner.has_value() || !taken(what, receiver, source).empty());
}

bool is_chunked(const Redistribution& what) {
  if (what.kind != CollectiveKind::kAllReduce || !what.combiner) return false;
  const Box& box = what.hold.front();
  const auto same = [&](const Box& other) { return other == box; };
  return std::ranges::all_of(what.hold, same) && std::ranges::all_of(what.need, same);
}

bool is_chunked(const std::vector<Item>& items) {
  return std::ranges::all_of(items, [](const Item& item) { return is_chunked(*item.what); });
}

Interval chunk(const Redistribution& what, size_t member) {
  const int64_t unit = what.combiner == Combiner::kMoments ? kMomentValues : 1;
  const int64_t units = what.hold.front().volume() / unit;
  const Interval cut = split_interval({0, units}, static_cast<int64_t>(what.hold.size()),
                                      static_cast<int64_t>(member));
  return {cut.begin * unit, cut.size * unit};
}

void Assembly::take(const ArrayView& from, const std::vector<Box>& boxes) {
  for (const Box& box : boxes) {
    if (item_->what->combiner) {
      combine(from, box);
    } else {
      copy_region(item_->what->dtype, from, item_->out, box);
    }
  }
}

void Assembly::combine(const ArrayView& from, const Box& box) {
  const Redistribution& what = *item_->what;
  add_part(
      covered_, box, [&](const Box& part) { copy_region(what.dtype, from, item_->out, part); },
      [&](const Box& part) { combine_region(what.dtype, *what.combiner, from, item_->out, part); });
}

void add_part(std::vector<Box>& covered, const Box& part,
              const std::function<void(const Box&)>& copy,
              const std::function<void(const Box&)>& combine) {
  std::vector<Box> fresh = {part};
  for (const Box& earlier : covered) {
    if (!overlaps(earlier, part)) continue;
    combine(intersect(earlier, part));
    subtract_from(fresh, earlier);
  }
  for (Box& one : fresh) {
    copy(one);
    covered.push_back(std::move(one));
  }
}

int64_t bytes_of(const Redistribution& what, const std::vector<Box>& boxes) {
  int64_t elements = 0;
  for (const Box& box : boxes) elements += box.volume();
  return elements * dtype_bytes(what.dtype);
}

uint64_t signature(const std::vector<int>& members, const std::vector<Item>& items) {
  std::vector<int64_t> words(members.begin(), members.end());
  for (const Item& item : items) {
    const Redistribution& what = *item.what;
    words.push_back(static_cast<int64_t>(what.kind));
    words.push_back(what.combiner ? static_cast<int64_t>(*what.combiner) : -1);
    words.push_back(static_cast<int64_t>(what.dtype));
    append(words, what.hold);
    append(words, what.need);
  }
  return stable_hash(reinterpret_cast<const char*>(words.data()), words.size() * sizeof(int64_t),
                     0);
}

std::string describe(const std::vector<Item>& items) {
  if (items.empty()) return "nothing";
  const Redistribution& what = *items.front().what;
  return fmt::format("{} of {} {} of {}{}, the first {} -> {}", collective_name(what.kind),
                     items.size(), items.size() == 1 ? "array" : "arrays", dtype_name(what.dtype),
                     what.combiner ? fmt::format(" with {}", combiner_name(*what.combiner)) : "",
                     items.front().in.box.to_string(), items.front().out.box.to_string());
}

void add_traffic(const std::vector<Item>& items, const Traffic& sent, Counters& counters) {
  if (items.empty()) return;
  Traffic& total = counters.collectives[static_cast<size_t>(items.front().what->kind)];
  total.bytes += sent.bytes;
  total.messages += sent.messages;
}

void check_items(const std::vector<Item>& items, size_t members, size_t me) {
  TESSERA_CHECK(!items.empty(), "a call without items");
  const Redistribution& first = *items.front().what;
  for (const Item& item : items) {
    const Redistribution& what = *item.what;
    TESSERA_CHECK(what.hold.size() == members && what.need.size() == members,
                  "{} held, {} needed boxes in a group of {}", what.hold.size(), what.need.size(),
                  members);
    TESSERA_CHECK(
        what.kind == first.kind && what.dtype == first.dtype && what.combiner == first.combiner,
        "items of one call differ: {}", describe(items));
    check_view(item.in, what.hold[me]);
    check_view(item.out, what.need[me]);
    if (what.combiner != Combiner::kMoments) continue;
    for (const SharedBoxes* boxes : {&what.hold, &what.need}) {
      for (const Box& box : *boxes) {
        TESSERA_CHECK(
            box.empty() || (box.rank() > 0 && box.dims.back() == Interval{0, kMomentValues}),
            "moments need a last dim [0:3], found {}", box.to_string());
      }
    }
  }
}

std::string label_text(const Label& label) {
  std::string text = "op " + label.op;
  if (!label.tensor.empty()) text += ", tensor " + label.tensor;
  if (!label.axis.empty()) text += ", axis " + label.axis;
  return text;
}

std::string rank_list(const std::vector<int>& ranks) {
  return fmt::format("{{{}}}", fmt::join(ranks, ", "));
}

std::string timeout_text(int rank, const Label& label, const std::vector<int>& missing,
                         std::chrono::milliseconds timeout) {
  return fmt::format("rank {}: {}: no answer from ranks {} within {:g} s", rank, label_text(label),
                     rank_list(missing), static_cast<double>(timeout.count()) / 1000.0);
}

std::string mismatch_text(int rank, const std::string& mine, int peer, const std::string& theirs) {
  return fmt::format("rank {}: {}; rank {}: {}: these calls meet but do not match", rank, mine,
                     peer, theirs);
}

}  // namespace tessera::comm
