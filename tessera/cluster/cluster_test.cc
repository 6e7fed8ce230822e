#include "tessera/cluster/cluster.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "tessera/base/text.h"
#include "tessera/cluster/profile.h"

namespace tessera::cluster_test {
namespace {

// A complete text; tests change one piece of it.
const std::string kText = R"(name = "two"
[[part]]
name = "box"
nodes = 2
devices = 4
[part.device]
name = "d"
generation = "ampere"
peak = { fp32 = "19.5 TFLOP/s", bf16 = "312 TFLOP/s" }
memory = "80 GB"
memory_rate = "2039 GB/s"
[part.inner]
kind = "nvlink"
rate = "300 GB/s"
latency = "5 us"
[part.nic]
count = 2
rate = "200 Gb/s"
latency = "12 us"
[part.host]
memory = "1 TB"
memory_rate = "200 GB/s"
rate = "25 GB/s"
latency = "10 us"
[[tier]]
radix = 1
oversubscription = 2
latency = "1 us"
[[tier]]
latency = "2 us"
)";

std::string with(const std::string& from, const std::string& to) {
  std::string text = kText;
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}
std::string error_of(const std::string& text) {
  const auto cluster = parse_cluster(text, "c.toml");
  return cluster ? "accepted" : cluster.error().message;
}

TEST(Cluster, ReadsEveryFigureInBaseUnits) {
  const auto c = parse_cluster(kText, "c.toml");
  ASSERT_TRUE(c.has_value()) << c.error().message;
  const NodeType& type = c->parts[0].type;
  EXPECT_EQ(c->devices(), 8);
  EXPECT_EQ(c->nodes(), 2);
  EXPECT_EQ(type.device.peak.at("bf16"), 312e12);
  EXPECT_EQ(type.device.memory_bytes, 80'000'000'000);
  EXPECT_EQ(type.device.generation, Generation::named("ampere"));
  EXPECT_EQ(type.inner.rate, 300e9);
  EXPECT_TRUE(type.inner.switched);
  EXPECT_EQ(type.nic.rate, 25e9);
  EXPECT_EQ(type.nic.kind, LinkKind::kNic);
  EXPECT_EQ(type.nics, 2);
  EXPECT_EQ(type.host.latency_s, 10e-6);
  EXPECT_EQ(type.host_slowness, 1);
  ASSERT_EQ(c->tiers.size(), 2u);
  EXPECT_EQ(c->tiers[0].radix, 1);
  EXPECT_EQ(c->tiers[0].oversubscription, 2);
  EXPECT_EQ(c->tiers[1].latency_s, 2e-6);
  EXPECT_EQ(*parse_cluster(to_toml(*c), "again.toml"), *c);
}

TEST(Cluster, UnitErrors) {
  EXPECT_EQ(error_of(with("\"80 GB\"", "80")),
            "c.toml:10: 'memory' in [part.device]: expected a size as '80 GB' with its unit in "
            "quotes, found an integer");
  EXPECT_EQ(error_of(with("\"80 GB\"", "\"80\"")),
            "c.toml:10: 'memory' in [part.device]: expected a size with a unit, as '80 GB', found "
            "'80' without one");
  EXPECT_EQ(error_of(with("\"5 us\"", "\"5 usec\"")),
            "c.toml:15: 'latency' in [part.inner]: expected a time in one of ns us ms s, found the "
            "unit 'usec', did you mean 'us'?");
  EXPECT_EQ(error_of(with("\"300 GB/s\"", "\"300 GB\"")),
            "c.toml:14: 'rate' in [part.inner]: expected a rate in one of B/s kB/s MB/s GB/s TB/s "
            "PB/s KiB/s MiB/s GiB/s TiB/s b/s kb/s Mb/s Gb/s Tb/s, found the unit 'GB', did you "
            "mean 'GB/s'?");
  EXPECT_EQ(error_of(with("\"300 GB/s\"", "\"0 GB/s\"")),
            "c.toml:14: 'rate' in [part.inner]: expected more than 0, found '0 GB/s'");
  EXPECT_EQ(error_of(with("\"5 us\"", "\"-5 us\"")),
            "c.toml:15: 'latency' in [part.inner]: expected at least 0, found '-5 us'");
}

TEST(Cluster, KeyErrors) {
  EXPECT_EQ(error_of(with("memory_rate = \"2039", "memory_rte = \"2039")),
            "c.toml:11: unknown key 'memory_rte' in [part.device], did you mean 'memory_rate'?");
  EXPECT_EQ(error_of(with("generation = \"ampere\"\n", "")),
            "c.toml:6: [part.device] needs the key 'generation'");
  EXPECT_EQ(error_of(with("\"ampere\"", "\"amper\"")),
            "c.toml:8: 'generation' in [part.device]: expected one of pascal, volta, turing, "
            "ampere, ada, hopper, blackwell, cpu, other, found 'amper', did you mean 'ampere'?");
  EXPECT_EQ(error_of(with("fp32 =", "fp33 =")),
            "c.toml:9: unknown key 'fp33' in [part.device.peak], did you mean 'fp32'?");
  EXPECT_EQ(error_of(with("kind = \"nvlink\"\n", "")),
            "c.toml:12: [part.inner] needs the key 'kind'");
  EXPECT_EQ(error_of(with("nodes = 2", "nodes = 0")), "c.toml:4: expected nodes >= 1, found 0");
  EXPECT_EQ(error_of(with("count = 2\n", "")), "c.toml:16: [part.nic] needs the key 'count'");
  EXPECT_EQ(error_of(with("devices = 4", "devices = 4\nsockets = 3")),
            "c.toml:6: 'sockets' in [[part]]: expected a divisor of devices = 4, found 3");
  EXPECT_EQ(error_of("name = \"x\"\n"), "c.toml:1: the cluster needs the key 'part'");
  EXPECT_EQ(error_of("name = \"x\"\npart = 3\n"),
            "c.toml:2: 'part' in the cluster: expected tables [[part]], found an integer");
  EXPECT_EQ(error_of(with("name = \"box\"", "name = \"box\"\nlike = \"dgx-a10\"")),
            "c.toml:4: 'like' in [[part]]: expected a preset, found 'dgx-a10', did you mean "
            "'dgx-a100'?");
}

TEST(Cluster, FabricErrors) {
  EXPECT_EQ(error_of(with("latency = \"2 us\"", "latency = \"2 us\"\nradix = 4")),
            "c.toml:25: expected no radix in the last [[tier]], which joins all nodes, found 4");
  EXPECT_EQ(error_of(with("radix = 1\n", "")),
            "c.toml:25: expected radix >= 1 in every [[tier]] but the last: a tier without radix "
            "joins all nodes");
  EXPECT_EQ(error_of(with("[part.nic]\ncount = 2\nrate = \"200 Gb/s\"\nlatency = \"12 us\"\n", "")),
            "c.toml:2: part 'box' needs [part.nic]: the cluster has 2 nodes");
}

// Four nodes without tiers, and what the test adds.
std::string four_nodes(const std::string& network) {
  return "name = \"x\"\n[[part]]\nlike = \"dgx-a100\"\nnodes = 4\n" + network;
}

TEST(Cluster, SwitchesPathsAndHosts) {
  const std::string text = four_nodes(
      "[[switch]]\nname = \"a\"\nnodes = \"0,2\"\nuplink = \"200 Mb/s\"\nuplink_error = 0.1\n"
      "above = \"core\"\n"
      "[[switch]]\nname = \"b\"\nnodes = \"1\"\nabove = \"core\"\nlatency = \"2 us\"\n"
      "[[switch]]\nname = \"core\"\n"
      "[[switch]]\nname = \"far\"\nnodes = \"3-3\"\n"
      "[[path]]\nbetween = [\"far\", \"core\"]\nrate = \"1.15 Gb/s\"\nlatency = \"67 ms\"\n");
  const auto c = parse_cluster("hosts = [\"n1\", \"n2\", \"n10\", \"far1\"]\n" + text, "c.toml");
  ASSERT_TRUE(c) << c.error().message;
  ASSERT_EQ(c->switches.size(), 4u);
  EXPECT_EQ(c->switches[0].nodes, (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(c->switches[0].uplink_rate, 25e6);
  EXPECT_EQ(c->switches[0].uplink_error, .1);
  EXPECT_EQ(c->switches[0].above, 2);
  EXPECT_EQ(c->switches[1].latency_s, 2e-6);
  EXPECT_EQ(c->switches[3].above, -1);
  ASSERT_EQ(c->paths.size(), 1u);
  EXPECT_EQ(c->paths[0], (FabricPath{3, 2, 1.15e9 / 8, 67e-3}));
  EXPECT_EQ(c->hosts[2], "n10");
  const auto again = parse_cluster(to_toml(*c), "again.toml");
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(*again, *c);
}

TEST(Cluster, PresetsOfSitesHaveSoManyNodesASite) {
  const auto c = load_cluster("regions_us:2");
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->nodes(), 6);
  ASSERT_EQ(c->switches.size(), 3u);
  EXPECT_EQ(c->switches[1].nodes, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(c->paths[0].rate, 1.15e9 / 8);
}

TEST(Cluster, SwitchErrors) {
  const auto error = [](const std::string& network) { return error_of(four_nodes(network)); };
  EXPECT_EQ(error("[[switch]]\nname = \"a\"\nnodes = \"0-4\"\n"),
            "c.toml:7: 'nodes' in [[switch]]: expected numbers of nodes from 0 to 3, such as "
            "\"0-3,7\", found '0-4'");
  EXPECT_EQ(error("[[switch]]\nname = \"a\"\nnodes = \"0-2\"\n"),
            "c.toml:5: expected each node below one [[switch]], found node 3 below none");
  EXPECT_EQ(error("[[switch]]\nname = \"a\"\nnodes = \"0-3\"\n"
                  "[[switch]]\nname = \"b\"\nnodes = \"2\"\n"),
            "c.toml:10: expected each node below one switch, found node 2 below 'a' and 'b'");
  EXPECT_EQ(error("[[switch]]\nname = \"a\"\nnodes = \"0-3\"\nabove = \"A\"\n"),
            "c.toml:8: unknown [[switch]] 'A', did you mean 'a'?");
  EXPECT_EQ(error("[[switch]]\nname = \"a\"\nnodes = \"0-3\"\nabove = \"a\"\n"),
            "c.toml:5: expected a tree of switches, found 'a' above itself");
  EXPECT_EQ(error("[[switch]]\nname = \"a\"\nnodes = \"0-3\"\n[[tier]]\nlatency = \"1 us\"\n"),
            "c.toml:5: expected [[tier]] or [[switch]], found both");
  const std::string two =
      "[[switch]]\nname = \"a\"\nnodes = \"0-1\"\nabove = \"b\"\n"
      "[[switch]]\nname = \"b\"\nnodes = \"2-3\"\n";
  EXPECT_EQ(error(two + "[[path]]\nbetween = [\"a\", \"b\"]\nlatency = \"1 ms\"\n"),
            "c.toml:13: 'between' in [[path]]: expected two switches below the same switch, found "
            "a and b");
  EXPECT_EQ(error_of("hosts = [\"n\", \"m\", \"o\", \"n\"]\n" + four_nodes("")),
            "c.toml:1: expected each host once, found 'n' twice");
  EXPECT_EQ(error_of("hosts = [\"n\"]\n" + four_nodes("")),
            "c.toml:1: expected as many hosts as nodes, 4, found 1");
}

TEST(Cluster, PartsLikePresetsAndUnequalRails) {
  const std::string text =
      "name = \"mixed\"\n[[part]]\nlike = \"dgx-a100\"\nnodes = 2\n"
      "[[part]]\nlike = \"p3.16xlarge\"\nname = \"old\"\n[part.nic]\nrate = \"50 Gb/s\"\n";
  const auto c = parse_cluster(text, "c.toml");
  ASSERT_TRUE(c.has_value()) << c.error().message;
  EXPECT_EQ(c->devices(), 24);
  EXPECT_EQ(c->parts[0].type, load_cluster("dgx-a100")->parts[0].type);
  EXPECT_EQ(c->parts[1].type.name, "old");
  EXPECT_EQ(c->parts[1].type.nic.rate, 50e9 / 8);
  EXPECT_EQ(c->parts[1].type.nic.latency_s,
            load_cluster("p3.16xlarge")->parts[0].type.nic.latency_s);
  EXPECT_EQ(*parse_cluster(to_toml(*c), "again.toml"), *c);
  EXPECT_EQ(error_of("rail_aligned = true\n" + text),
            "c.toml:1: expected as many NICs in the nodes of every part for rail_aligned, found 8 "
            "and 1");
  EXPECT_EQ(error_of("one_machine = true\n" + text + "[[part]]\nlike = \"t4\"\ncores = 2\n"),
            "c.toml:1: expected the same number of cores in every part for one_machine, found 0 "
            "and 2");
  EXPECT_EQ(error_of("exchange_share = 1.5\n" + text),
            "c.toml:1: expected at most 1 for exchange_share, found 1.5");
}

TEST(Cluster, LocatesDevicesPartByPart) {
  const auto c = parse_cluster(
      "name = \"mixed\"\n[[part]]\nlike = \"dgx-a100\"\nnodes = 2\n"
      "[[part]]\nlike = \"rtx5000\"\nnodes = 3\n",
      "c.toml");
  ASSERT_TRUE(c.has_value()) << c.error().message;
  int64_t device = 0;
  for (int64_t node = 0; node < 5; ++node) {
    const int64_t part = node < 2 ? 0 : 1;
    for (int64_t local = 0; local < (part == 0 ? 8 : 4); ++local, ++device) {
      const Location at = c->locate(device);
      EXPECT_EQ(at.part, part);
      EXPECT_EQ(at.node, node);
      EXPECT_EQ(at.local, local);
    }
  }
  EXPECT_EQ(device, c->devices());
  EXPECT_EQ(c->type_of(27).name, "rtx5000");
}

TEST(Presets, RoundTripAndScale) {
  EXPECT_GE(presets().size(), 55u);
  for (const Preset& preset : presets()) {
    SCOPED_TRACE(preset.name);
    EXPECT_FALSE(preset.summary.empty());
    const auto c = load_cluster(preset.name);
    ASSERT_TRUE(c.has_value()) << c.error().message;
    EXPECT_EQ(c->name, preset.name);
    EXPECT_TRUE(!c->switches.empty() || c->nodes() == 1) << c->nodes();
    const auto again = parse_cluster(to_toml(*c), "again.toml");
    ASSERT_TRUE(again.has_value()) << again.error().message;
    EXPECT_EQ(*again, *c);
    const auto four = load_cluster(preset.name + ":4");
    ASSERT_TRUE(four.has_value()) << four.error().message;
    EXPECT_EQ(four->devices(), preset.name == "local" ? 4 : 4 * c->devices());
  }
}

// Returns the lanes of a unit, each of which does a multiply-add a cycle; nothing where the data
// sheet gives no such number.
std::optional<double> lanes(const Device& device) {
  const std::string_view name = generation_name(device.generation);
  if (name == "pascal" || name == "volta" || name == "turing") return 64;
  // GA100 (the chip with fp64 units) has 64, GA102 128.
  if (name == "ampere") return device.peak.contains("fp64") ? 64 : 128;
  if (name == "ada" || name == "hopper" || name == "blackwell") return 128;
  // Compute units of AMD with packed fp32; the others' peaks are those of matrix engines.
  if (name == "other" && device.peak.contains("fp64")) return 128;
  return std::nullopt;
}

// Peak of the ordinary units = units x lanes x 2 x clock: a slip in any of the four shows.
TEST(Presets, ClockAndUnitsGiveThePeak) {
  std::vector<std::string> without_clock;
  for (const Preset& preset : presets()) {
    if (preset.name == "local") continue;
    SCOPED_TRACE(preset.name);
    const Device device = load_cluster(preset.name)->parts[0].type.device;
    const auto wide = lanes(device);
    if (device.clock_hz == 0) {
      without_clock.push_back(preset.name);
    } else if (wide && preset.name != "h20") {
      // H20: its data sheet has 44 TFLOP/s, a tenth more than its units do at the usual clock.
      const double peak = static_cast<double>(device.units) * *wide * 2 * device.clock_hz;
      EXPECT_NEAR(device.peak.at("fp32") / peak, 1, 0.05);
    }
    const auto sixteen = device.peak.find("fp16");
    EXPECT_GT((sixteen != device.peak.end() ? *sixteen : *device.peak.find("bf16")).second,
              device.peak.at("fp32"));
    EXPECT_GT(device.context_bytes, 0);
    EXPECT_GT(device.launch_s, 0);
    EXPECT_GT(device.host_issue_s, 0);
  }
  // No public clock: nothing to compare with.
  EXPECT_EQ(without_clock, (std::vector<std::string>{"ascend910b", "b100", "gaudi2", "gaudi3",
                                                     "tpu-v6e", "trainium2"}));
}

// Peak of matrix engines = units x multiply-adds a unit and cycle x 2 x clock.
TEST(Presets, ClockAndMatrixEnginesGiveThePeak) {
  const std::vector<std::pair<std::string, double>> rows{{"tpu-v3", 2 * 128 * 128},
                                                         {"tpu-v4", 4 * 128 * 128},
                                                         {"tpu-v5e", 4 * 128 * 128},
                                                         {"tpu-v5p", 4 * 128 * 128},
                                                         {"trainium", 128 * 128}};
  for (const auto& [name, products] : rows) {
    const Device device = load_cluster(name)->parts[0].type.device;
    const double peak = static_cast<double>(device.units) * products * 2 * device.clock_hz;
    EXPECT_NEAR(device.peak.at("bf16") / peak, 1, 0.05) << name;
  }
}

// 16-bit peak TFLOP/s, memory GB/s, inner link GB/s, NICs x Gb/s.
struct PresetRow {
  std::string name;
  double peak, memory, inner, nics, nic;
  int64_t units;
};
void expect_rows(const std::vector<PresetRow>& rows, const std::string& arithmetic) {
  for (const PresetRow& row : rows) {
    SCOPED_TRACE(row.name);
    const NodeType type = load_cluster(row.name)->parts[0].type;
    EXPECT_DOUBLE_EQ(type.device.peak.at(arithmetic), row.peak * 1e12);
    EXPECT_DOUBLE_EQ(type.device.memory_rate, row.memory * 1e9);
    EXPECT_DOUBLE_EQ(type.inner.rate, row.inner * 1e9);
    EXPECT_DOUBLE_EQ(static_cast<double>(type.nics), row.nics);
    EXPECT_DOUBLE_EQ(type.nic.rate, row.nic * 1e9 / 8);
    EXPECT_EQ(type.device.units, row.units);
  }
}

// docs/theory/cost-model.md section 2.1.
TEST(Presets, RowsOfTheTable) {
  expect_rows({{"dgx-p100", 21.2, 732, 80, 4, 100, 56},
               {"dgx-v100", 125, 900, 150, 4, 100, 80},
               {"v100-pcie", 112, 900, 12, 1, 100, 80},
               {"p3.16xlarge", 125, 900, 150, 1, 25, 80},
               {"t4", 65, 300, 12, 1, 50, 40},
               {"titan-rtx", 130, 672, 12, 1, 100, 72},
               {"2080ti", 53.8, 616, 12, 1, 25, 68},
               {"rtx5000", 89, 448, 12, 1, 56, 48},
               {"dgx-a100-40", 312, 1555, 300, 8, 200, 108},
               {"dgx-a100", 312, 2039, 300, 8, 200, 108},
               {"a800", 312, 2039, 200, 8, 200, 108},
               {"p4d", 312, 1555, 300, 4, 100, 108},
               {"dgx-h100", 989, 3350, 450, 8, 400, 132},
               {"h800", 989, 3350, 200, 8, 400, 132},
               {"h100-pcie", 756, 2000, 55, 2, 200, 114},
               {"h100-500w", 989, 2400, 450, 8, 400, 132},
               {"dgx-h200", 989, 4800, 450, 8, 400, 132},
               {"dgx-b200", 2250, 7700, 900, 8, 400, 148},
               {"gb200-nvl72", 2500, 8000, 900, 72, 400, 148},
               {"l40s", 362, 864, 25, 2, 200, 142}},
              "fp16");
  EXPECT_EQ(load_cluster("dgx-a100")->parts[0].type.device.context_bytes, 1573 * int64_t{1} << 20);
  EXPECT_EQ(load_cluster("dgx-v100")->parts[0].type.device.context_bytes, 1271 * int64_t{1} << 20);
}

// Makers' data sheets.
TEST(Presets, RowsOfDataSheets) {
  expect_rows(
      {{"a10", 125, 600, 25, 1, 100, 72},          {"a10g", 70, 600, 4.7, 1, 100, 80},
       {"a30", 165, 933, 25, 1, 100, 56},          {"a40", 149.7, 696, 25, 1, 200, 84},
       {"a6000", 154.8, 768, 25, 1, 100, 84},      {"a5000", 111.1, 768, 25, 1, 100, 64},
       {"rtx3090", 71, 936, 20, 1, 100, 82},       {"p4de", 312, 2039, 300, 4, 100, 108},
       {"rtx4090", 165.2, 1008, 20, 1, 100, 128},  {"l4", 121, 300, 4.7, 1, 100, 58},
       {"l40", 181, 864, 25, 2, 200, 142},         {"h20", 148, 4000, 450, 8, 400, 78},
       {"h100-nvl", 835, 3938, 55, 2, 200, 132},   {"gh200", 989, 4000, 450, 1, 400, 132},
       {"b100", 1750, 8000, 900, 8, 400, 148},     {"mi250x", 191.5, 1638, 100, 4, 200, 110},
       {"mi300x", 1307.4, 5300, 448, 8, 400, 304}, {"mi325x", 1307.4, 6000, 448, 8, 400, 304},
       {"mi355x", 2516, 8000, 537.6, 8, 400, 256}, {"gaudi2", 432, 2450, 262.5, 8, 300, 2},
       {"gaudi3", 1835, 3700, 525, 8, 600, 8},     {"trainium", 190, 880, 192, 8, 100, 2},
       {"trainium2", 667, 2900, 320, 16, 200, 8},  {"ascend910b", 313, 1600, 196, 8, 200, 20},
       {"tpu-v3", 123, 900, 140, 32, 560, 2},      {"tpu-v4", 275, 1200, 100, 64, 400, 2},
       {"tpu-v5e", 197, 819, 100, 64, 100, 1},     {"tpu-v5p", 459, 2765, 200, 64, 800, 2},
       {"tpu-v6e", 918, 1638, 200, 64, 400, 1}},
      "bf16");
}

TEST(Presets, WrongNames) {
  const auto message = [](std::string_view what) {
    const auto cluster = load_cluster(what);
    return cluster ? "accepted" : cluster.error().message;
  };
  EXPECT_EQ(message("dgx-a10:8"),
            "cluster 'dgx-a10:8': expected a preset (tessera inspect --list-clusters), devices "
            "(8xH100), 'local' or a "
            ".toml file, found 'dgx-a10', did you mean 'dgx-a100'?");
  EXPECT_EQ(message("dgx-a100:0"),
            "cluster 'dgx-a100:0': expected a number of nodes from 1 to 131072 after ':', found "
            "'0'");
  EXPECT_EQ(message("local:many"),
            "cluster 'local:many': expected a number of ranks from 1 to 1048576 after ':', found "
            "'many'");
  EXPECT_TRUE(message("nowhere/c.toml").find("nowhere/c.toml") != std::string::npos);
  EXPECT_TRUE(names_preset("dgx-a100:8"));
  EXPECT_TRUE(names_preset("local"));
  EXPECT_FALSE(names_preset("gpt:layers=2"));
}

TEST(Local, RanksShareTheCores) {
  const Cluster c = local_cluster(0, nullptr);
  const int64_t cores = c.devices();
  EXPECT_EQ(c.parts[0].type.device.sustained, 1);
  const Cluster twice = local_cluster(2 * cores, nullptr);
  EXPECT_EQ(twice.devices(), 2 * cores);
  EXPECT_EQ(twice.parts[0].type.cores, cores);  // the engine lets ranks beyond them take turns
  EXPECT_GT(c.parts[0].type.device.memory_bytes, 1 << 20);
  EXPECT_NE(c.parts[0].type.device.name.find("not measured"), std::string::npos);
}

TEST(Local, TakesScalarsOfTheProfile) {
  auto profile = std::make_shared<Profile>();
  profile->device = "the test's machine";
  profile->scalars = {{"device.peak.fp32", 1e9}, {"inner.rate", 2e9}, {"host.issue_s", 3e-6}};
  const NodeType type = local_cluster(2, profile).parts[0].type;
  EXPECT_EQ(type.device.name, "the test's machine");
  EXPECT_EQ(type.device.peak.at("fp32"), 1e9);
  EXPECT_EQ(type.inner.rate, 2e9);
  EXPECT_EQ(type.device.host_issue_s, 3e-6);
}

class InFolder : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("tessera_cluster_test_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override {
    unsetenv("TESSERA_PROFILE");
    std::filesystem::remove_all(folder_);
  }
  std::string write(const std::string& name, const std::string& text) {
    const std::string path = (folder_ / name).string();
    EXPECT_TRUE(write_file(path, text).has_value());
    return path;
  }
  std::filesystem::path folder_;
};

TEST_F(InFolder, ProfilesAreFoundBesideTheCluster) {
  Profile profile;
  profile.scalars["x"] = 1;
  write("p.json", to_json(profile));
  const std::string path = write("c.toml", "profile = \"p.json\"\n" + kText);
  const auto c = load_cluster(path);
  ASSERT_TRUE(c.has_value()) << c.error().message;
  ASSERT_NE(c->profile, nullptr);
  EXPECT_EQ(*c->profile, profile);
  EXPECT_EQ(*parse_cluster(to_toml(*c), "elsewhere/again.toml"), *c);
  write("p.json", "[]");
  EXPECT_EQ(load_cluster(path).error().message,
            path + ":1: profile " + (folder_ / "p.json").string() +
                ": expected the JSON object that tessera profile writes, found array");
}

TEST_F(InFolder, LocalReadsTheProfileOfTheEnvironment) {
  Profile profile;
  profile.device = "measured";
  setenv("TESSERA_PROFILE", write("p.json", to_json(profile)).c_str(), 1);
  const auto c = load_cluster("local:3");
  ASSERT_TRUE(c.has_value()) << c.error().message;
  EXPECT_EQ(c->parts[0].type.device.name, "measured");
  EXPECT_EQ(*parse_cluster(to_toml(*c), "x.toml"), *c);
  setenv("TESSERA_PROFILE", (folder_ / "none.json").c_str(), 1);
  EXPECT_EQ(load_cluster("local")->profile, nullptr);
}

TEST_F(InFolder, LocalIsThePresetOfAProfiledAccelerator) {
  Profile profile;
  profile.device = "NVIDIA H200, driver for CUDA 13.0, libtorch 2.13.0, beside a processor";
  profile.scalars = {
      {"device.count", 4}, {"device.memory_bytes", 100e9}, {"device.peak.bf16", 7e14}};
  const std::string path = write("p.json", to_json(profile));
  setenv("TESSERA_PROFILE", path.c_str(), 1);
  for (const int64_t devices : {4, 2}) {
    const auto c = load_cluster(devices == 4 ? "local" : "local:2");
    ASSERT_TRUE(c.has_value()) << c.error().message;
    EXPECT_EQ(c->name, "local");
    EXPECT_EQ(c->devices(), devices);
    EXPECT_EQ(c->parts[0].type.device.name, "h200-sxm-141");
    EXPECT_FALSE(c->parts[0].type.device.synchronous);
    ASSERT_NE(c->profile, nullptr);
    EXPECT_EQ(*c->profile, profile);
    EXPECT_EQ(c->profile_file, path);
  }
  profile.device = "an accelerator that no preset has";
  write("p.json", to_json(profile));
  const auto other = load_cluster("local");
  ASSERT_TRUE(other.has_value()) << other.error().message;
  EXPECT_EQ(other->devices(), 4);
  EXPECT_FALSE(other->parts[0].type.device.synchronous);
  EXPECT_EQ(other->parts[0].type.device.memory_bytes, 100'000'000'000);
  EXPECT_EQ(other->parts[0].type.device.peak.at("bf16"), 7e14);
}

TEST(WhatIf, ScalesWhatItNames) {
  const Cluster before = *load_cluster("dgx-a100:2");
  Cluster c = before;
  ASSERT_TRUE(apply_what_if(c,
                            "link:nic*2, device:peak*1.2,latency:inner*0,device:memory*0.5,"
                            "latency:fabric*3,fabric:oversubscription*2"));
  const NodeType& was = before.parts[0].type;
  const NodeType& is = c.parts[0].type;
  EXPECT_EQ(is.nic.rate, 2 * was.nic.rate);
  EXPECT_DOUBLE_EQ(is.device.peak.at("bf16"), 1.2 * 312e12);
  EXPECT_EQ(is.inner.latency_s, 0);
  EXPECT_EQ(is.device.memory_bytes, was.device.memory_bytes / 2);
  EXPECT_EQ(c.tiers[0].latency_s, 3 * before.tiers[0].latency_s);
  EXPECT_EQ(c.tiers[1].oversubscription, 2);
  EXPECT_EQ(is.inner.rate, was.inner.rate);
  Cluster other = before;
  ASSERT_TRUE(apply_what_if(other, "link:ib*2"));
  EXPECT_EQ(other.parts[0].type.nic.rate, is.nic.rate);
}

TEST(WhatIf, EveryNameChangesTheCluster) {
  for (const std::string name :
       {"link:inner", "link:bridge", "link:nic", "link:ib", "link:host", "link:disk", "device:peak",
        "device:memory", "device:memory_rate", "device:launch", "device:host_issue", "host:memory",
        "host:slowness", "latency:inner", "latency:nic", "latency:ib", "latency:host",
        "latency:fabric", "fabric:oversubscription"}) {
    Cluster c = *load_cluster("a100-pcie");
    const Cluster before = c;
    ASSERT_TRUE(apply_what_if(c, name + "*2")) << name;
    EXPECT_FALSE(c == before) << name;
    ASSERT_TRUE(apply_what_if(c, name + "*0.5")) << name;
    EXPECT_TRUE(c == before) << name;
  }
}

TEST(WhatIf, ErrorsListWhatIsAllowedAndChangeNothing) {
  Cluster c = *load_cluster("dgx-a100");
  const Cluster before = c;
  const auto message = [&](std::string_view changes) {
    const Status status = apply_what_if(c, changes);
    EXPECT_TRUE(c == before);
    return status ? "accepted" : status.error().message;
  };
  EXPECT_EQ(
      message("link:inner*2,link:nick*2"),
      "what-if 'link:nick*2': expected one of link:inner, link:bridge, link:nic, link:ib, "
      "link:host, link:disk, device:peak, device:memory, device:memory_rate, device:launch, "
      "device:host_issue, host:memory, host:slowness, latency:inner, latency:nic, latency:ib, "
      "latency:host, latency:fabric, fabric:oversubscription, fabric:uplink, found 'link:nick', "
      "did you mean "
      "'link:nic'?");
  EXPECT_EQ(message("link:nic*0"),
            "what-if 'link:nic*0': expected 'link:nic*' and a factor above 0, found '0'");
  EXPECT_EQ(message("latency:nic*-1"),
            "what-if 'latency:nic*-1': expected 'latency:nic*' and a factor of at least 0, found "
            "'-1'");
  EXPECT_EQ(message("link:nic"),
            "what-if 'link:nic': expected 'link:nic*' and a factor above 0, found ''");
}

TEST(WhatIf, MeasuredTablesFollow) {
  auto profile = std::make_shared<Profile>();
  profile->families["matmul.float32.nn"] = {{"batch", "m", "n", "k"}, {{{1, 8, 8, 8}, 2, 0}}};
  profile->families["layer_norm.float32"] = {{"elements"}, {{{8}, 4, 0}}};
  profile->families["all_reduce.threads"] = {
      {"ranks", "bytes"}, {{{2, 8}, 1, 0}, {{2, 64}, 5, 0}, {{4, 8}, 2, 0}, {{4, 64}, 10, 0}}};
  Cluster c = local_cluster(2, profile);
  const auto seconds = [&](const std::string& family, size_t i) {
    return c.profile->families.at(family).samples[i].seconds;
  };
  ASSERT_TRUE(apply_what_if(c, "device:peak*2"));
  EXPECT_EQ(seconds("matmul.float32.nn", 0), 1);
  EXPECT_EQ(seconds("layer_norm.float32", 0), 4);
  ASSERT_TRUE(apply_what_if(c, "device:memory_rate*4"));
  EXPECT_EQ(seconds("layer_norm.float32", 0), 1);
  ASSERT_TRUE(apply_what_if(c, "link:inner*2"));
  EXPECT_EQ(seconds("all_reduce.threads", 0), 1);
  EXPECT_EQ(seconds("all_reduce.threads", 1), 3);
  EXPECT_EQ(seconds("all_reduce.threads", 3), 6);
  ASSERT_TRUE(apply_what_if(c, "latency:inner*0"));
  EXPECT_EQ(seconds("all_reduce.threads", 1), 2);
  EXPECT_EQ(seconds("all_reduce.threads", 3), 4);
  EXPECT_EQ(profile->families["layer_norm.float32"].samples[0].seconds, 4);  // the original
}

// Any cluster that can be written down is the same value after printing and reading.
RC_GTEST_PROP(Cluster, ParsesWhatItPrints, ()) {
  const auto figure = [] {
    return static_cast<double>(*rc::gen::inRange(1, 1'000'000)) *
           std::pow(10.0, *rc::gen::inRange(-9, 9)) / 7;
  };
  const auto names = preset_names();
  Cluster c;
  c.name = *rc::gen::nonEmpty(rc::gen::string<std::string>());
  std::replace_if(
      c.name.begin(), c.name.end(), [](char x) { return x < ' ' || x > '~'; }, '"');
  for (int parts = *rc::gen::inRange(1, 4); parts > 0; --parts) {
    ClusterPart part{load_cluster(*rc::gen::elementOf(names))->parts[0].type, 1};
    part.nodes = *rc::gen::inRange(1, 100);
    part.type.nics = 4;
    part.type.nic = {LinkKind::kNic, figure(), figure(), true};
    part.type.inner.rate = figure();
    part.type.inner.switched = *rc::gen::arbitrary<bool>();
    part.type.device.memory_bytes = *rc::gen::inRange<int64_t>(1, int64_t{1} << 50);
    part.type.device.sustained = 1.0 / *rc::gen::inRange(1, 100);
    part.type.device.clock_hz = figure();
    part.type.host_slowness = figure();
    c.parts.push_back(part);
  }
  for (int tiers = *rc::gen::inRange(0, 3); tiers > 0; --tiers) {
    c.tiers.push_back({*rc::gen::inRange<int64_t>(1, 64), figure(), figure()});
  }
  if (!c.tiers.empty()) c.tiers.back().radix = 0;
  c.rail_aligned = *rc::gen::arbitrary<bool>();
  c.one_machine = *rc::gen::arbitrary<bool>();
  if (c.one_machine) {  // The parts of one machine share its cores.
    for (ClusterPart& part : c.parts) part.type.cores = c.parts.front().type.cores;
  }
  c.exchange_share = *rc::gen::inRange(1, 101) / 100.0;
  const auto again = parse_cluster(to_toml(c), "c.toml");
  RC_ASSERT(again.has_value());
  RC_ASSERT(*again == c);
}

RC_GTEST_PROP(Cluster, AnswersAnyTextWithAPlacedError, ()) {
  const std::vector<std::string> lines = split_text(kText, '\n');
  std::string text;
  for (const std::string& line : lines) {
    const int fate = *rc::gen::inRange(0, 20);
    if (fate == 0) continue;
    if (fate == 1) text += line + "\n";
    if (fate == 2) text += line.substr(0, line.find('=')) + "= 3\n";
    if (fate > 2) text += line + "\n";
  }
  const auto c = parse_cluster(text, "c.toml");
  const std::string message = c ? "c.toml:" : c.error().message;
  RC_ASSERT(message.starts_with("c.toml:"));
  RC_ASSERT(message.find('\n') == std::string::npos);
}

}  // namespace
}  // namespace tessera::cluster_test
