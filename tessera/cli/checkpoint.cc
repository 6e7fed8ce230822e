// tessera checkpoint: shows, checks, copies and converts the checkpoints of a run, without the
// runtime.
#include "tessera/state/checkpoint.h"
#include "tessera/base/json_text.h"
#include "tessera/base/one_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "tessera/cli/cli.h"
#include "tessera/cli/libraries/planning_library.h"
#include "tessera/cli/output.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

struct CheckpointOptions {
  std::string action, path, out, to, format, model, plan;
  std::optional<std::string> dtype;
  std::optional<int64_t> seed, vocabulary;
  bool parameters = false, json = false;
};

bool names_checkpoint(const std::string& path) {
  std::error_code error;
  return is_checkpoint(path) ||
         (step_of_name(path) &&
          std::filesystem::exists(std::filesystem::symlink_status(path, error)));
}

// Opens a checkpoint. Damage becomes a failed check instead of a fault, because these commands are
// there to find damage.
Result<std::unique_ptr<CheckpointSource>> open_checked(const std::string& path) {
  auto source = open_checkpoint(path);
  if (!source && source.error().code == ErrorCode::kFault)
    return check_failed(source.error().message);
  return source;
}

bool ends_in_safetensors(const std::string& path) { return path.ends_with(".safetensors"); }

// Says which checkpoints of a folder are considered when the newest is wanted.
enum class Newest : uint8_t {
  kWithManifest,  // only those with a manifest; a resumed run sets the others aside
  kAny,           // all, because the caller looks for damage
};

// Returns the path of the checkpoint that `path` names, damaged or not: `path` itself if it is a
// checkpoint's folder, else the newest checkpoint in the folder `path`.
Result<std::string> chosen(const std::string& path, Newest which = Newest::kWithManifest) {
  if (names_checkpoint(path)) return path;
  FileSystem disk;
  TESSERA_TRY(const std::vector<CheckpointFolder> found, step_folders_in(disk, path));
  const auto newest = std::find_if(found.rbegin(), found.rend(), [&](const CheckpointFolder& one) {
    return which == Newest::kAny || one.has_manifest;
  });
  if (newest != found.rend()) return newest->path;
  return invalid_input(fmt::format(
      "checkpoint: expected a checkpoint or a folder of them, found none at '{}'", path));
}

Result<int> list(const CheckpointOptions& options) {
  FileSystem disk;
  std::vector<CheckpointFolder> found;
  if (names_checkpoint(options.path)) {
    found.push_back({step_of_name(options.path).value_or(0), options.path});
  } else {
    TESSERA_TRY(found, step_folders_in(disk, options.path));
  }
  if (found.empty()) return chosen(options.path).map([](const std::string&) { return 0; });
  Json json = Json::array();
  Table table({"checkpoint", "step", "ranks", "tensors", "size", "state"});
  for (const CheckpointFolder& one : found) {
    const auto source = open_checkpoint(one.path);
    if (!source) {
      json.push_back({{"path", one.path}, {"damaged", source.error().message}});
      table.add({one.path, fmt::format("{}", one.step), "", "", "", "damaged"});
      continue;
    }
    const Manifest& manifest = (*source)->manifest();
    json.push_back({{"path", one.path},
                    {"step", manifest.step},
                    {"ranks", manifest.ranks},
                    {"tensors", manifest.tensors.size()},
                    {"bytes", manifest.bytes()},
                    {"damaged", nullptr}});
    table.add({one.path, fmt::format("{}", manifest.step), fmt::format("{}", manifest.ranks),
               fmt::format("{}", manifest.tensors.size()), short_bytes(manifest.bytes()),
               "complete"});
  }
  return print(options.json ? dumped(json) + "\n" : table.to_string());
}

