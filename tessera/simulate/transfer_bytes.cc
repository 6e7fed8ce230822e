#include "tessera/simulate/transfer_bytes.h"

#include <algorithm>
#include <span>

#include "tessera/program/communication.h"
#include "tessera/simulate/exchange_load.h"

namespace tessera {
namespace {

// Returns whether boxes lie apart, if in each dim two of their intervals are equal or have no
// common element, as those of cuts do. False may also mean that they are cut in another way.
// `boxes` must be in the order of their dims and equal in the dims before `dim`.
bool are_apart(std::span<const Box* const> boxes, size_t dim) {
  if (boxes.size() <= 1) return true;
  if (dim == boxes.front()->rank()) return false;
  size_t first = 0;
  for (size_t i = 1; i <= boxes.size(); ++i) {
    const Interval& now = boxes[first]->dims[dim];
    if (i < boxes.size() && boxes[i]->dims[dim] == now) continue;
    if (i < boxes.size() && boxes[i]->dims[dim].begin < now.end()) return false;
    if (!are_apart(boxes.subspan(first, i - first), dim + 1)) return false;
    first = i;
  }
  return true;
}

bool before(const Box* a, const Box* b) {
  for (size_t d = 0; d < a->rank(); ++d) {
    const Interval &x = a->dims[d], &y = b->dims[d];
    if (x.begin != y.begin) return x.begin < y.begin;
    if (x.size != y.size) return x.size < y.size;
  }
  return false;
}

}  // namespace

// Returns a key that is equal for issues that move alike, such as those of equal layers.
TransferBytes::Key TransferBytes::key_of(const Issue& issue) {
  Key key{static_cast<int64_t>(issue.kind), static_cast<int64_t>(issue.dtype),
          issue.combiner ? static_cast<int64_t>(*issue.combiner) : -1};
  for (const Transfer& transfer : issue.transfers) {
    for (const SharedBoxes* boxes : {&transfer.hold, &transfer.need})
      key.push_back(static_cast<int64_t>(reinterpret_cast<intptr_t>(boxes->list().data())));
  }
  if (!issue.named) return key;
  key.push_back(issue.named->most);
  const auto add = [&key](const Interval& rows) {
    key.insert(key.end(), {rows.begin, rows.size});
  };
  std::ranges::for_each(issue.named->rows, add);
  std::ranges::for_each(issue.named->ids[0].box.dims, add);
  key.insert(key.end(), issue.named->counted.begin(), issue.named->counted.end());
  return key;
}

TransferBytes::Facts& TransferBytes::facts(const SharedBoxes& boxes) {
  const auto [known, fresh] = facts_.try_emplace(boxes.list().data());
  Facts& out = known->second;
  for (size_t i = 0; fresh && i < boxes.size(); ++i) {
    out.equal = out.equal && boxes[i] == boxes.front();
    out.largest = std::max(out.largest, boxes[i].volume());
  }
  return out;
}

bool TransferBytes::lie_apart(const SharedBoxes& boxes) {
  Facts& known = facts(boxes);
  if (!known.apart) {
    std::vector<const Box*> some;
    for (const Box& box : boxes) {
      if (!box.empty()) some.push_back(&box);
    }
    if (!std::is_sorted(some.begin(), some.end(), before)) std::sort(some.begin(), some.end(), before);
    known.apart = are_apart(some, 0);
  }
  return *known.apart;
}

// Returns the number of elements that each of `boxes` has in common with the first of `with`,
// added up over the boxes.
int64_t TransferBytes::common(const SharedBoxes& boxes, const SharedBoxes& with) {
  const auto [known, fresh] =
      common_.try_emplace({boxes.list().data(), with.list().data()}, 0);
  for (size_t i = 0; fresh && i < boxes.size(); ++i)
    known->second += intersect(boxes[i], with.front()).volume();
  return known->second;
}

// Returns the number of elements that the member sends of an array, as traffic() counts them. None:
// it does not follow from facts of the lists.
std::optional<int64_t> TransferBytes::elements(const Issue& issue, const Transfer& transfer,
                                               size_t member) {
  const SharedBoxes &hold = transfer.hold, &need = transfer.need;
  const Box& own = hold[member];
  const auto others = static_cast<int64_t>(hold.size()) - 1;
  if (own.empty()) return 0;
  const bool held = facts(hold).equal, needed = facts(need).equal;
  // All others take the same. Without a combiner they take it from this member only if no other
  // member holds it.
  if (needed && (issue.combiner || lie_apart(hold)))
    return others * intersect(own, need.front()).volume();
  if (!held) return std::nullopt;
  if (!issue.combiner) return 0;  // each member has what it needs
  return common(need, hold) - intersect(need[member], own).volume();
}

std::optional<int64_t> TransferBytes::regular_bytes(const Issue& issue, size_t member) {
  if (issue.codec || issue.named) return std::nullopt;
  // An all-reduce whose members hold and need the same is done in chunks (redistribution.h).
  const bool chunked =
      issue.kind == CollectiveKind::kAllReduce && issue.combiner &&
      std::ranges::all_of(issue.transfers, [&](const Transfer& transfer) {
        return facts(transfer.hold).equal && facts(transfer.need).equal &&
               transfer.hold.front() == transfer.need.front();
      });
  int64_t sum = 0;
  for (const Transfer& transfer : issue.transfers) {
    if (!chunked) {
      const auto some = elements(issue, transfer, member);
      if (!some) return std::nullopt;
      sum += *some;
      continue;
    }
    const Box& box = transfer.hold.front();
    const auto members = static_cast<int64_t>(transfer.hold.size());
    const bool triples =
        issue.combiner == Combiner::kMoments && box.rank() > 0 && !box.empty();
    const int64_t unit = triples ? box.dims.back().size : 1, units = box.volume() / unit;
    const int64_t chunk =
        split_interval({0, units}, members, static_cast<int64_t>(member)).size;
    sum += (units - chunk + (members - 1) * chunk) * unit;
  }
  return sum * dtype_bytes(issue.dtype);
}

int64_t TransferBytes::sent(const Issue& issue, size_t member) {
  if (const auto bytes = regular_bytes(issue, member)) return *bytes;
  if (issue.codec) return sent_traffic(issue, member).bytes;
  const auto [known, fresh] = sent_.try_emplace({key_of(issue), member}, 0);
  if (fresh) known->second = sent_traffic(issue, member).bytes;
  return known->second;
}

// Returns the bytes that the busiest member sends or takes (few for a halo).
int64_t TransferBytes::busiest(const Issue& issue) {
  int64_t most = 0;
  for (size_t m = 0; m < issue.transfers[0].hold.size(); ++m) {
    int64_t taken = 0;
    for (size_t from = 0; issue.named && from < issue.named->rows.size(); ++from)
      taken += from == m ? 0 : named_bytes(issue, from, m);
    if (!issue.named) {
      for (const Transfer& transfer : issue.transfers) {
        const Box& need = transfer.need[m];
        taken += need.volume() - intersect(need, transfer.hold[m]).volume();
      }
      taken = message_bytes(issue.codec, issue.dtype, taken);
    }
    const auto bytes = regular_bytes(issue, m);
    most = std::max({most, bytes ? *bytes : sent_traffic(issue, m).bytes, taken});
  }
  return most;
}

int64_t TransferBytes::whole(const Issue& issue) {
  if (issue.kind == CollectiveKind::kExchange) {
    const auto members = static_cast<int64_t>(issue.transfers[0].hold.size());
    const auto [known, fresh] = whole_.try_emplace(key_of(issue), 0);
    if (fresh && members > 1) known->second = busiest(issue) * members / (members - 1);
    return known->second;
  }
  const bool gathers =
      issue.kind == CollectiveKind::kAllGather || issue.kind == CollectiveKind::kBroadcast;
  int64_t elements = 0;
  for (const Transfer& transfer : issue.transfers)
    elements += facts(gathers ? transfer.need : transfer.hold).largest;
  return message_bytes(issue.codec, issue.dtype, elements);
}

ExchangeLoad TransferBytes::load(const Issue& issue, const std::vector<int64_t>& nodes) {
  const auto [known, fresh] = loads_.try_emplace({key_of(issue), nodes});
  if (fresh) known->second = exchange_load(issue, nodes);
  return known->second;
}

}  // namespace tessera
