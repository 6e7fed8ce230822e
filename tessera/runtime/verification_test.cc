// Tests the comparison with the serial run, in every dtype: faults that are put into accepted
// programs exceed its limits, whichever dtype the run computes in, and sound programs do not.
#include "tessera/runtime/verification.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "tessera/base/text.h"
#include "tessera/test/all_cases.h"

namespace tessera {
namespace {

constexpr const char* kDTypes[] = {"float64", "float32", "float16", "bfloat16"};

VerifyConfig config(const char* dtype, const char* plan) {
  VerifyConfig c;
  c.model = "gpt:layers=2,hidden=16,heads=2,seq=6,vocab=20,tied=0";
  c.plan = plan;
  c.batch = 8;
  c.steps = 3;
  c.precision = dtype;
  c.optimizer.kind = "sgd";
  c.optimizer.lr = 0.1;
  c.optimizer.warmup = 1;
  return c;
}

// Returns whether the instruction is a collective that sums.
bool sums(const Instruction& instruction) {
  const auto* issue = std::get_if<Issue>(&instruction.body);
  return issue != nullptr && issue->combiner == Combiner::kSum;
}

// Returns the number of sums in the blocks of a program.
int count_sums(const Program& program) {
  int64_t count = 0;
  for (const auto& [ref, block] : program.blocks)
    count += std::count_if(block.begin(), block.end(), sums);
  return static_cast<int>(count);
}

// Calls f(instruction, issue, out) for the nth sum and its waits: f appends to `out` the
// replacement of the instruction.
template <class F>
void edit_sum(Program& program, int which, F&& f) {
  std::optional<Issue> found;
  for (const auto& [ref, block] : program.blocks) {
    for (const Instruction& instruction : block) {
      if (sums(instruction) && which-- == 0) found = std::get<Issue>(instruction.body);
    }
  }
  ASSERT_TRUE(found);
  for (auto& [ref, block] : program.blocks) {
    std::vector<Instruction> out;
    for (const Instruction& instruction : block) {
      const auto* issue = std::get_if<Issue>(&instruction.body);
      const auto* wait = std::get_if<Wait>(&instruction.body);
      const bool touched = (issue != nullptr && issue->handle == found->handle) ||
                           (wait != nullptr && wait->handle == found->handle);
      if (touched) {
        f(instruction, *found, out);
      } else {
        out.push_back(instruction);
      }
    }
    block = std::move(out);
  }
}

// Leaves the nth sum of every rank out: the rank's own contribution stands for the sum.
void drop(std::vector<Program>& programs, int which) {
  for (Program& program : programs) {
    edit_sum(program, which, [&](Instruction old, const Issue& issue, auto& out) {
      if (std::holds_alternative<Wait>(old.body)) return;
      const auto me = static_cast<size_t>(program.groups[static_cast<size_t>(issue.group)].index);
      for (const Transfer& transfer : issue.transfers) {
        if (!transfer.in || !transfer.out) continue;
        // From a scattered sum, a rank takes its own part of its own contribution.
        View from = *transfer.in;
        const Box &hold = transfer.hold[me], &need = transfer.need[me];
        for (size_t d = 0; d < need.rank(); ++d) {
          from.box.dims[d].begin += need.dims[d].begin - hold.dims[d].begin;
          from.box.dims[d].size = need.dims[d].size;
        }
        old.body = Copy{transfer.tensor, need, from, *transfer.out};
        out.push_back(old);
      }
    });
  }
}

void expect_found(const VerifyConfig& c, const Alter& alter, const std::string& what) {
  const auto report = verify_altered(c, alter);
  ASSERT_TRUE(report) << what << report.error().message;
  EXPECT_FALSE(report->ok) << what;
  EXPECT_NE(report->why.find("largest relative error"), std::string::npos) << what << report->why;
}

TEST(Verification, SoundPlansAreWithinTheLimits) {
  for (const char* dtype : kDTypes) {
    for (const char* plan : {"data_parallel(2,micro_batches=2)", "tensor_parallel(2)"}) {
      const auto report = verify_plan(config(dtype, plan));
      ASSERT_TRUE(report) << report.error().message;
      EXPECT_TRUE(report->ok) << dtype << " " << plan << ": " << report->why;
    }
  }
}

TEST(Verification, EveryDroppedSumIsFound) {
  const std::vector<const char*> dtypes(std::begin(kDTypes), std::end(kDTypes)),
      plans = {"data_parallel(2,micro_batches=2)", "tensor_parallel(2)"};
  for (const auto& [dtype, plan] : combinations(dtypes, plans)) {
    int found = 0, all = 1;
    for (; found < all; ++found) {
      expect_found(
          config(dtype, plan),
          [&](const Graph&, std::vector<Program>& programs) {
            all = count_sums(programs.front());
            drop(programs, found);
          },
          fmt::format("{} {}: sum {}: ", dtype, plan, found));
    }
    EXPECT_GT(all, 1) << plan;
  }
}

// In front of a norm the gradient of a bias is zero: a sum of large terms that cancel. These terms
// measure it, and errors are found all the same.
TEST(Verification, AGradientThatCancelsIsMeasuredByItsTerms) {
  VerifyConfig c;
  c.model = "vgg:layers=11,form=cifar,norm=1,image=32,width=2,classes=5,ghost=2";
  c.plan = "spatial(h=2)";
  c.batch = 4;
  const auto sound = verify_plan(c);
  ASSERT_TRUE(sound) << sound.error().message;
  EXPECT_TRUE(sound->ok) << sound->why;
  int found = 0, all = 1;
  for (; found < all; found += all_cases() ? 1 : 3) {
    expect_found(
        c,
        [&](const Graph&, std::vector<Program>& programs) {
          all = count_sums(programs.front());
          drop(programs, found);
        },
        fmt::format("sum {}: ", found));
  }
  EXPECT_GT(all, 1);
}

// Returns networks behind whose norms little more than roundings is left: norms that divide by the
// difference of two numbers, and an optimizer that divides roundings by their own size.
std::vector<VerifyConfig> noisy_runs() {
  const struct {
    const char *model, *plan, *optimizer;
    double eps;
  } runs[] = {
      {"mobilenet_v2:image=32,multiplier=0.1,classes=5,ghost=2,eps=0", "data_parallel(2)", "adamw",
       1e-8},
      {"mobilenet_v2:image=32,multiplier=0.1,classes=5,ghost=2,eps=0", "spatial(h=2)", "sgd", 1e-8},
      {"resnet:layers=18,width=4,image=32,classes=5,ghost=2,eps=1e-12", "data_parallel(2)", "lamb",
       1e-8},
      {"resnet:layers=50,width=4,image=32,classes=5,ghost=2", "data_parallel(2)", "adamw", 1e-30},
  };
  std::vector<VerifyConfig> out;
  for (const auto& [model, plan, optimizer, eps] : runs) {
    VerifyConfig c;
    c.model = model;
    c.plan = plan;
    c.batch = 4;
    c.optimizer.kind = optimizer;
    c.optimizer.eps = eps;
    out.push_back(c);
  }
  return out;
}

// The gradient of what is made of a parameter alone is no gradient of a parameter, even if it is a
// sum and has the parameter's dims.
TEST(Verification, ATermOfAScalarMadeOfAParameterIsNotCompared) {
  const char* const text = R"(graph "scaled"
input %x [batch=8, in=4] float32
parameter %w [in=4, out=2] float32 init=normal(0.5)
parameter %s [] float32 init=constant(0.3)
activation %y [batch=8, out=2] float32
forward op "y" %y = einsum(%x, %w) {spec="batch in, in out -> batch out"}
activation %e [] float32
forward op "e" %e = exp(%s)
activation %z [batch=8, out=2] float32
forward op "z" %z = mul(%y, %e)
activation %loss [] float32
forward op "loss" %loss = reduce_sum(%z) {dims="batch out", factor=0.5}
loss %loss
)";
  const std::string path = ::testing::TempDir() + "/scaled.graph";
  ASSERT_TRUE(write_file(path, text));
  VerifyConfig c = config("float64", "fsdp(dp=4)");
  c.model = path;
  const auto report = verify_plan(c);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->ok) << report->why;
}

