#include "random_tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <set>
#include <string>

#include "row_models.h"
#include "tessera/plan/load.h"
#include "tessera/program/rows/row_caches.h"

namespace tessera {
namespace {

using namespace row_models;  // NOLINT(google-build-using-namespace)

struct RandomTables {
  std::string model, plan, what;
  VerifyConfig config;
};

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}
  int64_t up_to(int64_t most) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(most)) + 1;
  }
  bool one_in(int64_t n) { return up_to(n) == 1; }
  template <class T>
  T of(const std::vector<T>& all) {
    return all[static_cast<size_t>(up_to(static_cast<int64_t>(all.size())) - 1)];
  }

 private:
  std::mt19937_64 random_;
};

// Tables of one row make it the hot row of all samples. Bags have random lengths, empty ones
// included, and few rows, so ids repeat.
std::string random_model(Draw& draw, bool columns) {
  std::vector<int64_t> rows, bags;
  for (int64_t t = draw.up_to(4); t > 0; --t) {
    rows.push_back(draw.of<int64_t>({1, 2, 3, 7, 19, 60}));
    bags.push_back(draw.up_to(5));
  }
  const int64_t width =
      draw.of<int64_t>(columns ? std::vector<int64_t>{4, 6, 7} : std::vector<int64_t>{1, 2, 3, 6});
  return fmt::format("dlrm:dense=3,rows={},bags={},width={},bottom=4-{},top=4-1,mode={}",
                     fmt::join(rows, "-"), fmt::join(bags, "-"), width, width,
                     draw.of<std::string>({"sum", "mean", "position"}));
}

RandomTables random_tables(uint64_t seed) {
  Draw draw(seed);
  RandomTables out;
  const std::string by =
      draw.of<std::string>({"table", "row", "column", "table_row", "grid", "replica"});
  const int64_t nodes = by == "table_row" || by == "grid" ? 1 + draw.up_to(2) : draw.up_to(2);
  const int64_t dp = draw.up_to(nodes == 1 ? 4 : 2), ranks = nodes * dp;
  const int64_t micro_batches = draw.one_in(4) ? draw.up_to(3) : 1;
  out.model = random_model(draw, by == "column" || by == "grid");
  const std::string optimizer =
      draw.of<std::string>({"row_sgd", "adagrad", "rowwise_adagrad", "row_adam", "adamw"});
  out.config = config_of(optimizer, draw.one_in(2) ? 1 : 0, draw.up_to(3));
  // With look-ups ahead, micro-batches are a loop over the batch, which needs equal shards where
  // several axes cut the batch.
  const bool ahead = draw.one_in(2);
  out.config.batch = ahead && nodes > 1 && micro_batches > 1
                         ? ranks * micro_batches * draw.up_to(2)
                         : ranks * micro_batches + draw.up_to(6);
  out.config.seed = static_cast<int64_t>(seed % 1000);
  const auto model = build_model(out.model, out.config.batch, DType::kFloat64);
  EXPECT_TRUE(model) << out.model << (model ? "" : model.error().message);
  if (!model) return out;
  // Hot rows with look-ups ahead are tested in row_updates.cc and steps_ahead.cc. A step has at
  // most six fetches.
  const bool cached = optimizer != "adamw" && !(ahead && micro_batches > 2) && draw.one_in(2);
  const bool may_be_hot = !cached && !ahead;
  const std::string recipe =
      fmt::format("tables({},by={},nodes={},micro_batches={},hot={})", dp, by, nodes, micro_batches,
                  may_be_hot && draw.one_in(3) ? draw.up_to(9) : 0);
  const auto text = load_plan_text(recipe, model->graph, "random", DType::kFloat64);
  EXPECT_TRUE(text) << recipe << (text ? "" : text.error().message);
  if (!text) return out;
  out.plan = text->text;
  if (cached) {
    out.plan += fmt::format(
        "store = [{{ tensors = \"{{,optimizer.*.}}tables.*\", tier = \"{}\", cache = {{ slots = "
        "{}, "
        "policy = \"{}\", window = {}, prefetch = {} }} }}]\n",
        draw.of<std::string>({"host", "disk"}), draw.of<std::string>({"1", "3", "0.3", "0.9"}),
        draw.of(row_cache_policies()), draw.up_to(4), draw.one_in(2));
  }
  if (ahead) {
    out.plan = with_split(out.plan,
                          "{ ops = \"{tables,positions}.*\", dim = \"step\", over = \"ahead\" },");
  }
  if (draw.one_in(3)) {  // a pipeline
    const bool together = draw.one_in(2);
    const std::string mesh = "mesh = {", none = "mesh = {}";
    const size_t at = out.plan.find(mesh);
    out.plan.insert(at + mesh.size(),
                    out.plan.compare(at, none.size(), none) == 0 ? " pp = 2 " : " pp = 2,");
    out.plan += fmt::format(
        "schedule = \"gpipe\"\nstage = [{{ ops = \"{{bottom,tables,positions{}}}\", at = 0 }}, {{ "
        "ops "
        "= \"{{{}top,loss}}\", at = 1 }}]\n",
        together ? ",interaction" : "", together ? "" : "interaction,");
  }
  out.what = fmt::format("{} batch={} {} {} steps={}\n{}", out.model, out.config.batch, optimizer,
                         recipe, out.config.steps, out.plan);
  return out;
}

// An accelerator has no caches of rows and refuses programs with them (check_for_accelerator); such cases
// are left out where TESSERA_DEVICE names a device.
bool is_refused(const RandomTables& one, const std::string& why) {
  return std::getenv("TESSERA_DEVICE") != nullptr &&
         one.plan.find("cache = {") != std::string::npos &&
         why.find("expected a program without caches of rows") != std::string::npos;
}

}  // namespace

void expect_random_tables_equal(int64_t first, int64_t count, uint64_t seed) {
  for (int64_t n = first; n < first + count; ++n) {
    const RandomTables one = random_tables(seed * 1'000'003 + static_cast<uint64_t>(n));
    const auto model = build_model(one.model, one.config.batch, DType::kFloat64);
    ASSERT_TRUE(model) << "case " << n;
    const auto report = verify_model(*model, one.plan, one.config);
    if (!report && is_refused(one, report.error().message)) continue;
    ASSERT_TRUE(report) << "case " << n << ": " << one.what << report.error().message;
    ASSERT_TRUE(report->ok) << "case " << n << ": " << one.what << report->why;
    ASSERT_FALSE(report->lossy) << "case " << n << ": " << one.what;
    ASSERT_EQ(report->bytes_predicted, report->bytes_counted) << "case " << n << ": " << one.what;
  }
}

}  // namespace tessera
