// Tests training and verification end to end, on threads.
#include "tessera/runtime/session.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tessera/data/test_files.h"

namespace tessera::session_test {
namespace {

constexpr const char* kGpt = "gpt:layers=2,hidden=16,heads=2,seq=8,vocab=256,dropout=0.1";

class Session : public ::testing::Test {
 protected:
  Session()
      : path_((std::filesystem::temp_directory_path() /
               ("tessera_session_" + std::to_string(getpid())))
                  .string()) {
    std::ofstream file(path_);
    for (int i = 0; i < 500; ++i) file << "the same words again and again; ";
  }
  ~Session() override { std::filesystem::remove(path_); }

  RunConfig config(const std::string& plan, const std::string& precision = "float32") const {
    RunConfig c;
    c.model = kGpt;
    c.data = {path_};
    c.batch = 8;
    c.steps = 12;
    c.plan = plan;
    c.precision = precision;
    c.optimizer.lr = 1e-2;
    c.optimizer.warmup = 2;
    return c;
  }

  std::vector<double> losses(const RunConfig& c) const {
    std::vector<double> all;
    TrainingCallbacks callbacks;
    callbacks.step = [&](const StepReport& report) { all.push_back(report.loss); };
    const auto summary = run_training(c, callbacks);
    EXPECT_TRUE(summary) << c.plan << ": " << (summary ? "" : summary.error().message);
    if (summary) {
      EXPECT_EQ(summary->steps, static_cast<int64_t>(all.size()));
    }
    return all;
  }
  std::string path_;
};

TEST_F(Session, TheLossFallsAndPlansAgree) {
  const std::vector<double> serial = losses(config("serial"));
  ASSERT_EQ(serial.size(), 12U);
  EXPECT_NEAR(serial.front(), 5.5, 0.2);
  EXPECT_LT(serial.back(), serial.front() - 1);
  for (const char* plan : {"data_parallel(2)", "tensor_parallel(2)", "zero(stage=3, dp=2)",
                           "gpipe(pp=2, micro_batches=2)"}) {
    const std::vector<double> parallel = losses(config(plan));
    ASSERT_EQ(parallel.size(), serial.size()) << plan;
    // In float32, sums of some thousand terms in another order differ, amplified over the steps.
    for (size_t i = 0; i < serial.size(); ++i)
      EXPECT_NEAR(parallel[i], serial[i], 2e-3) << plan << " step " << i + 1;
  }
}

TEST_F(Session, ARunRepeatsItself) {
  EXPECT_EQ(losses(config("data_parallel(2)")), losses(config("data_parallel(2)")));
}

// Every rank reads its own region of packed and of padded documents, of several weighted sources.
TEST_F(Session, PlansAgreeOnDocumentsOfTokenFiles) {
  std::vector<uint16_t> tokens;
  for (uint16_t i = 0; i < 3000; ++i) {
    tokens.push_back(i % 7 == 0 ? uint16_t{0} : static_cast<uint16_t>(1 + i * i % 250));
  }
  const std::string file = path_ + ".bin";
  ASSERT_TRUE(write_file(file, bytes_of(tokens)));
  const auto run = [&](const std::string& plan) {
    RunConfig c = config(plan, "float64");
    c.model = "gpt:layers=2,hidden=16,heads=2,seq=12,vocab=256,eod=0";
    c.steps = 4;
    TokenFilesConfig packed, padded;
    packed.files = padded.files = {file};
    packed.format = padded.format = "uint16";
    packed.weight = 1;
    padded.weight = 2;
    padded.padded = true;
    padded.end_of_document = 0;
    c.data = DataConfig();
    c.data.tokens = {packed, padded};
    return losses(c);
  };
  const std::vector<double> serial = run("serial");
  ASSERT_EQ(serial.size(), 4U);
  for (const char* plan : {"data_parallel(2)", "ring_attention(3, order=striped)",
                           "megatron(tp=2, pp=2, micro_batches=2)"}) {
    const std::vector<double> parallel = run(plan);
    ASSERT_EQ(parallel.size(), serial.size()) << plan;
    for (size_t i = 0; i < serial.size(); ++i)
      EXPECT_NEAR(parallel[i], serial[i], 1e-9) << plan << " step " << i + 1;
  }
  std::filesystem::remove(file);
}

// One rank finds this in the middle of a run: it is wrong input all the same, and no other rank
// hangs.
TEST_F(Session, ATokenThatTheVocabularyLacksIsWrongInputWhereverItIsFound) {
  std::vector<uint16_t> tokens(200'000, 1);
  std::fill(tokens.begin() + 70'000, tokens.end(), uint16_t{999});
  const std::string file = path_ + ".bin";
  ASSERT_TRUE(write_file(file, bytes_of(tokens)));
  RunConfig c = config("data_parallel(2)");
  TokenFilesConfig files;
  files.files = {file};
  files.format = "uint16";
  c.data = DataConfig();
  c.data.tokens = {files};
  const auto failed = run_training(c, {});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kInvalidInput);
  EXPECT_NE(failed.error().message.find("expected a token below 256 (vocab = 256), found 999"),
            std::string::npos)
      << failed.error().message;
  std::filesystem::remove(file);
}

TEST_F(Session, AModelOfNumbersTrainsOnArrays) {
  std::vector<float> x;
  std::vector<uint8_t> y;
  for (int i = 0; i < 120; ++i) {
    for (int d = 0; d < 4; ++d) x.push_back(static_cast<float>((i * (d + 3)) % 11) - 5);
    y.push_back(x[x.size() - 1] + x[x.size() - 2] > 0 ? 1 : 0);
  }
  ASSERT_TRUE(write_file(path_ + ".x.npy", npy("<f4", "(120, 4)", bytes_of(x))));
  ASSERT_TRUE(write_file(path_ + ".y.npy", npy("|u1", "(120,)", bytes_of(y))));
  RunConfig c = config("serial");
  c.model = "mlp:in=4,hidden=16,out=2,layers=2";
  c.data = DataConfig();
  c.data.arrays = {{"x", path_ + ".x.npy"}, {"targets", path_ + ".y.npy"}};
  c.steps = 60;
  const std::vector<double> serial = losses(c);
  ASSERT_EQ(serial.size(), 60U);
  EXPECT_LT(serial.back(), 0.35) << "the labels are a function of the inputs";
  c.plan = "data_parallel(4)";
  const std::vector<double> parallel = losses(c);
  ASSERT_EQ(parallel.size(), serial.size());
  for (size_t i = 0; i < serial.size(); ++i) EXPECT_NEAR(parallel[i], serial[i], 2e-3);
  std::filesystem::remove(path_ + ".x.npy");
  std::filesystem::remove(path_ + ".y.npy");
}

TEST_F(Session, BFloat16FollowsFloat32) {
  const std::vector<double> narrow = losses(config("tensor_parallel(2)", "bfloat16")),
                            wide = losses(config("serial"));
  ASSERT_EQ(narrow.size(), wide.size());
  for (size_t i = 0; i < wide.size(); ++i)
    EXPECT_NEAR(narrow[i], wide[i], 0.05) << "step " << i + 1;
}

TEST_F(Session, ErrorsAreOneLine) {
  RunConfig c = config("data_parallel(2)");
  c.ranks = 4;
  auto failed = run_training(c, {});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kInvalidInput);
  EXPECT_NE(failed.error().message.find("needs 2 ranks, found 4 (--ranks)"), std::string::npos)
      << failed.error().message;
  c = config("serial");
  c.data = {path_ + ".none"};
  failed = run_training(c, {});
  ASSERT_FALSE(failed);
  EXPECT_NE(failed.error().message.find("no file matches"), std::string::npos)
      << failed.error().message;
  c = config("serial");
  c.memory_limit_bytes = 1000;
  failed = run_training(c, {});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kCheckFailed);
}

class Verify : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(Verify, AgreesWithSerial) {
  VerifyConfig c;
  c.model = std::get<0>(GetParam());
  c.plan = std::get<1>(GetParam());
  const auto report = verify_plan(c);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->ok) << report->why;
  EXPECT_LE(report->gradients_error, 1e-9);
  EXPECT_EQ(report->bytes_predicted, report->bytes_counted);
  EXPECT_EQ(report->messages_predicted, report->messages_counted);
  EXPECT_EQ(report->peak_predicted, report->peak_counted);
}

