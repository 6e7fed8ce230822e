// The tables of docs/reference/costs.md and styles.md are those of the code. With
// TESSERA_REWRITE_GOLDEN set they are written anew.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tessera/base/text.h"
#include "tessera/cost/constants.h"
#include "tessera/cost/style_data.h"
#include "tessera/test/source_dir.h"

namespace tessera {
namespace {

std::string_view origin_name(Origin::Kind kind) {
  switch (kind) {
    case Origin::Kind::kFact: return "fact";
    case Origin::Kind::kAssumption: return "assumption";
    case Origin::Kind::kFitted: return "fitted";
  }
  return "";
}

std::string text_of(const Origin& origin) {
  std::string out(origin_name(origin.kind));
  if (origin.kind == Origin::Kind::kFitted) out += " on " + join(origin.rows, ", ");
  if (!origin.text.empty()) out += ": " + origin.text;
  return out;
}

std::string matmul_table() {
  std::string text =
      "| generation | arithmetic | best share of the peak | half at (flops, curve) | uncertainty | "
      "what it is |\n|---|---|---|---|---|---|\n";
  for (const MatmulConstants& row : all_matmul_constants()) {
    text +=
        fmt::format("| {} | {} | {:.2f} | {:g} | {:.2f} | {} |\n", generation_name(row.generation),
                    row.arithmetic, row.best, row.half_flops, row.uncertainty, text_of(row.origin));
  }
  return text;
}

std::string device_table() {
  std::string text =
      "| generation | tail (us) | attention forward / backward | memory | vector | experts, narrow "
      "| scans | what it is "
      "|\n|---|---|---|---|---|---|---|---|\n";
  for (const DeviceConstants& row : all_device_constants()) {
    text += fmt::format(
        "| {} | {:g} | {:.2f} / {:.2f} | {:.2f} | {:.2f} | {:.2f} / {:.2f} | {:g} | {} |\n",
        generation_name(row.generation), row.tail_s * 1e6, row.attention_forward,
        row.attention_backward, row.memory, row.vector, row.grouped, row.grouped_narrow, row.scan,
        text_of(row.origin));
  }
  return text;
}

std::string class_table() {
  std::string text =
      "| class | of the memory share | uncertainty | what it is |\n|---|---|---|---|\n";
  for (const ClassConstants& row : all_class_constants()) {
    text += fmt::format("| {} | {:.2f} | {:.2f} | {} |\n", work_class_name(row.work), row.memory,
                        row.uncertainty, text_of(row.origin));
  }
  return text;
}

std::string style_table() {
  std::string text = "| preset | years | what it is | sets |\n|---|---|---|---|\n";
  for (const StylePreset& preset : style_presets()) {
    std::string sets;
    for (const StyleValues& values : preset.values) {
      std::string options;
      for (const std::string& option : values.options)
        options += fmt::format("{}`{}`", options.empty() ? "" : ", ", option);
      sets += fmt::format("{}{} ({})", sets.empty() ? "" : "; ", options, text_of(values.origin));
    }
    std::string name = fmt::format("`{}`", preset.name);
    for (const std::string& other : preset.also) name += fmt::format(", `{}`", other);
    text += fmt::format("| {} | {} | {} | {} |\n", name, preset.years, preset.summary,
                        sets.empty() ? "the defaults" : sets);
  }
  return text;
}

// Checks that the part of the page between "<!-- name -->" and the next marker is `table`.
void expect_table(const std::string& page, const std::string& name, const std::string& table) {
  const std::string path = std::string(TESSERA_SOURCE_DIR) + "/docs/reference/" + page;
  const auto text = read_file(path);
  ASSERT_TRUE(text.has_value()) << text.error().message;
  const std::string marker = "<!-- table: " + name + " -->\n", end = "<!-- end -->\n";
  const size_t begin = text->find(marker);
  ASSERT_NE(begin, std::string::npos) << page << " lacks " << marker;
  const size_t from = begin + marker.size(), to = text->find(end, from);
  ASSERT_NE(to, std::string::npos) << page << " lacks an end of " << name;
  if (std::getenv("TESSERA_REWRITE_GOLDEN") != nullptr) {
    const auto written = write_file(path, text->substr(0, from) + table + text->substr(to));
    ASSERT_TRUE(written.has_value());
    return;
  }
  EXPECT_EQ(text->substr(from, to - from), table) << page;
}

TEST(CostDocs, print_the_tables_of_the_code) {
  expect_table("costs.md", "matrix products", matmul_table());
  expect_table("costs.md", "devices", device_table());
  expect_table("costs.md", "classes", class_table());
}
TEST(CostDocs, print_the_presets_of_the_code) {
  expect_table("styles.md", "presets", style_table());
}

TEST(CostDocs, explain_every_style_option) {
  const auto text = read_file(std::string(TESSERA_SOURCE_DIR) + "/docs/reference/styles.md");
  ASSERT_TRUE(text.has_value());
  for (const std::string& key : style_keys())
    EXPECT_NE(text->find("| `" + key + "`"), std::string::npos) << key;
}

}  // namespace
}  // namespace tessera
