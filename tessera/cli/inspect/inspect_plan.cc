// Implements tessera inspect for a model under a plan: roles (rank classes), one op, one rank, a
// program file.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "tessera/base/json_text.h"
#include "tessera/base/text.h"
#include "tessera/cli/inspect/inspect.h"
#include "tessera/cli/output.h"
#include "tessera/cluster/cluster.h"
#include "tessera/compile/compile.h"
#include "tessera/plan/resolve/selector.h"
#include "tessera/program/decisions.h"
#include "tessera/program/text/place_form.h"
#include "tessera/program/text/text.h"
#include "tessera/program/verify/verify.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

// The names of the kinds of instructions, in the order of the alternatives of Instruction::body.
constexpr std::array<const char*, 10> kClasses = {"compute",   "collective", "send", "receive",
                                                  "wait",      "copy",       "load", "free",
                                                  "row fetch", "row release"};
// The number of kinds that are always shown. The others are about tables with a cache and are shown
// only if a program has such instructions.
constexpr size_t kUsualClasses = 8;
static_assert(std::variant_size_v<decltype(Instruction::body)> == kClasses.size());
constexpr std::array kTiers = {Tier::kDevice, Tier::kHost, Tier::kDisk};

// The facts that are shown about a role, taken from the program of its representative rank.
struct RoleFacts {
  RankClass role;
  std::string mesh;
  std::array<int64_t, kClasses.size()> instructions{};
  std::map<std::string, int64_t> sent;  // bytes a step and rank, by kind
  std::array<int64_t, 3> arena{};
  int64_t slots = 1;
  int64_t bytes_sent() const {
    return std::accumulate(sent.begin(), sent.end(), int64_t{0},
                           [](int64_t sum, const auto& item) { return sum + item.second; });
  }
};

Result<RoleFacts> facts_of(const Compiled& planned, const RankClass& role) {
  TESSERA_TRY(const Program program, planned.lowering->lower(role.representative));
  RoleFacts facts;
  facts.role = role;
  facts.mesh = planned.plan().stages[role.stages[0].index()].mesh.to_string();
  for (const auto& [ref, block] : program.blocks) {
    for (const Instruction& instruction : block) ++facts.instructions[instruction.body.index()];
  }
  for (const auto& [kind, traffic] : volume(program, planned.graph()).by_kind) {
    if (traffic.bytes > 0) facts.sent[kind] = traffic.bytes;
  }
  facts.arena = program.arena_bytes;
  facts.slots = program.slots();
  return facts;
}

std::vector<int32_t> stage_numbers(const RankClass& role) {
  std::vector<int32_t> out;
  for (StageId stage : role.stages) out.push_back(stage.value);
  return out;
}
std::string stage_text(const RankClass& role) {
  return fmt::format("{}", fmt::join(stage_numbers(role), " "));
}

Json role_facts_json(const RoleFacts& facts) {
  Json instructions = Json::object(), sent = Json::object(), arena = Json::object();
  for (size_t i = 0; i < kClasses.size(); ++i) {
    if (i < kUsualClasses || facts.instructions[i] > 0)
      instructions[kClasses[i]] = facts.instructions[i];
  }
  for (const auto& [kind, bytes] : facts.sent) sent[kind] = bytes;
  for (const Tier tier : kTiers) {
    arena[std::string(tier_name(tier))] = facts.arena[static_cast<size_t>(tier)];
  }
  return {{"stage", facts.role.stages[0].value},
          {"stages", stage_numbers(facts.role)},
          {"mesh", facts.mesh},
          {"ranks", facts.role.ranks},
          {"representative", facts.role.representative},
          {"instructions", std::move(instructions)},
          {"slots", facts.slots},
          {"bytes_sent", std::move(sent)},
          {"arena_bytes", std::move(arena)},
          {"peak_memory_bytes", facts.arena[0]}};
}

// Returns how the axes of the plan are mapped to the machine that the options name; empty if they
// name none.
Result<std::vector<AxisOnMachine>> axes_of(const InspectOptions& options,
                                           const ResolvedPlan& plan) {
  if (options.cluster.empty()) return std::vector<AxisOnMachine>{};
  TESSERA_TRY(const Cluster cluster, load_cluster(options.cluster));
  const int64_t end = plan.devices.end(plan.ranks);
  if (cluster.devices() < end) {
    return invalid_input(
        fmt::format("cluster '{}': expected at least {} for the plan's ranks, "
                    "found {}",
                    cluster.name, plural(end, "device"), cluster.devices()));
  }
  return axes_on_machine(plan, cluster);
}

