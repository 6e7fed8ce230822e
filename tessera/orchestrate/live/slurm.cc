#include "tessera/orchestrate/live/slurm.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <utility>

#include "tessera/base/text.h"
#include "tessera/orchestrate/live/slurm_commands.h"
#include "tessera/orchestrate/live/training.h"
#include "tessera/orchestrate/process.h"

namespace tessera::share {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kMostSilence{60};
constexpr int kLost = 3;  // an exit code that is neither success nor an error of the job

constexpr const char* kTrainScript = R"(#!/bin/sh
# Trains, once no other copy of the job does. Written by `tessera cluster serve`.
#   train.sh LOG LOCK FOLDER SCRIPTS 'NODE=JOB ...' WORD...
# NODE=JOB: the other nodes, and the Slurm jobs that hold their GPUs.
log=$1 lock=$2 folder=$3 scripts=$4 others=$5
shift 5
exec >>"$log" 2>&1 </dev/null
cd -- "$folder" || exit 127
unset OMPI_COMM_WORLD_SIZE PMI_SIZE SLURM_STEP_NUM_TASKS
TESSERA_WORKERS="$SLURMD_NODENAME=$SLURM_JOB_ID $others"
PATH=$scripts:$PATH
export PATH TESSERA_WORKERS
[ -n "$others" ] || exec flock --no-fork -- "$lock" "$@"
flock --no-fork -- "$lock" "$@"
code=$?
for worker in $others; do scancel --quiet "${worker#*=}"; done
exit $code
)";
constexpr const char* kHoldScript = R"(#!/bin/sh
# Holds the GPUs of a node for ranks that mpirun starts. Written by `tessera cluster serve`.
exec sleep infinity
)";
constexpr const char* kReachScript = R"(#!/bin/sh
# Starts what mpirun wants on a node (its plm_rsh_agent). Written by `tessera cluster serve`.
#   tessera-reach NODE WORD...
node=$1
shift
for worker in $TESSERA_WORKERS; do
  case $worker in
    "$node="*) exec srun --jobid="${worker#*=}" --overlap --nodes=1 --ntasks=1 --mpi=none sh -c "$*" ;;
  esac
done
echo "tessera-reach: expected a node of '$TESSERA_WORKERS', found '$node'" >&2
exit 1
)";

Status write_script(const std::string& path, const char* text) {
  std::ofstream out(path);
  out << text;
  out.close();
  std::error_code failed;
  std::filesystem::permissions(path, std::filesystem::perms::owner_all, failed);
  if (out && !failed) return {};
  return fault(fmt::format("{}: cannot write the script", path));
}

// How worker jobs stand, as Slurm last said.
struct Listing {
  std::map<int64_t, slurm::Listed> jobs;
  bool is_known = false;
  std::set<int64_t> owned;  // by jobs that were started
};

class SlurmJob : public RunningJob {
 public:
  // `ids`: by part.
  SlurmJob(std::shared_ptr<Listing> listing, std::vector<int64_t> ids)
      : listing_(std::move(listing)), ids_(std::move(ids)) {
    listing_->owned.insert(ids_.begin(), ids_.end());
  }
  ~SlurmJob() override {
    for (const int64_t id : ids_) listing_->owned.erase(id);
  }

  std::optional<End> ended() override {
    if (!listing_->is_known) return {};
    const slurm::Listed* first = find(ids_.front());
    if (first != nullptr && !first->has_ended()) return lost_part(*first);
    std::optional<End> out = first == nullptr ? lost(0, "is no longer there") : how(*first);
    if (out) (void)slurm::cancel(others());  // what this leaves alone, end_others() ends
    return out;
  }

  Status end() override { return slurm::cancel(ids_); }

  std::string waits_for() const override {
    for (const int64_t id : ids_) {
      const slurm::Listed* part = find(id);
      if (part != nullptr && part->state == "PENDING" && part->reason != "Dependency") {
        return fmt::format("Slurm has not started its job {} on {}: {}", id, part->mark.node,
                           part->reason);
      }
    }
    return "";
  }

 private:
  const slurm::Listed* find(int64_t id) const {
    const auto at = listing_->jobs.find(id);
    return at == listing_->jobs.end() ? nullptr : &at->second;
  }
  std::vector<int64_t> others() const { return {ids_.begin() + 1, ids_.end()}; }

  End lost(size_t part, const std::string& how) const {
    return {kLost, 0, fmt::format("the Slurm job {} {}", ids_[part], how)};
  }

  // How the job ended whose first worker job has; nothing if Slurm does not answer now.
  std::optional<End> how(const slurm::Listed& first) const {
    if (first.state == "COMPLETED") return End{};
    if (first.state != "FAILED") return lost(0, "ended: " + first.state);
    auto end = slurm::end_of(first.id);
    if (!end) return {};
    // mpirun ends with code 1 also when it has lost a node.
    if (ids_.size() > 1 && end->signal == 0 && end->exit_code == 1)
      return lost(0, "ended: mpirun has lost a rank");
    return *end;
  }

