// Programs of pipelines: a rank keeps as much as the schedule has in flight, and the verifier
// accepts the programs of every named schedule.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tessera/program/test_programs.h"
#include "tessera/program/text/text.h"
#include "tessera/program/verify/verify.h"

namespace tessera {
namespace {

struct Lowered {
  ResolvedPlan plan;
  Graph graph;
  std::vector<Program> programs;
};

Lowered lower_pipeline(const std::string& call, int64_t layers, int64_t batch) {
  TestModel model;
  model.layers = layers;
  model.batch = batch;
  const Graph graph = trained(test_transformer(model));
  Lowered out;
  const auto text = emit_recipe(call, graph);
  EXPECT_TRUE(text.has_value()) << call << ": " << (text ? "" : text.error().message);
  if (!text) return out;
  const auto prepared = prepare(graph, parse_plan(*text).value());
  EXPECT_TRUE(prepared.has_value()) << call << ": " << (prepared ? "" : prepared.error().message);
  if (!prepared) return out;
  out.plan = prepared->plan;
  TestPrograms lowered = lower_all(graph, *text);
  out.graph = std::move(lowered.graph);
  out.programs = std::move(lowered.programs);
  return out;
}

// Returns the largest number of micro-batches of this stage that the place has in flight.
int64_t in_flight_of(const Lowered& lowered, size_t place, int64_t stage) {
  Schedule only = lowered.plan.schedule;
  for (auto& row : only) {
    std::erase_if(row, [&](const BlockRun& run) { return run.stage != stage; });
  }
  return in_flight(only, pipeline_shape(lowered.plan, lowered.graph))[place];
}

// Returns the most slots of a buffer that keeps a tensor of the stage for its backward; 0: none is
// kept.
int64_t slots_of(const Lowered& lowered, size_t rank, int64_t stage) {
  const auto here = [&](OpId id) {
    return id.valid() && lowered.plan.ops[id.index()].stage.value == stage;
  };
  std::set<TensorId> kept;
  for (const Op& op : lowered.graph.ops()) {
    if (op.phase != Phase::kBackward || !here(op.id)) continue;
    for (const TensorId input : op.inputs) {
      const OpId made = lowered.graph.tensor(input).producer;
      if (here(made) && lowered.graph.op(made).phase == Phase::kForward) kept.insert(input);
    }
  }
  int64_t most = 0;
  for (const Buffer& buffer : lowered.programs[rank].buffers) {
    if (buffer.lifetime == Lifetime::kMicroBatch && kept.contains(buffer.tensor))
      most = std::max(most, buffer.slots);
  }
  return most;
}

// Returns by rank the slots of its stages, added up. Checks that each is the number in flight.
std::vector<int64_t> checked_slots(const std::string& call, int64_t layers, int64_t micro_batches) {
  const Lowered lowered = lower_pipeline(call, layers, 2 * micro_batches);
  for (const Rejection& rejection : verify(lowered.graph, lowered.programs)) {
    ADD_FAILURE() << call << ": " << rejection.to_string();
  }
  std::vector<int64_t> sums;
  for (size_t rank = 0; rank < lowered.programs.size(); ++rank) {
    int64_t& sum = sums.emplace_back(0);
    const size_t row = lowered.plan.row_of(static_cast<int64_t>(rank));
    for (const StageId stage : lowered.programs[rank].stages) {
      const int64_t slots = slots_of(lowered, rank, stage.value);
      sum += slots;
      if (slots == 0) continue;  // an embedding: its tokens are read again
      EXPECT_EQ(slots, in_flight_of(lowered, row, stage.value))
          << call << " rank " << rank << " stage " << stage.value;
    }
  }
  return sums;
}

const std::vector<std::pair<int64_t, int64_t>> kShapes{{2, 1}, {2, 4}, {3, 3},
                                                       {3, 6}, {4, 4}, {4, 8}};

// docs/theory/superscaler.md section 8, docs/strategies/pipelines.md sections
// 2 and 4.
TEST(Pipelines, keep_as_many_micro_batches_as_published) {
  for (const auto& [n, m] : kShapes) {
    const auto found = [&, n = n, m = m](const char* schedule) {
      return checked_slots(fmt::format("pipeline({},{},{})", n, m, schedule), n, m);
    };
    const auto expect = [&, n = n](const char* schedule, const auto& of_place) {
      std::vector<int64_t> all;
      for (int64_t i = 0; i < n; ++i) all.push_back(of_place(i));
      EXPECT_EQ(found(schedule), all) << schedule;
    };
    expect("gpipe", [&, m = m](int64_t) { return m; });
    expect("1f1b", [&, n = n, m = m](int64_t i) { return std::min(m, n - i); });
    expect("eager_1f1b", [&, n = n, m = m](int64_t i) { return std::min(m, 2 * (n - i) - 1); });
    expect("zb_h1", [&, n = n, m = m](int64_t) { return std::min(m, n); });
    expect("zb_h2", [&, n = n, m = m](int64_t) { return std::min(m, 2 * n - 1); });
  }
}

TEST(Pipelines, keep_what_is_in_flight_in_each_chunk) {
  for (const auto& [n, m] : kShapes) {
    if (m % n == 0) {
      for (const int64_t c : {2, 3}) {
        const auto found =
            checked_slots(fmt::format("pipeline({},{},interleaved,{})", n, m, c), n * c, m);
        for (int64_t i = 0; i < n; ++i) {  // not all chunks are at their largest at once
          EXPECT_GE(found[static_cast<size_t>(i)],
                    std::min(c * m, n * (c - 1) + 2 * (n - 1 - i) + 1));
        }
      }
    }
    checked_slots(fmt::format("pipeline({},{},zb_v)", n, m), 2 * n, m);
    checked_slots(fmt::format("pipeline({},{},interlaced)", n, m), n, m);
  }
}

// The gradient of `up` equals that of `shift`: stage 1 sends it and reads it again in W.
TestPrograms shifted(const std::string& keys) {
  GraphBuilder g("shift");
  const Dim batch{"batch", 8}, in{"in", 4}, ffn{"ffn", 8};
  const Init init{Init::Kind::kNormal, 0.02};
  const auto x = g.input("x", {batch, in}, DType::kFloat64);
  const auto weight = g.parameter("up.weight", {in, ffn}, init, DType::kFloat64);
  const auto bias = g.parameter("shift.bias", {ffn}, init, DType::kFloat64);
  auto h =
      g.op1("up", "einsum", {x, weight}, {{"spec", std::string("batch in+, in ffn -> batch ffn")}});
  h = g.op1("shift", "add", {h, bias});
  const auto square = g.op1("square", "mul", {h, h});
  g.graph().loss = g.op1("loss", "reduce_sum", {square},
                         {{"dims", std::string("batch ffn")}, {"factor", 1.0 / 64}});
  const auto forward = g.finish();
  EXPECT_TRUE(forward.has_value()) << (forward ? "" : forward.error().message);
  TestPrograms lowered = lower_all(trained(forward.value()), "mesh = { pp = 2 }\n" + keys);
  for (const Rejection& rejection : verify(lowered.graph, lowered.programs)) {
    ADD_FAILURE() << rejection.to_string();
  }
  return lowered;
}

// The weight part runs two micro-batches later.
TEST(Pipelines, keep_a_gradient_that_is_sent_for_the_weights) {
  const TestPrograms lowered = shifted(
      "micro_batches = 4\nschedule = \"zb_h2\"\n"
      "stage = [ { ops = \"up\", at = 0 }, { ops = \"{shift,square,loss}\", at = 1 } ]\n");
  const auto& buffers = lowered.programs[1].buffers;
  EXPECT_TRUE(std::any_of(buffers.begin(), buffers.end(), [](const Buffer& buffer) {
    return buffer.name == "grad.shift" && buffer.slots > 1;
  }));
}

// The receiver takes the gradient after its work for the next micro-batch.
TEST(Pipelines, do_not_wait_behind_the_weights_for_a_gradient_that_is_taken_later) {
  const TestPrograms lowered = shifted(
      "micro_batches = 2\nplace = [0, 1, 0]\nschedule = [\n"
      "[\"F0@0\", \"F0@2\", \"B0@2\", \"F1@0\", \"F1@2\", \"B0@0\", \"B1@2\", \"B1@0\"],\n"
      "[\"F0@1\", \"B0@1\", \"W0@1\", \"F1@1\", \"B1@1\", \"W1@1\"] ]\n"
      "stage = [ { ops = \"up\", at = 0 }, { ops = \"{shift,square}\", at = 1 },\n"
      "{ ops = \"loss\", at = 2 } ]\n");
  EXPECT_EQ(lowered.programs.size(), 2U);
}

// Ranks 2 and 3 make the gradient of `total` for ranks 0 and 1, which take it in their last block
// (stage 0), behind one (stage 1) in which all four take part.
TEST(Pipelines, wait_for_a_message_behind_the_blocks_that_its_receiver_needs) {
  GraphBuilder g("two losses");
  const Dim batch{"batch", 8}, in{"in", 4}, ffn{"ffn", 8};
  const Init init{Init::Kind::kNormal, 0.02};
  const auto x = g.input("x", {batch, in}, DType::kFloat64);
  const auto weight = g.parameter("up.weight", {in, ffn}, init, DType::kFloat64);
  const auto h =
      g.op1("up", "einsum", {x, weight}, {{"spec", std::string("batch in+, in ffn -> batch ffn")}});
  const auto sum = [&](const std::string& path, TensorId of) {
    return g.op1(path, "reduce_sum", {of},
                 {{"dims", std::string("batch ffn")}, {"factor", 1.0 / 64}});
  };
  const auto near = sum("near", g.op1("near_square", "mul", {h, h}));
  const auto act = g.op1("act", "gelu", {h});
  const auto far = sum("far", g.op1("far_square", "mul", {act, act}));
  g.graph().loss = g.op1("total", "add_n", {near, far});
  const auto forward = g.finish();
  ASSERT_TRUE(forward.has_value()) << forward.error().message;
  const auto check = [&](const std::string& schedule, const std::string& last_mesh) {
    const TestPrograms lowered = lower_all(
        trained(*forward),
        "mesh = { a = 1 }\nmicro_batches = 1\nschedule = " + schedule + "\n" +
            "split = [ { ops = \"{up,act,near_square,near,far}\", dim = \"batch\", over = \"b\" "
            "},\n"
            "{ ops = \"far_square\", dim = \"batch\", over = [\"a\", \"b\"] } ]\n"
            "stage = [ { ops = \"{up,act,near*}\", at = 0, mesh = { b = 2 }, devices = 0 },\n"
            "{ ops = \"far_square\", at = 1, mesh = { a = 2, b = 2 }, devices = 0 },\n"
            "{ ops = \"far\", at = 2, mesh = { b = 2 }, devices = 2 },\n"
            "{ ops = \"total\", at = 3, mesh = " +
            last_mesh + " } ]\n");
    for (const Rejection& rejection : verify(lowered.graph, lowered.programs)) {
      ADD_FAILURE() << rejection.to_string();
    }
  };
  check("\"interlaced\"", "{ a = 2, b = 2 }, devices = 0");
  check(
      "[ [\"F0@0\", \"F0@1\", \"B0@1\", \"B0@0\"],\n"
      "[\"F0@1\", \"F0@2\", \"F0@3\", \"B0@3\", \"B0@2\", \"B0@1\"] ]",
      "{ b = 2 }, devices = 2");
}

// 5 sequences in micro-batches of 2, 2, 1.
TEST(MicroBatches, of_two_sizes_have_blocks_of_their_own) {
  for (const char* call : {"gpipe(2, 3)", "one_f_one_b(2, 3)", "pipeline(2, 3, zb_h1)"}) {
    Lowered lowered = lower_pipeline(call, 2, 5);
    ASSERT_EQ(lowered.programs.size(), 2U);
    for (const Program& program : lowered.programs) {
      EXPECT_EQ(program.micro_batch_size, 2);
      EXPECT_EQ(program.larger, 2);
      EXPECT_TRUE(program.blocks.contains({BlockKind::kForward, 1}));
      EXPECT_EQ(program.runs({BlockKind::kForward, 0}), 2);
      EXPECT_EQ(program.runs({BlockKind::kForward, 1}), 1);
      const auto parsed = parse_program(to_text(program, lowered.graph), lowered.graph);
      ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
      EXPECT_EQ(parsed->larger, program.larger);
      EXPECT_TRUE(parsed->blocks == program.blocks);
      EXPECT_EQ(to_text(*parsed, lowered.graph), to_text(program, lowered.graph));
    }
    for (const Rejection& rejection : verify(lowered.graph, lowered.programs))
      ADD_FAILURE() << call << ": " << rejection.to_string();
    for (BlockRunStep& run : lowered.programs[0].schedule) {
      if (run.block == BlockRef(BlockKind::kForward, 1)) run.block.chunk = 0;
    }
    const auto rejections = verify(lowered.graph, lowered.programs);
    ASSERT_FALSE(rejections.empty());
    EXPECT_NE(
        rejections[0].to_string().find("schedule: forward of micro-batch 2 is of another size"),
        std::string::npos)
        << rejections[0].to_string();
  }
}

}  // namespace
}  // namespace tessera
