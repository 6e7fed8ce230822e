// tessera check: says what the configuration of another framework's run does on a machine: what does
// not divide, which devices stay idle, whether it fits, and how far it is from the plan that a search
// finds.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "tessera/base/json_text.h"
#include "tessera/base/memory_text.h"
#include "tessera/base/one_line.h"
#include "tessera/base/text.h"
#include "tessera/cli/cli.h"
#include "tessera/cli/machine.h"
#include "tessera/cli/output.h"
#include "tessera/cli/planned_model.h"
#include "tessera/cli/with_planning/commands.h"
#include "tessera/cli/with_planning/pricing.h"
#include "tessera/cli/with_planning/read_job.h"
#include "tessera/compile/compile.h"
#include "tessera/planners/all_planners.h"
#include "tessera/search/fit.h"

namespace tessera::cli {
namespace {

constexpr std::array<const char*, 3> kFrameworks = {"torchtitan", "megatron", "deepspeed"};
// The most ranks whose programs are all made and verified; beyond, those of each rank class are.
constexpr int64_t kMostVerified = 64;

struct CheckOptions {
  std::string model, cluster;
  std::array<std::string, kFrameworks.size()> files;
  PricingOptions pricing;
  int64_t ranks = 0;
  bool json = false;
};

struct Finding {
  std::string what;  // a key of the JSON: "divides", "idle", "memory", "verified", "best"
  bool good = true;
  std::string text;
};

// Returns a line for each dim that the plan cuts into unequal pieces, each dim once.
std::vector<Finding> unequal_pieces(const Compiled& compiled) {
  std::set<std::string> lines;
  const Graph& graph = compiled.graph();
  for (const Op& op : graph.ops()) {
    const OpPlan& planned = compiled.plan().ops[op.id.index()];
    const Mesh& mesh = compiled.plan().stages[planned.stage.index()].mesh;
    for (size_t d = 0; op.phase == Phase::kForward && d < planned.dims.size(); ++d) {
      int64_t pieces = 1;
      std::vector<std::string> axes;
      for (const AxisId id : planned.dims[d].axes) {
        pieces *= mesh.axis(id).size;
        axes.push_back(mesh.axis(id).name);
      }
      const OpDim& dim = op.annotation.dims[d];
      if (dim.size % pieces == 0) continue;
      lines.insert(fmt::format(
          "this does not divide: {} = {} over {} = {}; the largest piece has {}", dim.name,
          dim.size, join(axes, " x "), pieces, (dim.size + pieces - 1) / pieces));
    }
  }
  std::vector<Finding> out;
  for (const std::string& line : lines) out.push_back({"divides", false, line});
  return out;
}

Finding idle_devices(int64_t ranks, const Cluster& cluster) {
  const int64_t devices = cluster.devices(), a_node = cluster.type_of(0).devices;
  if (ranks == devices) return {"idle", true, fmt::format("all {} devices work", devices)};
  if (ranks < a_node) {
    return {"idle", false,
            fmt::format("this leaves {} of the {} devices of a node idle", a_node - ranks, a_node)};
  }
  return {"idle", false,
          fmt::format("this leaves {} of {} devices idle", devices - ranks, devices)};
}

std::optional<Finding> memory_of(const Simulation& simulation, const Cluster& cluster) {
  const auto room = find_room(simulation, cluster);
  if (!room) return std::nullopt;
  const std::string amount = memory_text(static_cast<double>(std::abs(room->free_bytes)));
  if (room->free_bytes < 0)
    return Finding{"memory", false, "this does not fit: it misses " + amount};
  return Finding{
      "memory", true,
      fmt::format("this fits by {}{}", amount, room->is_tight() ? ", which is tight" : "")};
}

Status verify_programs(const Lowering& lowering, int64_t ranks) {
  if (ranks <= kMostVerified) {
    TESSERA_TRY(const auto programs, lower_and_verify(lowering));
    return {};
  }
  for (const RankClass& role : lowering.roles()) {
    TESSERA_TRY(const Program program, lowering.lower(role.representative));
  }
  return {};
}

// `fits`: whether the plan that is checked fits into the memory.
Finding better_plan(const PlanQuestion& question, double step_s, bool fits) {
  const auto answer = find_plan(question, "auto", all_planners());
  if (!answer) return {"best", true, "no other plan was searched: " + answer.error().message};
  if (!answer->best) return {"best", true, "the search found no plan that fits"};
  const PlanCandidate& best = answer->simulated[*answer->best];
  if (!fits) {
    return {"best", false,
            fmt::format("a plan that fits: {} takes {:.4g} s", best.name(), *best.step_s)};
  }
  if (*best.step_s >= step_s) {
    return {"best", true,
            fmt::format("the search found none faster ({}: {:.4g} s)", best.name(), *best.step_s)};
  }
  return {"best", false,
          fmt::format("a faster plan: {} takes {:.4g} s, {:.2f} times as fast", best.name(),
                      *best.step_s, step_s / *best.step_s)};
}

Result<int> run_check(const CheckOptions& given) {
  size_t framework = kFrameworks.size();
  for (size_t i = 0; i < kFrameworks.size(); ++i) {
    if (given.files[i].empty()) continue;
    if (framework < kFrameworks.size())
      return invalid_input("check: expected one configuration, found two");
    framework = i;
  }
  if (framework == kFrameworks.size()) {
    return invalid_input(
        "check: expected one of --torchtitan, --megatron, --deepspeed with a file");
  }
  const ExportTarget& target = *find_export_target(kFrameworks[framework]);
  const std::string& file = given.files[framework];
  TESSERA_TRY(const std::string model, planned_model(given.model));
  TESSERA_TRY(Cluster machine, load_machine(given.cluster));
  const int64_t devices = machine.devices();
  auto read = read_job(target, file, model, given.ranks > 0 ? given.ranks : devices);
  if (!read) return tl::unexpected(std::move(read.error()));
  const ExportSettings& settings = read->settings;
  const int64_t ranks = settings.ranks();
  if (ranks > devices) {
    return invalid_input(
        fmt::format("check: {} asks for {} ranks: expected at most the {} devices "
                    "of {}",
                    file, ranks, devices, machine.name));
  }
  PricingOptions priced = given.pricing;
  if (priced.style.empty()) priced.style = target.style;
  if (priced.precision.empty()) priced.precision = std::string(dtype_name(settings.compute));
  Compiler compiler;
  TESSERA_TRY(const Pricing pricing,
              decide_pricing(priced, std::move(machine),
                             {model, read->plan_text, settings.batch, given.model, &compiler}));
  TESSERA_TRY(const Compiled compiled,
              compiler.compile({model, read->plan_text, settings.batch, pricing.precision}));
  SimulateOptions options;
  options.style = pricing.style;
  TESSERA_TRY(const Simulation simulation, simulate(*compiled.lowering, pricing.cluster, options));
  std::vector<Finding> findings = unequal_pieces(compiled);
  if (findings.empty()) findings.push_back({"divides", true, "all sizes divide"});
  findings.push_back(idle_devices(ranks, pricing.cluster));
  const auto verified = verify_programs(*compiled.lowering, ranks);
  findings.push_back({"verified", verified.has_value(),
                      verified ? "the verifier accepts its programs" : verified.error().message});
  const auto memory = memory_of(simulation, pricing.cluster);
  if (memory) findings.push_back(*memory);
  PlanQuestion question;
  question.model = model;
  question.batch = settings.batch;
  question.cluster = &pricing.cluster;
  question.options.style = pricing.style;
  TESSERA_TRY(question.compute, parse_dtype(pricing.precision));
  findings.push_back(better_plan(question, simulation.step_time_s, !memory || memory->good));
  const bool bad = std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return !finding.good && (finding.what == "memory" || finding.what == "verified");
  });
  if (given.json) {
    nlohmann::ordered_json out{{"from", target.name},
                               {"settings", settings.str()},
                               {"ranks", ranks},
                               {"batch", settings.batch},
                               {"step_time_s", simulation.step_time_s},
                               {"priced_with", pricing.said},
                               {"unread", read->unread},
                               {"plan", read->plan_text}};
    for (const Finding& finding : findings) {
      out["findings"].push_back(
          {{"of", finding.what}, {"ok", finding.good}, {"text", finding.text}});
    }
    const int printed = print(dumped(out) + "\n");
    return printed != 0 ? printed : (bad ? 1 : 0);
  }
  for (const std::string& line : read->unread) fmt::print(stderr, "note: {}\n", message_line(line));
  std::string text = fmt::format("{} ({}): {}\nstep      {:.4g} s on {}, {} ranks, batch {}\n",
                                 file, target.name, settings.str(), simulation.step_time_s,
                                 pricing.cluster.name, ranks, settings.batch);
  for (const Finding& finding : findings)
    text += fmt::format("{:<9} {}\n", finding.what, finding.text);
  text += fmt::format("priced with {}\n", pricing.said);
  const int printed = print(text);
  return printed != 0 ? printed : (bad ? 1 : 0);
}

}  // namespace

