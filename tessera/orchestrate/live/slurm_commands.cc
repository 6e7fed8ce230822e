#include "tessera/orchestrate/live/slurm_commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "tessera/base/one_line.h"
#include "tessera/base/text.h"
#include "tessera/orchestrate/live/ask_program.h"

namespace tessera::share::slurm {
namespace {

constexpr std::chrono::seconds kMostWait{30};
constexpr std::string_view kMarkWord = "tessera";
constexpr std::array<std::string_view, 10> kEnded = {
    "COMPLETED", "FAILED",        "CANCELLED", "TIMEOUT",  "NODE_FAIL",
    "PREEMPTED", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE", "REVOKED"};
constexpr std::array<std::string_view, 10> kNotUp = {
    "down", "drained", "draining", "drain", "fail", "failing", "future", "error", "maint", "inval"};

std::string last_line(const std::string& text) {
  std::string out;
  for (const std::string& line : split_text(text, '\n')) {
    if (!trim(line).empty()) out = line;
  }
  return one_line(out);
}

// Asks a program of Slurm that must answer.
Result<std::string> ask(const std::vector<std::string>& words) {
  TESSERA_TRY(const ProgramAnswer answer, ask_program(words, kMostWait));
  if (answer.exit_code == 0) return answer.out;
  return fault(fmt::format("expected an answer of Slurm, found that {} ends with exit code {}: {}",
                           words[0], answer.exit_code, last_line(answer.errors)));
}

std::string joined(const std::vector<int64_t>& ids) {
  return fmt::format("{}", fmt::join(ids, ","));
}

// Returns the state of a node without the marks that sinfo puts behind it, as in "idle*".
std::string_view plain_state(std::string_view state) {
  return state.substr(0, state.find_first_of("*~#!%$@^-+"));
}

}  // namespace

BackendNode node_of(std::string name, const std::string& resources) {
  BackendNode out{std::move(name), "gpu", 0};
  for (const std::string& resource : split_text(resources, ',')) {
    const auto words = split_text(resource.substr(0, resource.find('(')), ':');
    if (words.size() < 2 || words.front() != "gpu") continue;
    if (out.gpus == 0 && words.size() > 2) out.type = words[1];
    out.gpus += static_cast<int>(parse_int(words.back()).value_or(0));
  }
  return out;
}

Result<std::vector<BackendNode>> nodes_up() {
  TESSERA_TRY(const std::string text, ask({"sinfo", "--noheader", "--Node", "--format=%N|%T|%G"}));
  std::vector<BackendNode> out;
  std::set<std::string> names;  // a node of two partitions has two lines
  for (const std::string& line : split_text(text, '\n')) {
    const auto columns = split_text(line, '|');
    if (columns.size() < 3) continue;
    const std::string_view state = plain_state(columns[1]);
    BackendNode node = node_of(std::string(trim(columns[0])), columns[2]);
    const bool is_up = std::find(kNotUp.begin(), kNotUp.end(), state) == kNotUp.end();
    if (is_up && node.gpus > 0 && names.insert(node.name).second) out.push_back(std::move(node));
  }
  return out;
}

std::string Mark::text() const {
  return fmt::format("{} {} {} {}/{} {}:{}", kMarkWord, journal, job, part, parts, node, gpus);
}

Mark mark_of(const std::string& comment) {
  Mark none;
  none.parts = 0;
  const auto words = split_text(comment, ' ');
  if (words.size() != 5 || words[0] != kMarkWord) return none;
  const auto part = split_text(words[3], '/'), place = split_text(words[4], ':');
  if (part.size() != 2 || place.size() != 2) return none;
  Mark out{words[1],
           words[2],
           static_cast<int>(parse_int(part[0]).value_or(-1)),
           static_cast<int>(parse_int(part[1]).value_or(0)),
           place[0],
           static_cast<int>(parse_int(place[1]).value_or(0))};
  return out.part >= 0 && out.part < out.parts ? out : none;
}

bool Listed::has_ended() const {
  return std::find(kEnded.begin(), kEnded.end(), state) != kEnded.end();
}

Result<std::vector<Listed>> marked_jobs(const std::string& journal) {
  TESSERA_TRY(const std::string text,
              ask({"squeue", "--me", "--noheader", "--states=all", "--format=%A|%T|%r|%k"}));
  std::vector<Listed> out;
  for (const std::string& line : split_text(text, '\n')) {
    const auto columns = split_text(line, '|');
    if (columns.size() < 4) continue;
    const auto id = parse_int(trim(columns[0]));
    Mark mark = mark_of(std::string(trim(columns[3])));
    if (id && mark.parts > 0 && mark.journal == journal)
      out.push_back({*id, columns[1], columns[2], std::move(mark)});
  }
  return out;
}

Result<int64_t> submit_held(const Mark& mark, const std::vector<int64_t>& after,
                            const std::string& script, const std::vector<std::string>& words) {
  std::vector<std::string> all{"sbatch",
                               "--parsable",
                               "--hold",
                               "--no-requeue",
                               "--job-name=" + mark.job,
                               "--comment=" + mark.text(),
                               "--nodes=1",
                               "--ntasks=1",
                               fmt::format("--gres=gpu:{}", mark.gpus),
                               "--output=/dev/null"};
  if (!after.empty()) all.push_back(fmt::format("--dependency=after:{}", fmt::join(after, ":")));
  all.push_back(script);
  all.insert(all.end(), words.begin(), words.end());
  TESSERA_TRY(const ProgramAnswer answer, ask_program(all, kMostWait));
  // A cluster's name may follow the number.
  const auto id = parse_int(trim(answer.out.substr(0, answer.out.find_first_of(";\n"))));
  if (answer.exit_code == 0 && id) return *id;
  return invalid_input(fmt::format("expected that Slurm takes the job, found that it says: {}",
                                   last_line(answer.errors)));
}

Status set_node(int64_t id, const std::string& node) {
  TESSERA_TRY_VOID(ask({"scontrol", "update", fmt::format("jobid={}", id), "reqnodelist=" + node}));
  return {};
}

Status release(const std::vector<int64_t>& ids) {
  TESSERA_TRY_VOID(ask({"scontrol", "release", joined(ids)}));
  return {};
}

Status cancel(const std::vector<int64_t>& ids) {
  if (ids.empty()) return {};
  std::vector<std::string> words{"scancel", "--quiet"};
  for (const int64_t id : ids) words.push_back(fmt::format("{}", id));
  TESSERA_TRY_VOID(ask(words));
  return {};
}

Result<RunningJob::End> end_of(int64_t id) {
  TESSERA_TRY(const std::string text,
              ask({"scontrol", "show", "job", "--oneliner", fmt::format("{}", id)}));
  constexpr std::string_view kKey = " ExitCode=";
  const size_t at = text.find(kKey);
  if (at == std::string::npos)
    return fault(fmt::format("expected the exit code of the job {} of Slurm, found none", id));
  const std::string value =
      text.substr(at + kKey.size(), text.find(' ', at + 1) - at - kKey.size());
  const auto numbers = split_text(value, ':');
  return RunningJob::End{static_cast<int>(parse_int(numbers.front()).value_or(0)),
                         static_cast<int>(parse_int(numbers.back()).value_or(0)), ""};
}

}  // namespace tessera::share::slurm
