#include "tessera/search/choices/halo_choices.h"

#include <algorithm>

#include "tessera/plan/recipes/maps.h"
#include "tessera/search/constants.h"
#include "tessera/search/question/question.h"

namespace tessera {
namespace {

constexpr const char* kRims = "rims";
constexpr const char* kLayers = "halo_layers";

bool is_fixed(const PlanQuestion& question, const char* key) {
  return question.fixed.contains(key);
}

// Returns the choice with UnitChoice::halo_layers set to `layers` in its last `count` units and
// unset in all others.
Choice with_last_units(const Choice& from, size_t units, size_t count, int64_t layers) {
  Choice out = from;
  std::vector<UnitChoice>& own = out.units.own();
  own.resize(units);
  for (UnitChoice& unit : own) unit.halo_layers.reset();
  for (size_t u = units - count; u < units; ++u) own[u].halo_layers = layers;
  return out;
}

Choice with_all(const Choice& from, const HaloChoice& halos) {
  Choice out = from;
  out.halos = halos;
  for (UnitChoice& unit : out.units.own()) unit.halo_layers.reset();
  if (std::all_of(out.units.begin(), out.units.end(),
                  [](const UnitChoice& unit) { return unit == UnitChoice{}; }))
    out.units = {};
  return out;
}

}  // namespace

HaloChoice fixed_halos(const PlanQuestion& question) {
  HaloChoice out;
  out.rims = fixed_number(question, kRims) == 1;
  out.layers = std::max<int64_t>(1, fixed_number(question, kLayers));
  return out;
}

bool may_choose_halos(const Graph& forward, const PlanQuestion& question) {
  if (!question.uses(Mechanism::kHalos)) return false;
  if (is_fixed(question, kRims) && is_fixed(question, kLayers)) return false;
  return std::any_of(forward.ops().begin(), forward.ops().end(), [](const Op& op) {
    return op.phase == Phase::kForward &&
           std::any_of(op.annotation.dims.begin(), op.annotation.dims.end(), recipes::has_halo);
  });
}

std::vector<Choice> halo_edits(const Choice& from, const Graph& forward, size_t units,
                               const PlanQuestion& question) {
  if (!may_choose_halos(forward, question) || !has_halos(forward, from.axes)) return {};
  std::vector<bool> rims = {from.halos.rims};
  if (!is_fixed(question, kRims)) rims.push_back(!from.halos.rims);
  std::vector<int64_t> layers = {from.halos.layers};
  if (!is_fixed(question, kLayers)) {
    if (from.halos.layers > 1) layers.push_back(from.halos.layers - 1);
    if (from.halos.layers < static_cast<int64_t>(kFew)) layers.push_back(from.halos.layers + 1);
  }
  std::vector<Choice> out;
  for (const bool with_rims : rims) {
    for (const int64_t count : layers) out.push_back(with_all(from, {with_rims, count}));
    if (is_fixed(question, kLayers)) continue;
    for (size_t last = 1; last < units; last *= 2) {
      Choice edit = with_last_units(from, units, last, from.halos.layers + 1);
      edit.halos.rims = with_rims;
      out.push_back(std::move(edit));
    }
  }
  std::erase(out, from);
  return out;
}

}  // namespace tessera
