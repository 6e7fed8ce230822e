#include "unequal_meshes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <vector>

#include "tessera/compile/compile.h"
#include "tessera/search/fold.h"
#include "tessera/search/planner.h"

namespace tessera::planner_test {
namespace {

Cluster cluster_of(const NodesQuestion& asked) {
  std::string text = "name = \"nodes\"\n";
  for (const int64_t devices : asked.nodes) {
    text +=
        fmt::format("[[part]]\nlike = \"{}\"\nnodes = 1\ndevices = {}\n", asked.machine, devices);
  }
  return parse_cluster(text, "nodes").value();
}

// Enumerates all plans whose stages have meshes of which at least two differ.
class UnequalMeshes {
 public:
  explicit UnequalMeshes(const PlanQuestion& question) : question_(question) {
    model_ =
        compiler_.model(question.model, question.batch, storage_dtype(question.compute)).value();
    fold_ = fold_layers(model_->graph).value();
  }

  void all() {
    const auto most = static_cast<size_t>(
        std::min<int64_t>(question_.cluster->devices() - 1, std::ssize(fold_.units)));
    for (size_t stages = 2; stages <= most; ++stages) {
      for (int64_t m = 1; m <= question_.batch; ++m) {
        if (question_.batch % m != 0) continue;
        choice_ = {};
        choice_.compute = question_.compute;
        choice_.micro_batches = m;
        choice_.stages = static_cast<int64_t>(stages);
        meshes_.clear();
        place_meshes(stages, 0);
      }
    }
  }

  size_t plans() const { return plans_; }
  double best_s() const { return best_s_; }
  const std::string& best() const { return best_; }

 private:
  struct Mesh {
    int64_t replicas = 1, inside = 1;
    friend bool operator==(const Mesh&, const Mesh&) = default;
  };

  void place_meshes(size_t stages, int64_t used) {
    if (meshes_.size() == stages) {
      const bool differ = std::any_of(meshes_.begin(), meshes_.end(),
                                      [&](const Mesh& mesh) { return mesh != meshes_.front(); });
      if (differ) place_borders({0});
      return;
    }
    const int64_t all = question_.cluster->devices();
    for (int64_t inside = 1; used + inside <= all; ++inside) {
      for (int64_t replicas = 1; used + replicas * inside <= all; ++replicas) {
        if (question_.batch / choice_.micro_batches % replicas != 0) continue;
        meshes_.push_back({replicas, inside});
        place_meshes(stages, used + replicas * inside);
        meshes_.pop_back();
      }
    }
  }

  void place_borders(std::vector<size_t> cuts) {
    if (cuts.size() == meshes_.size()) {
      choice_.cuts = cuts;
      cut_dims();
      return;
    }
    for (size_t border = cuts.back() + 1; border < fold_.units.size(); ++border) {
      cuts.push_back(border);
      place_borders(cuts);
      cuts.pop_back();
    }
  }

  void cut_dims() {
    const bool has_inside = std::any_of(meshes_.begin(), meshes_.end(),
                                        [](const Mesh& mesh) { return mesh.inside > 1; });
    std::vector<std::vector<std::string>> lists = {{}};
    if (has_inside) {
      lists.clear();
      for (const std::string& a : dims_to_cut(model_->graph, .02)) {
        lists.push_back({a});
        for (const std::string& b : dims_to_cut(model_->graph, .02)) {
          if (a != b) lists.push_back({a, b});
        }
      }
    }
    std::set<std::string> known;
    for (const auto& list : lists) {
      choice_.axes = {{"dp", 1, {"batch"}}};
      if (has_inside) choice_.axes.push_back({"tp", 2, list});
      if (!known.insert(cuts_of(model_->graph, choice_.axes)).second) continue;
      choice_.stage_axes.clear();
      bool shards = false;
      for (const Mesh& mesh : meshes_) {
        choice_.stage_axes.push_back(choice_.axes);
        choice_.stage_axes.back().front().size = mesh.replicas;
        if (has_inside) choice_.stage_axes.back().back().size = mesh.inside;
        for (const ChoiceAxis& axis : choice_.stage_axes.back())
          shards = shards || holds_copies(axis, model_->graph);
      }
      choice_.axes = choice_.stage_axes.front();
      for (const char* schedule : {"1f1b", "zb_h1"}) {
        choice_.schedule = schedule;
        for (choice_.sharded = 0; choice_.sharded <= (shards ? 3 : 0); ++choice_.sharded)
          simulate_one();
      }
    }
  }

  void simulate_one() {
    const auto text = write_plan(choice_, model_->graph, fold_.units, "brute force");
    if (!text) return;
    const auto plan = parse_plan(*text);
    if (!plan) return;
    const auto lowering = compiler_.lower(forward_of(model_), *plan);
    if (!lowering) return;
    SimulateOptions options = question_.options;
    options.memory = options.critical_path = false;
    const auto simulation = simulate(**lowering, *question_.cluster, options);
    if (!simulation) return;
    ++plans_;
    if (best_s_ > 0 && simulation->step_time_s >= best_s_) return;
    best_s_ = simulation->step_time_s;
    best_ = choice_.str() + fmt::format(" cuts={}", fmt::join(choice_.cuts, ","));
  }

  const PlanQuestion& question_;
  Compiler compiler_;
  std::shared_ptr<const Model> model_;
  Fold fold_;
  Choice choice_;
  std::vector<Mesh> meshes_;
  size_t plans_ = 0;
  double best_s_ = 0;
  std::string best_;
};

}  // namespace

void expect_as_fast_as_all(const NodesQuestion& asked, double times) {
  const Cluster cluster = cluster_of(asked);
  PlanQuestion question;
  question.model = asked.model;
  question.batch = asked.batch;
  question.cluster = &cluster;
  question.options.style = parse_style("tessera").value();
  question.compute = DType::kBFloat16;
  question.fixed = {{"meshes", "unequal"}};
  UnequalMeshes all(question);
  all.all();
  const auto found_plan = find_plan(question, "auto");
  ASSERT_TRUE(found_plan.has_value()) << asked.model << ": " << found_plan.error().message;
  const PlanAnswer& answer = *found_plan;
  ASSERT_TRUE(answer.best.has_value()) << asked.model;
  const PlanCandidate& found = answer.simulated[*answer.best];
  const double ratio = *found.step_s / all.best_s();
  std::printf("%.4f times: %s, batch %ld: %s against %s of %zu plans, %zu programs\n", ratio,
              asked.model.c_str(), asked.batch,
              (found.name() + fmt::format(" cuts={}", fmt::join(found.choice.cuts, ","))).c_str(),
              all.best().c_str(), all.plans(), answer.simulated.size());
  EXPECT_LE(ratio, times) << asked.model;
  // The enumeration has every plan of this kind.
  if (!found.choice.stage_axes.empty()) {
    EXPECT_GE(ratio, 1 - 1e-9) << asked.model << ": " << found.name();
  }
}

}  // namespace tessera::planner_test
