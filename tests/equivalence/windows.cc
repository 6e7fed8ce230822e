// Compares attention with a sliding window, whose queries are cut over ranks, with the serial run:
// causal, as in models, and with queries that see keys on both sides.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tessera/models/model.h"
#include "tessera/runtime/session.h"

namespace tessera {
namespace {

// Returns the model; if `both`, its attention sees both sides.
Model model_of(const std::string& spec, int64_t batch, bool both) {
  auto model = build_model(spec, batch, DType::kFloat64);
  EXPECT_TRUE(model) << model.error().message;
  if (!both) return std::move(*model);
  std::string text = to_text(model->graph);
  const auto replace = [&](const std::string& old, const std::string& by) {
    size_t changed = 0;
    for (size_t at = text.find(old); at != std::string::npos; at = text.find(old, at + by.size())) {
      text.replace(at, old.size(), by);
      ++changed;
    }
    EXPECT_GT(changed, 0U) << old;
  };
  replace("causal=1", "causal=0");
  replace("kv+<seq", "kv+");
  auto graph = parse_graph(text, "both.graph");
  EXPECT_TRUE(graph) << graph.error().message;
  model->graph = std::move(*graph);
  return std::move(*model);
}

struct Case {
  std::string mesh, splits, more;
  int64_t ranks = 1;
};
const std::vector<Case>& cases() {
  static const std::string heads = R"(, { ops = "blocks.*.attn.*", dim = "heads", over = "tp" })";
  static const std::string batch = R"(, { ops = "*", dim = "batch", over = "dp" })";
  static const std::string keys =
      R"(, { ops = "blocks.*.attn.core", dim = "kv", over = "time:5" })";
  static const std::vector<Case> all{
      {"cp = 2", "", "", 2},
      {"cp = 3", "", "", 3},
      {"cp = 4", "", "", 4},
      {"cp = 3, tp = 2", heads, "", 6},
      {"dp = 2, cp = 2, tp = 2", batch + heads, "", 8},
      {"dp = 2, cp = 3", batch, "micro_batches = 2\n", 6},
      {"cp = 3", keys, "", 3},
  };
  return all;
}

TEST(Windows, whose_queries_are_cut_equal_the_serial_run) {
  for (const char* spec :
       {"llama:layers=2,hidden=16,heads=4,kv_heads=2,seq=11,vocab=13,ffn=20,window={}",
        "gpt:layers=1,hidden=16,heads=4,seq=11,vocab=5,eod=1,window={},attention_dropout=0.2"}) {
    for (const int64_t window : {3, 7}) {
      for (const bool both : {false, true}) {
        for (const Case& one : cases()) {
          const std::string model_text = fmt::format(fmt::runtime(spec), window);
          SCOPED_TRACE(fmt::format("{} both {} {}{}", model_text, both, one.mesh, one.splits));
          VerifyConfig config;
          config.batch = 8;
          config.ranks = one.ranks;
          const auto report = verify_model(
              model_of(model_text, config.batch, both),
              fmt::format(
                  "mesh = {{ {} }}\n{}split = [ {{ ops = \"*\", dim = \"seq\", over = \"cp\" "
                  "}}{} ]\n",
                  one.mesh, one.more, one.splits),
              config);
          ASSERT_TRUE(report) << report.error().message;
          EXPECT_TRUE(report->ok) << report->why;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera
