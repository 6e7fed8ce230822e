#include "refusals.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cctype>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <vector>

#include "support/seed.h"
#include "tessera/base/philox.h"
#include "tessera/base/text.h"
#include "tessera/compile/compile.h"
#include "tessera/models/families.h"
#include "tessera/plan/prepare.h"
#include "tessera/plan/recipes.h"
#include "tessera/plan/recipes/writer.h"
#include "tessera/test/source_dir.h"

namespace tessera {
namespace {

// Random choices are written as a text in which {a|b|c} is one of a, b and c.
const std::map<std::string, std::string> kModels = {
    {"gpt",
     "gpt:layers={1|2|3|4},heads={2|3|4|6},hidden={12|24},seq={3|5|6},vocab={7|13|20},"
     "ffn={10|16|25},tied={0|1},dropout={0|0|0.2}"},
    {"llama",
     "llama:layers={1|2|3},heads={2|6|12},kv_heads={1|2},head_dim=4,hidden={10|20},seq={3|5|6},"
     "vocab={7|17},ffn={10|21|44},tied={0|1},lora={0|0|2}"},
    {"mixtral",
     "mixtral:layers={1|2|3},heads={2|4},kv_heads={1|2},hidden={8|16},experts={2|4|5},seq={4|6},"
     "vocab={13|20},ffn={8|15},weigh_inside={0|1}"
     "{||,full_every=2,delta_heads=2,delta_value_heads=4,delta_head_dim=3,delta_value_dim=2}"},
    {"nemotron_h",
     "nemotron_h:pattern={M*ME|ME*M-M|M*},hidden={16|24},heads=4,kv_heads=2,seq={5|6},vocab=19,"
     "ssm_heads={4|6},ssm_head_dim=4,ssm_groups=2,state=4,chunk={3|4},experts={4|5},expert_ffn=10,"
     "mtp={0|1|2}"},
    {"bert",
     "bert:layers={1|2|3},heads={2|3|6},hidden={12|24},seq={5|6},vocab={13|17},ffn={10|21}"},
    {"t5", "t5:layers={1|2|3},heads={2|3|6},hidden={12|24},seq={4|6},source={4|5|6},vocab={13|17}"},
    {"vit", "vit:layers={1|2|3},heads={2|3|6},hidden={12|24},image={8|12},patch=4,classes={5|7}"},
    {"swin",
     "swin:image=24,patch=2,channels=3,hidden=12,depths={2|1-2|2-1},heads={2|3},window={2|3},"
     "classes=5"},
    {"evoformer",
     "evoformer:layers={1|2|3},recycles={0|0|1},hidden={8|12},heads={2|4},pair={6|9},pair_heads=3,"
     "sequences={3|5},residues={3|4},vocab=7,bins=5"},
    {"dhen",
     "dhen:dense=3,rows=7-5-11,bags=2,width=4,bottom=6-4,top=5-1,heads={1|2},layers={1|2|3},"
     "embeddings={2|4},ffn={6|7},filters=2,ensemble={concat|sum|weighted},"
     "modules={linear|dlrm-linear|attention-linear|dot-cross+convolution-attention}"},
    {"mlp", "mlp:in={4|5},hidden={8|9},out={3|4},layers={1|2|3}"},
};
// By argument, or by recipe and argument.
const std::map<std::string, std::string> kArguments = {
    {"token_pipeline.schedule", "{token|token_1f1b}"},
    {"slices", "{1|2|3|4}"},
    {"mesh", "a2,b{1|2|3}"},
    {"recompute", "{none|none|selective|full|norm+act|core+mlp|moe|scan|mla_up}"},
    {"schedule",
     "{1f1b|1f1b|gpipe|eager_1f1b|interleaved|zb_h1|zb_h2|zb_v|chimera|nf1b|interlaced|token}"},
    {"with", "{int8|float16|topk:0.5}"},
    {"borders", "{none|none|bfloat16}"},
    {"optimizer", "{0|0.4|1}"},
    {"parameters", "{0|0.5|1}"},
    {"zero", "{0|1|2|3}"},
    {"stage", "{1|2|3}"},
    {"cols", "{0|0|1|2|3}"},
    {"prefetch", "{0|0|1|2}"},
    {"precision", "{float32|float32|bfloat16|float16}"},
    {"micro_batches", "{1|1|2|3}"},
    {"reshard_after_forward", "{0|0|2|3}"},
    {"chunks", "{1|1|1|2}"},
};
const std::map<std::string, std::string> kSpecs = {
    {"per_layer",
     "{|embed:dp2;}0-{last}:{tp2|tp2,sp|dp2,zero{1|2|3}|dp2,{recompute|selective}|cp2|ulysses2}"
     "{|;head:{tp2|ulysses2}}"},
    {"per_op",
     "*=batch:{a|b|a+b};{attention=heads:{a|b}|mlp=ffn:{a|b}|norms=seq:a|loss=vocab:{a|b}}"},
};
constexpr int64_t kMostRanks = 12;

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}
  size_t below(size_t n) { return static_cast<size_t>(random_()) % n; }

