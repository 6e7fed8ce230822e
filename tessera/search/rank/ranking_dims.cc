// Chooses the dims that the axes inside a stage may cut.
#include <algorithm>
#include <set>
#include <utility>

#include "tessera/base/infinity.h"
#include "tessera/search/choices/grid.h"
#include "tessera/search/constants.h"
#include "tessera/search/question/question.h"
#include "tessera/search/rank/ranking.h"

namespace tessera {

bool Space::has_rings() const {
  return std::ranges::any_of(lists, [](const DimList& list) { return tessera::has_rings(list); }) ||
         std::ranges::any_of(pairs, [](const DimPair& pair) {
           return tessera::has_rings(pair.outer) || tessera::has_rings(pair.inner);
         });
}

// Returns twice the devices of a node, at least kNodeDevices. Larger axes would cross the network in
// every layer; on nodes with one or two devices nearly all axes do, so kNodeDevices applies.
int64_t Ranking::most_inner() const {
  return std::max(
      {2 * question_.cluster->type_of(0).devices, kNodeDevices, fixed_number(question_, "tp")});
}

std::vector<DimList> Ranking::lists_to_add() const {
  std::vector<DimList> out;
  std::vector<std::string> dims = dims_to_cut(fold_.graph, 0);
  if (question_.uses(Mechanism::kBaseline)) out = megatron_grid().tensor;
  for (DimList& list : out)
    std::erase_if(list, [&](const std::string& dim) { return !has(dims, dim); });
  if (!is_small_) return out;
  std::erase_if(dims, [](const std::string& dim) { return !parse_entry(dim).scope.empty(); });
  for (const std::string& a : dims) {
    out.push_back({a});
    for (const std::string& b : dims) {
      if (a != b) out.push_back({a, b});
    }
  }
  return out;
}

bool Ranking::all_fit_and_none_is_longer(int64_t least) {
  int64_t most = least;
  for (const int64_t sequences : divisors_of(question_.batch)) {
    if (sequences % least == 0 && sequences <= kTriedSequences * least) most = sequences;
  }
  if (most == least) return false;
  const auto one = pricer_.price({{}, least, "none"}), many = pricer_.price({{}, most, "none"});
  if (!one || !many) return false;
  return passes_s(**many, counts_) <= (1 + kLittle) * passes_s(**one, counts_) &&
         (limit_ <= 0 ||
          static_cast<double>(kFew) * (held_bytes(**many, counts_) + (*many)->transient_bytes) <
              limit_);
}

// Returns whether the batch has so few sequences that without rings most devices could only be used
// in long pipelines, which wait most of the time.
bool Ranking::needs_rings() const {
  return question_.batch * most_inner() < kSequencesOfStage * question_.cluster->devices();
}

std::vector<std::string> Ranking::dims_offered() const {
  std::vector<std::string> out = dims_to_cut(fold_.graph);
  std::erase_if(out, [&](const std::string& dim) {
    const ListEntry entry = parse_entry(dim);
    return (!entry.travels.empty() && !question_.uses(Mechanism::kRings)) ||
           (!entry.scope.empty() && !question_.uses(Mechanism::kClasses));
  });
  return out;
}

void Ranking::find_dims(Space& space) {
  const int64_t node = question_.cluster->type_of(0).devices;
  int64_t smallest = 0;     // size of the smallest axis inside a stage
  bool over_nodes = false;  // whether some shape has axes with the devices of two nodes
  bool two_by_two = false;
  for (const Shape& shape : shapes(false)) {
    if (shape.inner > 1 && (smallest == 0 || shape.inner < smallest)) smallest = shape.inner;
    over_nodes = over_nodes || (node > 1 && shape.inner == 2 * node);
    two_by_two = two_by_two || shape.inner == 4;
  }
  if (smallest == 0) return;
  DimListSearch search(fold_, pricer_, dims_offered(), question_.progress);
  // Finds the smallest micro-batch that the model can be built with, and prices lists with it,
  // because cutting the batch of a micro-batch of this size gains nothing.
  int64_t least = 1;
  while (2 * least <= question_.batch && !pricer_.price({{}, least, "none"})) least *= 2;
  cuts_save_nothing_ =
      !is_small_ && allows(question_, "tp", 1) && all_fit_and_none_is_longer(least);
  space.lists = search.find_lists(smallest, least, cuts_save_nothing_);
  std::set<std::string> known = {cuts_of(fold_.graph, inner_axes(smallest, {}))};
  for (const DimList& list : space.lists)
    known.insert(cuts_of(fold_.graph, inner_axes(smallest, list)));
  for (DimList& list : lists_to_add()) {
    if (known.insert(cuts_of(fold_.graph, inner_axes(smallest, list))).second)
      space.lists.push_back(std::move(list));
  }
  const auto add = [&](std::vector<DimPair> pairs) {
    for (DimPair& pair : pairs) {
      if (std::find(space.pairs.begin(), space.pairs.end(), pair) == space.pairs.end())
        space.pairs.push_back(std::move(pair));
    }
  };
  const bool has_pairs = question_.uses(Mechanism::kPairs);
  if (two_by_two && has_pairs) add(search.find_pairs(space.lists, 2, 2, least));
  if (over_nodes && node > 2 && has_pairs) add(search.find_pairs(space.lists, 2, node, least));
  const int64_t inner_ring = two_by_two ? 2 : over_nodes && node > 2 ? node : 0;
  if (inner_ring > 0 && question_.uses(Mechanism::kRings)) {
    const double most_loss = needs_rings() ? kInfinity : (1 + kLittle);
    add(search.ring_pairs(space.lists, 2, inner_ring, least, most_loss));
  }
  if (!search.last_refusal().empty()) refusal_ = search.last_refusal();
}

}  // namespace tessera
