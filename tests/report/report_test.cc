// Compares the data of a page with the programs and the simulation behind it. The page itself is
// opened in a browser by check_page.mjs (CMakeLists.txt).
#include "tessera/report/report.h"
#include "tessera/compile/compile.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

namespace tessera::report_test {
namespace {

const std::string kModel = "gpt:layers=4,hidden=32,heads=4,seq=16,vocab=48";

Compiled planned(const std::string& plan) {
  auto result = compile({kModel, plan, 0});
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

TEST(CommunicationMatrix, RowsAreWhatARankSends) {
  for (const std::string plan :
       {"data_parallel(dp=3)", "tensor_parallel(tp=4)", "zero(stage=3, dp=4, micro_batches=2)",
        "megatron(tp=2, pp=2, dp=2, zero=1, micro_batches=4)", "summa(q=2)", "ring_attention(cp=4)",
        "ulysses(sp=4)"}) {
    const Compiled p = planned(plan);
    const auto matrix = communication_matrix(*p.lowering);
    ASSERT_TRUE(matrix) << matrix.error().message;
    ASSERT_EQ(static_cast<int64_t>(matrix->labels.size()), p.plan().ranks);
    std::map<int32_t, int64_t> rows;
    for (const auto& cell : matrix->cells) {
      EXPECT_NE(cell.from, cell.to) << plan;
      EXPECT_GT(cell.bytes, 0) << plan;
      rows[cell.from] += cell.bytes;
    }
    for (int rank = 0; rank < p.plan().ranks; ++rank) {
      const auto program = p.lowering->lower(rank);
      ASSERT_TRUE(program);
      EXPECT_EQ(rows[rank], volume(*program, p.graph()).bytes()) << plan << ", rank " << rank;
    }
  }
}

TEST(CommunicationMatrix, ClassesAddUpToTheSame) {
  const Compiled p = planned("megatron(tp=2, pp=4, dp=2, micro_batches=4)");
  const auto matrix = communication_matrix(*p.lowering, /*most_ranks=*/4);
  ASSERT_TRUE(matrix) << matrix.error().message;
  ASSERT_EQ(matrix->labels.size(), 4U);
  EXPECT_EQ(matrix->labels[0], "stage 0");
  std::map<int32_t, int64_t> rows;
  for (const auto& cell : matrix->cells) rows[cell.from] += cell.bytes;
  const auto roles = p.lowering->roles();
  for (size_t i = 0; i < roles.size(); ++i) {
    const auto program = p.lowering->lower(roles[i].representative);
    ASSERT_TRUE(program);
    EXPECT_EQ(rows[static_cast<int32_t>(i)], volume(*program, p.graph()).bytes());
  }
}

Report sample(const Compiled& p) {
  ReportRun run;
  run.name = "data_parallel(dp=2)";
  run.plan_text = "mesh = { dp = 2 }\n";
  run.lowering = p.lowering.get();
  Simulation& s = run.simulation;
  s.step_time_s = 2e-3;
  s.ranks = 2;
  s.tokens = 1000;
  s.labels = {"blocks.0.attn.q", "matmul", "all_reduce dp", "</script>"};
  s.roles.emplace_back();
  s.roles[0].ranks = 2;
  s.roles[0].spent_s[0] = 1.5e-3;
  s.roles[0].memory.timeline = {{0, 100}, {1e-3, 300}};
  const auto event = [&](Lane lane, int32_t index, double from, double to, int32_t what) {
    TraceEvent e;
    e.lane = lane;
    e.block = BlockKind::kForward;
    e.instruction = index;
    e.start_s = from;
    e.end_s = to;
    e.what = what;
    return e;
  };
  s.events = {event(Lane::kHost, 0, 0, 1e-4, 1), event(Lane::kCompute, 0, 1e-4, 1e-3, 1),
              event(Lane::kCompute, 1, 1e-3, 1.5e-3, 3),
              event(Lane::kCollective, 2, 1.2e-3, 2e-3, 2)};
  Report report;
  report.title = kModel;
  report.runs.push_back(std::move(run));
  return report;
}

TEST(ReportData, KeepsEventsAndJoinsThemToRunsOfBlocks) {
  const Compiled p = planned("data_parallel(dp=2)");
  const auto data = report_data(sample(p));
  ASSERT_TRUE(data) << data.error().message;
  const auto run = nlohmann::json::parse(*data).at("runs").at(0);
  EXPECT_EQ(run.at("rows"), nlohmann::json({"rank 0 compute", "rank 0 collective"}));
  ASSERT_EQ(run.at("events").size(), 3U);  // the host's events are not drawn
  EXPECT_EQ(run.at("events").at(0).at(1), 100'000);
  ASSERT_EQ(run.at("blocks").size(), 1U);
  EXPECT_EQ(run.at("blocks").at(0).at(1), 100'000);
  EXPECT_EQ(run.at("blocks").at(0).at(2), 1'500'000);
  EXPECT_EQ(run.at("capped"), 0);
  EXPECT_EQ(run.at("costs").at(0).at(0), "matmul");
  EXPECT_GT(run.at("ops").size(), 20U);
}

TEST(ReportData, NamesABufferOnceWithTheTimesOfItsCopies) {
  const Compiled p = planned("data_parallel(dp=2)");
  Report report = sample(p);
  MemoryUse& memory = report.runs[0].simulation.roles[0].memory;
  memory.intervals = {{"h", "activation", 64, 0, 1e-3},
                      {"w", "parameter", 32, 0, 2e-3},
                      {"h", "activation", 64, 1e-3, 2e-3}};
  const auto data = report_data(report);
  ASSERT_TRUE(data);
  const auto role = nlohmann::json::parse(*data).at("runs").at(0).at("roles").at(0);
  EXPECT_EQ(role.at("memory").at("intervals"), nlohmann::json::parse(R"([
    ["h", 64, "activation", [0, 1000000, 1000000, 2000000]],
    ["w", 32, "parameter", [0, 2000000]]])"));
}

TEST(ReportData, ThinsALongTimelineOfMemoryButKeepsItsPeaks) {
  const Compiled p = planned("data_parallel(dp=2)");
  Report report = sample(p);
  std::vector<MemorySample>& timeline = report.runs[0].simulation.roles[0].memory.timeline;
  timeline.clear();
  constexpr int kSamples = 50'000, kSpike = 23'456;
  for (int i = 0; i < kSamples; ++i) timeline.push_back({i * 1e-6, i % 100});
  timeline[kSpike].bytes = 1000;
  const auto data = report_data(report);
  ASSERT_TRUE(data);
  const auto kept =
      nlohmann::json::parse(*data).at("runs").at(0).at("roles").at(0).at("memory").at("timeline");
  EXPECT_LE(kept.size(), 4'002U);
  EXPECT_NE(std::find(kept.begin(), kept.end(), nlohmann::json({kSpike * 1000, 1000})), kept.end());
  EXPECT_EQ(kept.back(), nlohmann::json({(kSamples - 1) * 1000, 99}));
}

TEST(ReportData, KeepsRunsOfBlocksBeyondTheMostEvents) {
  const Compiled p = planned("data_parallel(dp=2)");
  Report report = sample(p);
  report.most_events = 1;
  const auto data = report_data(report);
  ASSERT_TRUE(data);
  const auto run = nlohmann::json::parse(*data).at("runs").at(0);
  EXPECT_EQ(run.at("events").size(), 1U);
  EXPECT_EQ(run.at("capped"), 1'000'000);
  EXPECT_EQ(run.at("blocks").at(0).at(2), 1'500'000);
}

// 3 features on tables of 90, 40 and 7 rows, with bags of 2, 1 and 3 ids; 8 samples of width 4.
TEST(TableLoads, AreWhatPlansMakeOfTheTables) {
  const std::string model = "dlrm:dense=3,rows=90-40-7,bags=2-1-3,width=4,bottom=6-4,top=5-1";
  const auto loads_of = [&](const std::string& plan, int64_t most_ranks = 256) {
    auto compiled = compile({model, plan, 8});
    EXPECT_TRUE(compiled) << plan << ": " << compiled.error().message;
    auto loads = table_loads(*compiled->lowering, tables_of(compiled->model->graph), most_ranks);
    EXPECT_TRUE(loads) << plan << ": " << loads.error().message;
    return *loads;
  };
  constexpr int64_t kRowBytes = 4 * 4, kIds = 8 * (2 + 1 + 3);
  const auto whole = loads_of("serial");
  ASSERT_EQ(whole.size(), 1U);
  ASSERT_EQ(whole[0].shares.size(), 3U);
  EXPECT_EQ(whole[0].shares[0].bytes, 90 * kRowBytes);
  EXPECT_EQ(whole[0].rows_read, kIds);
  EXPECT_EQ(whole[0].bytes_read, kIds * kRowBytes);
  // Tables stay whole: the largest lies alone, since the recipe balances rows.
  const auto tables = loads_of("tables(2)");
  ASSERT_EQ(tables.size(), 2U);
  ASSERT_EQ(tables[0].shares.size(), 1U);
  EXPECT_EQ(tables[0].shares[0].table, "tables.0.weight");
  EXPECT_EQ(tables[0].bytes_read, 8 * 2 * kRowBytes);
  EXPECT_EQ(tables[1].bytes_read, 8 * (1 + 3) * kRowBytes);
  // By row, each rank looks all ids up in its part; by column, in half of each row.
  for (const TableLoad& load : loads_of("tables(2,by=row)")) {
    EXPECT_EQ(load.shares[0].rows.size, 45);
    EXPECT_EQ(load.rows_read, kIds);
    EXPECT_EQ(load.bytes_read, kIds * kRowBytes);
  }
  for (const TableLoad& load : loads_of("tables(2,by=column)"))
    EXPECT_EQ(load.bytes_read, kIds * kRowBytes / 2);
  // Micro-batches add up; replicas look up their own samples.
  EXPECT_EQ(loads_of("tables(2,by=row,micro_batches=2)")[1].rows_read, kIds);
  const auto replicas = loads_of("data_parallel(4)", /*most_ranks=*/2);
  ASSERT_EQ(replicas.size(), 1U);
  EXPECT_EQ(replicas[0].ranks, 4);
  EXPECT_EQ(replicas[0].rows_read, kIds / 4);
}

TEST(ReportData, TellsWhereTablesRest) {
  const auto compiled =
      compile({"dlrm:dense=3,rows=90-40,width=4,bottom=6-4,top=5-1", "tables(2)", 8});
  ASSERT_TRUE(compiled) << compiled.error().message;
  Report report = sample(*compiled);
  report.runs[0].tables = tables_of(compiled->model->graph);
  const auto data = report_data(report);
  ASSERT_TRUE(data) << data.error().message;
  const auto tables = nlohmann::json::parse(*data).at("runs").at(0).at("tables");
  // AdamW keeps two numbers for each number of a table.
  EXPECT_EQ(tables.at("shares"), nlohmann::json::parse(R"([
    ["tables.0.weight", 0, 0, 90, 0, 4, "device", 1440, 2880],
    ["tables.1.weight", 1, 0, 40, 0, 4, "device", 640, 1280]])"));
  EXPECT_EQ(tables.at("loads"), nlohmann::json::parse(R"([
    [0, 1, 1, 1440, 2880, 8, 128], [1, 1, 1, 640, 1280, 8, 128]])"));
}

TEST(ReportPage, IsOneFileAndIsTheSameEachTime) {
  const Compiled p = planned("data_parallel(dp=2)");
  const auto page = to_html(sample(p));
  if (!page && page.error().message.find("plotting library") != std::string::npos) {
    GTEST_SKIP() << page.error().message;
  }
  ASSERT_TRUE(page) << page.error().message;
  EXPECT_EQ(*page, *to_html(sample(p)));
  for (const char* mark : {"@DATA@", "@JS@", "@CSS@", "@ECHARTS@", "@TITLE@"}) {
    EXPECT_EQ(page->find(mark), std::string::npos) << mark;
  }
  EXPECT_EQ(page->find("src=\"http"), std::string::npos);
  // The label "</script>" does not end the data.
  const size_t from = page->find("id=\"data\">") + 10;
  const std::string data = page->substr(from, page->find("</script>", from) - from);
  EXPECT_TRUE(nlohmann::json::accept(data));
}

}  // namespace
}  // namespace tessera::report_test
