#include "tessera/search/choices/halo_choices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "tessera/compile/compile.h"
#include "tessera/search/test_questions.h"

namespace tessera {
namespace {

const char* const kVolumes = "cosmoflow:width=32,channels=2,filters=4,outputs=3,dropout=0";

Choice cut_in_depth(int64_t ranks) {
  Choice choice;
  choice.axes = {{"dp", 1, {"batch"}}, {"tp", ranks, {"depth", "batch"}}};
  return choice;
}

struct Volumes {
  Compiler compiler;
  std::shared_ptr<const Model> model = compiler.model(kVolumes, 4, DType::kFloat32).value();
  std::shared_ptr<const Graph> forward = forward_of(model);
  Fold fold = fold_layers(model->graph).value();
  std::string text(const Choice& choice) const {
    return write_plan(choice, *forward, fold.units, "test").value();
  }
};

TEST(HaloChoices, AreEntriesOfThePlansSplits) {
  const Volumes volumes;
  Choice choice = cut_in_depth(2);
  EXPECT_EQ(volumes.text(choice).find("rims"), std::string::npos);
  choice.halos = {true, 2};
  const std::string text = volumes.text(choice);
  EXPECT_NE(text.find("\"time:rims\""), std::string::npos) << text;
  // There is one halo for each convolution and the pool behind it: the convolution makes the
  // pool's.
  const Plan plan = parse_plan(text).value();
  std::vector<std::string> making;
  for (const SplitEntry& entry : plan.splits) {
    EXPECT_EQ(entry.rims, entry.dim == "depth") << text;
    if (entry.computes_halo) making.push_back(entry.ops);
  }
  ASSERT_EQ(making.size(), 1U) << text;
  EXPECT_NE(making[0].find("conv"), std::string::npos) << text;
  Compiler compiler;
  EXPECT_TRUE(compiler.lower(volumes.forward, plan).has_value());
}

TEST(HaloChoices, MayDifferByUnit) {
  const Volumes volumes;
  Choice choice = cut_in_depth(2);
  choice.units.own().resize(volumes.fold.units.size());
  EXPECT_EQ(volumes.text(choice), volumes.text(cut_in_depth(2)));
  for (size_t u = choice.units.size() / 2; u < choice.units.size(); ++u)
    choice.units.own()[u].halo_layers = 2;
  Choice all = cut_in_depth(2);
  all.halos.layers = 2;
  const auto making = [&](const Choice& one) {
    const Plan plan = parse_plan(volumes.text(one)).value();
    Compiler compiler;
    const auto lowering = compiler.lower(volumes.forward, plan).value();
    const auto& ops = lowering->plan().ops;
    return std::count_if(ops.begin(), ops.end(), [](const OpPlan& op) {
      return std::any_of(op.dims.begin(), op.dims.end(),
                         [](const DimSplit& dim) { return dim.computes_halo; });
    });
  };
  EXPECT_GT(making(choice), 0);
  EXPECT_LT(making(choice), making(all));
}

TEST(HaloChoices, EditsAreThoseThatTheQuestionAllows) {
  const Volumes volumes;
  const Choice choice = cut_in_depth(2);
  PlanQuestion question;
  const size_t units = volumes.fold.units.size();
  const std::vector<Choice> edits = halo_edits(choice, *volumes.forward, units, question);
  const auto has = [&](const HaloChoice& halos) {
    return std::any_of(edits.begin(), edits.end(), [&](const Choice& edit) {
      return edit.halos == halos && edit.units.empty();
    });
  };
  EXPECT_TRUE(has({true, 1}) && has({false, 2}) && has({true, 2}));
  EXPECT_EQ(std::count(edits.begin(), edits.end(), choice), 0);

  question.fixed["halo_layers"] = "1";
  EXPECT_EQ(halo_edits(choice, *volumes.forward, units, question).size(), 1U);
  question.fixed["rims"] = "0";
  EXPECT_TRUE(halo_edits(choice, *volumes.forward, units, question).empty());
  question.fixed = {{"rims", "1"}, {"halo_layers", "3"}};
  EXPECT_EQ(fixed_halos(question), (HaloChoice{true, 3}));

  Choice replicas;
  replicas.axes = {{"dp", 2, {"batch"}}};
  EXPECT_TRUE(halo_edits(replicas, *volumes.forward, units, {}).empty());
}

PlanAnswer find_on(const std::string& model, int64_t batch, double nic_rate, double latency_s,
                   std::map<std::string, std::string> fixed, size_t programs = 0) {
  const auto asked = ask(model, "dgx-v100-16:4", batch);
  asked->question.evaluations = programs;
  for (ClusterPart& part : asked->cluster.parts) {
    part.type.devices = 1;
    part.type.nics = 1;
    part.type.nic.rate = nic_rate;
    part.type.nic.latency_s = latency_s;
  }
  asked->question.fixed = std::move(fixed);
  // Plans without halos are left out, so that plans with halos are compared.
  asked->question.without = parse_mechanisms("baseline").value();
  PlanAnswer answer = find_plan(asked->question, "auto", search_planners()).value();
  expect_sound(answer, asked->question);
  return answer;
}

// Halos of large volumes take long on slow links: they arrive while the interior is computed.
TEST(HaloChoices, InteriorsComeFirstOnSlowLinks) {
  const std::string model = "cosmoflow:width=512";
  const PlanAnswer plain =
      find_on(model, 1, 1e9, 12e-6, {{"rims", "0"}, {"halo_layers", "1"}, {"tp", "4"}}, 6);
  const PlanAnswer found = find_on(model, 1, 1e9, 12e-6, {{"tp", "4"}}, 6);
  EXPECT_TRUE(best_of(found).choice.halos.rims) << best_of(found).choice.str();
  EXPECT_NE(found.plan.find("time:rims"), std::string::npos);
  EXPECT_LT(step_of(found), .99 * step_of(plain));
}

// Where messages take longer to start than to carry their bytes, fewer of them are exchanged.
TEST(HaloChoices, HalosAreComputedWhereMessagesStartSlowly) {
  const std::string model = "vgg:layers=16,form=cifar,image=64,dropout=0";
  const std::map<std::string, std::string> cut = {{"tp", "4"}, {"rims", "0"}};
  std::map<std::string, std::string> plain_cut = cut;
  plain_cut["halo_layers"] = "1";
  const PlanAnswer plain = find_on(model, 1, 12.5e9, 5e-3, plain_cut, 8);
  const PlanAnswer found = find_on(model, 1, 12.5e9, 5e-3, cut, 8);
  EXPECT_NE(found.plan.find("halo = \"compute\""), std::string::npos)
      << best_of(found).choice.str();
  EXPECT_LT(step_of(found), .99 * step_of(plain));
}

// A model that reads nothing through windows is searched as without these choices.
TEST(HaloChoices, CostNothingWhereThereAreNoHalos) {
  const std::string model = "gpt:layers=4,hidden=256,heads=4,seq=128,vocab=512";
  const PlanAnswer plain =
      find_on(model, 8, 12.5e9, 12e-6, {{"rims", "0"}, {"halo_layers", "1"}, {"tp", "2"}}, 4);
  const PlanAnswer found = find_on(model, 8, 12.5e9, 12e-6, {{"tp", "2"}}, 4);
  EXPECT_EQ(found.plan, plain.plan);
  EXPECT_EQ(found.folded_programs, plain.folded_programs);
  EXPECT_EQ(found.estimated, plain.estimated);
}

TEST(HaloChoices, AreOfThePlannerAutoOnly) {
  const auto asked = ask(kVolumes, "dgx-v100-16:1", 4);
  asked->question.fixed = {{"halo_layers", "2"}};
  EXPECT_EQ(find_plan(asked->question, "megatron_grid", search_planners()).error().message,
            "plan: --fix halo_layers=2: expected --planner auto, found planner 'megatron_grid', "
            "which exchanges a halo for each layer");
  asked->question.fixed = {{"rims", "2"}};
  EXPECT_EQ(find_plan(asked->question, "auto", search_planners()).error().message,
            "plan: --fix rims=2: expected a whole number from 0 to 1");
}

}  // namespace
}  // namespace tessera
