// Checks that execution styles are read from text and written as text.
#include "tessera/cost/style.h"

#include <gtest/gtest.h>

#include "tessera/cost/style_data.h"

namespace tessera {
namespace {

TEST(Style, presets_print_their_name_and_read_back) {
  for (const std::string& name : style_names()) {
    const auto style = parse_style(name);
    ASSERT_TRUE(style.has_value()) << style.error().message;
    EXPECT_EQ(style->name, name);
    EXPECT_EQ(to_string(*style), name);
  }
  for (const StylePreset& preset : style_presets())
    EXPECT_FALSE(preset.summary.empty()) << preset.name;
  EXPECT_EQ(*parse_style("tessera"), Style());
}

TEST(Style, options_change_a_preset_and_read_back) {
  const auto style = parse_style(
      "fsdp, host_forward_s=20us,overlap_gradients=false ,allocator=expandable,"
      "matmul_arithmetic=fp8,elementwise_passes=0.3,step_overhead_s=1.5ms");
  ASSERT_TRUE(style.has_value()) << style.error().message;
  EXPECT_DOUBLE_EQ(style->host_forward_s, 20e-6);
  EXPECT_EQ(style->host_backward_s, parse_style("fsdp")->host_backward_s);
  EXPECT_FALSE(style->overlap_gradients);
  EXPECT_EQ(style->allocator, Style::Allocator::kExpandable);
  EXPECT_EQ(style->matmul_arithmetic, "fp8");
  EXPECT_DOUBLE_EQ(style->step_overhead_s, 1.5e-3);
  const auto again = parse_style(to_string(*style));
  ASSERT_TRUE(again.has_value()) << again.error().message;
  EXPECT_EQ(*again, *style);
}

TEST(Style, any_value_of_an_option_reads_back) {
  for (const double value : {0.0, 1e-9, 3.3e-6, 1.0 / 3, 7e-5 / 3, 12.345, 1e4}) {
    Style style;
    style.host_update_s = value;
    style.attention_passes = value;
    const auto again = parse_style(to_string(style));
    ASSERT_TRUE(again.has_value()) << again.error().message;
    EXPECT_EQ(*again, style) << to_string(style);
  }
}

TEST(Style, errors_name_what_was_expected_and_the_nearest) {
  const auto message = [](const char* text) {
    const auto style = parse_style(text);
    return style ? std::string() : style.error().message;
  };
  EXPECT_NE(message("megatorn").find("nearest: 'megatron'"), std::string::npos);
  EXPECT_NE(message("fsdp,host_foward_s=1us").find("nearest: 'host_forward_s'"), std::string::npos);
  EXPECT_NE(message("fsdp,host_forward_s=20").find("unit"), std::string::npos);
  EXPECT_NE(message("fsdp,host_forward_s=-1us").find("unit"), std::string::npos);
  EXPECT_NE(message("fsdp,fused_attention=yes").find("true or false"), std::string::npos);
  EXPECT_NE(message("fsdp,allocator=cached").find("nearest: 'caching'"), std::string::npos);
  EXPECT_NE(message("fsdp,matmul_arithmetic=fp7").find("dtype, tf32, fp8, fp4"), std::string::npos);
  EXPECT_NE(message("fsdp,jitter=2").find("from 0 to 1"), std::string::npos);
  EXPECT_NE(message("fsdp,overlap_messages").find("key=value"), std::string::npos);
}

}  // namespace
}  // namespace tessera
