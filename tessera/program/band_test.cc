// Attention with a window whose queries are cut: the keys that are read, the parts of their
// gradients, and the verifier's treatment of both.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tessera/graph/band.h"
#include "tessera/program/test_programs.h"
#include "tessera/program/verify/verify.h"

namespace tessera::band_test {
namespace {

constexpr int64_t kBatch = 2, kHeads = 2, kGroup = 2, kWidth = 3;

void expect_accepted(const TestPrograms& lowered) {
  ASSERT_FALSE(lowered.programs.empty());
  const auto rejections = verify(lowered.graph, lowered.programs);
  EXPECT_TRUE(rejections.empty()) << rejections[0].to_string();
}

struct Form {
  int64_t seq = 12, window = 4, causal = 1;
  bool segments = false;
  std::string text() const {
    return fmt::format("seq {} window {} causal {}", seq, window, causal);
  }
};

// Returns a graph with the sum of squares of attention over three products of one input.
Graph attention(const Form& form) {
  GraphBuilder g("attention");
  const Dim batch{"batch", kBatch}, seq{"seq", form.seq}, in{"in", 3}, heads{"heads", kHeads},
      group{"group", kGroup}, width{"head_dim", kWidth};
  const Init init{Init::Kind::kNormal, 1};
  const auto x = g.input("x", {batch, seq, in}, DType::kFloat64);
  std::vector<TensorId> operands;
  for (const std::string name : {"q", "k", "v"}) {
    const std::vector<Dim> dims = name == "q" ? std::vector<Dim>{in, heads, group, width}
                                              : std::vector<Dim>{in, heads, width};
    const std::string out = name == "q" ? "heads group head_dim" : "heads head_dim";
    const auto weight = g.parameter(name + ".weight", dims, init, DType::kFloat64);
    operands.push_back(
        g.op1(name, "einsum", {x, weight},
              {{"spec", fmt::format("batch seq in+, in {} -> batch seq {}", out, out)}}));
  }
  if (form.segments)
    operands.insert(operands.end(), 2, g.input("segments", {batch, seq}, DType::kInt64));
  const auto o =
      g.op("core", "attention", operands, {{"causal", form.causal}, {"window", form.window}})[0];
  const auto square = g.op1("square", "mul", {o, o});
  g.graph().loss =
      g.op1("loss", "reduce_sum", {square},
            {{"dims", std::string("batch seq heads group head_dim")}, {"factor", 0.5}});
  return trained(*g.finish(), {});
}

std::string plan_of(int64_t cp, const std::string& mesh = "", const std::string& splits = "") {
  return fmt::format(
      "mesh = {{ cp = {}{} }}\nsplit = [{{ ops = \"*\", dim = \"seq\", over = \"cp\" }}{}]\n", cp,
      mesh, splits);
}

bool has_keys(const Graph& graph, const Issue& issue) {
  const Tensor& tensor = graph.tensor(issue.transfers[0].tensor);
  return tensor.dims.size() == 4 && tensor.dims[1].name == "seq";
}

// Returns the number of elements of keys and values (or their gradients) that all ranks send in the
// block.
int64_t sent(const TestPrograms& lowered, BlockKind kind) {
  int64_t elements = 0;
  for (const Program& program : lowered.programs) {
    const auto block = program.blocks.find(kind);
    if (block == program.blocks.end()) continue;
    for (const Instruction& instruction : block->second) {
      const auto* issue = std::get_if<Issue>(&instruction.body);
      if (issue == nullptr || !has_keys(lowered.graph, *issue)) continue;
      EXPECT_EQ(issue->kind, CollectiveKind::kExchange);
      for (const Transfer& transfer : issue->transfers) {
        const auto me =
            static_cast<size_t>(program.groups[static_cast<size_t>(issue->group)].index);
        elements +=
            traffic({issue->kind, issue->combiner, DType::kFloat64, transfer.hold, transfer.need},
                    me)
                .bytes /
            8;
      }
    }
  }
  return elements;
}

int64_t halos(const Form& form, int64_t cp) {
  int64_t sum = 0;
  for (int64_t rank = 0; rank < cp; ++rank) {
    const Interval piece = split_interval({0, form.seq}, cp, rank);
    if (piece.empty()) continue;
    sum += std::min(form.window - 1, piece.begin);
    if (form.causal == 0) sum += std::min(form.window - 1, form.seq - piece.end());
  }
  return sum;
}

TEST(Band, of_an_op_says_which_keys_its_queries_see) {
  const auto band_in = [](const Form& form) {
    const Graph graph = attention(form);
    return band_of(graph.op(graph.tensor(graph.find_tensor("core.o")).producer));
  };
  const auto causal = band_in({12, 4, 1});
  ASSERT_TRUE(causal.has_value());
  EXPECT_EQ(causal->keys_seen({6, 3}), (Interval{3, 6}));
  EXPECT_EQ(causal->queries_seeing({6, 3}), (Interval{6, 6}));
  const auto both = band_in({12, 4, 0});
  ASSERT_TRUE(both.has_value());
  EXPECT_EQ(both->keys_seen({6, 3}), (Interval{3, 9}));
  EXPECT_EQ(both->queries_seeing({0, 3}), (Interval{0, 6}));
  EXPECT_FALSE(band_in({12, 12, 1}).has_value()) << "leaves nothing out";
  EXPECT_FALSE(band_in({12, 0, 1}).has_value());
}

// The steps' gradients of keys overlap those of the next rank. Their readers want pieces of the
// batch, to which a step may not reduce: the axis cuts the keys.
TEST(Band, in_steps_over_the_batch_for_readers_that_cut_the_batch) {
  for (const int64_t causal : {1, 0}) {
    const TestPrograms lowered = lower_all(
        attention({12, 4, causal}),
        "mesh = { cp = 2 }\nsplit = [{ ops = \"core\", dim = \"batch\", over = \"time:2\" },\n"
        "{ ops = \"core\", dim = \"seq\", over = \"cp\" },\n"
        "{ ops = \"{k,v}\", dim = \"batch\", over = \"cp\" }]\n");
    for (const Rejection& rejection : verify(lowered.graph, lowered.programs))
      ADD_FAILURE() << rejection.to_string();
  }
}

TEST(Band, sends_the_keys_of_the_window_and_their_gradients_back) {
  for (const int64_t causal : {1, 0}) {
    for (const int64_t seq : {7, 12, 13}) {
      for (const int64_t window : {2, 3, 6}) {
        const Graph graph = attention({seq, window, causal});
        for (const int64_t cp : {2, 3, 4, 8}) {
          const Form form{seq, window, causal};
          SCOPED_TRACE(fmt::format("{} cp {}", form.text(), cp));
          const TestPrograms lowered = lower_all(graph, plan_of(cp));
          expect_accepted(lowered);
          const int64_t once = 2 * kBatch * kHeads * kWidth * halos(form, cp);
          EXPECT_EQ(sent(lowered, BlockKind::kForward), once);
          EXPECT_EQ(sent(lowered, BlockKind::kBackward), once);
        }
      }
    }
  }
}

TEST(Band, composes_with_other_splits_loops_documents_and_micro_batches) {
  const std::string heads = ", { ops = \"*\", dim = \"heads\", over = \"tp\" }";
  const std::string batch = ", { ops = \"*\", dim = \"batch\", over = \"dp\" }";
  for (const int64_t causal : {1, 0}) {
    for (const bool segments : {false, true}) {
      const Graph graph = attention({13, 5, causal, segments});
      expect_accepted(lower_all(graph, plan_of(3, ", tp = 2", heads)));
      expect_accepted(lower_all(graph, plan_of(3, ", dp = 2", batch)));
      expect_accepted(lower_all(graph, plan_of(2, ", dp = 2, tp = 2", heads + batch)));
      expect_accepted(lower_all(graph, "micro_batches = 2\n" + plan_of(3)));
      for (const int64_t steps : {2, 4, 13}) {
        const std::string loop =
            fmt::format(", {{ ops = \"core\", dim = \"kv\", over = \"time:{}\" }}", steps);
        expect_accepted(lower_all(graph, plan_of(3, "", loop)));
        const std::string queries = fmt::format(
            ", {{ ops = \"core\", dim = \"seq\", over = [\"cp\", \"time:{}\"] }}", steps);
        expect_accepted(lower_all(graph, plan_of(3, "", queries)));
      }
      // The queries are cut over two axes, one inside the other.
      expect_accepted(
          lower_all(graph,
                    "mesh = { a = 2, b = 2 }\n"
                    "split = [{ ops = \"*\", dim = \"seq\", over = [\"a\", \"b\"] }]\n"));
    }
  }
}

// Keys that rotate are not narrowed, but the last pieces of the ring are seen by nobody.
TEST(Band, of_a_ring_ends_where_the_window_does) {
  std::map<int64_t, int64_t> elements;
  for (const int64_t window : {3, 12}) {
    const Graph graph = attention({12, window, 1});
    const TestPrograms lowered = lower_all(
        graph, plan_of(4, "",
                       ", { ops = \"core\", dim = \"kv\", over = \"time:4\", order = \"rotated\", "
                       "skew = \"-cp\" }"));
    expect_accepted(lowered);
    for (const Program& program : lowered.programs) {
      for (const auto& [ref, block] : program.blocks) {
        if (ref.kind != BlockKind::kForward) continue;
        for (const Instruction& instruction : block) {
          const auto* issue = std::get_if<Issue>(&instruction.body);
          if (issue == nullptr || !has_keys(lowered.graph, *issue)) continue;
          const auto me =
              static_cast<size_t>(program.groups[static_cast<size_t>(issue->group)].index);
          for (const Transfer& t : issue->transfers)
            elements[window] +=
                traffic({issue->kind, issue->combiner, DType::kFloat64, t.hold, t.need}, me).bytes /
                8;
        }
      }
    }
  }
  const int64_t chunk = 2 * kBatch * kHeads * kWidth * 3;
  EXPECT_EQ(elements[12], (1 + 2 + 3) * chunk);
  EXPECT_EQ(elements[3], 3 * chunk) << "each rank but the first needs the chunk before its own";
}

// Pieces of nested rings pass ranks that do not see them.
TEST(Band, of_nested_rings_leaves_out_no_piece_that_others_take_from_it) {
  const std::string plan =
      "mesh = { a = 2, b = 3 }\n"
      "split = [{ ops = \"*\", dim = \"seq\", over = [\"a\", \"b\"] },\n"
      "{ ops = \"core\", dim = \"kv\", over = \"time:6\", order = \"nested\", "
      "skew = [\"-a\", \"-b\"] }]\n";
  for (const int64_t window : {2, 4, 7})
    expect_accepted(lower_all(attention({12, window, 1}), plan));
}

TEST(Band, is_rejected_if_parts_of_gradients_stay_where_they_are) {
  const Graph graph = attention({12, 4, 1});
  int rejected = 0, changed = 0;
  for (size_t rank = 0; rank < 3; ++rank) {
    const TestPrograms lowered = lower_all(graph, plan_of(3));
    const auto& backward = lowered.programs[rank].block(BlockKind::kBackward);
    for (size_t i = 0; i < backward.size(); ++i) {
      const auto* issue = std::get_if<Issue>(&backward[i].body);
      if (issue == nullptr || !has_keys(lowered.graph, *issue)) continue;
      EXPECT_EQ(issue->combiner, Combiner::kSum);
      TestPrograms broken = lowered;
      for (Program& program : broken.programs) {
        std::get<Issue>(program.block(BlockKind::kBackward)[i].body).combiner.reset();
      }
      ++changed;
      rejected += verify(broken.graph, broken.programs).empty() ? 0 : 1;
    }
  }
  EXPECT_GT(changed, 0);
  EXPECT_EQ(rejected, changed) << "copied in place of added";
}

// One key less than the window has: the box says that it reads the key, but it is not there.
TEST(Band, is_rejected_if_a_key_of_the_window_is_left_out) {
  TestPrograms lowered = lower_all(attention({12, 4, 1}), plan_of(3));
  expect_accepted(lowered);
  for (Instruction& instruction : lowered.programs[1].block(BlockKind::kForward)) {
    auto* compute = std::get_if<Compute>(&instruction.body);
    if (compute == nullptr || compute->kind != "attention") continue;
    const int key = lowered.graph.op(compute->op).annotation.find("kv");
    Interval& keys = compute->box.dims[static_cast<size_t>(key)];
    EXPECT_EQ(keys, (Interval{1, 7})) << "three of the window and four of its own";
    for (const size_t operand : {1, 2}) {
      Interval& read = compute->inputs[operand].box.dims[1];
      read = {read.begin + 1, read.size - 1};
    }
    keys = {keys.begin + 1, keys.size - 1};
  }
  EXPECT_FALSE(verify(lowered.graph, lowered.programs).empty());
}

}  // namespace
}  // namespace tessera::band_test
