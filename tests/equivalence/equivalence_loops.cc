// Loops over groups of ops compute the results of the unlooped graph, whatever the sizes of the
// steps; they keep and send what their pages say.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <random>

#include "tessera/models/model.h"
#include "tessera/runtime/session.h"

namespace tessera {
namespace {

constexpr int64_t kBatch = 4, kSeq = 8, kHidden = 16;
const std::string kGpt = "gpt:layers=2,hidden=16,heads=4,seq=8,vocab=24";
const std::string kLlama = "llama:layers=2,hidden=16,heads=4,kv_heads=4,seq=8,vocab=24,ffn=64";

VerifyReport verified(const std::string& spec, const std::string& plan) {
  VerifyConfig config;
  config.batch = kBatch;
  config.steps = 1;
  config.timeout_s = 60;
  config.optimizer.kind = "sgd";
  config.optimizer.clip = 0;
  config.tolerance = 1e-12;
  const auto model = build_model(spec, kBatch, DType::kFloat64);
  EXPECT_TRUE(model) << model.error().message;
  if (!model) return {};
  const auto report = verify_model(*model, plan, config);
  EXPECT_TRUE(report) << report.error().message << "\n" << plan;
  if (!report) return {};
  EXPECT_TRUE(report->ok) << report->why << "\n" << spec << "\n" << plan;
  return *report;
}

std::string sizes_text(const std::vector<int64_t>& sizes) {
  return fmt::format("[{}]", fmt::join(sizes, ", "));
}

// Returns sizes that cut the sequence behind position i if bit i is set.
std::vector<int64_t> composition(int64_t whole, uint32_t cuts) {
  std::vector<int64_t> sizes{1};
  for (int64_t i = 0; i + 1 < whole; ++i) {
    if ((cuts >> i & 1U) != 0) {
      sizes.push_back(1);
    } else {
      ++sizes.back();
    }
  }
  return sizes;
}

std::string token_pipeline(const std::vector<int64_t>& sizes, int micro_batches,
                           const std::string& schedule) {
  return fmt::format(R"(mesh = {{ pp = 2 }}
micro_batches = {}
schedule = "{}"
stage = [
  {{ ops = "{{embed,blocks.0}}", at = 0 }},
  {{ ops = "{{blocks.1,final,head,loss}}", at = 1 }},
]
loop = [ {{ ops = "*", dim = "seq", sizes = {}, stages = true }} ]
)",
                     micro_batches, schedule, sizes_text(sizes));
}

TEST(Loops, AnySlicingOfTheSequenceEqualsSerial) {
  std::mt19937 random(7);
  std::vector<uint32_t> cuts{0, (1U << (kSeq - 1)) - 1};  // one slice; one position each
  for (int i = 0; i < 4; ++i) cuts.push_back(random() % (1U << (kSeq - 1)));
  for (const uint32_t cut : cuts) {
    const auto sizes = sizes_text(composition(kSeq, cut));
    for (const std::string& spec : {kGpt + ",dropout=0.1", kLlama}) {
      verified(spec, "loop = [ { ops = \"*\", dim = \"seq\", sizes = " + sizes + " } ]");
    }
  }
}

TEST(Loops, SlicesAsStagesEqualSerialAndSendTheSameBytes) {
  for (const auto& sizes :
       std::vector<std::vector<int64_t>>{{8}, {3, 3, 2}, {1, 7}, {2, 2, 2, 2}}) {
    for (const int micro_batches : {1, 2}) {
      for (const char* schedule : {"token", "token_1f1b"}) {
        const VerifyReport report =
            verified(kGpt + ",tied=0", token_pipeline(sizes, micro_batches, schedule));
        // Sent forward and backward over one border.
        EXPECT_EQ(report.bytes_counted, 2 * kBatch * kSeq * kHidden * 8) << sizes_text(sizes);
      }
    }
  }
}

TEST(Loops, BatchHeadsAndFfnEqualSerial) {
  for (const std::string& spec : {kGpt + ",dropout=0.1", kLlama}) {
    verified(spec, R"(loop = [ { ops = "*", dim = "batch", sizes = [3, 1] } ])");
    verified(spec, R"(loop = [ { ops = "blocks.*.attn", dim = "heads", sizes = [1, 3] } ])");
    verified(spec, R"(loop = [ { ops = "blocks.*.mlp", dim = "ffn", sizes = [1, 40, 23] } ])");
    verified(spec, R"(mesh = { pp = 2 }
place = [0, 1, 1, 0]
schedule = "chimera"
stage = [ { ops = "{embed,blocks.0}", at = 0 }, { ops = "{blocks.1,final,head,loss}", at = 1 } ]
loop = [ { ops = "*", dim = "batch", steps = 2, stages = true } ])");
  }
}

TEST(Loops, StepsInsideTensorParallelismSendNothingMore) {
  const std::string split = R"(mesh = { tp = 2 }
split = [
  { ops = "blocks.*.attn", dim = "heads", over = "tp" },
  { ops = "blocks.*.mlp", dim = "ffn", over = "tp" },
])";
  const std::string loops = R"(
loop = [
  { ops = "blocks.*.attn", dim = "heads", steps = 2, recompute = true },
  { ops = "blocks.*.mlp", dim = "ffn", sizes = [16, 10, 38], recompute = true },
])";
  for (const std::string& spec : {kGpt, kLlama}) {
    EXPECT_EQ(verified(spec, split + loops).bytes_counted, verified(spec, split).bytes_counted);
  }
}

TEST(Loops, StepsThatAreRecomputedLowerThePeak) {
  // Tokens x ffn outweighs all other memory, so the peak falls with the number of steps.
  const std::string wide = "gpt:layers=2,hidden=4,heads=1,seq=64,vocab=8,ffn=256";
  const auto peak = [&](int steps) {
    return verified(wide, fmt::format("loop = [ {{ ops = \"blocks.*.mlp\", dim = \"ffn\", steps = "
                                      "{}, recompute = true }} ]",
                                      steps))
        .peak_counted;
  };
  const int64_t act = kBatch * 64 * 256 * 8;  // bytes of one tensor inside the MLP
  const int64_t one = peak(1), four = peak(4), sixteen = peak(16);
  // Alive together inside a step: up, act and the gradient of act.
  EXPECT_LE(four, one - (2 * act - 2 * act / 4));
  EXPECT_LE(sixteen, four - (2 * act / 4 - 2 * act / 16));
}

}  // namespace
}  // namespace tessera
