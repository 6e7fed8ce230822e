// Runs a schedule block by block to find out whether it finishes, at what times, and with how many
// micro-batches in flight.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/base/text.h"
#include "tessera/plan/schedules/schedule.h"

namespace tessera {
namespace {

constexpr std::array kKinds{BlockRun::kForward, BlockRun::kBackward, BlockRun::kWeight};

tl::unexpected<Error> row_error(size_t place, const BlockRun& run, std::string_view what) {
  return invalid_input(fmt::format("schedule of place {}: {} {}", place, to_string(run), what));
}

std::string stage_list(const std::vector<int64_t>& stages) {
  std::vector<std::string> names;
  for (const int64_t stage : stages) names.push_back(std::to_string(stage));
  return names.empty() ? "none" : join(names, ", ");
}

// A `RowCheck` marks the runs of one place as seen, and finds runs that are wrong, double
// or missing.
class RowCheck {
 public:
  RowCheck(size_t place, const PipelineShape& shape)
      : place_(place),
        shape_(shape),
        stages_(shape.stages_of(static_cast<int64_t>(place))),
        seen_(kKinds.size() * stages_.size() * static_cast<size_t>(shape.micro_batches), false) {}

  Status add(const BlockRun& run) {
    if (std::find(stages_.begin(), stages_.end(), run.stage) == stages_.end()) {
      return row_error(place_, run,
                       fmt::format("is of a stage that is not at this place, which has {}",
                                   stage_list(stages_)));
    }
    if (run.micro_batch < 0 || run.micro_batch >= shape_.micro_batches) {
      return row_error(place_, run,
                       fmt::format("is outside micro_batches = {}: expected 0..{}",
                                   shape_.micro_batches, shape_.micro_batches - 1));
    }
    if (run.kind != BlockRun::kForward) {
      if (!shape_.has_backward(run.stage)) {
        return row_error(place_, run, "is of a stage without backward, which runs only F");
      }
      const BlockRun first{
          run.kind == BlockRun::kBackward ? BlockRun::kForward : BlockRun::kBackward,
          run.micro_batch, run.stage};
      if (!seen(first)) {
        return row_error(place_, run, fmt::format("runs before {}", to_string(first)));
      }
    }
    if (seen(run)) return row_error(place_, run, "runs twice");
    seen_[index(run)] = true;
    if (run.kind == BlockRun::kWeight) split_.insert(run.stage);
    return {};
  }

  Status complete() const {
    for (const int64_t stage : stages_) {
      for (const BlockRun::Kind kind : kKinds) {
        if (kind != BlockRun::kForward && !shape_.has_backward(stage)) continue;
        if (kind == BlockRun::kWeight && !split_.contains(stage)) continue;
        for (int64_t m = 0; m < shape_.micro_batches; ++m) {
          if (seen({kind, m, stage})) continue;
          return row_error(place_, {kind, m, stage},
                           fmt::format("is missing (micro_batches = {}){}", shape_.micro_batches,
                                       kind == BlockRun::kWeight
                                           ? ": W runs for all micro-batches of a stage or none"
                                           : ""));
        }
      }
    }
    return {};
  }

 private:
  size_t index(const BlockRun& run) const {
    const auto stage = std::find(stages_.begin(), stages_.end(), run.stage) - stages_.begin();
    return (static_cast<size_t>(run.kind) * stages_.size() + static_cast<size_t>(stage)) *
               static_cast<size_t>(shape_.micro_batches) +
           static_cast<size_t>(run.micro_batch);
  }
  bool seen(const BlockRun& run) const { return seen_[index(run)]; }

