#include "tessera/program/communication.h"

#include <fmt/format.h>

namespace tessera {

Traffic sent_traffic(const Issue& issue, size_t member) {
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