Json axes_json(const std::vector<AxisOnMachine>& axes) {
  Json out = Json::array();
  for (const AxisOnMachine& axis : axes) {
    out.push_back({{"mesh", axis.mesh},
                   {"axis", axis.axis},
                   {"size", axis.size},
                   {"nodes", axis.nodes},
                   {"members_a_node", axis.members_a_node},
                   {"inside_node", axis.inside()}});
  }
  return out;
}

std::string axes_table(const std::vector<AxisOnMachine>& axes) {
  Table table({"mesh", "axis", "size", "nodes", "in a node", "lies"});
  for (const AxisOnMachine& axis : axes) {
    table.add({axis.mesh, axis.axis, grouped(axis.size), grouped(axis.nodes),
               grouped(axis.members_a_node),
               axis.inside()              ? "inside a node"
               : axis.members_a_node == 1 ? "across nodes"
                                          : "in parts across nodes"});
  }
  return table.to_string();
}

std::string roles_json(const InspectOptions& options, const Compiled& planned,
                       const std::vector<RoleFacts>& roles,
                       const std::vector<AxisOnMachine>& axes) {
  Json list = Json::array();
  for (const RoleFacts& facts : roles) list.push_back(role_facts_json(facts));
  const ResolvedPlan& plan = planned.plan();
  Json left_whole = Json::array();
  for (const WholeOps& whole : ops_left_whole(plan, planned.graph())) {
    Json paths = Json::array();
    for (const OpId op : whole.ops) paths.push_back(planned.graph().op(op).path);
    left_whole.push_back(
        {{"text", to_text(whole, plan, planned.graph())}, {"ops", std::move(paths)}});
  }
  Json json{{"model", planned.model->spec},
            {"plan", options.plan.empty() ? options.subject : options.plan},
            {"parameters", parameter_count(planned.graph())},
            {"batch", planned.batch},
            {"ranks", planned.plan().ranks},
            {"micro_batches", planned.plan().plan.micro_batches},
            {"roles", std::move(list)},
            {"left_whole", std::move(left_whole)}};
  if (!options.cluster.empty()) json["axes"] = axes_json(axes);
  return dumped(json) + "\n";
}

std::string instruction_table(const std::vector<RoleFacts>& roles) {
  std::vector<std::string> head{"stage", "ranks", "first", "mesh"};
  const bool rows = std::any_of(roles.begin(), roles.end(), [](const RoleFacts& facts) {
    return facts.instructions[kUsualClasses] > 0;
  });
  const size_t shown = rows ? kClasses.size() : kUsualClasses;
  head.insert(head.end(), kClasses.begin(), kClasses.begin() + static_cast<std::ptrdiff_t>(shown));
  Table table(head);
  for (const RoleFacts& facts : roles) {
    std::vector<std::string> row{stage_text(facts.role), grouped(facts.role.ranks),
                                 std::to_string(facts.role.representative), facts.mesh};
    for (size_t i = 0; i < shown; ++i) row.push_back(grouped(facts.instructions[i]));
    table.add(std::move(row));
  }
  return table.to_string();
}

std::string memory_table(const std::vector<RoleFacts>& roles) {
  std::set<std::string> kinds;
  bool tiers = false;
  for (const RoleFacts& facts : roles) {
    for (const auto& [kind, bytes] : facts.sent) kinds.insert(kind);
    tiers = tiers || facts.arena[1] > 0 || facts.arena[2] > 0;
  }
  std::vector<std::string> head{"stage", "slots", "peak memory"};
  if (tiers) head.insert(head.end(), {"on the host", "on disk"});
  head.emplace_back("sent a step");
  head.insert(head.end(), kinds.begin(), kinds.end());
  Table table(head);
  for (const RoleFacts& facts : roles) {
    std::vector<std::string> row{stage_text(facts.role), grouped(facts.slots),
                                 short_bytes(facts.arena[0])};
    if (tiers) row.insert(row.end(), {short_bytes(facts.arena[1]), short_bytes(facts.arena[2])});
    row.push_back(short_bytes(facts.bytes_sent()));
    for (const std::string& kind : kinds) {
      const auto found = facts.sent.find(kind);
      row.push_back(found == facts.sent.end() ? "-" : short_bytes(found->second));
    }
    table.add(std::move(row));
  }
  return table.to_string();
}