  size_t place_;
  const PipelineShape& shape_;
  std::vector<int64_t> stages_;  // stages of the place
  std::vector<bool> seen_;       // by index(): whether the run was added
  std::set<int64_t> split_;      // stages with W runs
};

// An `Execution` runs the blocks of all places until each place is finished or waits forever. If
// `costs` is null, it finds no times.
class Execution {
 public:
  Execution(const Schedule& schedule, const PipelineShape& shape, const UnitCosts* costs)
      : schedule_(schedule),
        shape_(shape),
        costs_(costs),
        next_(schedule.size(), 0),
        times_(schedule.size()),
        links_(schedule.size() * schedule.size(), 0),
        ran_(kKinds.size() * shape.at.size() * static_cast<size_t>(shape.micro_batches), false) {
    after_.resize(shape.at.size());
    followers_.resize(shape.at.size());
    for (int64_t s = 0; s < shape.stages(); ++s) {
      after_[static_cast<size_t>(s)] = shape.before(s);
      for (const int64_t before : shape.before(s)) {
        followers_[static_cast<size_t>(before)].push_back(s);
      }
    }
    if (costs_ != nullptr) {
      find_targets();
      made_.resize(ran_.size());
    }
    for (bool progress = true; progress;) {
      progress = false;
      for (size_t place = 0; place < schedule_.size(); ++place) {
        while (can_run(place)) {
          run(schedule_[place][next_[place]]);
          progress = true;
        }
      }
    }
  }

  bool finished(size_t place) const { return next_[place] == schedule_[place].size(); }
  const BlockRun& next(size_t place) const { return schedule_[place][next_[place]]; }
  const std::vector<PlaceTimes>& times() const { return times_; }

  // Returns the place and run for which an unfinished place waits.
  std::pair<size_t, BlockRun> waits_for(size_t place) const {
    const BlockRun& run = schedule_[place][next_[place]];
    BlockRun missing = run;
    const bool all = visit_needs(run, [&](const BlockRun& need) {
      missing = need;
      return has_run(need);
    });
    if (!all) {
      const auto& makers = shape_.at[static_cast<size_t>(missing.stage)];
      for (const int64_t maker : makers) {
        if (!at(static_cast<size_t>(maker), missing)) return {static_cast<size_t>(maker), missing};
      }
      return {static_cast<size_t>(makers[0]), missing};
    }
    for (const int64_t partner : shape_.at[static_cast<size_t>(run.stage)]) {
      if (!at(static_cast<size_t>(partner), run)) return {static_cast<size_t>(partner), run};
    }
    TESSERA_CHECK(false, "place {} does not wait", place);
    return {place, run};
  }

 private:
  struct Made {           // what a run has made
    double end = 0;       // when the run ends at the places of its stage
    size_t arrivals = 0;  // index in arrivals_ of its first message; one follows for each target
  };

  size_t index(const BlockRun& run) const {
    return (static_cast<size_t>(run.kind) * shape_.at.size() + static_cast<size_t>(run.stage)) *
               static_cast<size_t>(shape_.micro_batches) +
           static_cast<size_t>(run.micro_batch);
  }
  bool has_run(const BlockRun& run) const { return ran_[index(run)]; }
  bool at(size_t place, const BlockRun& run) const {
    return !finished(place) && schedule_[place][next_[place]] == run;
  }

  // Calls visit(need) for each run that `run` needs, until a call returns false. Returns whether no
  // call returned false.
  template <class Visit>
  bool visit_needs(const BlockRun& run, const Visit& visit) const {
    const auto stage = static_cast<size_t>(run.stage);
    if (run.kind == BlockRun::kForward) {
      return std::all_of(after_[stage].begin(), after_[stage].end(), [&](int64_t s) {
        return visit(BlockRun{run.kind, run.micro_batch, s});
      });
    }
    if (run.kind == BlockRun::kWeight) {
      return visit(BlockRun{BlockRun::kBackward, run.micro_batch, run.stage});
    }
    if (!visit(BlockRun{BlockRun::kForward, run.micro_batch, run.stage})) return false;
    return std::all_of(followers_[stage].begin(), followers_[stage].end(), [&](int64_t s) {
      return !shape_.has_backward(s) || visit(BlockRun{run.kind, run.micro_batch, s});
    });
  }