TEST(Verification, WhatRoundingsExplainIsNoFault) {
  for (const VerifyConfig& c : noisy_runs()) {
    const auto report = verify_plan(c);
    ASSERT_TRUE(report) << c.model << ": " << report.error().message;
    EXPECT_TRUE(report->ok) << c.model << " " << c.plan << ": " << report->why;
    EXPECT_GT(report->within_noise.tensors, 0) << c.model;
    EXPECT_GT(report->within_noise.error, 1e-9) << c.model;
    EXPECT_LE(report->within_noise.error, kNoiseMargin * report->within_noise.noise) << c.model;
  }
}

// The fault has the size of the roundings: all gradients of the parallel run are a ten-millionth
// too large. Most tensors have no such roundings, and each sum that is left out is found as well.
TEST(Verification, AFaultOfTheSizeOfRoundingsIsFound) {
  for (VerifyConfig c : noisy_runs()) {
    c.plan = "spatial(h=2)";  // whose graph is its own: the fault does not reach the serial runs
    int changed = 0;
    const auto report = verify_altered(c, [&](const Graph& graph, std::vector<Program>&) {
      for (const Op& op : graph.ops()) {
        if (op.path != "loss.mean.dx.scale") continue;
        // Kernels read the attributes when they first run.
        Attributes& attributes = const_cast<Graph&>(graph).op(op.id).attributes;
        attributes["factor"] = op.number("factor") * (1 + 1e-7);
        ++changed;
      }
    });
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_EQ(changed, 1);
    EXPECT_FALSE(report->ok) << c.model << " " << c.plan;
    EXPECT_NE(report->why.find("gradients: largest relative error"), std::string::npos)
        << report->why;
    EXPECT_GT(report->within_noise.tensors, 0) << "the run is not noisy: " << c.model;
  }
  const VerifyConfig c = noisy_runs().front();
  int found = 0, all = 1;
  for (; found < all; found += all_cases() ? 1 : 5) {
    expect_found(
        c,
        [&](const Graph&, std::vector<Program>& programs) {
          all = count_sums(programs.front());
          drop(programs, found);
        },
        fmt::format("sum {}: ", found));
  }
  EXPECT_GT(all, 1);
}