  // Returns what is wrong with a worker job while the first one has not ended; "" if nothing is.
  std::string fault_of(size_t part) const {
    const slurm::Listed* job = find(ids_[part]);
    if (part > 0 && (job == nullptr || job->has_ended())) return "of one of its nodes has ended";
    // A controller of Slurm that was killed goes on from its last saved state.
    if (job != nullptr && job->state == "PENDING" && job->reason == "JobHeldUser")
      return "is held again";
    return "";
  }

  // Finds out whether a worker job is lost while the first goes on, in two looks: the first one ends
  // the others just before itself.
  std::optional<End> lost_part(const slurm::Listed& first) {
    if (first.state == "COMPLETING") return {};
    size_t part = 0;
    while (part < ids_.size() && fault_of(part).empty()) ++part;
    const bool was_missed = std::exchange(has_missed_, part < ids_.size());
    if (!has_missed_ || !was_missed) return {};
    (void)slurm::cancel(ids_);
    return lost(part, fault_of(part));
  }

  std::shared_ptr<Listing> listing_;
  std::vector<int64_t> ids_;
  bool has_missed_ = false;
};

// A job that Slurm has refused.
class RefusedJob : public RunningJob {
 public:
  explicit RefusedJob(std::string why) : why_(std::move(why)) {}
  std::optional<End> ended() override { return End{2, 0, why_}; }
  Status end() override { return {}; }

 private:
  std::string why_;
};

class Slurm : public Backend {
 public:
  explicit Slurm(BackendSetup setup) : setup_(std::move(setup)) {
    setup_.folder = std::filesystem::absolute(setup_.folder).lexically_normal().string();
  }

  Status open() {
    std::error_code failed;
    std::filesystem::create_directories(scripts(), failed);
    TESSERA_TRY_VOID(write_script(scripts() + "/train.sh", kTrainScript));
    TESSERA_TRY_VOID(write_script(scripts() + "/hold.sh", kHoldScript));
    TESSERA_TRY_VOID(write_script(scripts() + "/tessera-reach", kReachScript));
    return list();
  }

  Result<std::unique_ptr<RunningJob>> start(const JobStart& start) override {
    TESSERA_TRY_VOID(list());
    const std::vector<slurm::Mark> marks = marks_of(start);
    std::vector<int64_t> ids(marks.size()), wrong;
    sort_found(marks, ids, wrong);
    TESSERA_TRY_VOID(slurm::cancel(wrong));
    if (std::count(ids.begin(), ids.end(), 0) == 0)
      return std::make_unique<SlurmJob>(listing_, std::move(ids));
    return submit(start, marks);
  }

  double patience_s() const override { return 1; }  // a look asks Slurm

  Status look() override {
    Status done = list();
    if (done) done = look_at_nodes();
    if (done) return done;
    // A controller of Slurm that is started again says nothing meanwhile.
    listing_->is_known = false;
    if (Clock::now() - last_answer_ > kMostSilence) return done;
    return {};
  }

  std::set<int> nodes_out() const override { return nodes_out_; }

  Status end_others() override {
    if (!listing_->is_known) return {};
    std::vector<int64_t> strays;
    for (const auto& [id, job] : listing_->jobs) {
      if (!job.has_ended() && job.state != "COMPLETING" && listing_->owned.count(id) == 0)
        strays.push_back(id);
    }
    return slurm::cancel(strays);
  }

 private:
  // Finds out which nodes are not in service. Only what two looks in a row find is true: Slurm's
  // controller may know nothing of its nodes when it has just been started.
  Status look_at_nodes() {
    TESSERA_TRY(const std::vector<BackendNode> up, slurm::nodes_up());
    std::set<int> out;
    for (size_t i = 0; i < setup_.nodes.size(); ++i) {
      const bool is_up = std::any_of(up.begin(), up.end(), [&](const BackendNode& node) {
        return node.name == setup_.nodes[i];
      });
      if (!is_up) out.insert(static_cast<int>(i));
    }
    nodes_out_.clear();
    for (const int node : out) {
      if (missing_.count(node) > 0) nodes_out_.insert(node);
    }
    missing_ = std::move(out);
    return {};
  }

  std::string scripts() const { return setup_.folder + "/slurm"; }

  Status list() {
    TESSERA_TRY(std::vector<slurm::Listed> jobs, slurm::marked_jobs(setup_.id));
    listing_->jobs.clear();
    for (slurm::Listed& job : jobs) listing_->jobs.emplace(job.id, std::move(job));
    listing_->is_known = true;
    last_answer_ = Clock::now();
    return {};
  }

  std::vector<slurm::Mark> marks_of(const JobStart& start) const {
    std::vector<slurm::Mark> out;
    const auto& parts = start.allocation.parts;
    for (const Allocation::Part& part : parts) {
      out.push_back({setup_.id, start.job.name, static_cast<int>(out.size()),
                     static_cast<int>(parts.size()), setup_.nodes[static_cast<size_t>(part.node)],
                     part.gpus});
    }
    return out;
  }

