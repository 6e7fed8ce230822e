#include "formula_runs.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "tessera/base/text.h"
#include "tessera/compile/optimizer_text.h"
#include "tessera/runtime/session.h"

namespace tessera {

std::ostream& operator<<(std::ostream& out, const FormulaRun& run) {
  return out << run.model << " " << run.plan << " " << run.optimizer << " " << run.precision;
}

std::vector<FormulaRun> formula_runs() {
  const std::string gpt = "gpt:layers=2,hidden=24,heads=6,seq=6,vocab=30",
                    mixtral = "mixtral:layers=2,hidden=24,heads=4,seq=6,vocab=30,ffn=16,experts=4",
                    dlrm = "dlrm:dense=4,rows=20-10,width=4,bottom=4,top=4-1";
  std::vector<FormulaRun> runs = {
      {mixtral + ",z_loss=0.01", "expert_parallel(ep=2)"},
      {mixtral + ",router=sigmoid,choice_bias=1,groups=2,group_best=2,weigh_inside=1",
       "data_parallel(2)"},
      {mixtral + ",weigh_before=1,capacity_factor=0.5", "expert_parallel(ep=2)"},
      {gpt + ",dropout=0.2,attention_dropout=0.2", "megatron(tp=2,dp=2)"},
      {gpt + ",dropout=0.2,attention_dropout=0.2", "gpipe(pp=2,micro_batches=4)"},
      {"llama:layers=2,hidden=24,heads=4,seq=8,vocab=30,score_cap=5,sinks=1,window=4",
       "data_parallel(2)"},
      {gpt, "data_parallel(2,precision=float16)", "sgd", "float16"},
      {dlrm + ",bags=3,mode=mean", "tables(2)", "adamw,tables.*=row_adam"},
      {dlrm, "tables(4,column)", "adamw,tables.*=rowwise_adagrad"},
  };
  for (const size_t quick : {0, 3, 8}) runs[quick].quick = true;
  for (const char* optimizer : {"adafactor", "lion", "lars", "lamb", "muon", "adagrad", "sgd"})
    runs.push_back({gpt, "fsdp(dp=2)", optimizer});
  for (const char* tables : {"adamw", "adagrad", "row_sgd", "rowwise_adagrad", "row_adam"})
    runs.push_back({dlrm, "tables(2,row)", std::string("adamw,tables.*=") + tables});
  // Rows in a cache, whose ids are places.
  const std::string cached =
      "mesh = { a = 1 }\n"
      "store = [{ tensors = \"{,optimizer.*.}tables.*\", tier = \"host\", "
      "cache = { slots = 7, policy = \"lookahead\", window = 2 } }]\n";
  for (const char* tables : {"row_sgd", "rowwise_adagrad", "row_adam"}) {
    runs.push_back({dlrm, cached, std::string("adamw,tables.*=") + tables});
    runs.back().cached = true;
  }
  return runs;
}

void expect_equal_to_serial(const FormulaRun& run, const std::string& device) {
  VerifyConfig config;
  config.model = run.model;
  config.plan = run.plan;
  if (run.plan.find('\n') != std::string::npos) {  // the text of a plan file
    config.plan = testing::TempDir() + "formula_run_" + std::to_string(getpid()) + ".toml";
    const Status written = write_file(config.plan, run.plan);
    ASSERT_TRUE(written) << written.error().message;
  }
  config.device = device;
  config.precision = run.precision;
  const auto optimizer = parse_optimizer_text(run.optimizer);
  ASSERT_TRUE(optimizer) << optimizer.error().message;
  config.optimizer.kind = optimizer->kind;
  config.optimizer.groups = optimizer->groups;
  const auto report = verify_plan(config);
  ASSERT_TRUE(report) << run << ": " << report.error().message;
  EXPECT_TRUE(report->ok) << run << " " << device << ": " << report->why;
}

}  // namespace tessera
