#include "random_recipes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "support/seed.h"
#include "tessera/runtime/session.h"

namespace tessera {
namespace {

class Draw {
 public:
  explicit Draw(uint32_t seed) : random_(seed) {}

  template <class T>
  T of(std::initializer_list<T> values) {
    return values.begin()[random_() % values.size()];
  }

  std::string model() {
    const std::string common =
        fmt::format("layers={},seq={},vocab={},tied={},ffn={}", of({1, 2, 3}), of({3, 5, 6}),
                    of({7, 13, 20}), of({0, 1}), of({10, 16, 25}));
    if (of({0, 1}) == 0) {
      const int heads = of({2, 3, 4, 6});
      return fmt::format("gpt:{},heads={},hidden={},dropout={}", common, heads, heads * of({2, 4}),
                         of({0.0, 0.2}));
    }
    const int kv_heads = of({1, 2, 3});
    return fmt::format("llama:{},heads={},kv_heads={},hidden={},head_dim=4", common,
                       kv_heads * of({1, 2, 3}), kv_heads, of({8, 10}));
  }

  std::string call() {
    const std::string outer = fmt::format(
        "pp={}, dp={}, zero={}, micro_batches={}, schedule={}, recompute={}, precision={}",
        of({1, 1, 2}), of({1, 1, 2, 3}), of({0, 1, 2, 3}), of({1, 2, 3}), of({"1f1b", "gpipe"}),
        recompute(), precision());
    switch (of({0, 1, 2, 3, 4, 5})) {
      case 0: return fmt::format("megatron(tp={}, sequence_shard={}, {})", side(), flag(), outer);
      case 1: return fmt::format("summa({}, cols={}, {})", side(), side(), outer);
      case 2: return fmt::format("cannon({}, cols={}, {})", side(), side(), outer);
      case 3: return fmt::format("tesseract({}, 2, cols={}, {})", side(), side(), outer);
      case 4:
        return fmt::format("tensor_parallel_3d({}, {}, {}, {})", side(), side(), of({1, 2}), outer);
      default: break;
    }
    return fmt::format(
        "fsdp({}, replicas={}, tp={}, sequence_shard={}, micro_batches={}, reshard={}, "
        "accumulate={}, spread_state={}, recompute={}, precision={})",
        of({2, 3}), side(), of({1, 2}), flag(), of({1, 2, 3}), flag(), of({"shards", "whole"}),
        flag(), recompute(), precision());
  }

 private:
  int side() { return of({1, 2, 3}); }
  const char* flag() { return of({"true", "false"}); }
  const char* precision() { return of({"float32", "float32", "bfloat16", "float16"}); }
  const char* recompute() { return of({"none", "selective", "full", "norm+act", "core+mlp"}); }

  std::mt19937 random_;
};

class RandomRecipes : public testing::Test {
 public:
  explicit RandomRecipes(int cases) : cases_(cases) {}
  void TestBody() override {
    SCOPED_TRACE(seed_text());
    // The factor keeps the cases of neighbouring seeds distinct.
    const uint64_t first = test_seed(/*fixed=*/0) * 1'000'003;
    int refused = 0;
    for (int i = 0; i < cases_; ++i) {
      Draw draw(static_cast<uint32_t>(first + static_cast<uint64_t>(i)));
      VerifyConfig config;
      config.model = draw.model();
      config.plan = draw.call();
      config.batch = draw.of({6, 12});
      const Result<VerifyReport> report = verify_plan(config);
      const std::string what = fmt::format("case {}: {} --plan '{}' --batch {}", i, config.model,
                                           config.plan, config.batch);
      if (!report) {
        ++refused;
        EXPECT_EQ(report.error().message.find("recipe "), 0U)
            << what << ": " << report.error().message;
        continue;
      }
      EXPECT_TRUE(report->ok) << what << ": " << report->why;
    }
    EXPECT_LT(refused, cases_ / 2);
  }

 private:
  int cases_;
};

}  // namespace

void register_random_recipes(int cases) {
  testing::RegisterTest("RandomRecipes", "equal_the_serial_run", nullptr, nullptr, __FILE__,
                        __LINE__, [cases]() -> testing::Test* { return new RandomRecipes(cases); });
}

}  // namespace tessera