// Adam without epsilon divides 0 by 0 where a gradient is 0, as at the outer elements of a kernel
// over maps of one pixel. Both runs do, at the same elements.
TEST(Verification, WhatIsNoNumberInBothRunsIsEqual) {
  VerifyConfig c = noisy_runs().front();
  c.optimizer.eps = 0;
  for (const char* model : {"mobilenet_v2:image=32,multiplier=0.1,classes=5,ghost=2",
                            "resnet:layers=18,width=4,image=32,classes=5,ghost=2"}) {
    c.model = model;
    const auto report = verify_plan(c);
    ASSERT_TRUE(report) << model << ": " << report.error().message;
    EXPECT_TRUE(report->ok) << model << ": " << report->why;
    EXPECT_GT(report->not_finite, 0) << model;
    expect_found(
        c, [](const Graph&, std::vector<Program>& programs) { drop(programs, 0); }, model);
  }
}

// The contribution of a micro-batch to a gradient replaces earlier ones.
TEST(Verification, ForgottenMicroBatchesAreFound) {
  for (const char* dtype : kDTypes) {
    const Alter forget = [](const Graph& graph, std::vector<Program>& programs) {
      int changed = 0;
      for (Program& program : programs) {
        for (auto& [ref, block] : program.blocks) {
          for (Instruction& instruction : block) {
            auto* compute = std::get_if<Compute>(&instruction.body);
            if (compute == nullptr) continue;
            for (Output& output : compute->outputs) {
              if (output.write != Write::kAddExceptFirst ||
                  graph.tensor(output.tensor).role != Role::kGradient)
                continue;
              output.write = Write::kSet;
              ++changed;
            }
          }
        }
      }
      EXPECT_GT(changed, 0);
    };
    expect_found(config(dtype, "data_parallel(2,micro_batches=2)"), forget, dtype);
  }
}

// The result of the first sum is added to itself: it is twice too large.
TEST(Verification, AScaledGradientIsFound) {
  for (const char* dtype : kDTypes) {
    const Alter scale = [](const Graph& graph, std::vector<Program>& programs) {
      for (Program& program : programs) {
        const auto me = [&](const Issue& issue) {
          return static_cast<size_t>(program.groups[static_cast<size_t>(issue.group)].index);
        };
        edit_sum(program, 0, [&](Instruction old, const Issue& issue, auto& out) {
          out.push_back(old);
          if (std::holds_alternative<Issue>(old.body)) return;
          for (const Transfer& transfer : issue.transfers) {
            EXPECT_EQ(graph.tensor(transfer.tensor).role, Role::kGradient);
            old.body = Copy{transfer.tensor, transfer.need[me(issue)], *transfer.out, *transfer.out,
                            Write::kAdd};
            out.push_back(old);
          }
        });
      }
    };
    expect_found(config(dtype, "data_parallel(2,micro_batches=2)"), scale, dtype);
  }
}

}  // namespace
}  // namespace tessera