INSTANTIATE_TEST_SUITE_P(
    Recipes, Verify,
    ::testing::Combine(
        ::testing::Values("gpt:layers=2,hidden=16,heads=4,seq=8,vocab=32,dropout=0.1",
                          "gpt:layers=2,hidden=16,heads=4,seq=8,vocab=32,tied=0",
                          "llama:layers=2,hidden=16,heads=4,kv_heads=2,seq=8,vocab=32",
                          "mlp:in=6,hidden=8,out=5,layers=2"),
        ::testing::Values("serial", "data_parallel(4)")));
INSTANTIATE_TEST_SUITE_P(
    Transformers, Verify,
    ::testing::Combine(
        ::testing::Values("gpt:layers=2,hidden=16,heads=4,seq=8,vocab=32,dropout=0.1",
                          "llama:layers=2,hidden=16,heads=4,kv_heads=4,seq=8,vocab=32"),
        ::testing::Values("tensor_parallel(4)", "zero(stage=2, dp=2)", "zero(stage=3, dp=4)",
                          "gpipe(pp=2, micro_batches=4)", "one_f_one_b(pp=2, micro_batches=4)",
                          "megatron(tp=2, pp=2, dp=2, zero=1, micro_batches=4)", "summa(q=2)")));
INSTANTIATE_TEST_SUITE_P(
    LongSequences, Verify,
    ::testing::Combine(
        ::testing::Values("gpt:layers=2,hidden=16,heads=4,seq=8,vocab=32",
                          "gpt:layers=2,hidden=16,heads=4,seq=7,vocab=32,causal=0",
                          "llama:layers=2,hidden=16,heads=4,kv_heads=2,seq=9,vocab=32"),
        ::testing::Values("ring_attention(2)", "ring_attention(3, order=striped)",
                          "ring_attention(4, order=none)", "ring_attention(4, inner=2)",
                          "ring_attention(4, inner=2, order=none)", "ring_attention(2, dp=2)",
                          "rsa(3)", "rsa(2, dp=2)", "ulysses(2)", "ring_ulysses(2, 2)",
                          "ring_ulysses(3, 2, order=none)")));
