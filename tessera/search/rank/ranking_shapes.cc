// The shapes of a space: numbers into which the devices are divided, and the axes inside a stage.
#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "tessera/search/constants.h"
#include "tessera/search/edits/transfer_choices.h"
#include "tessera/search/question/question.h"
#include "tessera/search/rank/ranking.h"

namespace tessera {
namespace {

// Returns the product of the sizes of all axes with rings; 1 if there are none.
int64_t over_rings(const std::vector<ChoiceAxis>& axes) {
  int64_t out = 1;
  for (const ChoiceAxis& axis : axes) out *= has_rings(axis.dims) ? axis.size : 1;
  return out;
}

}  // namespace

std::map<int64_t, int64_t> device_counts(const PlanQuestion& question) {
  if (const int64_t fixed = fixed_number(question, "devices"); fixed > 0) return {{fixed, 1}};
  const int64_t all = question.cluster->devices();
  // Tries all devices and, in addition, any smaller number of devices on a small cluster, powers of
  // two on a large one.
  std::map<int64_t, int64_t> out = {{all, 1}};
  for (int64_t n = 1; n < all; n = all <= kNodeDevices ? n + 1 : 2 * n) out.emplace(n, 1);
  int64_t whole_parts = 0;
  for (const ClusterPart& part : question.cluster->parts)
    out.emplace(whole_parts += part.nodes * part.type.devices, 1);
  // Where fewer devices are better in themselves, also tries each number of nodes of a small cluster,
  // and multiples of an eighth of a large one.
  const NodeType& node = question.cluster->type_of(0);
  const int64_t some = node.devices * std::max<int64_t>(1, all / node.devices / kNodeDevices);
  for (int64_t n = some; question.objective.counts_devices() && n < all; n += some)
    out.emplace(n, 1);
  // Also leaves some devices unused where that allows a larger number of replicas that divides
  // the batch.
  const int64_t most_replicas = std::gcd(all, question.batch);
  for (const int64_t replicas : divisors_of(question.batch)) {
    const int64_t used = replicas > all ? 0 : all / replicas * replicas;
    if (replicas > most_replicas && used > all / 2) out.emplace(used, replicas);
  }
  return out;
}

std::vector<Ranking::Shape> Ranking::shapes(bool rings) const {
  const int64_t all = question_.cluster->devices();
  // Rings that are needed may use all devices, because a rank of a ring moves no more if the ring
  // is larger.
  const int64_t most = rings && needs_rings() ? all : most_inner();
  std::vector<Shape> out;
  // Shapes with many devices come first, so that choices that are far slower need not be ranked
  // in full.
  for (auto count = device_counts_.rbegin(); count != device_counts_.rend(); ++count) {
    const auto [used, least_replicas] = *count;
    if (used > all) continue;
    for (const int64_t stages : divisors_of(used)) {
      if (stages > static_cast<int64_t>(fold_.units.size()) || !allows(question_, "pp", stages))
        continue;
      for (const int64_t inner : divisors_of(used / stages)) {
        const int64_t replicas = used / stages / inner;
        if (inner > most || replicas > question_.batch) continue;
        if (!allows(question_, "tp", inner) || !allows(question_, "dp", replicas)) continue;
        if (replicas < least_replicas) continue;
        out.push_back({stages, replicas, inner});
      }
    }
  }
  return out;
}

std::vector<std::vector<ChoiceAxis>> Ranking::axes_inside(int64_t inner, const Space& space) const {
  std::vector<std::vector<ChoiceAxis>> out;
  if (inner == 1) {
    if (!space.takes || space.takes({})) out.emplace_back();
    return out;
  }
  for (const DimList& list : space.lists) out.push_back(inner_axes(inner, list));
  const int64_t node = question_.cluster->type_of(0).devices;
  for (const DimPair& pair : space.pairs) {
    for (const int64_t neighbours : divisors_of(inner)) {
      if (neighbours > 1 && neighbours < inner && neighbours <= node)
        out.push_back(inner_axes(inner / neighbours, neighbours, pair));
    }
  }
  std::erase_if(out, [&](const std::vector<ChoiceAxis>& axes) {
    const int64_t ring = over_rings(axes);
    return ring > (needs_rings() ? kNodeDevices * kNodeDevices : kNodeDevices) ||
           (ring == 1 && inner > most_inner()) || (space.takes && !space.takes(axes));
  });
  return out;
}

Choice Ranking::choice_of(const Shape& shape, const Inside& inside,
                          const std::string& recompute) const {
  Choice choice;
  choice.axes = {{"dp", shape.replicas, {"batch"}}};
  for (const ChoiceAxis& axis : inside.axes) choice.axes.push_back(axis);
  choice.stages = shape.stages;
  choice.micro_batches = question_.batch / (inside.sequences * shape.replicas);
  choice.recompute = recompute;
  choice.compute = question_.compute;
  if (has_halos(fold_.graph, choice.axes)) choice.halos = halos_;
  choice.transfers = fixed_transfers(question_);
  return choice;
}

void Ranking::rank_shapes(Space& space, const std::vector<std::string>& levels,
                          std::vector<PlanCandidate>& out, bool improves_early) {
  for (const std::string& level : levels) {
    const bool is_least = level == levels.front();
    if (question_.progress) question_.progress("ranking choices, recompute " + level);
    for (const Shape& shape : shapes(space.has_rings())) {
      if (question_.stop && question_.stop() && !out.empty()) return;
      rank_shape(shape, space, level, is_least, out);
    }
    if (improves_early && is_least) improve_lists(space, {level}, out);
  }
}

}  // namespace tessera