  // Sorts the job's worker jobs of an earlier start: those of one complete set with these marks get
  // their place in `ids`, where all others are 0; the rest is wrong.
  void sort_found(const std::vector<slurm::Mark>& marks, std::vector<int64_t>& ids,
                  std::vector<int64_t>& wrong) const {
    for (const auto& [id, job] : listing_->jobs) {
      if (job.has_ended() || job.mark.job != marks.front().job) continue;
      const auto at = std::find(marks.begin(), marks.end(), job.mark);
      const bool fits = at != marks.end() && !job.is_held() && job.state != "COMPLETING" &&
                        ids[static_cast<size_t>(at - marks.begin())] == 0;
      (fits ? ids[static_cast<size_t>(at - marks.begin())] : wrong.emplace_back()) = id;
    }
    if (std::count(ids.begin(), ids.end(), 0) == 0) return;
    for (int64_t& id : ids) {
      if (id != 0) wrong.push_back(std::exchange(id, 0));
    }
  }

  // Submits the worker jobs from the last to the first, which has to know the others.
  Result<std::unique_ptr<RunningJob>> submit(const JobStart& start,
                                             const std::vector<slurm::Mark>& marks) {
    std::vector<int64_t> ids(marks.size()), others;
    for (size_t i = marks.size(); i-- > 0;) {
      auto id = i > 0 ? slurm::submit_held(marks[i], {}, scripts() + "/hold.sh", {})
                      : slurm::submit_held(marks[0], others, scripts() + "/train.sh",
                                           words_of(start, marks, ids));
      if (!id) {
        TESSERA_TRY_VOID(slurm::cancel(others));
        TESSERA_TRY_VOID(list());  // a Slurm that does not answer has refused nothing
        return std::make_unique<RefusedJob>(id.error().message);
      }
      ids[i] = *id;
      if (i > 0) others.push_back(*id);
    }
    for (size_t i = 0; i < marks.size(); ++i)
      TESSERA_TRY_VOID(slurm::set_node(ids[i], marks[i].node));
    TESSERA_TRY_VOID(slurm::release(ids));
    listing_->is_known = false;  // it lacks these
    return std::make_unique<SlurmJob>(listing_, std::move(ids));
  }

  // Returns the arguments of the script that trains.
  std::vector<std::string> words_of(const JobStart& start, const std::vector<slurm::Mark>& marks,
                                    const std::vector<int64_t>& ids) const {
    const std::string log = std::filesystem::absolute(start.log_path).lexically_normal().string();
    std::vector<std::string> hosts, others;
    for (size_t i = 0; i < marks.size(); ++i) {
      hosts.push_back(fmt::format("{}:{}", marks[i].node, marks[i].gpus));
      if (i > 0) others.push_back(fmt::format("{}={}", marks[i].node, ids[i]));
    }
    std::vector<std::string> out{log, setup_.folder + "/" + start.job.name + ".lock",
                                 start.job.folder, scripts(), join(others, " ")};
    if (marks.size() > 1) {
      // A daemon of mpirun that left the session would be killed with the step that began it.
      const std::vector<std::string> mpirun{"mpirun",
                                            "--leave-session-attached",
                                            "--mca",
                                            "plm",
                                            "rsh",
                                            "--mca",
                                            "plm_rsh_agent",
                                            "tessera-reach",
                                            "--mca",
                                            "plm_rsh_no_tree_spawn",
                                            "1",
                                            "--mca",
                                            "ras",
                                            "^slurm",
                                            "--bind-to",
                                            "none",
                                            "--host",
                                            join(hosts, ","),
                                            "-n",
                                            fmt::format("{}", start.gpus)};
      out.insert(out.end(), mpirun.begin(), mpirun.end());
    }
    const auto words = training_words(setup_.program, start, start.gpus);
    out.insert(out.end(), words.begin(), words.end());
    return out;
  }

  BackendSetup setup_;
  std::shared_ptr<Listing> listing_ = std::make_shared<Listing>();
  std::set<int> missing_, nodes_out_;  // in the last look, and in the last two
  Clock::time_point last_answer_ = Clock::now();
};

}  // namespace

Result<std::vector<BackendNode>> slurm_nodes() {
  for (const char* program : {"sinfo", "squeue", "sbatch", "scontrol", "scancel"}) {
    if (!find_program(program).empty()) continue;
    return invalid_input(fmt::format(
        "--backend slurm: expected the programs of Slurm in PATH, found no {}", program));
  }
  TESSERA_TRY(std::vector<BackendNode> out, slurm::nodes_up());
  if (!out.empty()) return out;
  return invalid_input("--backend slurm: expected nodes with GPUs that are up, found none");
}

Result<std::unique_ptr<Backend>> make_slurm(const BackendSetup& setup) {
  auto out = std::make_unique<Slurm>(setup);
  TESSERA_TRY_VOID(out->open());
  return out;
}

}  // namespace tessera::share