// Describes the outer steps of a plan; "" without them. The rest of the text is then about one
// island.
std::string outer_text(const Compiled& planned) {
  if (!planned.outer) return "";
  const OuterSteps& rule = *planned.outer->plan.outer;
  std::string out =
      fmt::format("outer steps: {} islands along axis {}, which exchange nothing for {}; lossy\n",
                  planned.islands(), rule.axis, plural(rule.interval(), "step"));
  for (const OuterFragment& fragment : planned.outer->fragments) {
    int64_t elements = 0;
    for (const std::string& name : fragment.parameters) {
      const TensorId id = planned.graph().find_tensor(name);
      if (id.valid()) elements += planned.graph().tensor(id).elements();
    }
    out += fmt::format("  {}: {} parameters, {} to {}\n",
                       plural(static_cast<int64_t>(fragment.parameters.size()), "tensor"),
                       grouped(elements), fragment.parameters.front(), fragment.parameters.back());
  }
  return out + "One island:\n\n";
}

std::string roles_text(const InspectOptions& options, const Compiled& planned,
                       const std::vector<RoleFacts>& roles,
                       const std::vector<AxisOnMachine>& axes) {
  const ResolvedPlan& plan = planned.plan();
  double sent = 0;
  for (const RoleFacts& facts : roles) {
    sent += static_cast<double>(facts.bytes_sent()) * static_cast<double>(facts.role.ranks);
  }
  const std::string outer = outer_text(planned);
  std::string out = fmt::format(
      "{}: {} parameters\nplan {}: {}, {}, {}\n"
      "batch {}{}, {} tokens a step; all ranks send {}B a step\n\n",
      planned.model->spec, grouped(parameter_count(planned.graph())),
      options.plan.empty() ? options.subject : options.plan, plural(plan.ranks, "rank"),
      plural(static_cast<int64_t>(plan.stages.size()), "stage"),
      plan.plan.micro_batches == 1 ? "1 micro-batch"
                                   : fmt::format("{} micro-batches", plan.plan.micro_batches),
      grouped(planned.batch),
      planned.batch_is_default ? " (default: one sequence a replica and micro-batch)" : "",
      grouped(planned.batch * planned.model->seq),
      sent < 1000 ? short_number(sent) + " " : short_number(sent));
  out += outer;
  out += "Roles: ranks with the same program up to places. Instructions in the program's text:\n";
  out += instruction_table(roles);
  out += "\nA rank of each role, a step:\n";
  out += memory_table(roles);
  if (!plan.plan.device_order.empty())
    out += fmt::format("\nOrder of devices: {}\n", to_toml(plan.plan.device_order));
  if (!axes.empty()) {
    out +=
        fmt::format("\nAxes on {}: over how many nodes a group of ranks along each is spread\n{}",
                    options.cluster, axes_table(axes));
  }
  const std::vector<WholeOps> left_whole = ops_left_whole(plan, planned.graph());
  if (!left_whole.empty()) out += "\nNot split though an entry selects them:\n";
  for (const WholeOps& whole : left_whole) out += to_text(whole, plan, planned.graph()) + "\n";
  return out;
}

Result<Program> lower_rank(const Compiled& planned, int64_t rank) {
  if (rank >= planned.plan().ranks) {
    return invalid_input(fmt::format("expected a rank from 0 to {}, found {} (--rank)",
                                     planned.plan().ranks - 1, rank));
  }
  return planned.lowering->lower(static_cast<int>(rank));
}

}  // namespace

Result<int> inspect_roles(const InspectOptions& options, const Compiled& planned) {
  std::vector<RoleFacts> roles;
  for (const RankClass& role : planned.lowering->roles()) {
    TESSERA_TRY(RoleFacts facts, facts_of(planned, role));
    roles.push_back(std::move(facts));
  }
  TESSERA_TRY(const std::vector<AxisOnMachine> axes, axes_of(options, planned.plan()));
  return print(options.json ? roles_json(options, planned, roles, axes)
                            : roles_text(options, planned, roles, axes));
}

