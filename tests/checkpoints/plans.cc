// The property of any two plans; see checkpoints.h.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>

#include "checkpoints.h"
#include "matrix_cases.h"
#include "random_case.h"
#include "random_graph.h"
#include "random_plan.h"
#include "runs.h"
#include "support/seed.h"
#include "tessera/compile/compile.h"
#include "tessera/state/checkpoint.h"
#include "tessera/test/source_dir.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
constexpr int64_t kSteps = 4, kStop = 2;

struct Triple {
  std::string model, a, b;
  int64_t batch = 0;
};

// Returns the bytes of state that the plan's ranks hold; 0 if its messages change values.
Result<int64_t> held_bytes(const RunConfig& config) {
  TESSERA_TRY(const Compiled compiled,
              compile({config.model, config.plan, config.batch, config.precision, "",
                       specification(config.optimizer)}));
  int64_t bytes = 0;
  for (int rank = 0; rank < compiled.ranks(); ++rank) {
    TESSERA_TRY(const Program program, compiled.lowering->lower(rank));
    if (is_lossy(program)) return 0;
    for (const Home& home : program.homes) {
      if (compiled.graph().tensor(home.tensor).role != Role::kBuffer)
        bytes += program.buffer(home.buffer).bytes();
    }
  }
  return bytes;
}

// Returns the largest difference of any element, as a share of the largest element of all: the
// roundings of a tensor that is nearly zero everywhere are no error.
double difference(const TensorSource& a, const TensorSource& b) {
  double worst = 0, largest = 0;
  for (const SourceArray& array : a.arrays()) {
    const SourceArray* other = b.find(array.name);
    if (array.name.starts_with("residual")) continue;
    EXPECT_NE(other, nullptr) << array.name;
    if (other == nullptr) continue;
    const Box whole = Box::whole(array.shape);
    std::vector<double> x(static_cast<size_t>(whole.volume())), y = x;
    EXPECT_TRUE(a.read(array, whole, DType::kFloat64, reinterpret_cast<std::byte*>(x.data())));
    EXPECT_TRUE(b.read(*other, whole, DType::kFloat64, reinterpret_cast<std::byte*>(y.data())));
    for (size_t i = 0; i < x.size(); ++i) {
      largest = std::max(largest, std::abs(x[i]));
      worst = std::max(worst, std::abs(x[i] - y[i]));
    }
  }
  return largest > 0 ? worst / largest : worst;
}

class Check {
 public:
  explicit Check(const Triple& triple) {
    config_.model = triple.model;
    config_.data = {"random"};
    config_.batch = triple.batch;
    config_.precision = "float64";
    config_.steps = kSteps;
    // Adam divides by the root of a gradient, which may be rounding noise around zero.
    config_.optimizer.eps = 1e-3;
    config_.checkpoint.every = kStop;
    config_.plan = triple.a;
    config_.checkpoint.dir = folder_.path("a");
    config_.checkpoint.asynchronous = triple.batch % 2;
    b_ = triple.b;
  }

  // Returns false if one of the plans is refused: then there is nothing to compare.
  bool run() {
    RunConfig other = config_;
    other.plan = b_;
    const auto held_a = held_bytes(config_), held_b = held_bytes(other);
    if (!held_a || !held_b) return false;
    const TrainedRun whole = train(config_);
    EXPECT_TRUE(whole.end) << whole.end.error().message;
    if (!whole.end) return true;
    go_on(whole, config_.plan, *held_a, true);
    if (*held_a > 0 && *held_b > 0) go_on(whole, b_, *held_b, false);
    return true;
  }

