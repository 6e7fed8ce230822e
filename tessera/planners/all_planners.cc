#include "tessera/planners/all_planners.h"

#include <algorithm>

#include "tessera/planners/alpa.h"
#include "tessera/planners/dtfm.h"
#include "tessera/planners/galvatron.h"
#include "tessera/planners/opfence.h"
#include "tessera/planners/rannc.h"
#include "tessera/planners/sites.h"
#include "tessera/planners/terapipe.h"

namespace tessera {
namespace {

std::vector<Planner> published_planners() {
  return {
      {"alpa", "Alpa's: sub-meshes, dims of each unit inside a stage, stages by a dynamic program",
       alpa_plan},
      {"rannc", "RaNNC's: blocks of any graph, stages with replicas of their own, copies of these",
       rannc_plan},
      {"galvatron",
       "stages of equal layers, and for each layer replicas, tensor parallelism, shards and "
       "recomputation by a program over layers and memory",
       find_by_galvatron},
      {"terapipe",
       "pipelines of slices of a causal sequence, with tensor parallelism, replicas and "
       "micro-batches; slice lengths by a program on measured times",
       find_by_terapipe,
       {"slices", "schedule"}},
      {"opfence",
       "FusionLLM's: a chain of stages of one device each over slow and unequal links, with fences "
       "where few bytes pass; with --allow lossy messages are compressed most where links are slow",
       find_by_opfence,
       {"compression"}},
      {"dtfm",
       "DT-FM's: equal stages of replicas over slow links, by a genetic search over groups of "
       "devices",
       find_by_dtfm}};
}

}  // namespace

const std::vector<Planner>& all_planners() {
  static const std::vector<Planner> planners = [] {
    std::vector<Planner> all = search_planners();
    const auto named = [&](const std::string& name) {
      return std::find_if(all.begin(), all.end(),
                          [&](const Planner& one) { return one.name == name; });
    };
    const auto automatic = named("auto");
    automatic->find = [find = automatic->find](const PlanQuestion& question) {
      return find_over_sites(question, find);
    };
    const std::vector<Planner> published = published_planners();
    all.insert(named("recipes"), published.begin(), published.end());
    return all;
  }();
  return planners;
}

}  // namespace tessera
