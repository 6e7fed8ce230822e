#include "tessera/predict/machine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tessera/base/text.h"
#include "tessera/cluster/cluster.h"
#include "tessera/predict/framework.h"
#include "tessera/predict/infer.h"
#include "tessera/predict/predict.h"

namespace tessera {
namespace {

std::string preset_of(std::string_view gpu) {
  const auto machine = find_machine(gpu);
  return machine ? machine->preset : "none";
}
int64_t gigabytes_of(std::string_view gpu) {
  const auto machine = find_machine(gpu);
  return machine ? machine->memory_bytes / 1'000'000'000 : 0;
}

TEST(Machines, AreFoundByTheirUsualSpellings) {
  const std::vector<std::pair<const char*, const char*>> rows{
      {"A100-80GB", "dgx-a100"},
      {"A100", "dgx-a100"},
      {"A100-SXM4-80GB", "dgx-a100"},
      {"NVIDIA A100-SXM4-40GB", "dgx-a100-40"},
      {"A100-SXM-40GB", "dgx-a100-40"},
      {"A100 40 GB", "dgx-a100-40"},
      {"8xA100", "dgx-a100"},
      {"8 x A100 (40GB)", "dgx-a100-40"},
      {"DGX A100", "dgx-a100"},
      {"A10080GB", "dgx-a100"},
      {"A100 80GB PCIe", "a100-pcie"},
      {"A100-PCIE-40GB", "a100-pcie"},
      {"A800 80GB", "a800"},
      {"P100", "dgx-p100"},
      {"V100-SXM2-16GB", "dgx-v100-16"},
      {"V100-SXM3-32GB", "dgx-v100"},
      {"Tesla V100", "dgx-v100"},
      {"V100 PCIe 32GB", "v100-pcie"},
      {"p3.16xlarge", "p3.16xlarge"},
      {"P4d", "p4d"},
      {"p4de.24xlarge", "p4de"},
      {"AWS p5 (H100)", "dgx-h100"},
      {"NVIDIA A10", "a10"},
      {"A10G", "a10g"},
      {"g5.48xlarge", "a10g"},
      {"A30", "a30"},
      {"A40", "a40"},
      {"RTX A6000", "a6000"},
      {"A6000 48GB", "a6000"},
      {"NVIDIA RTX A5000", "a5000"},
      {"GeForce RTX 3090", "rtx3090"},
      {"NVIDIA RTX 4090", "rtx4090"},
      {"4090", "rtx4090"},
      {"2080Ti", "2080ti"},
      {"RTX 2080 Ti", "2080ti"},
      {"Quadro RTX 5000", "rtx5000"},
      {"L4", "l4"},
      {"L40", "l40"},
      {"L40S-48GB", "l40s"},
      {"8x H100 SXM5", "dgx-h100"},
      {"H100 80GB HBM3", "dgx-h100"},
      {"H100 NVLink 80GB", "dgx-h100"},
      {"H100 PCIe", "h100-pcie"},
      {"H100 NVL", "h100-nvl"},
      {"H100-96GB-HBM2e-500W", "h100-500w"},
      {"H20-96GB", "h20"},
      {"H200-141GB", "dgx-h200"},
      {"H800", "h800"},
      {"GH200", "gh200"},
      {"NVIDIA GH200 480GB", "gh200"},
      {"B100", "b100"},
      {"B200-180GB", "dgx-b200"},
      {"GB200 NVL72", "gb200-nvl72"},
      {"AMD Instinct MI250X", "mi250x"},
      {"MI250", "mi250x"},
      {"AMD Instinct MI300X", "mi300x"},
      {"MI325X", "mi325x"},
      {"MI355X", "mi355x"},
      {"Gaudi 2", "gaudi2"},
      {"Intel Gaudi2", "gaudi2"},
      {"Habana Gaudi 3", "gaudi3"},
      {"Habana", "gaudi2"},
      {"trn1.32xlarge", "trainium"},
      {"AWS Trainium", "trainium"},
      {"Trainium2", "trainium2"},
      {"Ascend 910", "ascend910b"},
      {"Huawei Ascend 910B", "ascend910b"},
      {"TPUv3", "tpu-v3"},
      {"Cloud TPU v4", "tpu-v4"},
      {"TPUv4", "tpu-v4"},
      {"v4-128", "tpu-v4"},
      {"TPU v5 lite", "tpu-v5e"},
      {"v5litepod-256", "tpu-v5e"},
      {"TPU-v5p", "tpu-v5p"},
      {"Trillium", "tpu-v6e"}};
  for (const auto& [gpu, preset] : rows) EXPECT_EQ(preset_of(gpu), preset) << gpu;
}

// Names that begin like known ones, and devices without figures.
TEST(Machines, AreNotGuessed) {
  for (const char* gpu : {"abacus", "Titan V", "GV100", "K80", "A1000", "RTX A4000", "L20",
                          "MI300A", "TPU v2", "RTX 2080 Super", "A100X", "", "  ", "8x", "x"}) {
    EXPECT_EQ(preset_of(gpu), "none") << gpu;
  }
}

TEST(Machines, HaveTheMemoryOfTheirNames) {
  EXPECT_EQ(gigabytes_of("A100-40GB"), 40);
  EXPECT_EQ(gigabytes_of("A100 PCIe 40GB"), 40);
  EXPECT_EQ(gigabytes_of("A100 PCIe"), 80);
  EXPECT_EQ(gigabytes_of("V100 PCIe 32GB"), 32);
  EXPECT_EQ(gigabytes_of("GH200 144G"), 144);
  EXPECT_EQ(gigabytes_of("GH200 480GB"), 96);  // the host's
  EXPECT_EQ(gigabytes_of("A10G"), 24);
  EXPECT_EQ(gigabytes_of("8 A100 GPUs"), 80);
}

TEST(Machines, SayWhatTheyReplaceAndWhatIsNear) {
  Row row;
  std::string reason;
  const auto error = [&] {
    const auto machine = machine_of(row, reason);
    return machine ? "none" : machine.error().message;
  };
  row.gpu = "RTX 6000 Ada";
  EXPECT_EQ(machine_of(row, reason)->preset, "l40s");
  EXPECT_EQ(reason, "RTX 6000 Ada priced as l40s");
  reason.clear();
  row.gpu = "RTX 4090";
  EXPECT_EQ(machine_of(row, reason)->preset, "rtx4090");
  EXPECT_EQ(reason, "");
  row.gpu = "H1000";
  EXPECT_EQ(error(), "the GPU 'H1000' is not known, did you mean 'h100'?");
  row.gpu = " ";
  EXPECT_EQ(error(), "no GPU is stated");
}

TEST(Machines, TellTheFrameworksOfTheirTime) {
  const auto framework = [](const char* gpu, const char* source = "a report") {
    Row row;
    row.gpu = gpu;
    row.source = source;
    row.tp = 2;
    std::string reason;
    return framework_of(row, reason).name;
  };
  for (const char* gpu : {"P100", "V100", "T4", "Titan RTX", "RTX 2080 Ti", "Quadro RTX 5000",
                          "A100", "A800", "A10G", "A30", "A40", "A6000", "RTX 3090"}) {
    EXPECT_EQ(framework(gpu), "megatron-lm") << gpu;
  }
  for (const char* gpu : {"RTX 4090", "L4", "L40S", "H100 PCIe", "MI250X", "MI300X", "Gaudi2"}) {
    EXPECT_EQ(framework(gpu), "megatron-core") << gpu;
  }
  for (const char* gpu : {"H100", "H20", "GH200", "H200", "B200", "GB300"}) {
    EXPECT_EQ(framework(gpu), "megatron-core-tuned") << gpu;
  }
  for (const char* gpu : {"TPU v3", "TPU v5e", "trn1"}) EXPECT_EQ(framework(gpu), "maxtext") << gpu;
  EXPECT_EQ(framework("TPU v4", "PyTorch FSDP"), "fsdp");
}

Row llama(const std::string& gpu, int64_t gpus) {
  Row row;
  row.id = gpu + " x" + std::to_string(gpus);
  row.model = "Llama-2-7B";
  row.gpu = gpu;
  row.gpus = gpus;
  row.seq = 4096;
  row.microbatch = 1;
  row.global_batch = 8 * gpus;
  row.dtype = "bf16";
  return row;
}

// The node of a TPU is the set of chips that its interconnect joins; it has no fp16.
TEST(Machines, TpuRowsCountChipsOfAPodOrCube) {
  Row row = llama("TPU v5e", 512);
  row.gpus_a_node = 4;
  row.dtype = "fp16";
  const auto run = infer(row);
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_EQ(run->gpus_a_node, 256);
  EXPECT_EQ(run->arithmetic, Arithmetic::kBf16);
  EXPECT_NE(join(run->reasons, "; ").find("256 chips a node, not 4"), std::string::npos);
  EXPECT_NE(join(run->reasons, "; ").find("bf16 in place of fp16"), std::string::npos);
}

// A model that fits nowhere still gets degrees that divide the GPUs.
TEST(Machines, TooSmallOnesGetTheMostShards) {
  const auto run = infer(llama("TPU v5e", 8));
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_EQ(8 % (run->tp * run->pp), 0);
}

// Llama-2-7B over 8 and 64 devices, as a run of unknown framework, reaches shares of the peak as
// runs do.
TEST(Machines, HavePlausibleUtilisation) {
  std::vector<Row> rows;
  for (const char* gpu : {"A10",      "A10G",     "A30",     "A40",      "RTX A6000", "RTX A5000",
                          "RTX 3090", "RTX 4090", "L4",      "L40",      "H20",       "H100 NVL",
                          "GH200",    "p4de",     "B100",    "MI250X",   "MI300X",    "MI325X",
                          "MI355X",   "Gaudi2",   "Gaudi3",  "Trainium", "Trainium2", "Ascend 910B",
                          "TPU v3",   "TPU v4",   "TPU v5e", "TPU v5p",  "TPU v6e"}) {
    rows.push_back(llama(gpu, 8));
    rows.push_back(llama(gpu, 64));
  }
  const auto predictions = predict(rows, {}, 1);
  for (size_t i = 0; i < rows.size(); ++i) {
    SCOPED_TRACE(rows[i].id);
    ASSERT_TRUE(predictions[i].ok) << predictions[i].reason;
    const NodeType type = load_cluster(find_machine(rows[i].gpu)->preset)->parts.front().type;
    const Device& device = type.device;
    const double flops = 6 * 6.74e9 * 4096 * 8;  // of a device
    const double share = flops / predictions[i].step_time_s / device.peak.at("bf16");
    // Without peer access, tensor-parallel sums at 4.7 GB/s take most of a step.
    EXPECT_GT(share, type.devices > 1 && type.inner.rate < 5e9 ? .03 : .08);
    EXPECT_LT(share, .75);
    EXPECT_GT(predictions[i].memory_bytes, 1e9);
    EXPECT_LT(predictions[i].memory_bytes, 2 * static_cast<double>(device.memory_bytes));
  }
}

}  // namespace
}  // namespace tessera
