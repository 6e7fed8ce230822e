#include "tessera/compile/compile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "tessera/plan/load.h"
#include "tessera/program/text/text.h"

namespace tessera {
namespace {

constexpr const char* kModel = "gpt:layers=4,hidden=32,heads=4,seq=16,vocab=32";

std::string programs_of(const Lowering& lowering) {
  std::string out;
  for (const RankClass& role : lowering.roles())
    out += to_text(*lowering.lower(role.representative), lowering.graph());
  return out;
}

TEST(Compile, makes_programs_of_texts) {
  const auto compiled = compile({kModel, "megatron(tp=2,pp=2,micro_batches=2)", 8});
  ASSERT_TRUE(compiled) << compiled.error().message;
  EXPECT_EQ(compiled->ranks(), 4);
  EXPECT_EQ(compiled->batch, 8);
  EXPECT_FALSE(compiled->batch_is_default);
  EXPECT_EQ(compiled->model->batch, 8);
  EXPECT_EQ(compiled->computes_in(), DType::kFloat32);
  const auto programs = lower_and_verify(*compiled->lowering);
  ASSERT_TRUE(programs) << programs.error().message;
  EXPECT_EQ(programs->size(), 4U);
}

TEST(Compile, takes_the_smallest_batch_that_the_plan_divides) {
  const auto compiled = compile({kModel, "megatron(dp=2,micro_batches=3)"});
  ASSERT_TRUE(compiled) << compiled.error().message;
  EXPECT_EQ(compiled->batch, 6);
  EXPECT_TRUE(compiled->batch_is_default);
}

// Returns the text of a plan with outer steps; `rest` are more keys.
std::string with_outer(const std::string& mesh, const std::string& outer, const std::string& rest) {
  return "mesh = { " + mesh + " }\nouter = { axis = \"site\", " + outer + " }\n" + rest;
}

TEST(Outer, islands_have_programs_of_their_own_and_one_for_all_of_them) {
  const auto compiled =
      compile({kModel,
               with_outer("site = 2, dp = 2, tp = 2", "every = 8, fragments = 2",
                          "split = [ { ops = \"*\", dim = \"batch\", over = \"dp\" },\n"
                          "          { ops = \"blocks.*.mlp\", dim = \"ffn\", over = \"tp\" } ]\n"),
               8,
               "float32",
               "",
               {},
               false,
               {},
               true});
  ASSERT_TRUE(compiled) << compiled.error().message;
  EXPECT_EQ(compiled->islands(), 2);
  EXPECT_EQ(compiled->ranks(), 8);
  EXPECT_EQ(compiled->batch, 4);
  EXPECT_EQ(compiled->plan().ranks, 4);
  ASSERT_TRUE(lower_and_verify(*compiled->lowering));
  ASSERT_EQ(compiled->outer->fragments.size(), 2U);
  int64_t sent = 0;
  int64_t elements = 0;
  for (const OuterFragment& fragment : compiled->outer->fragments) {
    const auto programs = lower_and_verify(*fragment.lowering);
    ASSERT_TRUE(programs) << programs.error().message;
    ASSERT_EQ(programs->size(), 8U);
    for (const Program& program : *programs) {
      const Volume all = volume(program, fragment.lowering->graph());
      for (const auto& [kind, traffic] : all.by_kind) {
        EXPECT_EQ(kind, "all_reduce") << "nothing but the pseudo-gradient moves";
        sent += traffic.bytes;
      }
    }
    for (const std::string& name : fragment.parameters) {
      const TensorId id = compiled->graph().find_tensor(name);
      elements += compiled->graph().tensor(id).elements();
    }
  }
  EXPECT_EQ(elements, parameter_count(compiled->model->graph));
  // The ranks of an island share the work: over all ranks each element goes once to the other
  // island and back in an all-reduce of two.
  EXPECT_EQ(sent, 2 * elements * 4);
}

TEST(Outer, stages_keep_their_parameters) {
  const auto compiled = compile(
      {kModel,
       with_outer(
           "site = 3, pp = 2", "every = 4, with = \"int8\", error_feedback = true",
           "stage = [ { ops = \"*\", at = 0 }, { ops = \"{blocks.2,blocks.3,final,head,loss}\", "
           "at = 1 } ]\n"),
       6,
       "float32",
       "",
       {},
       false,
       {},
       true});
  ASSERT_TRUE(compiled) << compiled.error().message;
  const auto programs = lower_and_verify(*compiled->outer->fragments[0].lowering);
  ASSERT_TRUE(programs) << programs.error().message;
  EXPECT_TRUE(is_lossy(programs->front()));
  const auto homes = [&](size_t rank) { return (*programs)[rank].homes.size(); };
  EXPECT_GT(homes(0), 0U);
  EXPECT_EQ(homes(0), homes(2)) << "rank 2 is the first stage of the second island";
}

TEST(Outer, errors_name_the_line) {
  const auto error = [](const std::string& mesh, const std::string& outer, int64_t batch = 4) {
    const auto compiled = compile(
        {kModel, with_outer(mesh, outer, ""), batch, "float32", "", {}, false, {}, batch != 5});
    return compiled ? std::string("none") : compiled.error().message;
  };
  EXPECT_EQ(error("site = 2", "every = 8, fragments = 8"),
            "<plan>:2: expected at most as many fragments as the model has blocks, 4, found 8");
  EXPECT_EQ(error("site = 2", "every = 8, fragments = 3"),
            "<plan>:2: expected 'every' in 'outer' to be a multiple of 'fragments', found 8 and 3");
  EXPECT_EQ(error("site = 2", "every = 8, fragments = 4, delay = 2"),
            "<plan>:2: expected 'delay' in 'outer' to be less than every / fragments = 2, found 2");
  EXPECT_EQ(error("dp = 2, site = 2", "every = 8"),
            "<plan>:2: expected the axis of 'outer' to be the first of the mesh {dp=2, site=2}, "
            "found 'site'");
  EXPECT_EQ(error("site = 2", "every = 8", 3),
            "<plan>:2: expected a batch that the 2 islands of axis 'site' divide, found 3");
  EXPECT_EQ(error("site = 2", "every = 8", 5),
            "<plan>:2: expected a plan without 'outer' here: train, verify, simulate and inspect "
            "take one with it");
  EXPECT_EQ(error("site = 2", "every = 8, mix = 2"),
            "<plan>:2: 'mix' in outer: expected a number from 0 to 1, found 2");
}

TEST(Compile, computes_in_the_precision_of_the_run) {
  EXPECT_EQ(compile({kModel, "serial", 4, "bfloat16"})->computes_in(), DType::kBFloat16);
  EXPECT_EQ(compile({kModel, "serial", 4, "float64"})->computes_in(), DType::kFloat64);
}

TEST(Compile, keeps_gradients_that_are_asked_for) {
  const auto without = compile({kModel, "serial", 4});
  const auto with = compile({kModel, "serial", 4, "float32", "", {}, true});
  ASSERT_TRUE(without && with);
  const auto parameters = std::ranges::count_if(with->graph().tensors(), [](const Tensor& tensor) {
    return tensor.role == Role::kParameter && !tensor.update_of.valid();
  });
  EXPECT_EQ(without->lowering->lower(0)->fetches.size(), 1U);
  EXPECT_EQ(with->lowering->lower(0)->fetches.size(), 1 + static_cast<size_t>(parameters));
}

TEST(Compile, keeps_tensors_that_are_asked_for_by_name) {
  CompileTexts texts{kModel, "megatron(tp=2,dp=2)", 4};
  const Model model = build_model(texts.model, texts.batch).value();
  const std::vector<TensorId> logits = compared_with_targets(model.graph);
  ASSERT_EQ(logits.size(), 1U);
  EXPECT_EQ(describe(model.graph.tensor(logits[0]).dims), "[batch=4, seq=16, vocab=32]");
  texts.fetch = {model.graph.tensor(logits[0]).name};
  const auto compiled = compile(texts);
  ASSERT_TRUE(compiled) << compiled.error().message;
  const auto programs = lower_and_verify(*compiled->lowering);
  ASSERT_TRUE(programs) << programs.error().message;
  // Together the ranks have every element, each rank as many as it computes: a half of the batch
  // and of the vocabulary.
  for (const Program& program : *programs) {
    const auto kept = std::ranges::find_if(program.fetches, [&](const Home& home) {
      return compiled->graph().tensor(home.tensor).name == texts.fetch[0];
    });
    ASSERT_NE(kept, program.fetches.end());
    EXPECT_EQ(kept->region.volume(), 4 * 16 * 32 / 4);
  }
  texts.fetch = {"none"};
  EXPECT_EQ(compile(texts).error().message,
            "expected a tensor of the graph to keep to the end of the step, found 'none'");
}

TEST(Compile, errors_say_where) {
  const auto message = [](const CompileTexts& texts) {
    const auto compiled = compile(texts);
    return compiled ? "" : compiled.error().message;
  };
  const std::string path = testing::TempDir() + "/compile_test_plan.toml";
  std::ofstream(path) << "mesh = { dp = 2 }\nsplit = [\n"
                         "  { ops = \"*\", dim = \"bath\", over = \"dp\" },\n]\n";
  EXPECT_EQ(message({kModel, path, 4}).find(path + ":3: "), 0U) << message({kModel, path, 4});
  EXPECT_NE(message({"gpt:layer=4", "serial", 4}).find("layer"), std::string::npos);
  EXPECT_NE(message({kModel, "megatron(tq=2)", 4}).find("tq"), std::string::npos);
  EXPECT_NE(message({kModel, "serial", 4, "float8"}).find("float8"), std::string::npos);
}

// Plans that share a session give the same results as alone, in whatever order they are compiled:
// graphs are shared between equal precisions, expansions and recomputations, never between others.
TEST(Compiler, plans_do_not_change_one_another) {
  const std::vector<std::string> plans = {
      "megatron(tp=2,pp=2,micro_batches=2)",
      "megatron(tp=2,dp=2,recompute=full)",
      "megatron(tp=2,dp=2,recompute=selective)",
      "megatron(dp=4,precision=bfloat16)",
      "zero(stage=3,dp=4)",
      "terapipe(pp=2,slices=4)",
      "ring_attention(cp=2)",
      "tensor_parallel_2d(rows=2,cols=2)",
  };
  Compiler compiler(2);
  for (const int round : {0, 1}) {
    for (const std::string& plan : plans) {
      const auto alone = compile({kModel, plan, 8});
      const auto shared = compiler.compile({kModel, plan, 8});
      ASSERT_EQ(alone.has_value(), shared.has_value()) << plan;
      if (!alone) continue;
      EXPECT_EQ(programs_of(*shared->lowering), programs_of(*alone->lowering))
          << plan << " in round " << round;
    }
  }
}

TEST(Compiler, makes_models_and_graphs_once) {
  Compiler compiler;
  const auto model = compiler.model(kModel, 8);
  ASSERT_TRUE(model);
  EXPECT_EQ(compiler.model(kModel, 8)->get(), model->get());
  EXPECT_NE(compiler.model(kModel, 16)->get(), model->get());
  EXPECT_NE(compiler.model(kModel, 8, DType::kFloat64)->get(), model->get());
  const auto graph_of = [&](const std::string& plan) {
    const auto loaded = load_plan(plan, (*model)->graph);
    return &(*compiler.lower(forward_of(*model), *loaded))->graph();
  };
  const Graph* plain = graph_of("megatron(dp=2)");
  EXPECT_EQ(graph_of("megatron(tp=2)"), plain);
  const Graph* again = graph_of("megatron(dp=2,recompute=full)");
  EXPECT_NE(again, plain);
  EXPECT_EQ(graph_of("megatron(tp=2,recompute=full)"), again);
  EXPECT_NE(graph_of("megatron(tp=2,recompute=selective)"), again);
  EXPECT_NE(graph_of("megatron(dp=2,precision=bfloat16)"), plain);
  EXPECT_EQ(graph_of("megatron(dp=2)"), plain);
}

// Returns the points of the iteration spaces of all update ops with such a name, on rank 0.
int64_t points_of(const std::string& plan, const std::string& name) {
  CompileTexts texts{kModel, plan, 8};
  texts.optimizer.kind = "muon";
  const auto compiled = compile(texts);
  EXPECT_TRUE(compiled) << compiled.error().message;
  if (!compiled) return 0;
  const auto program = compiled->lowering->lower(0);
  EXPECT_TRUE(program) << program.error().message;
  int64_t points = 0;
  for (const Instruction& instruction : program->block(BlockKind::kUpdate)) {
    const auto* compute = std::get_if<Compute>(&instruction.body);
    if (compute != nullptr && compiled->graph().op(compute->op).path.ends_with(name))
      points += compute->box.volume();
  }
  return points;
}

// Muon's products under sharded states: each rank multiplies its rows with all columns.
TEST(Compile, matrix_products_of_an_optimizer_are_cut_as_its_state_is) {
  const int64_t whole = points_of("serial", "mlp.up.weight.gram.0");
  EXPECT_EQ(whole, 4 * 32 * 32 * 128);
  EXPECT_EQ(points_of("zero(stage=1,dp=4)", "mlp.up.weight.gram.0") * 4, whole);
  EXPECT_EQ(points_of("zero(stage=3,dp=4)", "mlp.up.weight.product.4") * 4, whole);
  EXPECT_EQ(points_of("tensor_parallel(tp=2)", "mlp.up.weight.gram.0") * 2, whole);
}

}  // namespace
}  // namespace tessera
