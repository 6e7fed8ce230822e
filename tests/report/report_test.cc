// Compares the data of a page with the programs and the simulation behind it. The page itself is
// opened in a browser by check_page.mjs (CMakeLists.txt).
#include "tessera/report/report.h"
#include "tessera/compile/compile.h"
#include "tessera/report/headline.h"
#include "tessera/report/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

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

nlohmann::json run_of(const Report& report) {
  const auto data = report_data(report);
  EXPECT_TRUE(data) << data.error().message;
  return nlohmann::json::parse(*data).at("runs").at(0);
}

TEST(ReportData, KeepsEventsAndJoinsThemToRunsOfBlocks) {
  const Compiled p = planned("data_parallel(dp=2)");
  const auto run = run_of(sample(p));
  EXPECT_EQ(run.at("rows"), nlohmann::json::parse(R"([
    {"rank": 0, "ranks": 2, "lane": "compute", "kind": "", "events": 2, "busy_ns": 1400000},
    {"rank": 0, "ranks": 2, "lane": "collective", "kind": "all_reduce dp", "events": 1,
     "busy_ns": 800000}])"));
  ASSERT_EQ(run.at("events").size(), 3U);  // the host's events are not drawn
  EXPECT_EQ(run.at("windows"), nlohmann::json::parse("[[0, 2000000]]"));
  EXPECT_EQ(run.at("events").at(0).at(1), 100'000);
  ASSERT_EQ(run.at("blocks").size(), 1U);
  EXPECT_EQ(run.at("blocks").at(0).at(1), 100'000);
  EXPECT_EQ(run.at("blocks").at(0).at(2), 1'500'000);
  EXPECT_EQ(run.at("costs").at(0).at(0), "matmul");
}

// Two ranks, of which one was played, do the same: the mean over them is what this one did.
TEST(ReportData, CostsAreTheMeanOverTheRanks) {
  const Compiled p = planned("data_parallel(dp=2)");
  Report report = sample(p);
  const auto costs = run_of(report).at("costs");
  EXPECT_DOUBLE_EQ(costs.at(0).at(1).get<double>(), 0.9e-3);
  // A second rank that does nothing halves the mean over 2 + 2 ranks.
  Simulation& simulation = report.runs[0].simulation;
  simulation.roles.push_back(simulation.roles[0]);
  simulation.roles.back().representative = 2;
  EXPECT_DOUBLE_EQ(run_of(report).at("costs").at(0).at(1).get<double>(), 0.45e-3);
}

// Bands add up to the live bytes, and copies are counted at each sample.
TEST(ReportData, DividesTheMemoryIntoBands) {
  const Compiled p = planned("data_parallel(dp=2)");
  Report report = sample(p);
  MemoryUse& memory = report.runs[0].simulation.roles[0].memory;
  memory = {};
  memory.reserved_bytes = 120;
  memory.overhead_bytes = 30;
  memory.peak_time_s = 1e-3;
  memory.timeline = {{0, 40}, {0.5e-3, 72}, {1e-3, 104}, {2e-3, 8}};
  memory.at_peak = {{"blocks.0.h", 32, "activation"},
                    {"blocks.1.h x 2", 64, "activation"},
                    {"w", 8, "parameter"}};
  memory.intervals = {{"w", "parameter", 8, 0, 3e-3},
                      {"blocks.0.h", "activation", 32, 0, 2e-3},
                      {"blocks.1.h", "activation", 32, 0.5e-3, 2e-3},
                      {"blocks.1.h", "activation", 32, 1e-3, 2e-3}};
  const auto found = run_of(report).at("roles").at(0).at("memory");
  EXPECT_EQ(found.at("total_bytes"), 150);
  EXPECT_EQ(found.at("overhead_bytes"), 30);
  EXPECT_EQ(found.at("unit"), 1);
  EXPECT_EQ(found.at("times"), nlohmann::json::parse("[0, 500000, 1000000, 2000000]"));
  EXPECT_EQ(found.at("bands"), nlohmann::json::parse(R"(
    {"activation": [32, 64, 96, 0], "parameter": [8, 8, 8, 8]})"));
  EXPECT_EQ(found.at("live"), nlohmann::json::parse(R"([
    ["blocks.*.h", "activation", 32, [1, 1, 2, 1, 3, 1, 0, 1]],
    ["w", "parameter", 8, [1, 4]]])"));
  EXPECT_EQ(found.at("at_peak"), nlohmann::json::parse(R"([
    ["blocks.*.h", "activation", 3, 96], ["w", "parameter", 1, 8]])"));
}

TEST(ReportData, WhatHasNoNameIsASmallerBuffer) {
  const Compiled p = planned("data_parallel(dp=2)");
  Report report = sample(p);
  MemoryUse& memory = report.runs[0].simulation.roles[0].memory;
  memory = {};
  memory.timeline = {{0, 40}, {1e-3, 50}};
  memory.intervals = {{"w", "parameter", 8, 0, 3e-3}};
  const auto bands = run_of(report).at("roles").at(0).at("memory").at("bands");
  EXPECT_EQ(bands, nlohmann::json::parse(R"({"parameter": [8, 8], "smaller buffers": [32, 42]})"));
}

TEST(ReportData, ThinsALongTimelineOfMemoryButKeepsItsPeaks) {
  const Compiled p = planned("data_parallel(dp=2)");
  Report report = sample(p);
  MemoryUse& memory = report.runs[0].simulation.roles[0].memory;
  memory = {};
  constexpr int kSamples = 50'000, kSpike = 23'456;
  for (int i = 0; i < kSamples; ++i) memory.timeline.push_back({i * 1e-6, i % 100});
  memory.timeline[kSpike].bytes = 1000;
  const auto kept = run_of(report).at("roles").at(0).at("memory");
  const auto& times = kept.at("times");
  EXPECT_LE(times.size(), 603U);
  EXPECT_EQ(times.front(), 0);
  const auto spike = std::find(times.begin(), times.end(), nlohmann::json(kSpike * 1000));
  ASSERT_NE(spike, times.end());
  const auto& bytes = kept.at("bands").at("smaller buffers");
  EXPECT_EQ(bytes.at(static_cast<size_t>(spike - times.begin())), 1000);
  EXPECT_EQ(times.back(), (kSamples - 1) * 1000);
  EXPECT_EQ(bytes.back(), 99);
}

// A step of 40,000 computations and as many short collectives between them.
Simulation long_step() {
  Simulation simulation;
  simulation.step_time_s = 4;
  simulation.labels = {"x", "matmul", "all_reduce dp"};
  for (int i = 0; i < 40'000; ++i) {
    const double at = i * 1e-4;
    simulation.events.push_back({0, Lane::kCompute, 0, {}, 0, 0, at, at + 0.6e-4, 0, 1, 0, -1});
    simulation.events.push_back(
        {0, Lane::kCollective, 0, {}, 0, 0, at + 0.6e-4, at + 1e-4, 0, 2, 10, -1});
  }
  RankResult role;
  role.ranks = 1;
  simulation.roles = {role};
  return simulation;
}

TEST(ReportData, MergesTheTransfersOfAStepAndKeepsInstructionsOfItsBeginningAndMiddle) {
  const Compiled p = planned("data_parallel(dp=2)");
  Report report = sample(p);
  report.runs[0].simulation = long_step();
  const auto run = run_of(report);
  // Pauses of 0.06 ms are shorter than one of 2,000 parts of 4 s, so that all are one bar.
  EXPECT_EQ(run.at("merged"),
            nlohmann::json::parse("[[1, 60000, 4000000000, 40000, 1600000000, 400000]]"));
  const auto& windows = run.at("windows");
  ASSERT_EQ(windows.size(), 2U);
  EXPECT_EQ(windows.at(0).at(0), 0);
  EXPECT_EQ(windows.at(1).at(0), 2'000'000'000);
  EXPECT_LE(run.at("events").size(), 10'000U);
  EXPECT_GE(run.at("events").size(), 9'990U);
  for (const auto& event : run.at("events")) {
    const int64_t at = event.at(1);
    EXPECT_TRUE(at < windows.at(0).at(1) ||
                (at >= windows.at(1).at(0) && at < windows.at(1).at(1)));
  }
}

TEST(ReportData, IsShortenedUntilItFits) {
  const Compiled p = planned("data_parallel(dp=2)");
  Report report = sample(p);
  report.runs[0].simulation = long_step();
  const auto whole = report_data(report);
  ASSERT_TRUE(whole);
  report.most_data_bytes = std::ssize(*whole) / 3;
  const auto shorter = report_data(report);
  ASSERT_TRUE(shorter);
  EXPECT_LE(std::ssize(*shorter), report.most_data_bytes);
  EXPECT_EQ(run_of(report).at("merged").size(), 1U);
}

// Steps of all layers and ranks are added up, the longest sum first.
TEST(ReportData, AddsUpTheCriticalPath) {
  const Compiled p = planned("data_parallel(dp=2)");
  Report report = sample(p);
  report.runs[0].simulation.critical_path = {{0, Spent::kCompute, "blocks.0.q", 0, 1e-4},
                                             {0, Spent::kCollective, "blocks.0.o", 1e-4, 6e-4},
                                             {4, Spent::kCompute, "blocks.1.q", 6e-4, 16e-4},
                                             {4, Spent::kBubble, "", 16e-4, 20e-4}};
  const auto path = run_of(report).at("path");
  EXPECT_EQ(path.at("steps"), 4);
  EXPECT_EQ(path.at("parts"), nlohmann::json::parse(R"([
    ["compute", "blocks.*.q", 2, 1100000, [0, 4]], ["collective", "blocks.*.o", 1, 500000, [0]],
    ["bubble", "", 1, 400000, [4]]])"));
  EXPECT_EQ(path.at("more_parts"), 0);
  EXPECT_EQ(path.at("spent_ns").at(static_cast<size_t>(Spent::kCompute)), 1100000);
}

// The ops of layers with the same plan are one row: 4 layers of the GPT, two stages of two layers.
TEST(ReportData, JoinsTheOpsOfLayers) {
  const Compiled p = planned("megatron(tp=2, pp=2)");
  std::map<std::string, std::string> found;  // suffix and stage -> ranges
  int64_t ops = 0;
  const auto run = run_of(sample(p));
  for (const auto& op : run.at("ops")) {
    for (const auto& range : op.at(1))
      ops += range.at(1).get<int64_t>() - range.at(0).get<int64_t>() + 1;
    if (op.at(1).empty()) ++ops;
    if (op.at(2) == ".attn.q" && op.at(3) == "einsum")
      found[std::to_string(op.at(4).get<int>())] = op.at(1).dump();
  }
  EXPECT_EQ(found, (std::map<std::string, std::string>{{"0", "[[0,1]]"}, {"1", "[[2,3]]"}}));
  EXPECT_EQ(run.at("more_ops"), 0);
  std::set<std::string> paths;
  for (const Op& op : p.graph().ops()) paths.insert(op.path + op.kind);
  EXPECT_GE(ops, std::ssize(paths));
}

TEST(ReportData, AVerdictIsTheFirstThing) {
  const Compiled p = planned("data_parallel(dp=2)");
  Report report = sample(p);
  report.runs[0].simulation.roles[0].memory.reserved_bytes = int64_t{70} << 30;
  report.capacity_bytes = int64_t{80} << 30;
  EXPECT_EQ(verdict_text(report), "Fits, 10.0 GiB free");
  report.runs.push_back(report.runs[0]);
  report.runs[1].name = "slow";
  report.runs[1].simulation.step_time_s *= 2;
  report.runs[0].simulation.roles[0].memory.reserved_bytes = int64_t{90} << 30;
  EXPECT_EQ(verdict_text(report), "1 of 2 plans fits: slow");
  const auto data = nlohmann::json::parse(*report_data(report));
  EXPECT_EQ(data.at("best_run"), 1);
  EXPECT_EQ(data.at("runs").at(0).at("summary").at("verdict").at("text"),
            "Does not fit by 10.0 GiB");
}

TEST(Verdict, SaysWhatIsFreeOrMissing) {
  constexpr int64_t kGib = int64_t{1} << 30;
  EXPECT_EQ(memory_verdict(76 * kGib, 80 * kGib).text, "Fits, 4.00 GiB free");
  EXPECT_EQ(memory_verdict(76 * kGib + 1, 80 * kGib).text,
            "Fits, but tight: 4.00 GiB free, 5.0 % of the device");
  EXPECT_EQ(memory_verdict(80 * kGib, 80 * kGib).text,
            "Fits, but tight: 0.00 GiB free, 0.0 % of the device");
  EXPECT_EQ(memory_verdict(272 * kGib, 80 * kGib).text, "Does not fit by 192 GiB");
  EXPECT_EQ(memory_verdict(80 * kGib + 1, 80 * kGib).text, "Does not fit by less than 0.01 GiB");
  EXPECT_EQ(memory_verdict(3 * kGib, 0).text,
            "Needs 3.00 GiB; the memory of the device is not known");
}

TEST(Headline, NamesTheMachineInAFewWords) {
  for (const auto& [text, name] :
       std::map<std::string, std::string>{{"dgx-a100:2", "16 A100"}, {"rtx3090", "RTX 3090"}}) {
    const auto cluster = load_cluster(text);
    ASSERT_TRUE(cluster) << cluster.error().message;
    EXPECT_THAT(machine_headline(*cluster), testing::EndsWith(name));
  }
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
  EXPECT_EQ(tables.at("pieces"), 2);
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
  for (const char* mark : {"@DATA@", "@JS@", "@CSS@", "@ECHARTS@", "@TITLE@", "@VERDICT@"}) {
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
