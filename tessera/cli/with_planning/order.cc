// tessera order: finds the order of machines for a plan or for a collective.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "tessera/base/json_text.h"
#include "tessera/base/memory_text.h"
#include "tessera/base/text.h"
#include "tessera/base/units.h"
#include "tessera/cli/libraries/auto_plan.h"
#include "tessera/cli/output.h"
#include "tessera/cli/planned_model.h"
#include "tessera/cli/with_planning/commands.h"
#include "tessera/cli/with_planning/pricing.h"
#include "tessera/compile/compile.h"
#include "tessera/compile/optimizer_text.h"
#include "tessera/models/model_title.h"
#include "tessera/network/host_files.h"
#include "tessera/network/host_names.h"
#include "tessera/network/named_network.h"
#include "tessera/network/order_search.h"
#include "tessera/network/plan_order.h"
#include "tessera/plan/load.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostShownHosts = 16;
constexpr size_t kMostLayings = 20;  // in JSON

struct OrderCommand {
  std::string model, plan, network, hosts, optimizer, out;
  std::string collective = "all_reduce", algorithm, bytes;
  PricingOptions pricing;
  std::vector<std::string> writes;
  int64_t batch = 0, base = 2, chunks = 1, group = 0;
  uint64_t seed = 1;
  double least_gain = 100 * kLeastGain;  // percent
  bool far_first = false, tour = false, machines_stay = false, json = false;
};

// The times with launchers that sort the names of hosts in their own way.
struct Sortings {
  double spelling_s = 0, natural_s = 0;
  bool differ = false;  // the two give different orders
};

struct Found {
  std::vector<std::string> hosts;  // in the order found
  std::vector<PlacedRank> places;  // by rank
  // By device in the order of hosts, if a plan is written that says which rank is on which device.
  // Else empty.
  std::vector<PlacedRank> devices;
  std::string head;  // first lines of the answer as text
  double now_s = 0, found_s = 0, best_s = 0;
  bool kept = false;
  std::optional<Sortings> sortings;  // if hosts have names
};

std::vector<std::string> hosts_in(const Order& order, const NamedNetwork& network) {
  std::vector<std::string> out;
  for (const int64_t machine : order) out.push_back(network.hosts[static_cast<size_t>(machine)]);
  return out;
}

template <class Seconds>
std::optional<Sortings> sortings_of(const NamedNetwork& network, const Seconds& seconds_of) {
  if (!network.named) return std::nullopt;
  const Order spelled = spelling_order(network.hosts), natural = natural_order(network.hosts);
  return Sortings{seconds_of(spelled), seconds_of(natural), spelled != natural};
}

// ---- a collective

Result<double> parse_bytes(const std::string& text) {
  if (const auto number = parse_int(text); number && *number > 0)
    return static_cast<double>(*number);
  const auto size = parse_quantity(text, Quantity::kBytes);
  if (size && *size > 0) return *size;
  return invalid_input(
      fmt::format("order: --bytes: expected a size above 0 (8000000, 8 MB), found '{}'", text));
}

// Returns the largest number of ranks that divides the number of machines and is at most the number
// of machines below the smallest switch that has any.
int64_t usual_group(const NamedNetwork& network) {
  int64_t smallest = network.machines();
  if (network.network) {
    std::vector<int64_t> below(network.network->switches.size(), 0);
    for (const OrderMachine& machine : network.network->machines) {
      if (machine.above >= 0) ++below[static_cast<size_t>(machine.above)];
    }
    for (const int64_t count : below) {
      if (count > 0) smallest = std::min(smallest, count);
    }
  }
  while (network.machines() % smallest != 0) --smallest;
  return smallest;
}

Result<CollectiveKind> parse_collective(const std::string& name) {
  for (const CollectiveKind kind :
       {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter, CollectiveKind::kAllGather}) {
    if (collective_name(kind) == name) return kind;
  }
  return invalid_input(fmt::format(
      "order: --collective: expected all_reduce, reduce_scatter or all_gather, found '{}'", name));
}

Result<PatternOptions> pattern_options(const OrderCommand& options, const NamedNetwork& network) {
  PatternOptions out;
  TESSERA_TRY(out.collective, parse_collective(options.collective));
  const auto algorithm = parse_algorithm(options.algorithm);
  if (!algorithm) return invalid_input("order: --algorithm: " + algorithm.error().message);
  out.algorithm = *algorithm;
  TESSERA_TRY(out.bytes, parse_bytes(options.bytes));
  out.near_first = !options.far_first;
  out.tour = options.tour;
  out.base = options.base;
  out.chunks = options.chunks;
  out.group = options.group > 0 ? options.group : usual_group(network);
  return out;
}

