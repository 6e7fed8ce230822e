#include "tessera/export/target.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/base/text.h"
#include "tessera/export/sizes.h"

namespace tessera {

const std::vector<ExportTarget>& export_targets() {
  static const std::vector<ExportTarget> all = {
      torchtitan_target(), megatron_target(),   deepspeed_target(),   nemo_target(),
      fsdp2_target(),      accelerate_target(), transformers_target()};
  return all;
}

const ExportTarget* find_export_target(std::string_view name) {
  const auto& all = export_targets();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const ExportTarget& target) { return target.name == name; });
  return found == all.end() ? nullptr : &*found;
}

Result<ReadSettings> read_settings(const ExportTarget& target, const std::string& text,
                                   int64_t ranks, const Graph& forward) {
  TESSERA_TRY(const SaidKeys said, target.scan(text));
  TESSERA_TRY(const KeyUses uses, sort_keys(key_table(target.name), said));
  ReadSettings out;
  TESSERA_TRY(out.settings, target.settings({said, ranks, forward}));
  out.unread = uses.unread();
  return out;
}

Result<const ExportTarget*> target_of_text(const std::string& path, const std::string& text) {
  const ExportTarget* best = nullptr;
  std::pair<bool, int64_t> most = {false, 0};  // whether the text starts it, and known keys
  std::vector<std::string> forms;
  for (const ExportTarget& target : export_targets()) {
    forms.push_back(fmt::format("{} ({})", target.name, join(target.endings, ", ")));
    const bool ends =
        std::any_of(target.endings.begin(), target.endings.end(),
                    [&](const std::string& ending) { return path.ends_with(ending); });
    if (!ends) continue;
    const auto said = target.scan(text);
    const bool starts = said && std::any_of(target.starts.begin(), target.starts.end(),
                                            [&](const std::string& word) {
                                              return text.find(word) != std::string::npos;
                                            });
    const std::pair<bool, int64_t> found = {starts,
                                            said ? known_keys(key_table(target.name), *said) : 0};
    if (found <= most) continue;
    most = found;
    best = &target;
  }
  if (best != nullptr) return best;
  return invalid_input(
      fmt::format("{}: expected a configuration of one of {}, found none of their keys", path,
                  join(forms, ", ")));
}

Result<int64_t> ranks_of(const SettingsRequest& request, std::string_view nodes,
                         std::string_view of_a_node, std::string_view target) {
  const SaidValues values(request.said, target);
  const auto some = values.number(nodes, 1), each = values.number(of_a_node, 0);
  if (some && each && *each > 0) return *some * *each;
  if (request.ranks > 0) return request.ranks;
  return invalid_input(fmt::format(
      "{}: expected --ranks, how many the launcher starts: the text does not say it", target));
}

std::string launcher_flags(const ExportJob& job) {
  const int64_t ranks = job.settings.ranks(), a_node = std::min(ranks, job.node_size);
  return fmt::format("--nnodes {} --nproc-per-node {}", (ranks + a_node - 1) / a_node, a_node);
}

std::string origin_of(const ExportJob& job, std::string_view setting) {
  const auto found = job.origins.find(setting);
  return found == job.origins.end() ? "" : found->second;
}

std::string line_of_setting(const ExportJob& job, std::string_view setting) {
  const std::string origin = origin_of(job, setting);
  const std::string front = job.file + ":";
  if (!origin.starts_with(front)) return "";
  const std::string line =
      origin.substr(front.size(), origin.find(' ', front.size()) - front.size());
  return parse_int(line) ? fmt::format(" (line {})", line) : "";
}

tl::unexpected<Error> cannot_express(const ExportJob& job, std::string_view target,
                                     std::string_view setting, const std::string& why) {
  const std::string where = origin_of(job, setting);
  return invalid_input(
      fmt::format("{}: {} cannot express this: {}", where.empty() ? job.plan : where, target, why));
}

Status check_divisions(const ExportJob& job, std::string_view target,
                       const std::vector<Division>& divisions) {
  for (const Division& division : divisions) {
    const std::optional<int64_t> size = spec_number(job.model, division.key);
    if (!size || division.by < 1 || *size % division.by == 0) continue;
    return cannot_express(
        job, target, division.setting,
        fmt::format("it cuts {} into {} equal pieces: expected {} that {} "
                    "divides, found {}",
                    division.what, division.by, division.key, division.by, *size));
  }
  return {};
}

Result<int64_t> replicas_left(int64_t ranks, int64_t others, std::string_view target) {
  if (others > 0 && ranks % others == 0) return ranks / others;
  return invalid_input(fmt::format(
      "{}: expected degrees whose product divides the {} ranks, found {}", target, ranks, others));
}

Result<int64_t> micro_batches_of(int64_t batch, int64_t micro_batch_size, int64_t replicas,
                                 std::string_view target) {
  const int64_t at_once = micro_batch_size * replicas;
  if (at_once > 0 && batch > 0 && batch % at_once == 0) return batch / at_once;
  return invalid_input(
      fmt::format("{}: expected a batch that {} sequences x {} replicas divide, found {}", target,
                  micro_batch_size, replicas, batch));
}

std::vector<std::string> heading(const ExportJob& job, const ExportTarget& target) {
  const ExportSettings& s = job.settings;
  std::vector<std::string> lines{
      fmt::format("The plan {} of {}", job.plan, job.model.spec),
      fmt::format("in the words of {}. Written by tessera export --to {}.", target.version,
                  target.name),
      fmt::format("{} ranks; {} sequences a step: {} replicas x {} micro-batches of {}.", s.ranks(),
                  s.batch, s.replicas_of_batch(), s.micro_batches, s.micro_batch_size())};
  for (const std::string& note : job.notes) lines.push_back("Note: " + note + ".");
  return lines;
}

}  // namespace tessera
