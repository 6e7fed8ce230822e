// Decides with what a command prices a plan: the machine, the style in which a framework executes,
// the calibrated constants of both, and the dtype of the computation. `simulate`, `plan`, `report`,
// `export --check` and `--plan auto` all ask decide_pricing(), so that the same plan on the same
// machine costs the same in each of them, and `tessera predict` takes the same constants
// (predict/corrections.h). docs/reference/pricing.md tells users the rules.
//
//   PricingOptions options;                       // a member of the command's options
//   add_pricing(command, options);                // --style, --precision, --constants, --list-styles
//   TESSERA_TRY(const Pricing pricing, decide_pricing(options, cluster, {model, plan, batch}));
//   simulate(lowering, pricing.cluster, {.style = pricing.style});
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/cli/cli.h"
#include "tessera/cluster/cluster.h"
#include "tessera/cost/style.h"

namespace tessera {
class Compiler;
}

namespace tessera::cli {

// The words of the user; "" where he said nothing.
struct PricingOptions {
  std::string style, precision;
  std::string constants;  // a file of constants, or "none"; "": those of the program
};

// The plan that is priced. `plan` is "" or "auto" if the plan is yet to be found.
struct PricedPlan {
  std::string model, plan;
  int64_t batch = 0;
  std::string named;  // the model as the user names it, whose file may name a dtype
  // Keeps the model and its graph, for a command that compiles the plan next; null: nobody does.
  Compiler* compiler = nullptr;
};

struct Pricing {
  Cluster cluster;
  Style style;
  std::string style_words;  // the style without constants, as --style takes it
  std::string precision;    // as --precision takes it
  // One line that tells a user what was taken and why: "style torchtitan (the default on GPUs),
  // bfloat16 (...), constants of the machine attention_efficiency=0.65".
  std::string said;
};

// Adds --style, --precision and --constants, and --list-styles, which prints the styles and ends
// the program.
void add_pricing(Command& command, PricingOptions& options);

// Decides in this order:
//   precision  the user's; the plan's; the dtype that the model's file names, if the devices compute
//              in it; bfloat16, if they do; float32.
//   style      the user's; the plan's key `style`; on processors "tessera"; the style of the first
//              framework to which the plan can be exported; "torchtitan".
//   constants  those that concern the style and the machine; what the user's style sets counts more.
// A plan that cannot be read or does not fit the model gets the defaults, because the command will
// refuse it with a better message. Errors: an unknown style, precision or key of a style; a file of
// constants that cannot be read.
Result<Pricing> decide_pricing(const PricingOptions& options, Cluster cluster,
                               const PricedPlan& priced);

// Returns the memory of a device that a plan may use, in bytes. `text` is a size ("40GB"), a share
// of the smallest device's memory ("90%"), or "": all but kTightShare of it (search/fit.h) on GPUs,
// and 0, which is no limit but the devices' own, on processors and where devices differ in memory. Errors: no size and no share; a size
// outside of 1 B to 1000 TB; a share outside of 1 to 100 %.
Result<int64_t> memory_limit_of(const std::string& text, const Cluster& cluster);

// Returns the plan's text with the key `style`, so that other commands price the plan in the style
// in which it was found. Plans for processors are returned as they are.
std::string with_style(const std::string& plan, const Pricing& pricing);

}  // namespace tessera::cli