  // Chooses an alternative of each brace, then expands the alternative.
  std::string expand(std::string text) {
    for (size_t open = text.find('{'); open != std::string::npos; open = text.find('{', open)) {
      std::vector<std::string> choices(1);
      size_t at = open + 1;
      for (int depth = 1;; ++at) {
        depth += text[at] == '{' ? 1 : text[at] == '}' ? -1 : 0;
        if (depth == 0) break;
        if (depth == 1 && text[at] == '|') {
          choices.emplace_back();
        } else {
          choices.back() += text[at];
        }
      }
      text.replace(open, at + 1 - open, choices[below(choices.size())]);
    }
    return text;
  }

 private:
  std::mt19937_64 random_;
};

std::string argument_value(const Recipe& recipe, const RecipeArgument& argument, const Graph& graph,
                           Draw& draw) {
  if (argument.name == "spec") {
    std::string spec = kSpecs.at(recipe.name);
    const std::string last = std::to_string(std::max<int64_t>(recipes::block_count(graph), 1) - 1);
    if (const size_t at = spec.find("{last}"); at != std::string::npos) spec.replace(at, 6, last);
    return '"' + draw.expand(spec) + '"';
  }
  auto own = kArguments.find(recipe.name + "." + argument.name);
  if (own == kArguments.end()) own = kArguments.find(argument.name);
  if (own != kArguments.end()) return '"' + draw.expand(own->second) + '"';
  if (!argument.choices.empty()) return argument.choices[draw.below(argument.choices.size())];
  return draw.expand("{1|2|2|3}");
}

std::string draw_call(const Recipe& recipe, const Graph& graph, Draw& draw) {
  std::vector<std::string> arguments;
  for (const RecipeArgument& argument : recipe.arguments) {
    if (argument.name == "device_order") continue;  // changes no rank's program
    std::string value = argument_value(recipe, argument, graph, draw);
    if (argument.otherwise && draw.below(2) == 0) continue;  // the default
    if (!argument.is_text) std::erase(value, '"');
    arguments.push_back(argument.name + "=" + value);
  }
  return fmt::format("{}({})", recipe.name, join(arguments, ", "));
}

// Removes what differs from case to case: numbers become N, and quoted parts are left out.
std::string normalised(std::string_view message) {
  std::string out;
  for (size_t i = 0; i < message.size(); ++i) {
    const char c = message[i];
    const bool opens =
        (c == '\'' && (i == 0 || message[i - 1] == ' ' || message[i - 1] == '(')) || c == '"';
    const size_t close = opens ? message.find(c, i + 1) : std::string_view::npos;
    if (close != std::string_view::npos) {
      out += "'..'";
      i = close;
    } else if (std::isdigit(static_cast<unsigned char>(c)) != 0) {
      if (!out.ends_with('N')) out += 'N';
    } else {
      out += c;
    }
  }
  return out;
}

struct JudgedCall {
  std::string refusal;  // "": accepted
  std::string wrong;    // "": nothing is wrong
};

