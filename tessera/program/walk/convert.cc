// Writes the collectives of a conversion: their buffers, and the two halves of compressed ones.
#include "tessera/program/walk/convert.h"

#include <algorithm>
#include <utility>

namespace tessera {
namespace {

// Returns whether step i is the gather, and the step before it the scatter, of an all-reduce that
// was split in two.
bool gathers_back(const std::vector<ConversionStep>& path, size_t i) {
  return i > 0 && path[i].kind == CollectiveKind::kAllGather && !path[i].slice &&
         !path[i - 1].slice && path[i - 1].kind == CollectiveKind::kReduceScatter &&
         path[i].axes == path[i - 1].axes;
}

}  // namespace

Held Converter::convert(const Site& site, TensorId tensor, Held from, const Layout& to, int into) {
  const PlaceId place = site.place;
  const std::vector<ConversionStep> path =
      apart(place, tensor, from.region.layout->combiner,
            paths_.find(place, tensor, from.region.layout, to));
  int issued = -1;  // handle of the previous step
  int parts = -1;   // buffer of the parts of a split all-reduce, into which its result is gathered
  for (size_t i = 0; i < path.size(); ++i) {
    const ConversionStep& step = path[i];
    Held next = from;
    next.region = {step.to, std::nullopt};
    if (!step.slice) {
      const bool whole_buffer = writer_.buffer(place, from.buffer).region == from.region;
      const bool reduces = step.to.partial.size() < from.region.layout->partial.size();
      const bool in_place = step.kind == CollectiveKind::kAllReduce && whole_buffer;
      if (step.kind == CollectiveKind::kReduceScatter && whole_buffer &&
          compression(tensor, CollectiveKind::kAllReduce))
        parts = from.buffer;
      const bool into_parts = gathers_back(path, i) && parts >= 0;
      if (i + 1 == path.size() && into >= 0) {
        next.buffer = into;
      } else if (into_parts) {
        next.buffer = parts;
      } else if (!in_place) {
        next.buffer = writer_.new_buffer(place, tensor, collective_name(step.kind), next.region);
      }
      // The due mark keeps the previous step's operands from living longer than needed, because the
      // next issue may be joined with others (bucket.cc) and so leave later.
      if (issued >= 0) writer_.due(place, issued);
      TextIssue issue;
      issue.handle = issued = writer_.new_handle();
      issue.kind = step.kind;
      issue.axes = step.axes;
      if (reduces) issue.combiner = from.region.layout->combiner;
      issue.compression = step_compression(tensor, path, i);
      issue.transfers.push_back({tensor, from.view(), next.view()});
      next.handle = issue.handle;
      next.block = site.block;
      writer_.emit(site, std::move(issue));
    }
    from = std::move(next);
  }
  return from;
}

// Returns the path with each compressed all-reduce split into a reduce-scatter and an all-gather.
// So each part is encoded only once and summed where it arrives, and the sum is encoded only once.
std::vector<ConversionStep> Converter::apart(PlaceId place, TensorId tensor, Combiner combiner,
                                             const std::vector<ConversionStep>& path) const {
  std::vector<ConversionStep> out;
  for (const ConversionStep& step : path) {
    out.push_back(step);
    const std::vector<int64_t>& sizes = facts_.shape(tensor);
    if (step.slice || step.kind != CollectiveKind::kAllReduce || sizes.empty() ||
        !compression(tensor, step.kind) || combiner != Combiner::kSum)
      continue;
    const size_t dim =
        static_cast<size_t>(std::max_element(sizes.begin(), sizes.end()) - sizes.begin());
    Layout scattered = step.to;
    for (AxisId axis : step.axes) scattered.shards[dim].push_back(axis);
    scattered = normalise(std::move(scattered), facts_.mesh(place), sizes);
    ConversionStep gather = step;
    out.back().kind = CollectiveKind::kReduceScatter;
    out.back().to = std::move(scattered);
    gather.kind = CollectiveKind::kAllGather;
    out.push_back(std::move(gather));
  }
  return out;
}

const std::optional<Compression>& Converter::compression(TensorId tensor,
                                                         CollectiveKind kind) const {
  return facts_.tensor_plan(tensor).compress[static_cast<size_t>(kind)];
}

std::optional<Compression> Converter::step_compression(TensorId tensor,
                                                       const std::vector<ConversionStep>& path,
                                                       size_t i) const {
  const auto& all_reduce = compression(tensor, CollectiveKind::kAllReduce);
  const bool half = gathers_back(path, i) || (i + 1 < path.size() && gathers_back(path, i + 1));
  return half && all_reduce ? all_reduce : compression(tensor, path[i].kind);
}

}  // namespace tessera
