#include "tessera/search/question/plan_key.h"

#include <gtest/gtest.h>

#include "tessera/compile/compile.h"
#include "tessera/simulate/simulate.h"

namespace tessera::plan_key_test {
namespace {

const char* const kGpt = "gpt:layers=2,hidden=512,heads=8,seq=256,vocab=1024";

class PlanKeyTest : public testing::Test {
 protected:
  std::string key(const std::string& text) const {
    return plan_key(parse_plan(text).value(), model_->graph);
  }
  Compiler compiler_;
  std::shared_ptr<const Model> model_ = compiler_.model(kGpt, 16, DType::kFloat32).value();
};

const std::string kOne =
    "mesh = { dp = 8 }\nsplit = [{ ops = \"*\", dim = \"batch\", over = \"dp\" }]\n";
const std::string kTwo =
    "mesh = { pp = 1, dp = 4, tp = 2 }\n"
    "split = [{ ops = \"*\", dim = \"batch\", over = [\"dp\", \"tp\"] }]\n";

TEST_F(PlanKeyTest, JoinsAxesThatAlwaysCutTogether) {
  EXPECT_EQ(key(kOne), key(kTwo));
  const std::string store = "store = [{ tensors = \"optimizer.*\", over = ";
  EXPECT_EQ(key(kOne + store + "\"dp\" }]\n"), key(kTwo + store + "[\"dp\", \"tp\"] }]\n"));
  EXPECT_NE(key(kOne + store + "\"dp\" }]\n"), key(kTwo + store + "\"dp\" }]\n"));
}

TEST_F(PlanKeyTest, TellsOrdersAndSizesApart) {
  const auto with = [](const std::string& mesh, const std::string& over) {
    return "mesh = { " + mesh + " }\nsplit = [{ ops = \"*\", dim = \"batch\", over = " + over +
           " }]\n";
  };
  EXPECT_NE(key(with("a = 4, b = 2", R"(["a", "b"])")), key(with("a = 4, b = 2", R"(["b", "a"])")));
  EXPECT_NE(key(kOne), key(with("a = 4", R"("a")")));
  // Half of the ranks compute the same as the other half.
  EXPECT_NE(key(kOne), key(with("a = 4, b = 2", R"("a")")));
  EXPECT_EQ(key(with("a = 4, b = 2", R"("a")")), key(with("x = 4, y = 2, z = 1", R"("x")")));
}

TEST_F(PlanKeyTest, LeavesUnevenPiecesApart) {
  // 16 sequences in 12 pieces: 6 * 2 and 12 cut them at different places.
  EXPECT_NE(key("mesh = { a = 6, b = 2 }\n"
                "split = [{ ops = \"*\", dim = \"batch\", over = [\"a\", \"b\"] }]\n"),
            key("mesh = { a = 12 }\nsplit = [{ ops = \"*\", dim = \"batch\", over = \"a\" }]\n"));
  // Micro-batches of two sequences over four ranks stay apart, too.
  const std::string pieces = "micro_batches = 8\n";
  EXPECT_NE(key(pieces + kOne), key(pieces + kTwo));
}

TEST_F(PlanKeyTest, EqualKeysTakeEqualTime) {
  const Cluster cluster = load_cluster("dgx-a100:1").value();
  const auto step_s = [&](const std::string& text) {
    const auto lowering = compiler_.lower(forward_of(model_), parse_plan(text).value()).value();
    return simulate(*lowering, cluster, {})->step_time_s;
  };
  EXPECT_EQ(step_s(kOne), step_s(kTwo));
  const std::string store = "store = [{ tensors = \"optimizer.*\", over = ";
  EXPECT_EQ(step_s(kOne + store + "\"dp\" }]\n"), step_s(kTwo + store + "[\"dp\", \"tp\"] }]\n"));
}

}  // namespace
}  // namespace tessera::plan_key_test