  // Returns whether the place can start its next run: all runs that it needs are done, and all
  // other places of its stage have come to the same run.
  bool can_run(size_t place) const {
    if (finished(place)) return false;
    const BlockRun& run = schedule_[place][next_[place]];
    for (const int64_t partner : shape_.at[static_cast<size_t>(run.stage)]) {
      if (!at(static_cast<size_t>(partner), run)) return false;
    }
    return visit_needs(run, [&](const BlockRun& need) { return has_run(need); });
  }

  double cost(const BlockRun& run) const {
    const bool is_forward = run.kind == BlockRun::kForward;
    const double unit = is_forward                        ? costs_->forward
                        : run.kind == BlockRun::kBackward ? costs_->backward
                                                          : costs_->weight;
    const std::vector<double>& scale =
        is_forward || costs_->backward_scale.empty() ? costs_->scale : costs_->backward_scale;
    return scale.empty() ? unit : unit * scale[static_cast<size_t>(run.stage)];
  }

  void run(const BlockRun run) {
    const auto& places = shape_.at[static_cast<size_t>(run.stage)];
    ran_[index(run)] = true;
    if (costs_ == nullptr) {
      for (const int64_t p : places) ++next_[static_cast<size_t>(p)];
      return;
    }
    double start = 0;
    for (const int64_t p : places) {
      start = std::max(start, times_[static_cast<size_t>(p)].end);
      visit_needs(run, [&](const BlockRun& need) {
        start = std::max(start, arrival(need, p));
        return true;
      });
    }
    const double end = start + cost(run);
    for (const int64_t p : places) {
      const auto place = static_cast<size_t>(p);
      if (next_[place] == 0) times_[place].start = start;
      times_[place].end = end;
      times_[place].busy += end - start;
      ++next_[place];
    }
    send(run, end);
  }

  // Sets targets_: for each stage the other places that need what its forward and its backward
  // blocks make.
  void find_targets() {
    for (const BlockRun::Kind kind : {BlockRun::kForward, BlockRun::kBackward}) {
      auto& of_stage = targets_[static_cast<size_t>(kind)];
      of_stage.resize(shape_.at.size());
      for (size_t stage = 0; stage < shape_.at.size(); ++stage) {
        std::set<int64_t> targets;
        for (const int64_t s : kind == BlockRun::kForward ? followers_[stage] : after_[stage]) {
          if (kind == BlockRun::kBackward && !shape_.has_backward(s)) continue;
          for (const int64_t target : shape_.at[static_cast<size_t>(s)]) {
            if (!shape_.runs_at(static_cast<int64_t>(stage), target)) targets.insert(target);
          }
        }
        of_stage[stage].assign(targets.begin(), targets.end());
      }
    }
  }
  const std::vector<int64_t>& targets(const BlockRun& run) const {
    return targets_[static_cast<size_t>(run.kind)][static_cast<size_t>(run.stage)];
  }
  // Returns the time from which the place has the result of the run.
  double arrival(const BlockRun& run, int64_t place) const {
    const Made& made = made_[index(run)];
    if (run.kind == BlockRun::kWeight) return made.end;
    const std::vector<int64_t>& to = targets(run);
    const auto at = std::find(to.begin(), to.end(), place);
    return at == to.end() ? made.end
                          : arrivals_[made.arrivals + static_cast<size_t>(at - to.begin())];
  }

  void send(const BlockRun& run, double end) {
    made_[index(run)] = {end, arrivals_.size()};
    if (run.kind == BlockRun::kWeight) return;
    const auto from = static_cast<size_t>(shape_.at[static_cast<size_t>(run.stage)][0]);
    for (const int64_t target : targets(run)) {
      double& link = links_[from * schedule_.size() + static_cast<size_t>(target)];
      link = std::max(link, end) + costs_->message;
      arrivals_.push_back(link);
    }
  }