Result<int> answer(const OrderCommand& options, const Found& found, Json json,
                   const std::string& tail);

Result<int> order_collective(const OrderCommand& options, const NamedNetwork& network) {
  TESSERA_TRY(const PatternOptions asked, pattern_options(options, network));
  const auto pattern = order_pattern(network.machines(), asked);
  if (!pattern) return invalid_input("order: " + pattern.error().message);
  const OrderCosts costs =
      network.pairs ? OrderCosts(*network.pairs, *pattern) : OrderCosts(*network.network, *pattern);
  OrderSearch search;
  search.seed = options.seed;
  search.least_gain = options.least_gain / 100;
  const OrderAnswer searched = find_order(costs, search);
  Found found;
  found.hosts = hosts_in(searched.order, network);
  for (const std::string& host : found.hosts) found.places.push_back({host, 0});
  found.now_s = searched.now_seconds;
  found.found_s = searched.seconds;
  found.best_s = searched.best_seconds;
  found.kept = searched.kept;
  found.sortings = sortings_of(network, [&](const Order& order) { return costs.cost(order); });
  found.head = fmt::format("{} of {} by {} on {} of {}: {}, {} tried\n", options.collective,
                           memory_text(asked.bytes), options.algorithm,
                           plural(network.machines(), "machine"), network.file,
                           proof_text(searched.proof), plural(searched.tried, "order"));
  Json json{{"collective", options.collective},
            {"algorithm", options.algorithm},
            {"bytes", asked.bytes},
            {"proof", proof_text(searched.proof)},
            {"tried", searched.tried},
            {"order", searched.order}};
  if (!network.pairs) json["bound_s"] = costs.bound();
  return answer(options, found, std::move(json), "");
}

// ---- a plan

std::string kinds_table(const PlanOrder& found) {
  Table table({"traffic of a step", "sent", "now", "then", "bound by"});
  for (const KindTime& kind : found.kinds) {
    table.add({kind.what, memory_text(kind.bytes), short_seconds(kind.now_s),
               short_seconds(kind.found_s), kind.bound});
  }
  return "\n" + table.to_string();
}

Json order_json(const DeviceOrder& order) { return order.empty() ? Json() : Json(to_toml(order)); }

Json plan_json(const OrderCommand& options, const Compiled& planned, const PlanOrder& found) {
  Json kinds = Json::array(), layings = Json::array();
  for (const KindTime& kind : found.kinds) {
    kinds.push_back({{"what", kind.what},
                     {"bytes", kind.bytes},
                     {"now_s", kind.now_s},
                     {"found_s", kind.found_s},
                     {"bound", kind.bound}});
  }
  for (const LayingTime& laying : found.layings) {
    if (layings.size() == kMostLayings) break;
    layings.push_back({{"device_order", order_json(laying.order)}, {"seconds", laying.seconds}});
  }
  return {{"model", planned.model->spec},
          {"plan", plan_label(options.plan)},
          {"ranks", planned.ranks()},
          {"batch", planned.batch},
          {"device_order", order_json(found.device_order)},
          {"order", found.machines},
          {"devices", found.devices},
          {"kinds", std::move(kinds)},
          {"tried", {{"layings", found.layings.size()}, {"orders", found.orders}}},
          {"layings", std::move(layings)}};
}

