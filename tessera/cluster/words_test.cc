#include "tessera/cluster/words.h"

#include <gtest/gtest.h>

#include "tessera/base/data_file.h"
#include "tessera/cluster/cluster.h"

namespace tessera {
namespace {

TEST(ClusterWords, EachWordIsOfAPresetAndIsNoPresetItself) {
  const auto words = parse_cluster_words(text_of(cluster_data(), "words"), "words.toml");
  ASSERT_TRUE(words.has_value()) << words.error().message;
  const std::vector<std::string> presets = preset_names();
  for (const ClusterWord& word : *words) {
    EXPECT_NE(std::find(presets.begin(), presets.end(), word.preset), presets.end()) << word.word;
    EXPECT_EQ(std::find(presets.begin(), presets.end(), word.word), presets.end()) << word.word;
    EXPECT_TRUE(load_cluster(word.word).has_value()) << word.word;
  }
}

TEST(ClusterWords, CountDevicesWherePresetsCountNodes) {
  struct Case {
    std::string text, preset, said;
    int64_t nodes, a_node;
  };
  for (const Case& c :
       std::vector<Case>{{"8xH100", "dgx-h100", "8xH100 is dgx-h100:1", 1, 8},
                         {"h100:8", "dgx-h100", "h100:8 is dgx-h100:1", 1, 8},
                         {"a100", "dgx-a100", "a100 is dgx-a100:1", 1, 8},
                         {"64xA100", "dgx-a100", "64xA100 is dgx-a100:8", 8, 8},
                         {"2xa100-40gb", "dgx-a100-40",
                          "2xa100-40gb is 2 of the 8 devices of a dgx-a100-40", 1, 2},
                         {"1xH200", "dgx-h200", "1xH200 is 1 of the 8 devices of a dgx-h200", 1, 1},
                         {"16xa10", "a10", "16xa10 is a10:2", 2, 8},
                         {"dgx-a100:2", "dgx-a100", "", 2, 8},
                         {"DGX-A100:2", "dgx-a100", "", 2, 8},
                         {"a10:2", "a10", "", 2, 8}}) {
    const auto cluster = load_cluster(c.text);
    ASSERT_TRUE(cluster.has_value()) << c.text << ": " << cluster.error().message;
    EXPECT_EQ(cluster->name, c.preset) << c.text;
    EXPECT_EQ(cluster->nodes(), c.nodes) << c.text;
    EXPECT_EQ(cluster->type_of(0).devices, c.a_node) << c.text;
    EXPECT_EQ(taken_for(c.text), c.said) << c.text;
    EXPECT_TRUE(names_preset(c.text)) << c.text;
  }
  EXPECT_EQ(*load_cluster("16xA100"), *load_cluster("dgx-a100:2"));
  EXPECT_FALSE(names_preset("gpt:layers=2"));
  EXPECT_FALSE(names_preset("8xgpt"));
}

TEST(ClusterWords, WrongOnesAreOneLineWithTheNearestWord) {
  const auto message = [](const char* text) { return load_cluster(text).error().message; };
  EXPECT_EQ(message("12xH100"),
            "cluster '12xH100': expected fewer than 8 devices or a multiple, for a dgx-h100 has "
            "8, found 12");
  EXPECT_EQ(message("0xH100"),
            "cluster '0xH100': expected a number of devices from 1 to 1048576, found '0'");
  EXPECT_EQ(message("h100:many"),
            "cluster 'h100:many': expected a number of devices from 1 to 1048576, found 'many'");
  EXPECT_EQ(message("hh100"),
            "cluster 'hh100': expected a preset (tessera inspect --list-clusters), devices "
            "(8xH100), 'local' or a .toml file, found 'hh100', did you mean 'h100'?");
  EXPECT_NE(message("h1000:8").find("did you mean 'h100'?"), std::string::npos);
  EXPECT_NE(message("8xH10O").find("did you mean '8xh100'?"), std::string::npos);
  EXPECT_NE(message("16xB2000").find("did you mean '16xb200'?"), std::string::npos);
}

TEST(ClusterWords, TheTableIsChecked) {
  const auto message = [](const char* text) {
    const auto words = parse_cluster_words(text, "w.toml");
    return words ? "" : words.error().message;
  };
  EXPECT_NE(
      message("[[word]]\nwords = [\"a\", \"a\"]\npreset = \"x\"\n").find("'a' is there twice"),
      std::string::npos);
  EXPECT_NE(message("[[word]]\nwords = [\"a\"]\n").find("needs the key 'preset'"),
            std::string::npos);
  EXPECT_NE(message("[[word]]\nwords = [\"a\"]\npreset = \"x\"\nodd = 1\n").find("odd"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera
