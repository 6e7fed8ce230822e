// Questions for tests of planners.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tessera/compile/compile.h"
#include "tessera/search/planner.h"

namespace tessera {

struct Asked {
  Cluster cluster;
  PlanQuestion question;
};
inline std::unique_ptr<Asked> ask(const std::string& model, const std::string& machine,
                                  int64_t batch) {
  auto out = std::make_unique<Asked>();
  out->cluster = load_cluster(machine).value();
  out->question.model = model;
  out->question.batch = batch;
  out->question.cluster = &out->cluster;
  out->question.options.style = parse_style("tessera").value();
  return out;
}

inline const PlanCandidate& best_of(const PlanAnswer& answer) {
  return answer.simulated[*answer.best];
}
inline double step_of(const PlanAnswer& answer) { return *best_of(answer).step_s; }

// Writes a GPT as a graph file in which the MLPs of `period` neighbouring blocks have unequal
// numbers of hidden units; 0: the MLPs of all blocks. Returns the file's path.
inline std::string unequal_gpt(const std::string& keys, int64_t layers, int64_t batch,
                               int64_t period = 0) {
  const std::string model = "gpt:layers=" + std::to_string(layers) + ",ffn=4096," + keys;
  std::istringstream text(to_text(Compiler().model(model, batch).value()->graph));
  const std::string path = testing::TempDir() + "/unequal_" + std::to_string(layers) + "_" +
                           std::to_string(period) + ".graph";
  std::ofstream out(path);
  const std::regex block("blocks\\.([0-9]+)\\.");
  for (std::string line; std::getline(text, line);) {
    std::smatch found;
    if (std::regex_search(line, found, block)) {
      const int64_t sizes = period > 0 ? period : layers;
      const int64_t hidden = 1024 + 256 * (7 * std::stol(found[1]) % sizes);
      line = std::regex_replace(line, std::regex("ffn=4096"), "ffn=" + std::to_string(hidden));
    }
    out << line << '\n';
  }
  return path;
}

// Returns a small model of each family, and its batch.
inline std::vector<std::pair<std::string, int64_t>> models_of_all_families(const std::string& gpt) {
  return {{"mlp:layers=5", 16},
          {gpt, 16},
          {"swin:depths=2-2,hidden=16,heads=2,image=16,patch=2,window=2,classes=5", 8},
          {"resnet:layers=18,image=32,width=8,ghost=2", 8},
          {"t5:layers=2,hidden=64,heads=4,source=32,seq=32,vocab=128,ffn=128", 8}};
}

// Checks that the answer has a plan whose text is lowered again, and which fits.
inline void expect_sound(const PlanAnswer& answer, const PlanQuestion& question) {
  ASSERT_TRUE(answer.best.has_value()) << to_text(answer, question, true);
  Compiler compiler;
  const auto model =
      compiler.model(question.model, question.batch, storage_dtype(question.compute)).value();
  const auto lowering = compiler.lower(forward_of(model), parse_plan(answer.plan).value());
  EXPECT_TRUE(lowering.has_value()) << answer.plan << lowering.error().message;
  if (answer.limit_bytes > 0) {
    EXPECT_LE(answer.simulated[*answer.best].need_bytes, answer.limit_bytes);
  }
}

}  // namespace tessera