Result<int> show_checkpoint(const CheckpointOptions& options) {
  TESSERA_TRY(const std::string path, chosen(options.path));
  TESSERA_TRY(const auto source, open_checked(path));
  const Manifest& manifest = source->manifest();
  Json tensors = Json::array();
  Table table({"tensor", "role", "dtype", "shape", "boxes"});
  std::map<std::string, int64_t> by_role;
  for (const ManifestTensor& tensor : manifest.tensors) {
    const std::string shape = fmt::format("[{}]", fmt::join(tensor.shape, ", "));
    table.add({tensor.name, tensor.role, std::string(dtype_name(tensor.dtype)), shape,
               fmt::format("{}", tensor.boxes.size())});
    Json boxes = Json::array();
    for (const ManifestBox& box : tensor.boxes) {
      boxes.push_back({{"box", box.box.to_string()},
                       {"file", manifest.files[box.file].name},
                       {"name", box.name}});
    }
    tensors.push_back({{"name", tensor.name},
                       {"role", tensor.role},
                       {"dtype", dtype_name(tensor.dtype)},
                       {"shape", tensor.shape},
                       {"boxes", std::move(boxes)}});
    by_role[tensor.role] += Box::whole(tensor.shape).volume() * dtype_bytes(tensor.dtype);
  }
  if (options.json) {
    const Json json{{"path", path},
                    {"step", manifest.step},
                    {"seed", manifest.seed},
                    {"ranks", manifest.ranks},
                    {"bytes", manifest.bytes()},
                    {"model", manifest.model},
                    {"plan", manifest.plan},
                    {"run", manifest.run},
                    {"tensors", std::move(tensors)}};
    return print(dumped(json) + "\n");
  }
  std::string text =
      fmt::format("{}: step {}, seed {}, {}, {} in {}\n", path, manifest.step, manifest.seed,
                  plural(manifest.ranks, "rank"), short_bytes(manifest.bytes()),
                  plural(static_cast<int64_t>(manifest.files.size()), "file"));
  for (const auto& [role, bytes] : by_role)
    text += fmt::format("{}: {}\n", role, short_bytes(bytes));
  text += fmt::format("\nmodel  {}\n\nplan\n{}\nrun\n{}\n", manifest.model, manifest.plan,
                      manifest.run);
  return print(text + table.to_string());
}

// Prints one line for each fault in the checkpoint's files. These lines are the command's answer,
// so they go to standard output.
Result<int> verify_files(const CheckpointOptions& options) {
  TESSERA_TRY(const std::string path, chosen(options.path, Newest::kAny));
  const auto source = open_checkpoint(path);
  if (!source && source.error().code != ErrorCode::kFault) return tl::unexpected(source.error());
  std::vector<std::string> lines;
  int64_t bytes = 0;
  if (source) {
    const Manifest& manifest = (*source)->manifest();
    bytes = manifest.bytes();
    for (const Damage& damage : find_damage(path, manifest)) lines.push_back(damage.to_string());
  } else {
    lines.push_back(source.error().message);
  }
  const int code = lines.empty() ? 0 : exit_code(ErrorCode::kCheckFailed);
  std::string text;
  if (options.json) {
    text =
        dumped(Json{{"path", path}, {"bytes", bytes}, {"damage", lines}, {"ok", lines.empty()}}) +
        "\n";
  } else if (lines.empty()) {
    text = fmt::format("{}: whole: {} as they were written\n", path, short_bytes(bytes));
  } else {
    text = fmt::format("{}\n", fmt::join(lines, "\n"));
  }
  const int printed = print(text);
  return printed == 0 ? code : printed;
}

Result<int> copy(const CheckpointOptions& options) {
  if (options.to.empty()) {
    return invalid_input(
        "checkpoint copy: expected --to, a folder for checkpoints or a file *.safetensors");
  }
  const bool file = ends_in_safetensors(options.to);
  if (!file && (options.parameters || options.dtype)) {
    return invalid_input(
        "checkpoint copy: expected --parameters and --dtype with --to FILE.safetensors, found a "
        "folder");
  }
  TESSERA_TRY(const std::string path, chosen(options.path));
  FileSystem disk;
  if (!file) {
    TESSERA_TRY(const auto source, open_checked(path));
    TESSERA_TRY_VOID(copy_checkpoint(disk, path, options.to));
    return print(fmt::format("{}\n", checkpoint_path(options.to, source->manifest().step)));
  }
  std::optional<DType> dtype;
  if (options.dtype) {
    TESSERA_TRY(dtype, parse_dtype(*options.dtype));
  }
  if (std::filesystem::exists(options.to)) {
    return invalid_input(
        fmt::format("checkpoint copy: expected a new file, found '{}'", options.to));
  }
  TESSERA_TRY(const auto source, open_checked(path));
  const std::vector<Damage> damage = find_damage(path, source->manifest());
  if (!damage.empty()) return check_failed(damage.front().to_string());
  TESSERA_TRY_VOID(copy_to_file(disk, *source, options.to, options.parameters, dtype));
  return print(fmt::format("{}\n", options.to));
}

constexpr int64_t kMostRows = (int64_t{1} << 31) - 1;  // of a padded vocabulary