 private:
  void go_on(const TrainedRun& whole, const std::string& plan, int64_t held, bool same_plan) {
    SCOPED_TRACE(same_plan ? "under the same plan" : "under the other plan");
    RunConfig config = config_;
    config.plan = plan;
    config.checkpoint.dir = folder_.path(same_plan ? "same" : "other");
    config.resume = true;
    fs::create_directories(config.checkpoint.dir);
    fs::copy(checkpoint_path(folder_.path("a"), kStop),
             checkpoint_path(config.checkpoint.dir, kStop));
    const TrainedRun rest = train(config);
    ASSERT_TRUE(rest.end) << rest.end.error().message;
    ASSERT_EQ(rest.losses.size(), static_cast<size_t>(kSteps - kStop));
    for (const auto& [step, loss] : rest.losses) {
      if (same_plan) {
        EXPECT_EQ(loss, whole.losses.at(step)) << "step " << step;
      } else {
        const double expected = whole.losses.at(step);
        EXPECT_NEAR(loss, expected, 1e-9 * std::abs(expected)) << "step " << step;
      }
    }
    if (held > 0) {
      EXPECT_EQ(rest.end->checkpoints.bytes_read, held);
    }
    const auto before = open_source(checkpoint_path(folder_.path("a"), kSteps)),
               after = open_source(checkpoint_path(config.checkpoint.dir, kSteps));
    ASSERT_TRUE(before) << before.error().message;
    ASSERT_TRUE(after) << after.error().message;
    EXPECT_LE(difference(**before, **after), same_plan ? 0 : 1e-9);
  }

  RunConfig config_;
  std::string b_;
  TemporaryFolder folder_;
};

class Triples {
 public:
  Triples() : random_(test_seed(/*fixed=*/20'261'123)) {
    auto cases = load_plans(TESSERA_SOURCE_DIR);
    EXPECT_TRUE(cases) << cases.error().message;
    for (MatrixCase& one : *cases) {
      if (one.ranks > kMostRanks || one.spec.find("batch") != std::string::npos) continue;
      if (fs::path(one.plan).extension() == ".toml")
        one.plan = (fs::path(TESSERA_SOURCE_DIR) / one.plan).string();
      by_model_[{one.spec, one.batch}].push_back(one.plan);
    }
  }

  Triple of_matrix() {
    auto at = by_model_.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(below(by_model_.size())));
    const auto& [key, plans] = *at;
    return {key.first, plans[below(plans.size())], plans[below(plans.size())], key.second};
  }

  Triple of_random_graph(const TemporaryFolder& folder) {
    std::vector<uint32_t> stream(300), other(300);
    for (uint32_t& number : stream) number = static_cast<uint32_t>(below(27'720));
    for (uint32_t& number : other) number = static_cast<uint32_t>(below(27'720));
    Choices choices(stream), again(other);
    Features features;
    const Graph graph = random_graph(choices);
    Triple triple;
    triple.model = folder.path("model.graph");
    std::ofstream(triple.model) << to_text(graph);
    triple.a = "# plan A\n" + random_plan(choices, graph, features);
    triple.b = "# plan B\n" + random_plan(again, graph, features);
    return triple;
  }

 private:
  static constexpr int64_t kMostRanks = 8;
  size_t below(size_t n) { return static_cast<size_t>(random_() % n); }
  std::mt19937_64 random_;
  std::map<std::pair<std::string, int64_t>, std::vector<std::string>> by_model_;
};

}  // namespace

void expect_runs_go_on_under_any_plan(int cases) {
  SCOPED_TRACE(seed_text());
  Triples triples;
  int compared = 0, of_matrix = 0;
  for (int i = 0; compared < cases && i < 3 * cases; ++i) {
    const TemporaryFolder folder;
    const Triple triple = i % 2 == 0 ? triples.of_matrix() : triples.of_random_graph(folder);
    SCOPED_TRACE(fmt::format("case {}: {} batch {}\n---- A\n{}\n---- B\n{}", i, triple.model,
                             triple.batch, triple.a, triple.b));
    if (Check(triple).run()) {
      ++compared;
      of_matrix += i % 2 == 0 ? 1 : 0;
    }
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_EQ(compared, cases);
  EXPECT_GT(of_matrix, cases / 4);
  EXPECT_LT(of_matrix, cases - cases / 4);
}

}  // namespace tessera
