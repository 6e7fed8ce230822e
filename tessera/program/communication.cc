#include "tessera/program/communication.h"

#include <fmt/format.h>

#include <cmath>

namespace tessera {

std::vector<Interval> owned_rows(const Issue& issue) {
  const Transfer& transfer = issue.transfers[0];
  std::vector<Interval> owned;
  for (const Box& box : issue.combiner ? transfer.need : transfer.hold)
    owned.push_back(box.dims[0]);
  return owned;
}

int64_t named_count(const Issue& issue, size_t names, size_t owner) {
  if (names == owner) return 0;
  const NamedRows& named = *issue.named;
  const Transfer& transfer = issue.transfers[0];
  const size_t members = named.rows.size();
  if (!named.counted.empty()) return named.counted[names * members + owner];
  const Box& whole = issue.combiner ? transfer.hold[names] : transfer.need[names];
  const Box& held = issue.combiner ? transfer.need[owner] : transfer.hold[owner];
  const auto all = static_cast<double>(whole.dims[0].size);
  const auto op_rows = static_cast<double>(named.ids[0].box.volume());
  if (whole.empty() || held.empty() || op_rows == 0) return 0;
  const double draws =
      static_cast<double>(named.most) * static_cast<double>(named.rows[names].size) / op_rows;
  const double missed = all > 1 ? std::exp(draws * std::log1p(-1 / all)) : draws > 0 ? 0 : 1;
  return std::llround(static_cast<double>(held.dims[0].size) * (1 - missed));
}

int64_t named_bytes(const Issue& issue, size_t from, size_t to) {
  const Transfer& transfer = issue.transfers[0];
  const size_t names = issue.combiner ? from : to, owner = issue.combiner ? to : from;
  const Box& whole = issue.combiner ? transfer.hold[names] : transfer.need[names];
  const int64_t width = whole.empty() ? 0 : whole.volume() / whole.dims[0].size;
  return named_count(issue, names, owner) * width * dtype_bytes(issue.dtype);
}

Traffic sent_traffic(const Issue& issue, size_t member) {
  if (issue.named) {
    Traffic sent;
    for (size_t to = 0; to < issue.named->rows.size(); ++to) {
      const int64_t bytes = to == member ? 0 : named_bytes(issue, member, to);
      sent.bytes += bytes;
      sent.messages += bytes > 0 ? 1 : 0;
    }
    return sent;
  }
  std::vector<Redistribution> arrays;
  for (const Transfer& transfer : issue.transfers)
    arrays.push_back({issue.kind, issue.combiner, issue.dtype, transfer.hold, transfer.need});
  std::vector<const Redistribution*> items;
  for (const Redistribution& array : arrays) items.push_back(&array);
  return issue.codec ? coded_traffic(items, *issue.codec, member) : bucket_traffic(items, member);
}

std::string moved_tensors(const Issue& issue, const Graph& graph) {
  const std::string& first = graph.tensor(issue.transfers[0].tensor).name;
  return issue.transfers.size() == 1
             ? first
             : fmt::format("{} and {} more", first, issue.transfers.size() - 1);
}

}  // namespace tessera
