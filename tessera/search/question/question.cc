#include "tessera/search/question/question.h"

#include <algorithm>

#include "tessera/base/text.h"

namespace tessera {

const std::vector<std::pair<std::string, std::string>>& fix_keys() {
  static const std::vector<std::pair<std::string, std::string>> keys = {
      {"devices", "how many devices the plan uses"},
      {"pp", "pipeline stages"},
      {"dp", "replicas"},
      {"tp", "devices that share each layer"},
      {"cp", "devices that share each sequence (planners auto and recipes)"},
      {"ep", "groups of devices that share the experts (planners auto and recipes)"},
      {"micro_batches", "pieces of the batch"},
      {"chunks", "stages of each place of the pipeline"},
      {"zero", "what rests in shards over the replicas: 0 nothing, 1, 2, 3"},
      {"recompute", "none, selective, full, or modules"},
      {"schedule", "of the pipeline"},
      {"offload", "what rests on the host: none, optimizer, states, all (planner auto)"},
      {"rims", "1: interiors are computed while halos arrive, 0: not (planner auto)"},
      {"halo_layers", "layers with halos for which one halo is exchanged (planner auto)"},
      {"slices", "of the sequence in a pipeline; 1: it stays whole (planner terapipe)"},
      {"prefetch", "blocks ahead of which parameters in shards are gathered (planner auto)"},
      {"bucket_bytes", "up to which small collectives are joined (planner auto)"},
      {"compression",
       "how many times fewer bytes the slowest link may carry (planner opfence with --allow "
       "lossy)"},
      {"outer_every",
       "steps between two exchanges of parameters between sites (planner auto with --allow lossy)"},
      {"replicas_apart", "0: neighbouring devices hold one stage, 1: neighbouring stages"}};
  return keys;
}

int64_t fixed_number(const PlanQuestion& question, const std::string& key) {
  const auto it = question.fixed.find(key);
  return it == question.fixed.end() ? 0 : parse_int(it->second).value_or(0);
}

int64_t fixed_or(const PlanQuestion& question, const std::string& key, int64_t otherwise) {
  const int64_t fixed = fixed_number(question, key);
  return fixed > 0 ? fixed : otherwise;
}

bool allows(const PlanQuestion& question, const std::string& key, int64_t value) {
  const auto it = question.fixed.find(key);
  return it == question.fixed.end() || parse_int(it->second) == value;
}

bool allows(const PlanQuestion& question, const std::string& key, const std::string& value) {
  const auto it = question.fixed.find(key);
  return it == question.fixed.end() || it->second == value;
}

std::vector<std::string> texts_of(const PlanQuestion& question, const std::string& key,
                                  const std::vector<std::string>& own) {
  const auto it = question.fixed.find(key);
  return it == question.fixed.end() ? own : std::vector<std::string>{it->second};
}

std::vector<int64_t> numbers_of(const PlanQuestion& question, const std::string& key,
                                const std::vector<int64_t>& own) {
  const auto it = question.fixed.find(key);
  return it == question.fixed.end() ? own : std::vector<int64_t>{parse_int(it->second).value_or(0)};
}

double memory_limit(const PlanQuestion& question) {
  double limit = 0;
  for (const ClusterPart& part : question.cluster->parts) {
    const auto memory = static_cast<double>(part.type.device.memory_bytes);
    if (memory > 0) limit = limit > 0 ? std::min(limit, memory) : memory;
  }
  const auto asked = static_cast<double>(question.memory_limit_bytes);
  if (asked > 0) limit = limit > 0 ? std::min(limit, asked) : asked;
  return limit;
}

std::vector<int64_t> divisors_of(int64_t n) {
  std::vector<int64_t> out;
  for (int64_t i = 1; i <= n; ++i) {
    if (n % i == 0) out.push_back(i);
  }
  return out;
}

}  // namespace tessera
