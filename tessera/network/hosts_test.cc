// Tests names of hosts and the forms in which an order is written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tessera/network/host_files.h"
#include "tessera/network/host_names.h"

namespace tessera {
namespace {

using testing::ElementsAre;

TEST(HostNames, numbers_in_names_count_as_numbers) {
  const std::vector<std::string> names = {"node10", "node2",    "node1",
                                          "node02", "gpu-3-11", "gpu-3-9"};
  std::vector<std::string> sorted;
  for (const int64_t i : natural_order(names)) sorted.push_back(names[static_cast<size_t>(i)]);
  EXPECT_THAT(sorted, ElementsAre("gpu-3-9", "gpu-3-11", "node1", "node02", "node2", "node10"));
  sorted.clear();
  for (const int64_t i : spelling_order(names)) sorted.push_back(names[static_cast<size_t>(i)]);
  EXPECT_THAT(sorted, ElementsAre("gpu-3-11", "gpu-3-9", "node02", "node1", "node10", "node2"));
  EXPECT_FALSE(naturally_before("a", "a"));
  EXPECT_TRUE(naturally_before("a", "a1"));
  EXPECT_TRUE(naturally_before("a99999999999999999999", "a100000000000000000000"));
}

TEST(HostNames, a_host_that_the_network_lacks_is_named) {
  EXPECT_THAT(find_hosts({"b", "a"}, {"a", "b", "c"}, "f", "net.toml").value(), ElementsAre(1, 0));
  EXPECT_EQ(find_hosts({"node3", "node7"}, {"node1", "node3"}, "f", "net.toml").error().message,
            "f: expected hosts of net.toml, found 'node7', did you mean 'node1'?");
}

const std::vector<PlacedRank> kInBlocks = {{"b", 0}, {"b", 1}, {"a", 0}, {"a", 1}};
const std::vector<PlacedRank> kMixed = {{"b", 0}, {"a", 1}, {"b", 1}, {"a", 0}};

const std::vector<PlacedRank> kInTurn = {{"b", 0}, {"a", 0}, {"b", 1}, {"a", 1}};

std::string text_of(HostFileForm form, const std::vector<PlacedRank>& places) {
  const auto text = host_file_text(form, places);
  return text ? *text : text.error().message;
}

TEST(HostFiles, each_form_says_where_the_ranks_are) {
  EXPECT_EQ(text_of(HostFileForm::kHostfile, kInBlocks), "b slots=2\na slots=2\n");
  EXPECT_EQ(text_of(HostFileForm::kRankfile, kMixed),
            "rank 0=b slot=0\nrank 1=a slot=1\nrank 2=b slot=1\nrank 3=a slot=0\n");
  EXPECT_EQ(text_of(HostFileForm::kSlurm, kInTurn), "b\na\nb\na\n");
  EXPECT_EQ(text_of(HostFileForm::kTorchrun, kInBlocks),
            "# sh FILE train.py ...: node ranks are static, so that hosts keep this order.\n"
            "ssh b torchrun --nnodes=2 --node_rank=0 --nproc_per_node=2 --master_addr=b "
            "--master_port=29500 \"$@\" &\n"
            "ssh a torchrun --nnodes=2 --node_rank=1 --nproc_per_node=2 --master_addr=b "
            "--master_port=29500 \"$@\" &\n"
            "wait\n");
  const auto json = nlohmann::json::parse(text_of(HostFileForm::kJson, kMixed));
  EXPECT_EQ(json["world_size"], 4);
  EXPECT_EQ(json["hosts"], (nlohmann::json{"b", "a"}));
  EXPECT_EQ(json["ranks"][1],
            (nlohmann::json{{"rank", 1}, {"host", "a"}, {"local_rank", 1}, {"node_rank", 1}}));
}

TEST(HostFiles, what_a_form_cannot_say_is_one_line) {
  const std::string line =
      ": expected ranks that follow each other on their host, found rank 1 on device 1 of a; the "
      "forms rankfile and json can say so";
  EXPECT_EQ(text_of(HostFileForm::kHostfile, kMixed), "hostfile" + line);
  EXPECT_EQ(text_of(HostFileForm::kTorchrun, kMixed), "torchrun" + line);
  EXPECT_EQ(text_of(HostFileForm::kSlurm, kMixed),
            "slurm: expected the ranks of a host in the order of its devices, found rank 1, the "
            "0th of a, on device 1; the forms rankfile and json can say so");
  EXPECT_EQ(text_of(HostFileForm::kTorchrun, {{"a", 0}, {"a", 1}, {"b", 0}}),
            "torchrun: expected equally many ranks on each host, found 2 on a and 1 on b");
  EXPECT_EQ(parse_host_file("hosts=x").error().message,
            "expected FORM=FILE with a form of hostfile, rankfile, slurm, torchrun, json, found "
            "'hosts=x'");
  EXPECT_EQ(parse_host_file("slurm=").error().message,
            "expected FORM=FILE with a form of hostfile, rankfile, slurm, torchrun, json, found "
            "'slurm='");
  EXPECT_EQ(parse_host_file("rankfile=a=b").value().path, "a=b");
}

}  // namespace
}  // namespace tessera