Result<int> convert_form(const CheckpointOptions& options) {
  if (options.out.empty()) {
    return invalid_input(fmt::format(
        "checkpoint convert: expected FROM and TO, what to read and the folder to write, found {}",
        options.path.empty() ? "neither" : "no TO"));
  }
  if (options.vocabulary && (options.format != "torch_dist" || *options.vocabulary < 1 ||
                             *options.vocabulary > kMostRows)) {
    return invalid_input(
        fmt::format("checkpoint convert: expected --vocabulary with --format torch_dist, from 1 to "
                    "{}, found {}",
                    kMostRows, *options.vocabulary));
  }
  TESSERA_TRY(const PlanningLibrary* library, planning_library("checkpoint convert"));
  TESSERA_TRY(const ConvertReport done,
              library->convert_checkpoint({options.path, options.out, options.format, options.model,
                                           options.plan, options.seed, options.vocabulary}));
  if (options.json) {
    return print(dumped(Json{{"from", done.from},
                             {"to", done.to},
                             {"path", done.path},
                             {"tensors", done.tensors},
                             {"bytes", done.bytes},
                             {"step", done.step ? Json(*done.step) : Json(nullptr)},
                             {"notes", done.notes}}) +
                 "\n");
  }
  for (const std::string& line : done.notes) note(fmt::format("note: {}\n", message_line(line)));
  return print(fmt::format("{} ({} to {}): {}, {}{}\n", done.path, done.from, done.to,
                           plural(done.tensors, "tensor"), short_bytes(done.bytes),
                           done.step ? fmt::format(", step {}", *done.step) : ""));
}

Result<int> run_checkpoint(const CheckpointOptions& options) {
  if (options.action == "convert") return convert_form(options);
  if (!options.out.empty() || !options.format.empty() || !options.model.empty() ||
      !options.plan.empty() || options.seed || options.vocabulary) {
    return invalid_input(fmt::format(
        "checkpoint {}: expected TO, --format, --model, --plan, --seed and --vocabulary only with "
        "convert, found one of them",
        options.action));
  }
  if (options.path.empty()) {
    return invalid_input(
        fmt::format("checkpoint {}: expected DIR, a checkpoint or a folder of them, found none",
                    options.action));
  }
  if (options.action == "ls") return list(options);
  if (options.action == "show") return show_checkpoint(options);
  if (options.action == "verify") return verify_files(options);
  return copy(options);
}

}  // namespace

void add_checkpoint(Commands& commands) {
  const auto options = std::make_shared<CheckpointOptions>();
  Command command =
      commands.add("checkpoint", "List, show, verify, copy or convert checkpoints of a run");
  command.option("ACTION", options->action, "ls, show, verify, copy or convert")
      .required()
      .one_of({"ls", "show", "verify", "copy", "convert"});
  command.option(
      "DIR|FROM", options->path,
      "A folder of checkpoints (all but ls: the newest of them), or one of them; FROM of convert: "
      "or a folder of torch.distributed.checkpoint, or a Hugging Face folder");
  command.option(
      "TO", options->out,
      "convert: the folder to write, which must not exist yet; of checkpoints: the folder "
      "of them");
  command
      .option(
          "--format", options->format,
          "convert: tessera (a checkpoint), dcp (torch.distributed.checkpoint), torch_dist (that "
          "of Megatron Core), hf (a Hugging Face folder) (default: tessera, or dcp of a "
          "checkpoint)")
      .one_of({"tessera", "dcp", "torch_dist", "hf"});
  command.option("--model", options->model,
                 "convert: MODEL, which a folder of torch.distributed.checkpoint does not name "
                 "(default: as FROM "
                 "says)");
  command.option("--plan", options->plan,
                 "convert: a plan, for whose ranks pieces are written (default: one rank)");
  command.option("--seed", options->seed,
                 "convert to a checkpoint: the seed of the run that goes on (default: 1)");
  command.option(
      "--vocabulary", options->vocabulary,
      "convert to torch_dist: the rows of the padded vocabulary (default: as in FROM, or "
      "the next multiple of 128 times the tensor ranks of the plan)");
  command.option(
      "--to", options->to,
      "copy: a folder for checkpoints, or a file *.safetensors that takes whole tensors");
  command.flag("--parameters", options->parameters, "copy to a file: parameters only");
  command.option("--dtype", options->dtype, "copy to a file: convert floating values");
  command.flag("--json", options->json, "Print JSON");
  command.footer(
      "Exit code 1: the checkpoint is damaged; file, tensor and box are named.\n\n"
      "Examples:\n"
      "  tessera checkpoint ls checkpoints\n"
      "  tessera checkpoint verify checkpoints/step-000000000200\n"
      "  tessera checkpoint copy checkpoints --to weights.safetensors --parameters --dtype "
      "bfloat16\n"
      "  tessera checkpoint convert run/step-100 checkpoints --model llama/config.json \\\n"
      "      --plan 'fsdp(dp=4)'\n"
      "  tessera checkpoint convert checkpoints run/dcp --format dcp\n"
      "  tessera checkpoint convert checkpoints megatron/iter_0000100 --format torch_dist\n");
  command.action([options] { return run_checkpoint(*options); });
}

}  // namespace tessera::cli