Result<int> order_plan(const OrderCommand& given, const NamedNetwork& network) {
  if (network.pairs) {
    return invalid_input(fmt::format(
        "order: {}: expected a cluster file for a plan, found a table of pairs", network.file));
  }
  OrderCommand options = given;
  TESSERA_TRY(options.model, planned_model(given.model));
  TESSERA_TRY(Cluster machine, load_cluster(network.file));
  Compiler compiler;
  TESSERA_TRY(const Pricing pricing,
              decide_pricing(options.pricing, std::move(machine),
                             {options.model, options.plan, options.batch, given.model, &compiler}));
  CompileTexts texts{options.model, "", options.batch, pricing.precision};
  TESSERA_TRY(texts.optimizer, parse_optimizer_text(options.optimizer));
  TESSERA_TRY(options.plan,
              find_auto({options.plan, options.model, options.batch, pricing.precision,
                         &pricing.cluster, pricing.style, 0, texts.optimizer}));
  texts.plan = options.plan;
  TESSERA_TRY(const Compiled planned, compiler.compile(texts));
  TESSERA_TRY(const PlanTraffic traffic, plan_traffic(*planned.lowering));
  PlanOrderSearch search;
  search.seed = options.seed;
  search.least_gain = options.least_gain / 100;
  search.machines_stay = options.machines_stay;
  const auto searched = find_plan_order(planned.plan(), traffic, *network.network, search);
  if (!searched)
    return invalid_input(fmt::format("order: {}: {}", network.file, searched.error().message));
  Found found;
  found.hosts = hosts_in(searched->machines, network);
  const DeviceNumbers numbers(*network.network);
  for (const int64_t device : searched->devices) {
    const int64_t here = numbers.machine_of(device);
    found.places.push_back(
        {network.hosts[static_cast<size_t>(here)], device - numbers.first_of(here)});
  }
  found.now_s = searched->now_seconds;
  found.found_s = searched->seconds;
  found.best_s = searched->best_seconds;
  found.kept = searched->kept;
  found.sortings = sortings_of(network, [&](const Order& order) {
    return plan_order_seconds(planned.plan(), traffic, *network.network, order);
  });
  found.head = fmt::format("{} under {} on {} of {}: {} of the axes and {} of machines tried\n",
                           model_title(*planned.model), plan_label(options.plan),
                           plural(network.machines(), "machine"), network.file,
                           plural(std::ssize(searched->layings), "laying"),
                           plural(searched->orders, "order"));
  if (!options.out.empty()) {
    Plan plan = planned.plan().plan;
    plan.device_order = searched->device_order;
    TESSERA_TRY_VOID(write_file(options.out, to_toml(plan)));
    for (const int64_t at : searched->machines) {
      const auto number = static_cast<size_t>(at);
      for (int64_t d = 0; d < network.network->machines[number].devices; ++d)
        found.devices.push_back({network.hosts[number], d});
    }
  }
  std::string tail = searched->device_order.empty()
                         ? std::string("device_order    none: rank r on device r\n")
                         : "device_order    " + to_toml(searched->device_order) + "\n";
  return answer(options, found, plan_json(options, planned, *searched),
                tail + kinds_table(*searched));
}

// ---- both

std::string times_text(const OrderCommand& options, const Found& found) {
  std::string out = fmt::format("now             {}\n", short_seconds(found.now_s));
  if (found.sortings && found.sortings->differ) {
    out += fmt::format("sorted by text  {} (node10 before node2, as many launchers do)\n",
                       short_seconds(found.sortings->spelling_s));
    out += fmt::format("sorted by number {}\n", short_seconds(found.sortings->natural_s));
  }
  const double gain = found.now_s > 0 ? 1 - found.best_s / found.now_s : 0;
  if (found.kept) {
    return out + fmt::format(
                     "kept            the present order: the best found gains {}, less than "
                     "{:g} %\n",
                     percent(gain), options.least_gain);
  }
  return out + fmt::format("found           {} ({:.2f} times as fast)\n",
                           short_seconds(found.found_s),
                           found.found_s > 0 ? found.now_s / found.found_s : 1);
}

std::string hosts_text(const std::vector<std::string>& hosts) {
  std::vector<std::string> shown(
      hosts.begin(),
      hosts.begin() + static_cast<std::ptrdiff_t>(std::min(hosts.size(), kMostShownHosts)));
  std::string out = "hosts           " + join(shown, " ");
  if (shown.size() < hosts.size())
    out += fmt::format(" and {} more (--write, --json)", hosts.size() - shown.size());
  return out + "\n";
}

Result<int> answer(const OrderCommand& options, const Found& found, Json json,
                   const std::string& tail) {
  for (const std::string& text : options.writes) {
    const auto file = parse_host_file(text);
    if (!file) return invalid_input("order: --write: " + file.error().message);
    const bool by_host =
        file->form == HostFileForm::kHostfile || file->form == HostFileForm::kTorchrun;
    const auto written = host_file_text(
        file->form, by_host && !found.devices.empty() ? found.devices : found.places);
    if (!written) return invalid_input("order: --write: " + written.error().message);
    TESSERA_TRY_VOID(write_file(file->path, *written));
  }
  if (!options.json) {
    return print(found.head + times_text(options, found) + hosts_text(found.hosts) + tail);
  }
  json["now_s"] = found.now_s;
  json["found_s"] = found.found_s;
  json["best_s"] = found.best_s;
  json["kept"] = found.kept;
  json["hosts"] = found.hosts;
  if (found.sortings) {
    json["sorted_by_text_s"] = found.sortings->spelling_s;
    json["sorted_by_number_s"] = found.sortings->natural_s;
  }
  return print(dumped(json) + "\n");
}