  const Schedule& schedule_;
  const PipelineShape& shape_;
  const UnitCosts* costs_;                               // null: no times are wanted
  std::vector<std::vector<int64_t>> after_, followers_;  // by stage: stages before it, after it
  // By kind of block (F, B) and by stage: the other places that need the result and so get
  // a message.
  std::array<std::vector<std::vector<int64_t>>, 2> targets_;
  std::vector<size_t> next_;       // by place: number of runs done
  std::vector<PlaceTimes> times_;  // by place
  std::vector<double> links_;      // by from * places + to: the time from which the link is free
  std::vector<bool> ran_;          // by index()
  std::vector<Made> made_;         // by index(); empty without costs
  std::vector<double> arrivals_;   // arrival times of messages; Made::arrivals is an index
};

}  // namespace

Status check_schedule(const Schedule& schedule, const PipelineShape& shape) {
  if (static_cast<int64_t>(schedule.size()) != shape.places) {
    return invalid_input(fmt::format("expected {} lists in 'schedule' (one a place), found {}",
                                     shape.places, schedule.size()));
  }
  for (size_t place = 0; place < schedule.size(); ++place) {
    RowCheck row(place, shape);
    for (const BlockRun& run : schedule[place]) TESSERA_TRY_VOID(row.add(run));
    TESSERA_TRY_VOID(row.complete());
  }
  return {};
}

Status check_schedule_finishes(const Schedule& schedule, const PipelineShape& shape) {
  TESSERA_TRY_VOID(check_schedule(schedule, shape));
  const Execution execution(schedule, shape, nullptr);
  size_t place = 0;
  while (place < schedule.size() && execution.finished(place)) ++place;
  if (place == schedule.size()) return {};
  // Every place that does not finish waits for another place that does not finish, so following the
  // waits from place to place leads into a cycle.
  std::vector<size_t> path;
  while (std::find(path.begin(), path.end(), place) == path.end()) {
    path.push_back(place);
    place = execution.waits_for(place).first;
  }
  path.erase(path.begin(), std::find(path.begin(), path.end(), place));
  std::rotate(path.begin(), std::min_element(path.begin(), path.end()), path.end());
  std::string cycle;
  for (const size_t p : path) {
    const auto [maker, need] = execution.waits_for(p);
    cycle += fmt::format("{} waits at {} for {} of place {}",
                         cycle.empty() ? fmt::format("place {}", p) : ", which",
                         to_string(execution.next(p)), to_string(need), maker);
  }
  return invalid_input("the schedule never finishes: " + cycle);
}

std::vector<PlaceTimes> place_times(const Schedule& schedule, const PipelineShape& shape,
                                    const UnitCosts& costs) {
  return Execution(schedule, shape, &costs).times();
}

double makespan(const Schedule& schedule, const PipelineShape& shape, const UnitCosts& costs) {
  double end = 0;
  for (const PlaceTimes& times : place_times(schedule, shape, costs))
    end = std::max(end, times.end);
  return end;
}

std::vector<int64_t> in_flight(const Schedule& schedule, const PipelineShape& shape) {
  std::vector<int64_t> out;
  for (const std::vector<BlockRun>& row : schedule) {
    std::set<int64_t> split;  // stages whose last backward part is W
    for (const BlockRun& run : row) {
      if (run.kind == BlockRun::kWeight) split.insert(run.stage);
    }
    int64_t now = 0;
    int64_t most = 0;
    for (const BlockRun& run : row) {
      if (!shape.has_backward(run.stage)) continue;
      if (run.kind == BlockRun::kForward) most = std::max(most, ++now);
      if (run.kind == (split.contains(run.stage) ? BlockRun::kWeight : BlockRun::kBackward)) --now;
    }
    out.push_back(most);
  }
  return out;
}

}  // namespace tessera