JudgedCall judge_call(const Graph& forward, const std::string& call) {
  const auto refused = [](const std::string& message) {
    const std::string_view text = message;  // "plan:3: ..." or "recipe NAME: ..."
    const size_t behind = text.starts_with("plan") ? text.find(": ") + 2 : 0;
    return JudgedCall{normalised(text.substr(behind)), ""};
  };
  const auto text = emit_recipe(call, forward);
  if (!text) return refused(text.error().message);
  const auto plan = parse_plan(*text, "plan");
  if (!plan) return {"", "parse_plan: " + plan.error().message};
  if (plan->ranks() > kMostRanks) return {};
  auto graph = training_graph(forward, *plan, plan->precision, OptimizerSpec{});
  if (!graph) return refused(graph.error().message);
  auto prepared = prepare(std::move(*graph), *plan);
  if (!prepared) return refused(prepared.error().message);
  const auto lowering = Lowering::create(std::make_shared<const Graph>(std::move(prepared->graph)),
                                         std::move(prepared->plan));
  if (!lowering) return refused(lowering.error().message);
  const auto programs = lower_and_verify(*lowering);
  return {"", programs ? "" : programs.error().message};
}

// A broken invariant ends the process: the case that was being judged is shown first.
std::string call_at_hand;
void show_call_at_hand(int) {
  [[maybe_unused]] const auto written =
      write(STDERR_FILENO, call_at_hand.data(), call_at_hand.size());
}

using Table = std::map<std::string, int>;  // "recipe | message" and how often

std::string text_of(const Table& table) {
  std::string out = "# cases refused | recipe | message; see refusals.h\n";
  for (const auto& [row, count] : table) out += fmt::format("{} | {}\n", count, row);
  return out;
}

std::string content_of(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

}  // namespace

void expect_known_refusals(int each, const std::string& file) {
  SCOPED_TRACE(seed_text());
  const uint64_t seed = test_seed(/*fixed=*/0);
  const auto before = std::signal(SIGABRT, show_call_at_hand);
  Table refused;
  int cases = 0, wrong = 0;
  for (const Recipe& recipe : all_recipes()) {
    for (const ModelFamily& family : all_families()) {
      const std::string pair = recipe.name + " " + family.name;
      for (int i = 0; i < each; ++i, ++cases) {
        Draw draw(
            stable_hash(pair.data(), pair.size(), seed * 1'000'003 + static_cast<uint64_t>(i)));
        const auto known = kModels.find(family.name);
        const std::string spec = known != kModels.end()
                                     ? draw.expand(known->second)
                                     : family.examples[draw.below(family.examples.size())];
        const int64_t batch = draw.below(3) == 0 ? 8 : 12;
        const auto model = build_model(spec, batch);
        ASSERT_TRUE(model) << spec << ": " << model.error().message;
        const std::string call = draw_call(recipe, model->graph, draw);
        call_at_hand = fmt::format("{} --plan '{}' --batch {}\n", spec, call, batch);
        const JudgedCall judged = judge_call(model->graph, call);
        if (!judged.wrong.empty() && ++wrong <= 10) ADD_FAILURE() << call_at_hand << judged.wrong;
        if (judged.refusal.empty()) continue;
        const int before_it = refused[recipe.name + " | " + judged.refusal]++;
        if (before_it == 0 && std::getenv("TESSERA_SHOW_REFUSALS") != nullptr)
          fmt::print("{}\n  {}", judged.refusal, call_at_hand);
      }
    }
  }
  std::signal(SIGABRT, before);
  EXPECT_EQ(wrong, 0) << "of " << cases << " cases";
  const std::string path = TESSERA_SOURCE_DIR "/tests/property/" + file;
  if (std::getenv("TESSERA_REWRITE_GOLDEN") != nullptr) std::ofstream(path) << text_of(refused);
  if (std::getenv("TESSERA_SEED") == nullptr) {
    EXPECT_EQ(text_of(refused), content_of(path)) << "review, and write it with "
                                                     "TESSERA_REWRITE_GOLDEN=1";
  }
}

}  // namespace tessera