void add_check(Commands& commands) {
  const auto options = std::make_shared<CheckOptions>();
  Command command = commands.add(
      "check", "Check the configuration of another framework's run: sizes, memory, speed");
  command.option("MODEL", options->model, "Model that the run trains").required();
  command.option("--torchtitan", options->files[0], "A configuration of TorchTitan (TOML, Python)");
  command.option("--megatron", options->files[1], "A script that starts Megatron-LM");
  command.option("--deepspeed", options->files[2], "A configuration of DeepSpeed (JSON)");
  command
      .option("--cluster", options->cluster,
              "Machine: a preset and its nodes (dgx-a100:8), local, or a TOML file")
      .required();
  command
      .option("--ranks", options->ranks,
              "Ranks that the run's launcher starts, where the configuration does not say it "
              "(default: all devices)")
      .ranks();
  add_pricing(command, options->pricing);
  command.flag("--json", options->json, "Print JSON");
  command.footer(
      "Exit code 1: it does not fit, or the verifier refuses it. What is read of a configuration: "
      "docs/reference/export.md\n\n"
      "Example:\n"
      "  tessera check llama:layers=8 --torchtitan job.toml --cluster dgx-h100:2\n");
  command.action([options] { return run_check(*options); });
}

}  // namespace tessera::cli
