// Runs ResNets: plans against the serial run, and the meaning of batch norm under them.
#include <gtest/gtest.h>

#include "tessera/models/model.h"
#include "tessera/runtime/session.h"
#include "tessera/test/source_dir.h"

namespace tessera::resnet_test {
namespace {

constexpr const char* kBasic = "resnet:layers=18,width=4,image=48,classes=5,ghost=2";
constexpr const char* kBottlenecks = "resnet:layers=50,width=4,image=48,classes=5,ghost=2";

VerifyReport verify(const std::string& model, const std::string& plan, int64_t batch) {
  VerifyConfig config;
  config.model = model;
  config.plan = plan;
  config.batch = batch;
  const auto report = verify_plan(config);
  EXPECT_TRUE(report) << model << " " << plan << ": " << (report ? "" : report.error().message);
  return report.value_or(VerifyReport{});
}

void expect_equal_to_serial(const std::string& model, const std::string& plan, int64_t batch) {
  const VerifyReport report = verify(model, plan, batch);
  EXPECT_TRUE(report.ok) << model << " " << plan << ": " << report.why;
}

std::string example(const char* name) {
  return std::string(TESSERA_SOURCE_DIR) + "/examples/plans/" + name;
}

TEST(Resnet, EqualsTheSerialRunUnderRecipes) {
  expect_equal_to_serial(kBasic, "data_parallel(3)", 6);
  expect_equal_to_serial(kBasic, "data_parallel(2,micro_batches=2)", 8);
  expect_equal_to_serial(kBottlenecks, "fsdp(2)", 4);
}

TEST(Resnet, EqualsTheSerialRunWithSplitChannels) {
  expect_equal_to_serial(kBasic, example("resnet_channels.toml"), 4);
  expect_equal_to_serial(kBottlenecks, example("resnet_channels.toml"), 4);
}

TEST(Resnet, EqualsTheSerialRunWithSynchronizedNorms) {
  expect_equal_to_serial("resnet:layers=18,width=4,image=48,classes=5,ghost=4",
                         example("resnet_synchronized.toml"), 8);
}

}  // namespace
}  // namespace tessera::resnet_test