// There are six experts; the second model drops tokens for certain, the third is a Switch.
INSTANTIATE_TEST_SUITE_P(
    Mixtures, Verify,
    ::testing::Combine(
        ::testing::Values(
            "mixtral:layers=2,hidden=16,heads=4,kv_heads=2,seq=8,vocab=32,ffn=12,experts=6",
            "mixtral:layers=2,hidden=16,heads=4,kv_heads=2,seq=8,vocab=32,ffn=12,experts=6,"
            "capacity_factor=0.5,z_loss=0.1",
            "mixtral:layers=2,hidden=16,heads=4,kv_heads=2,seq=8,vocab=32,ffn=12,experts=6,"
            "top_k=1"),
        ::testing::Values("data_parallel(4)", "expert_parallel(2)", "expert_parallel(3)",
                          "expert_parallel(4)", "expert_parallel(ep=2, tp=2)",
                          "expert_parallel(ep=2, dp=2, zero=1)",
                          "expert_parallel(ep=2, dp=2, zero=3)",
                          "expert_parallel(ep=2, pp=2, micro_batches=4)",
                          "expert_parallel(ep=2, dp=2, tp=2, zero=2, micro_batches=2)")));

// No recipe makes these splits of the mixture; recomputation chooses the same experts again.
class MixtureByHand : public ::testing::TestWithParam<const char*> {};

TEST_P(MixtureByHand, AgreesWithSerial) {
  const std::string path = (std::filesystem::temp_directory_path() /
                            ("tessera_mixture_" + std::to_string(getpid()) + ".toml"))
                               .string();
  std::ofstream(path) << GetParam();
  VerifyConfig c;
  c.model =
      "mixtral:layers=2,hidden=16,heads=4,kv_heads=2,seq=8,vocab=32,ffn=12,experts=6,"
      "capacity_factor=0.8";
  c.plan = path;
  const auto report = verify_plan(c);
  std::filesystem::remove(path);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->ok) << report->why;
  EXPECT_LE(report->gradients_error, 1e-9);
  EXPECT_EQ(report->bytes_predicted, report->bytes_counted);
}

INSTANTIATE_TEST_SUITE_P(Plans, MixtureByHand,
                         ::testing::Values(R"(
mesh = { tp = 3 }
[[split]]
ops = "blocks.*.moe.{dispatch,arrive,gate,act,up,mul,down,return,combine}"
dim = "experts"
over = "tp"
)",
                                           R"(
mesh = { sp = 2 }
split = [
  { ops = "*", dim = "seq", over = "sp" },
  { ops = "blocks.*.moe.{arrive,gate,act,up,mul,down}", dim = "experts", over = "sp" },
]
)",
                                           R"(
mesh = { a = 2, b = 2 }
split = [
  { ops = "*", dim = "batch", over = "a" },
  { ops = "blocks.*.moe", dim = "capacity", over = "b" },
  { ops = "blocks.*.moe.{router,probabilities,balance}", dim = "experts", over = "b" },
]
)",
                                           R"(
mesh = { ep = 2 }
micro_batches = 2
split = [
  { ops = "*", dim = "batch", over = "ep" },
  { ops = "blocks.*.moe.{arrive,gate,act,up,mul,down}", dim = "batch", over = [] },
  { ops = "blocks.*.moe.{arrive,gate,act,up,mul,down}", dim = "experts", over = "ep" },
]
store = [
  { tensors = "blocks.*.moe", recompute = true },
]
)"));

}  // namespace
}  // namespace tessera::session_test