Result<int> run_order(const OrderCommand& options) {
  const bool collective = !options.algorithm.empty();
  if (collective == !options.model.empty() || options.model.empty() != options.plan.empty()) {
    return invalid_input(
        "order: expected MODEL with --plan, or --algorithm with --bytes, found "
        "neither or a part of both");
  }
  for (const std::string& text : options.writes) {
    if (const auto file = parse_host_file(text); !file)
      return invalid_input("order: --write: " + file.error().message);
  }
  TESSERA_TRY(const NamedNetwork network, load_named_network(options.network, options.hosts));
  if (!options.writes.empty() && !network.named) {
    return invalid_input(fmt::format(
        "order: --write: expected names of hosts in {} (hosts = [...]) or in --hosts, found none",
        options.network));
  }
  return collective ? order_collective(options, network) : order_plan(options, network);
}

}  // namespace

void add_order(Commands& commands) {
  const auto options = std::make_shared<OrderCommand>();
  Command command = commands.add(
      "order", "Find the order of machines in which a plan, or a collective, is fastest");
  command.option("MODEL", options->model, "Model, with --plan");
  command.option("--plan", options->plan, "Plan file, recipe call, or auto");
  command
      .option("--network", options->network,
              "Network: a cluster file (tessera probe writes one), a preset with nodes, or a table "
              "of pairs (.json)")
      .required();
  command.option("--hosts", options->hosts,
                 "File with the hosts to use, one a line, in the present order");
  add_batch(command, options->batch);
  add_pricing(command, options->pricing);
  add_optimizer(command, options->optimizer);
  command.option("--collective", options->collective, "Collective without a plan")
      .one_of({"all_reduce", "reduce_scatter", "all_gather"})
      .default_text(options->collective);
  command.option("--algorithm", options->algorithm, "How the collective is carried out")
      .one_of(algorithm_names());
  command.option("--bytes", options->bytes, "Size of its array (8 MB)");
  command.option("--base", options->base, "Of bcube").default_text("2").at_least(2);
  command.option("--chunks", options->chunks, "Of double_tree: pieces of an array")
      .default_text("1")
      .at_least(1);
  command
      .option("--group", options->group,
              "Of hierarchical: machines of a group; default: those below a switch")
      .at_least(1);
  command.flag("--far-first", options->far_first,
               "Of halving_doubling: halves go to the farthest rank first");
  command.flag("--tour", options->tour, "Of ring: the cost is the length of the cycle");
  command
      .option("--least-gain", options->least_gain,
              "Percent of the time below which the present order is kept")
      .default_text("5")
      .at_least(0);
  command.flag("--machines-stay", options->machines_stay,
               "Of a plan: only lay the axes of its mesh, and leave hosts in their order");
  command.option("--seed", options->seed, "Of the search").at_least(0);
  command
      .option("--write", options->writes,
              "FORM=FILE, repeatable: hostfile, rankfile (Open MPI), slurm (SLURM_HOSTFILE), "
              "torchrun, json")
      .one_value_each();
  command.option("--out", options->out, "Of a plan: write it with the device_order that was found");
  command.flag("--json", options->json, "Print JSON");
  command.footer(
      "Programs and ranks stay as they are; only the machines on which they run change.\n"
      "tessera train and launch take --network and apply the order themselves.\n\n"
      "Examples:\n"
      "  tessera order --network net.toml --algorithm ring --bytes '100 MB' --write "
      "hostfile=hosts.txt\n"
      "  tessera order gpt:layers=24,hidden=2048,heads=16,seq=1024 --batch 64 --network net.toml "
      "\\\n"
      "      --plan 'megatron(tp=4,pp=2,dp=4)' --write rankfile=ranks.txt --out plan.toml\n");
  command.action([options] { return run_order(*options); });
}

}  // namespace tessera::cli
