// tessera data: makes files of clicks from logs or at random and shows what they contain; handles
// files of graphs; makes HDF5 files of arrays.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "tessera/base/json_text.h"
#include "tessera/base/text.h"
#include "tessera/cli/cli.h"
#include "tessera/cli/data_graph.h"
#include "tessera/cli/output.h"
#include "tessera/data/array_file.h"
#include "tessera/data/click_arrays.h"
#include "tessera/data/click_generator.h"
#include "tessera/data/criteo.h"
#include "tessera/data/match_files.h"
#include "tessera/state/storage.h"

namespace tessera::cli {
namespace {

struct DataJob {
  std::string action;
  std::vector<std::string> files;
  std::optional<std::string> out, reuse;
  std::vector<int64_t> rows, bags;
  std::optional<int64_t> samples;
  int64_t first = 0, dense = 13, seed = 1;
  double zipf = 1.05, signal = 1.5, bias = -1.2;
  bool jagged = false, json = false;
  GraphJob graph = {};
};

tl::unexpected<Error> data_error(std::string_view message) {
  return invalid_input(fmt::format("data: {}", message));
}

Result<std::string> out_of(const DataJob& job) {
  if (!job.out) return data_error(fmt::format("{}: expected --out FILE, found none", job.action));
  return *job.out;
}

int print_made(const DataJob& job, const nlohmann::json& json, const std::string& text) {
  return print(job.json ? dumped(json, 2) + "\n" : text);
}

Result<int> from_criteo(const DataJob& job) {
  TESSERA_TRY(const std::string out, out_of(job));
  if (job.files.empty()) return data_error("criteo: expected files, found none");
  if (job.rows.empty()) return data_error("criteo: expected --rows of the tables, found none");
  TESSERA_TRY(const std::vector<std::string> files, files_of(job.files, ""));
  TESSERA_TRY(const int64_t samples, convert_criteo(files, job.rows, out));
  return print_made(job, {{"out", out}, {"samples", samples}},
                    fmt::format("{}: {}\n", out, plural(samples, "sample")));
}

Result<ClickOptions> click_options(const DataJob& job) {
  ClickOptions options;
  options.dense = job.dense;
  options.seed = job.seed;
  options.signal = job.signal;
  options.bias = job.bias;
  if (job.zipf > 10) {
    return data_error(fmt::format("generate: expected --zipf from 0 to 10, found {}", job.zipf));
  }
  if (job.bags.size() > 1 && job.bags.size() != job.rows.size()) {
    return data_error(
        fmt::format("generate: expected --bags of {} features, or one number for "
                    "all, found {}",
                    job.rows.size(), job.bags.size()));
  }
  std::optional<ReuseLaw> law;
  if (job.reuse) {
    TESSERA_TRY(const auto sections, read_reuse(*job.reuse));
    law = ReuseLaw::fit(sections.front());
  }
  for (size_t f = 0; f < job.rows.size(); ++f) {
    const int64_t bag = job.bags.empty() ? 1 : job.bags[job.bags.size() == 1 ? 0 : f];
    options.features.push_back(
        {{fmt::format("C{}", f + 1), job.rows[f], bag}, job.zipf, law, job.jagged});
  }
  if (auto status = check_schema(schema_of(options)); !status) {
    return data_error("generate: " + status.error().message);
  }
  return options;
}

// Checks that the disk has room for the samples. Each takes at least the bytes of its label, its
// dense numbers and the lengths of its bags.
Status check_room(const ClickOptions& options, int64_t samples, const std::string& out) {
  const int64_t each = 1 + options.dense * static_cast<int64_t>(sizeof(float)) +
                       std::ssize(options.features) * static_cast<int64_t>(sizeof(uint16_t));
  TESSERA_TRY(const int64_t free, FileSystem().free_bytes(parent_of(out)));
  if (samples <= free / each) return {};
  return data_error(
      fmt::format("generate: expected --samples for which '{}' has room, at most {}, "
                  "found {}",
                  out, free / each, samples));
}

Result<int> generate(const DataJob& job) {
  TESSERA_TRY(const std::string out, out_of(job));
  if (!job.files.empty()) {
    return data_error(fmt::format("generate: expected no files, found '{}'", job.files.front()));
  }
  if (!job.samples) return data_error("generate: expected --samples N, found none");
  if (job.rows.empty()) return data_error("generate: expected --rows of the tables, found none");
  constexpr int64_t kLastFirst = int64_t{1} << 48;
  if (job.first > kLastFirst) {
    return data_error(
        fmt::format("generate: expected --first from 0 to {}, found {}", kLastFirst, job.first));
  }
  TESSERA_TRY(const ClickOptions options, click_options(job));
  TESSERA_TRY_VOID(check_room(options, *job.samples, out));
  TESSERA_TRY(const GeneratedClicks made, generate_clicks(options, job.first, *job.samples, out));
  const std::string text =
      fmt::format("{}: {}, {} clicks; normalised entropy of the planted model {:.4f}\n", out,
                  plural(made.samples, "sample"), grouped(made.clicks), made.normalized_entropy);
  return print_made(job,
                    {{"out", out},
                     {"samples", made.samples},
                     {"clicks", made.clicks},
                     {"normalized_entropy", made.normalized_entropy}},
                    text);
}

Result<int> show_data(const DataJob& job) {
  if (job.files.size() != 1) {
    return data_error(fmt::format("show: expected one file, found {}", job.files.size()));
  }
  TESSERA_TRY(const ClickFile file, ClickFile::open(job.files.front()));
  const ClickSchema& schema = file.schema();
  nlohmann::json json = {{"file", job.files.front()},
                         {"samples", file.samples()},
                         {"clicks", file.clicks()},
                         {"bytes", file.bytes()},
                         {"dense", schema.dense},
                         {"rows", schema.rows()},
                         {"features", nlohmann::json::array()}};
  Table table({"feature", "rows", "bag at most", "ids", "a sample", "rows used"});
  for (size_t f = 0; f < schema.features.size(); ++f) {
    const ClickFeature& feature = schema.features[f];
    std::vector<bool> used(static_cast<size_t>(feature.rows));
    for (int64_t sample = 0; sample < file.samples(); ++sample) {
      for (const uint32_t id : file.bag(f, sample)) used[id] = true;
    }
    const int64_t rows_used = std::count(used.begin(), used.end(), true);
    json["features"].push_back({{"name", feature.name},
                                {"rows", feature.rows},
                                {"bag", feature.bag},
                                {"ids", file.ids(f)},
                                {"rows_used", rows_used}});
    const double mean = file.samples() == 0 ? 0
                                            : static_cast<double>(file.ids(f)) /
                                                  static_cast<double>(file.samples());
    table.add({feature.name, grouped(feature.rows), grouped(feature.bag), grouped(file.ids(f)),
               fmt::format("{:.2f}", mean), grouped(rows_used)});
  }
  return print_made(job, json,
                    fmt::format("{}: {}, {} clicks, {} dense numbers, {}\n{}", job.files.front(),
                                plural(file.samples(), "sample"), grouped(file.clicks()),
                                schema.dense, short_bytes(file.bytes()), table.to_string()));
}

Result<int> arrays(const DataJob& job) {
  TESSERA_TRY(const std::string out, out_of(job));
  if (job.files.size() != 1) {
    return data_error(fmt::format("arrays: expected one file, found {}", job.files.size()));
  }
  TESSERA_TRY(const ClickFile file, ClickFile::open(job.files.front()));
  TESSERA_TRY_VOID(write_click_arrays(file, out));
  return print_made(job, {{"out", out}, {"samples", file.samples()}},
                    fmt::format("{}: {}\n", out, plural(file.samples(), "sample")));
}

Result<int> graph(const DataJob& job) {
  if (job.files.size() != 1) {
    return data_error(fmt::format("graph: expected one file, found {}", job.files.size()));
  }
  GraphJob graph = job.graph;
  graph.file = job.files.front();
  graph.out = job.out;
  graph.json = job.json;
  return run_data_graph(graph);
}

// Writes an HDF5 file. Each argument, such as "volumes=x.npy", becomes one dataset.
Result<int> to_hdf5(const DataJob& job) {
  TESSERA_TRY(const std::string out, out_of(job));
  if (job.files.empty()) return data_error("hdf5: expected NAME=FILE.npy, found none");
  std::vector<std::unique_ptr<ArrayFile>> opened;
  std::vector<std::pair<std::string, const ArrayFile*>> arrays;
  nlohmann::json json = {{"out", out}, {"datasets", nlohmann::json::object()}};
  std::string text;
  for (const std::string& item : job.files) {
    const size_t equals = item.find('=');
    const std::string name = item.substr(0, equals);
    const bool seen = json["datasets"].contains(name);
    if (equals == std::string::npos || name.empty() || seen ||
        name.find('/') != std::string::npos) {
      return data_error(
          fmt::format("hdf5: expected NAME=FILE.npy with another name for each "
                      "dataset, found '{}'",
                      item));
    }
    auto array = open_array_file(array_name(item.substr(equals + 1)));
    if (!array) return data_error(fmt::format("hdf5: {}", array.error().message));
    if ((*array)->shape().empty() || (*array)->elements() == 0) {
      return data_error(
          fmt::format("hdf5: expected elements along a dim of samples in '{}', found "
                      "none",
                      item.substr(equals + 1)));
    }
    arrays.emplace_back(name, array->get());
    json["datasets"][name] = (*array)->shape();
    text += fmt::format("{}:{}: {} [{}]\n", out, name, number_name((*array)->number()),
                        fmt::join((*array)->shape(), ", "));
    opened.push_back(std::move(*array));
  }
  if (auto written = write_hdf5(out, arrays); !written) {
    return tl::unexpected(
        Error{written.error().code, fmt::format("data: hdf5: {}", written.error().message)});
  }
  return print_made(job, json, text);
}

Result<int> run_data(const DataJob& job) {
  if (job.action == "graph") return graph(job);
  if (job.action == "criteo") return from_criteo(job);
  if (job.action == "generate") return generate(job);
  if (job.action == "arrays") return arrays(job);
  if (job.action == "hdf5") return to_hdf5(job);
  return show_data(job);
}

// Adds the options of the action `graph`. The help texts say what the defaults are.
void add_graph_options(Command& command, GraphJob& job) {
  command.option("--network", job.network, "graph: gcn or graphsage, for the nodes of the files")
      .one_of({"gcn", "graphsage"})
      .default_text("");
  command.option("--hidden", job.hidden, "graph: features between layers (default 16)")
      .at_least(1)
      .default_text("");
  command.option("--layers", job.layers, "graph: of the network (default 2)")
      .at_least(2)
      .default_text("");
  command.option("--dropout", job.dropout, "graph: of each layer's input (default 0.5)")
      .at_least(0)
      .default_text("");
  command
      .option("--sampler", job.sampler,
              "graph: the network samples edges, by bucket, stride, quadratic or permutation")
      .one_of({"none", "bucket", "stride", "quadratic", "permutation"})
      .default_text("");
  command.option("--widths", job.widths, "graph: of samples, one for all layers or one a layer")
      .delimiter(',')
      .at_least(1);
  command.flag("--symmetric", job.symmetric, "graph: refuse a matrix that is not symmetric");
  command.flag("--mirror", job.mirror, "graph: a list of edges has each undirected edge once");
  command.flag("--any-order", job.any_order, "graph: take entries in any order");
}

}  // namespace

void add_data(Commands& commands) {
  const auto options = std::make_shared<DataJob>();
  Command command = commands.add(
      "data", "Make files of clicks, graphs of nodes and HDF5 files of arrays, and show clicks");
  command.option("ACTION", options->action, "criteo, generate, show, arrays, graph or hdf5")
      .required()
      .one_of({"criteo", "generate", "show", "arrays", "graph", "hdf5"});
  command.option("FILE", options->files,
                 "criteo: logs in Criteo's text format, globs too; show, arrays: a file of clicks; "
                 "graph: NAME.mtx, a list of edges, or what NAME_labels.tsv and so on begin with; "
                 "hdf5: NAME=FILE.npy, or NAME=FILE.h5:DATASET, for each dataset");
  command.option("-o,--out", options->out,
                 "The file of clicks to write, NAME.clicks; arrays: the folder of NumPy arrays; "
                 "graph: the network, NAME.graph; hdf5: the HDF5 file");
  command
      .option("--rows", options->rows,
              "Rows of the tables: 1000,200,...; criteo: one number means all 26 tables")
      .delimiter(',')
      .at_least(1);
  command.option("--samples", options->samples, "generate: how many").at_least(1);
  command
      .option("--first", options->first,
              "generate: the number of the first sample (default 0): a file from 100000 on has "
              "others than one of 100,000 samples, of the same model")
      .at_least(0)
      .default_text("");
  command
      .option("--bags", options->bags,
              "generate: ids of a sample, one number or one a feature (default 1)")
      .delimiter(',')
      .at_least(1);
  command.flag("--jagged", options->jagged,
               "generate: bags of 0 to --bags ids, all lengths equally likely");
  command
      .option("--zipf", options->zipf,
              "generate: exponent of the law by which ids are drawn (default 1.05)")
      .at_least(0)
      .default_text("");
  command.option("--reuse", options->reuse,
                 "generate: draw ids as often as this file of reuse histograms says instead "
                 "(data/dlrm/locality_stats.txt)");
  command.option("--dense", options->dense, "generate: dense numbers of a sample (default 13)")
      .at_least(0)
      .default_text("");
  command
      .option("--signal", options->signal,
              "generate: how much labels depend on the sample (default 1.5; 0: not at all)")
      .at_least(0)
      .default_text("");
  command.option("--bias", options->bias, "generate: logit of a mean sample (default -1.2)")
      .default_text("");
  command.option("--seed", options->seed, "generate: of all random numbers (default 1)")
      .at_least(0)
      .default_text("");
  add_graph_options(command, options->graph);
  command.flag("--json", options->json, "Print JSON");
  command.footer(
      "docs/reference/clicks-format.md and graph-files.md describe the files.\n\n"
      "Examples:\n"
      "  tessera data criteo 'day_*.txt' --rows 1000000 --out day.clicks\n"
      "  tessera data generate --samples 100000 --rows 10000,500,40 --bags 1,3,1 --jagged --out "
      "made.clicks\n"
      "  tessera data show made.clicks\n"
      "  tessera data arrays made.clicks --out arrays\n"
      "  tessera data graph data/graphs/cora --network gcn --out runs/cora.graph\n"
      "  tessera data hdf5 volumes=x.npy parameters=y.npy --out universes.h5\n"
      "  tessera data hdf5 'volumes=universes(width=64,samples=100):volumes' --out made.h5\n");
  command.action([options] { return run_data(*options); });
}

}  // namespace tessera::cli
