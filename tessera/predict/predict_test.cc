// Compares counted micro-batches with the same micro-batches, all played.
#include "tessera/predict/predict.h"

#include <gtest/gtest.h>

#include "tessera/base/csv.h"

namespace tessera {
namespace {

std::vector<Row> rows_of(const std::string& layouts) {
  const std::string header =
      "source,model,params,layers,hidden,heads,kv_heads,ffn,seq,vocab,gpu,n_gpus,gpus_per_node,tp,"
      "pp,vpp,dp,cp,ep,zero,microbatch,global_batch,recompute,dtype,row_id\n";
  const auto table = parse_csv(header + layouts, "rows.csv");
  EXPECT_TRUE(table) << table.error().message;
  const auto rows = read_rows(*table, "rows.csv");
  EXPECT_TRUE(rows) << rows.error().message;
  return *rows;
}

// One replica and stages with many micro-batches: 1F1B, interleaved, a number of micro-batches that
// the stages do not divide, shards, several replicas.
const char* const kManyMicroBatches =
    "Megatron-LM,GPT,,8,1024,16,16,4096,1024,51200,A100-80GB,1,8,1,1,1,1,1,1,0,2,64,none,bf16,a\n"
    "Megatron-LM,GPT,,8,1024,16,16,4096,1024,51200,A100-80GB,4,8,1,4,1,1,1,1,0,1,96,full,bf16,b\n"
    "Megatron-LM,GPT,,8,1024,16,16,4096,1024,51200,A100-80GB,8,8,1,4,2,2,1,1,1,1,128,none,bf16,c\n"
    "Megatron-LM,GPT,,8,1024,16,16,4096,1024,51200,A100-80GB,4,8,2,2,1,1,1,1,0,2,74,full,bf16,d\n"
    "PyTorch FSDP,GPT,,8,1024,16,16,4096,1024,51200,A100-80GB,8,8,1,1,1,8,1,1,3,1,256,full,bf16,e\n"
    "Megatron-LM,GPT,,8,1024,16,16,4096,1024,51200,A100-80GB,8,8,1,1,1,8,1,1,1,1,512,none,bf16,f\n";

TEST(Predict, CountedMicroBatchesAreAsPlayed) {
  const std::vector<Row> rows = rows_of(kManyMicroBatches);
  const auto counted = predict(rows, {}, 1);
  ASSERT_EQ(counted.size(), rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    ASSERT_TRUE(counted[i].ok) << rows[i].id << ": " << counted[i].reason;
    const auto explained = explain(rows[i], {});
    ASSERT_TRUE(explained) << rows[i].id << ": " << explained.error().message;
    const Prediction& played = explained->prediction;
    EXPECT_NEAR(counted[i].step_time_s, played.step_time_s, 1e-9 * played.step_time_s)
        << rows[i].id;
    EXPECT_EQ(counted[i].memory_bytes, played.memory_bytes) << rows[i].id;
    EXPECT_NEAR(counted[i].uncertainty, played.uncertainty, 1e-9) << rows[i].id;
    EXPECT_EQ(counted[i].reason, played.reason);
  }
}

// Rows share with neighbours what they have in common; each gives the same result as alone.
TEST(Predict, ARowDoesNotDependOnItsNeighbours) {
  const std::vector<Row> rows = rows_of(kManyMicroBatches);
  const std::string together = predictions_csv(predict(rows, {}, 2));
  std::vector<Prediction> alone;
  for (const Row& row : rows) alone.push_back(predict({row}, {}, 1).front());
  EXPECT_EQ(predictions_csv(alone), together);
}

// Rows of one program that exceed the GPU as they are taken first are made lighter, each as if
// alone; so is a row beside them on a larger GPU, which fits.
TEST(Predict, EqualRowsAreMadeLighterAlike) {
  const std::string row = "somebody,Llama-3.2-1B,,,,,,,,256000,";
  const std::vector<Row> rows =
      rows_of(row + "A100-80GB,8,,,2,,4,,,,,256,,,a\n" + row + "A100-80GB,8,,,2,,4,,,,,256,,,b\n" +
              row + "B200,8,,,2,,4,,,,,256,,,c\n");
  const auto together = predict(rows, {}, 1);
  EXPECT_NE(together[0].reason.find(": else "), std::string::npos) << together[0].reason;
  EXPECT_EQ(together[0].reason, together[1].reason);
  EXPECT_EQ(together[2].reason.find(": else "), std::string::npos) << together[2].reason;
  std::vector<Prediction> alone;
  for (const Row& one : rows) alone.push_back(predict({one}, {}, 1).front());
  EXPECT_EQ(predictions_csv(alone), predictions_csv(together));
}

}  // namespace
}  // namespace tessera
