// Exchanges of the rows that a sparse product names: where lowering writes them, how much they are
// expected to send, and how the verifier rejects wrong ones.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tessera/graph/kinds.h"
#include "tessera/graph/rows.h"
#include "tessera/program/communication.h"
#include "tessera/program/place_check.h"
#include "tessera/program/test_programs.h"
#include "tessera/program/text/place_form.h"
#include "tessera/program/text/test_place_parse.h"
#include "tessera/program/text/text.h"
#include "tessera/program/verify/verify.h"

namespace tessera::named_rows_test {
namespace {

constexpr int64_t kNodes = 12, kEdges = 40, kHidden = 6;
const std::string kSplit = "split = [{ ops = \"*\", dim = \"nodes\", over = \"dp\" }";

// The sum of squares of a product with the rows of a dense product, or of two that sample
// differently.
struct Form {
  std::vector<Attributes> products = {{}};
  bool trained_values = false;
};
Graph network(const Form& form = {}) {
  GraphBuilder g("network");
  const Dim nodes{"nodes", kNodes}, edges{"edges", kEdges}, in{"in", 4}, hidden{"hidden", kHidden};
  const Init init{Init::Kind::kNormal, 1};
  const TensorId begin = g.input("begin", {nodes}, DType::kInt64);
  const TensorId end = g.input("end", {nodes}, DType::kInt64);
  const TensorId columns = g.input("columns", {edges}, DType::kInt64);
  const TensorId values = form.trained_values
                              ? g.parameter("values", {edges}, init, DType::kFloat64)
                              : g.input("values", {edges}, DType::kFloat64);
  const TensorId x = g.input("x", {nodes, in}, DType::kFloat64);
  const TensorId weight = g.parameter("weight", {in, hidden}, init, DType::kFloat64);
  const TensorId up = g.op1("up", "einsum", {x, weight},
                            {{"spec", std::string("nodes in+, in hidden -> nodes hidden")}});
  std::vector<TensorId> terms;
  for (const Attributes& attributes : form.products) {
    const TensorId y = g.op1(fmt::format("product{}", terms.size()), "spmm",
                             {begin, end, columns, up, values}, attributes);
    const TensorId square = g.op1(fmt::format("square{}", terms.size()), "mul", {y, y});
    terms.push_back(g.op1(fmt::format("sum{}", terms.size()), "reduce_sum", {square},
                          {{"dims", std::string("nodes hidden")}}));
  }
  g.graph().loss = terms.size() == 1 ? terms[0] : g.op1("loss", "add_n", terms);
  return trained(*g.finish());
}

std::string plan_of(int64_t dp, const std::string& mesh = "", const std::string& entries = "") {
  return fmt::format("mesh = {{ dp = {}{} }}\n{}{}]\n", dp, mesh, kSplit, entries);
}

std::vector<const Issue*> named_in(const Program& program) {
  std::vector<const Issue*> out;
  for (const auto& [ref, block] : program.blocks) {
    for (const Instruction& instruction : block) {
      const auto* issue = std::get_if<Issue>(&instruction.body);
      if (issue != nullptr && issue->named) out.push_back(issue);
    }
  }
  return out;
}

void expect_accepted(const TestPrograms& lowered) {
  ASSERT_FALSE(lowered.programs.empty());
  const auto rejections = verify(lowered.graph, lowered.programs);
  EXPECT_TRUE(rejections.empty()) << rejections[0].to_string();
}

TEST(NamedRows, of_cut_nodes_move_in_place_of_all_rows) {
  for (const int64_t dp : {2, 3, 4, 5, 6}) {
    const TestPrograms lowered = lower_all(network(), plan_of(dp));
    expect_accepted(lowered);
    for (const Program& program : lowered.programs) {
      const auto named = named_in(program);
      ASSERT_EQ(named.size(), 2U) << "forward the rows, backward their gradients";
      EXPECT_FALSE(named[0]->combiner.has_value());
      EXPECT_EQ(named[1]->combiner, Combiner::kSum);
      for (const Issue* issue : named) {
        EXPECT_EQ(issue->kind, CollectiveKind::kExchange);
        EXPECT_EQ(issue->named->most, kEdges);
        for (int64_t rank = 0; rank < dp; ++rank)
          EXPECT_EQ(issue->named->rows[static_cast<size_t>(rank)],
                    split_interval({0, kNodes}, dp, rank));
      }
    }
  }
}

TEST(NamedRows, compose_with_other_axes_and_samples) {
  const std::string hidden = ", { ops = \"*\", dim = \"hidden\", over = \"tp\" }";
  const Attributes sampled = {{"sampler", std::string("bucket")}, {"width", int64_t{2}}};
  for (const bool trained_values : {false, true}) {
    const TestPrograms lowered =
        lower_all(network({{sampled}, trained_values}), plan_of(3, ", tp = 2", hidden));
    expect_accepted(lowered);
    ASSERT_GE(named_in(lowered.programs[0]).size(), 2U);
    EXPECT_EQ(named_in(lowered.programs[0])[0]->named->most, 2 * kNodes);
    EXPECT_EQ(named_in(lowered.programs[0])[0]->transfers[0].need[0].dims[1].size, kHidden / 2);
  }
}

// Two products of the same rows share one exchange if they name alike; they have two if their
// samples differ.
TEST(NamedRows, are_shared_by_products_that_name_alike) {
  const auto width = [](int64_t edges) {
    return Attributes{{"sampler", std::string("stride")}, {"width", edges}};
  };
  const auto gathers = [](const TestPrograms& lowered) {
    int count = 0;
    for (const Issue* issue : named_in(lowered.programs[0])) count += issue->combiner ? 0 : 1;
    return count;
  };
  for (const auto& [second, expected] : {std::pair<int64_t, int>{2, 1}, {3, 2}}) {
    const TestPrograms lowered = lower_all(network({{width(2), width(second)}}), plan_of(2));
    expect_accepted(lowered);
    EXPECT_EQ(gathers(lowered), expected);
  }
}

TEST(NamedRows, are_not_told_apart_where_a_plan_asks_for_what_they_cannot_give) {
  const std::string loop = ", { ops = \"product0\", dim = \"nodes\", over = [\"dp\", \"time:2\"] }";
  const std::string coded =
      "mesh = { dp = 2 }\n" + kSplit + "]\ncompress = [{ tensors = \"*\", with = \"bfloat16\" }]\n";
  for (const std::string& plan : {plan_of(2, "", loop), coded,
                                  std::string("mesh = { dp = 2 }\nsplit = [{ ops = \"*\", dim = "
                                              "\"hidden\", over = \"dp\" }]\n")}) {
    const TestPrograms lowered = lower_all(network(), plan);
    expect_accepted(lowered);
    EXPECT_TRUE(named_in(lowered.programs[0]).empty()) << plan;
  }
}

TEST(NamedRows, are_printed_and_read_back) {
  TestPrograms lowered = lower_all(network(), plan_of(3));
  for (auto& [ref, block] : lowered.programs[1].blocks) {
    for (Instruction& instruction : block) {
      auto* issue = std::get_if<Issue>(&instruction.body);
      if (issue != nullptr && issue->named && issue->combiner)
        issue->named->counted = {0, 1, 2, 3, 0, 4, 5, 6, 0};
    }
  }
  for (const Program& program : lowered.programs) {
    const std::string text = to_text(program, lowered.graph);
    EXPECT_NE(text.find(" named \"product0\" (%"), std::string::npos) << text;
    const auto read = parse_program(text, lowered.graph, "p.txt");
    ASSERT_TRUE(read.has_value()) << read.error().message;
    EXPECT_EQ(*read, program);
  }
}

TEST(NamedRows, of_place_texts_are_read_back_and_checked) {
  const auto parsed = parse_plan(plan_of(2), "plan.toml");
  ASSERT_TRUE(parsed.has_value());
  const auto prepared = prepare(network(), *parsed);
  ASSERT_TRUE(prepared.has_value());
  const auto lowering = Lowering::create(std::make_shared<Graph>(prepared->graph), prepared->plan);
  ASSERT_TRUE(lowering.has_value());
  std::string text = to_text(lowering->texts(), PlaceId(0), lowering->graph(), true);
  std::vector<PlaceText> texts = lowering->texts();
  const auto verdict = [&]() -> std::string {
    const auto read = parse_place_text(text, lowering->graph(), "text");
    if (!read) return read.error().message;
    texts[0] = *read;
    const Status sound = check(texts, PlaceId(0), lowering->graph(), lowering->plan());
    return sound ? "sound" : sound.error().message;
  };
  EXPECT_EQ(verdict(), "sound");
  EXPECT_EQ(to_text(texts, PlaceId(0), lowering->graph(), true), text);
  const size_t named = text.find(" named \"product0\" (%");
  ASSERT_NE(named, std::string::npos) << text;
  const size_t end = text.find(')', named), last = text.rfind(',', end);
  text.erase(last, end - last);
  EXPECT_NE(verdict().find("an op that names its rows by three operands"), std::string::npos)
      << verdict();
}

// Computes the expected number of different rows by drawing each set of ids of a small table.
TEST(NamedRows, are_expected_as_if_ids_were_drawn_evenly) {
  TestPrograms lowered = lower_all(network(), plan_of(3));
  Issue issue = *named_in(lowered.programs[0])[0];
  const double draws = static_cast<double>(kEdges) / 3;
  const double expected = 4 * (1 - std::pow(1 - 1.0 / kNodes, draws));
  EXPECT_EQ(named_count(issue, 0, 1), std::llround(expected));
  EXPECT_EQ(named_count(issue, 1, 1), 0) << "a member has its own rows";
  const int64_t row = kHidden * 8;
  EXPECT_EQ(sent_traffic(issue, 0), (Traffic{2 * std::llround(expected) * row, 2}));
  issue.named->counted = {0, 1, 2, 3, 0, 4, 0, 2, 0};  // by the member that names, and the owner
  EXPECT_EQ(sent_traffic(issue, 0), (Traffic{3 * row, 1}));
  EXPECT_EQ(sent_traffic(issue, 1), (Traffic{(1 + 2) * row, 2}));
  Issue sum = *named_in(lowered.programs[0])[1];
  sum.named->counted = issue.named->counted;
  EXPECT_EQ(sent_traffic(sum, 0), (Traffic{(1 + 2) * row, 2}));
  EXPECT_EQ(sent_traffic(sum, 2), (Traffic{2 * row, 1}));
  // There are never more rows than the owner has, however many ids name them.
  issue.named->counted.clear();
  issue.named->most = 1'000'000;
  EXPECT_EQ(named_count(issue, 0, 1), 4);
}

// A `Change` is made to all exchanges that it concerns, of one rank or of all.
using Change = std::function<void(Issue&)>;
bool rejected(TestPrograms lowered, bool of_all, bool of_sums, const Change& change) {
  int changed = 0;
  for (size_t rank = 0; rank < (of_all ? lowered.programs.size() : 1); ++rank) {
    for (auto& [ref, block] : lowered.programs[rank].blocks) {
      for (Instruction& instruction : block) {
        auto* issue = std::get_if<Issue>(&instruction.body);
        if (issue == nullptr || !issue->named || issue->combiner.has_value() != of_sums) continue;
        change(*issue);
        ++changed;
      }
    }
  }
  EXPECT_GT(changed, 0);
  return !verify(lowered.graph, lowered.programs).empty();
}

TEST(NamedRows, that_are_wrong_are_rejected) {
  const Attributes sampled = {{"sampler", std::string("bucket")}, {"width", int64_t{2}}};
  const TestPrograms lowered = lower_all(network({{sampled}}), plan_of(3));
  expect_accepted(lowered);
  for (const bool sums : {false, true}) {
    for (const bool all : {false, true}) {
      SCOPED_TRACE(fmt::format("sums {} all {}", sums, all));
      const auto change = [&](const Change& one) { return rejected(lowered, all, sums, one); };
      EXPECT_TRUE(change([](Issue& issue) { issue.named->rows[1].size -= 1; }));
      EXPECT_TRUE(change([](Issue& issue) { issue.named->rows[2].begin += 1; }));
      EXPECT_TRUE(change([](Issue& issue) { issue.named->rows.pop_back(); }));
      EXPECT_TRUE(change([](Issue& issue) { issue.named->ids.pop_back(); }));
      EXPECT_TRUE(change([](Issue& issue) { issue.named->ids[1] = issue.named->ids[0]; }));
      EXPECT_TRUE(change([](Issue& issue) { issue.named->ids[2] = *issue.transfers[0].in; }));
      EXPECT_TRUE(change([](Issue& issue) { issue.named->most += 1; }));
      EXPECT_TRUE(change([](Issue& issue) { issue.named->counted = {1, 2}; }));
      EXPECT_TRUE(change([](Issue& issue) { issue.codec = Codec{Codec::Kind::kFloat16}; }));
      EXPECT_TRUE(change([](Issue& issue) { issue.kind = CollectiveKind::kAllGather; }));
      EXPECT_TRUE(change([](Issue& issue) { issue.named->op = OpId(); }));
      EXPECT_TRUE(change([](Issue& issue) { issue.named->op = OpId(0); }));
    }
    EXPECT_TRUE(rejected(lowered, false, sums, [](Issue& issue) { issue.named.reset(); }))
        << "others move the named rows alone";
  }
}

TEST(NamedRows, of_one_sample_are_not_those_of_another) {
  const Attributes sampled = {{"sampler", std::string("bucket")}, {"width", int64_t{2}}};
  const TestPrograms lowered = lower_all(network({{sampled, {}}}), plan_of(3));
  expect_accepted(lowered);
  std::vector<OpId> products;
  for (const Op& op : lowered.graph.ops()) {
    if (op.phase == Phase::kForward && naming_of(op) != nullptr) products.push_back(op.id);
  }
  ASSERT_EQ(products.size(), 2U);
  EXPECT_TRUE(rejected(lowered, true, false, [&](Issue& issue) {
    issue.named->op = issue.named->op == products[0] ? products[1] : products[0];
    issue.named->most = most_named(lowered.graph.op(issue.named->op));
  }));
}

// Gradients of two products are added as parts of all rows before they are brought home.
TEST(NamedRows, are_not_told_apart_in_sums_of_several_products) {
  const TestPrograms lowered = lower_all(network({{{}, {}}}), plan_of(2));
  expect_accepted(lowered);
  for (const Issue* issue : named_in(lowered.programs[0]))
    EXPECT_FALSE(issue->combiner.has_value());
}

// The derivative of trained values reads the rows in the backward pass, where they come again.
TEST(NamedRows, come_again_for_the_backward_pass) {
  const TestPrograms lowered = lower_all(network({{Attributes{}}, true}), plan_of(2));
  expect_accepted(lowered);
  int gathers = 0;
  for (const Issue* issue : named_in(lowered.programs[0])) gathers += issue->combiner ? 0 : 1;
  EXPECT_EQ(gathers, 2);
}

}  // namespace
}  // namespace tessera::named_rows_test
