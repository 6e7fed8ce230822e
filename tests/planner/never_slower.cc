#include "never_slower.h"

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <utility>

#include "brute_force.h"
#include "tessera/cluster/cluster.h"
#include "tessera/compile/optimizer_text.h"
#include "tessera/planners/all_planners.h"

namespace tessera::planner_test {
namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();

struct Answered {
  double step_s = kNone;  // none: nothing fits, or no choice can be made
  double bytes = 0;
  std::string choice = "nothing";
};

Answered answer_to(const PlanQuestion& question, const std::string& planner = "auto") {
  const auto found = find_plan(question, planner, all_planners());
  if (!found || !found->best) return {};
  const PlanCandidate& best = found->simulated[*found->best];
  return {*best.step_s, best.need_bytes, best.name()};
}

// Compares the answers to a question and to one with more room.
void compare(const Instance& instance, const std::string& what, const Answered& less,
             const Answered& more, int64_t& count, std::vector<std::string>& slower) {
  ++count;
  if (more.step_s <= kEqual * less.step_s) return;
  slower.push_back(fmt::format("{:.3f} times, {}: {} is {}, and {} before; {}",
                               more.step_s / less.step_s, what, more.step_s, more.choice,
                               less.choice, instance.str()));
}

}  // namespace

NeverSlower compare_rooms(uint64_t first_seed, uint64_t questions) {
  NeverSlower out;
  const std::vector<std::pair<std::string, std::string>> fixed = {
      {"pp", "1"},           {"tp", "1"},   {"dp", "1"},         {"micro_batches", "1"},
      {"recompute", "full"}, {"zero", "0"}, {"schedule", "1f1b"}};
  for (uint64_t seed = first_seed; seed < first_seed + questions; ++seed) {
    const auto instance = random_question(seed, seed % 2 == 0 ? 2 : 4, Size::kTiny);
    const PlanQuestion& question = instance->question;
    const Answered plain = answer_to(question);
    // A limit below the answer's own need often leaves no plan, and a search that finds none is slow.
    Answered before;
    for (const double share : {1.0, 1.5}) {
      PlanQuestion limited = question;
      limited.memory_limit_bytes = static_cast<int64_t>(share * plain.bytes) + 1;
      const Answered now = answer_to(limited);
      if (share > 1) {
        compare(*instance, fmt::format("memory {}", share), before, now, out.memory,
                out.slower_with_memory);
      }
      before = now;
    }
    compare(*instance, "memory free", before, plain, out.memory, out.slower_with_memory);
    Cluster faster = instance->cluster;
    if (apply_what_if(faster, "link:inner*2,link:bridge*2,link:nic*2")) {
      PlanQuestion on_faster = question;
      on_faster.cluster = &faster;
      compare(*instance, "links twice as fast", plain, answer_to(on_faster), out.links,
              out.slower_with_links);
    }
    const auto& [key, value] = fixed[seed / 2 % fixed.size()];
    if (!question.fixed.contains(key)) {
      PlanQuestion bound = question;
      bound.fixed[key] = value;
      compare(*instance, fmt::format("{} free, and {} before", key, value), answer_to(bound), plain,
              out.freedom, out.slower_with_freedom);
    }
  }
  return out;
}

double against_rival(const Rivalry& rivalry) {
  const Cluster cluster = load_cluster(rivalry.machine).value();
  PlanQuestion question;
  question.model = rivalry.model;
  question.batch = rivalry.batch;
  question.compute = rivalry.compute;
  question.cluster = &cluster;
  question.options.style = parse_style("tessera").value();
  question.optimizer = parse_optimizer_text(rivalry.optimizer).value();
  question.memory_limit_bytes = rivalry.memory_limit_bytes;
  question.fixed = rivalry.fixed;
  const double own_s = answer_to(question).step_s;
  question.fixed.insert(rivalry.rival_fixes.begin(), rivalry.rival_fixes.end());
  return own_s / answer_to(question, rivalry.rival_fixes.empty() ? "recipes" : "auto").step_s;
}

}  // namespace tessera::planner_test