Result<int> inspect_op(const InspectOptions& options, const Compiled& planned) {
  const Graph& graph = planned.graph();
  std::vector<std::string_view> paths;
  for (const Op& op : graph.ops()) paths.push_back(op.path);
  PathIndex index(paths);
  const std::vector<bool>& selected = index.select(options.op);
  std::string out;
  std::set<TensorId> tensors;
  for (const Op& op : graph.ops()) {
    if (!selected[op.id.index()]) continue;
    out += explain(planned.plan(), graph, op.id);
    tensors.insert(op.inputs.begin(), op.inputs.end());
    tensors.insert(op.outputs.begin(), op.outputs.end());
  }
  if (out.empty()) {
    std::set<std::string> prefixes;
    for (const std::string_view path : paths) {
      for (size_t end = 0; end != path.npos;) {
        end = path.find_first_of(".@", end + 1);
        prefixes.emplace(path.substr(0, end));
      }
    }
    const std::vector<std::string> names(prefixes.begin(), prefixes.end());
    return invalid_input(fmt::format("inspect: no op matches '{}', did you mean '{}'?", options.op,
                                     nearest(options.op, names)));
  }
  std::string stores;
  for (const TensorId id : tensors) {
    const std::string text = explain_tensor(planned.plan(), graph, id);
    if (std::count(text.begin(), text.end(), '\n') > 1) stores += text;
  }
  if (!stores.empty()) out += "\nstored:\n" + stores;
  if (!options.json) return print(out);
  return print(dumped(Json{{"op", options.op}, {"text", out}}) + "\n");
}

Result<int> inspect_rank(const InspectOptions& options, const Compiled& planned) {
  TESSERA_TRY(const Program program, lower_rank(planned, *options.rank));
  const std::string text = to_text(program, planned.graph());
  if (!options.json) return print(text);
  return print(dumped(Json{{"rank", program.rank}, {"ranks", program.ranks}, {"text", text}}) +
               "\n");
}

Result<int> inspect_place(const InspectOptions& options, const Compiled& planned) {
  const std::vector<PlaceText>& texts = planned.lowering->texts();
  if (*options.place >= static_cast<int64_t>(texts.size())) {
    return invalid_input(fmt::format("expected a place from 0 to {}, found {} (--place)",
                                     texts.size() - 1, *options.place));
  }
  const std::string text =
      to_text(texts, PlaceId(static_cast<size_t>(*options.place)), planned.graph());
  if (!options.json) return print(text);
  return print(dumped(Json{{"place", *options.place}, {"places", texts.size()}, {"text", text}}) +
               "\n");
}

Result<int> inspect_decisions(const InspectOptions& options, const Compiled& planned) {
  const std::string text = to_text(decisions_of(*planned.lowering), *planned.lowering);
  if (!options.json) return print(text);
  return print(dumped(Json{{"places", planned.plan().places.size()}, {"text", text}}) + "\n");
}

Result<int> inspect_program(const InspectOptions& options, const Compiled& planned,
                            const std::string& file) {
  constexpr int64_t kMostRanks = 64;  // the verifier looks at the programs of all ranks at once
  TESSERA_TRY(const std::string text, read_file(file));
  TESSERA_TRY(const Program program, parse_program(text, planned.graph(), file));
  const int64_t ranks = planned.plan().ranks;
  if (program.ranks != ranks || program.rank < 0 || program.rank >= ranks) {
    return invalid_input(
        fmt::format("{}: expected a program of one of the plan's {}, found rank {} of {}", file,
                    plural(ranks, "rank"), program.rank, program.ranks));
  }
  if (ranks > kMostRanks) {
    return invalid_input(fmt::format("inspect: programs are verified for up to {} ranks, found {}",
                                     kMostRanks, ranks));
  }
  std::vector<Program> programs;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    TESSERA_TRY(Program lowered, lower_rank(planned, rank));
    if (rank == program.rank) {
      programs.push_back(program);
    } else {
      programs.push_back(std::move(lowered));
    }
  }
  const std::vector<Rejection> rejections = verify(planned.graph(), programs);
  Json list = Json::array();
  for (const Rejection& rejection : rejections) list.push_back(rejection.to_string());
  int64_t instructions = 0;
  for (const auto& [ref, block] : program.blocks)
    instructions += static_cast<int64_t>(block.size());
  const std::string answer =
      options.json
          ? dumped(Json{{"program", file}, {"ok", rejections.empty()}, {"rejections", list}}) + "\n"
          : fmt::format("{}: rank {} of {}, {}, {}: {}\n", file, program.rank, ranks,
                        plural(instructions, "instruction"), short_bytes(program.arena_bytes[0]),
                        rejections.empty() ? "accepted" : "rejected");
  if (const int printed = print(answer); printed != 0) return printed;
  if (rejections.empty()) return 0;
  return check_failed(fmt::format("{}: {}", file, rejections.front().to_string()));
}

}  // namespace tessera::cli
