// Ranks the choices of a space by formula. Units are priced as rarely as possible: recomputation
// makes a step longer, so a choice with it is priced only where the same choice without it does not
// fit and is no slower than what fits already.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tessera/search/answer.h"
#include "tessera/search/dim_lists.h"
#include "tessera/search/question.h"

namespace tessera {

// Micro-batches of up to this many sequences a replica are tried in any case; larger ones only
// while the time of a sequence still falls.
inline constexpr int64_t kTriedSequences = 32;
// A choice that is slower than this many times the best one cannot win by the formula's error.
inline constexpr double kHopelesslySlow = 1.3;

// A schedule, and the numbers of stages of each place that are tried with it.
struct SpaceSchedule {
  std::string name;
  std::vector<int64_t> chunks = {1};
};

// The choices that a planner tries. Degrees are all that divide the devices.
struct Space {
  std::vector<DimList> lists;            // of the one axis inside a stage
  std::vector<DimPair> pairs;            // of two axes
  std::vector<std::string> recompute;    // least first; "none" is among them
  std::vector<SpaceSchedule> schedules;  // the first one also stands where there is no pipeline
  // Whether single units may be recomputed, and borders between stages may lie elsewhere than where
  // the stages' times are balanced.
  bool own_units = false;
  bool own_lists = false;  // the search may change the lists
  // Whether stages may have unequal meshes and slices, and transfers buckets and depths of their
  // own.
  bool is_wide = false;
  bool has_rings() const;  // in some list
};

class Ranking {
 public:
  // Makes a ranking. All arguments outlive it.
  Ranking(const PlanQuestion& question, const Fold& fold, UnitPricer& pricer);
  // Returns the ranked choices of the space, and adds better lists to the space if it finds any.
  std::vector<PlanCandidate> rank(Space& space);

  // Returns the candidate with one border between stages moved by a few units, with one level of
  // recomputation less or more of the last units of each stage, and with its halos treated
  // otherwise.
  std::vector<PlanCandidate> edits(const PlanCandidate& candidate, const Space& space);

  // Estimates the candidate anew, its schedule played (Estimator::play_schedules).
  void play(PlanCandidate& candidate);
  // Sets whether edits are estimated with the schedule played, too. At first they are not.
  void play_edits(bool plays) { plays_edits_ = plays; }
  // Sets the estimate of a choice whose units have dims, recomputation and halos of their own. The
  // cost of changing the layout between neighbours is not counted. Returns false if it has no
  // price.
  bool estimate_own(PlanCandidate& candidate);

  // Sets the lists and the pairs of a space to what dim_lists.h finds on the smallest axis that the
  // devices allow. For small models adds all lists of one or two dims that cut in different ways.
  void find_dims(Space& space);

  const std::string& last_refusal() const { return refusal_; }
  const Fold& fold() const { return fold_; }
  Estimator& estimator() { return estimator_; }
  // Returns the number of choices that were ranked but not returned: far slower than others, and
  // not smaller.
  int64_t left_out() const { return left_out_; }

 private:
  // Returns edits(), estimated in the way that the estimator is set to.
  std::vector<PlanCandidate> edits_of(const PlanCandidate& candidate, const Space& space);
  // Returns whether many sequences take a device no longer than `least` ones, and it has far more
  // memory than they need.
  bool all_fit_and_none_is_longer(int64_t least);
  // Returns the entries that lists may be made of: dims_to_cut() without what the question leaves
  // out.
  std::vector<std::string> dims_offered() const;
  void add_all_lists(Space& space, int64_t size) const;
  struct Shape {  // how the devices are divided
    int64_t stages, replicas, inner;
    friend auto operator<=>(const Shape&, const Shape&) = default;
  };
  // Returns how the devices may be divided. `rings`: axes inside a stage have rings, which may
  // cross many nodes where they are needed.
  std::vector<Shape> shapes(bool rings) const;
  // Returns the most devices of the axes inside a stage, other than of rings where these are
  // needed.
  int64_t most_inner() const;
  bool needs_rings() const;
  // A way to cut a stage, with the sequences of a micro-batch of one replica.
  struct Inside {
    std::vector<ChoiceAxis> axes;
    int64_t sequences = 1;
    std::vector<const UnitPrices*> by_kind;  // of nodes
  };
  // Returns what the axes inside a stage of so many devices may be.
  std::vector<std::vector<ChoiceAxis>> axes_inside(int64_t inner, const Space& space) const;
  // Returns those of axes_inside() that are worth a look, with prices: with ever more sequences
  // until these save no time, and without those that others with as many sequences beat in time and
  // in memory.
  const std::vector<Inside>& priced(int64_t inner, const Space& space, const std::string& recompute,
                                    bool is_least);
  // Notes the time of both passes of a micro-batch where no op is cut, for the bounds below.
  void note_uncut(int64_t sequences, double seconds);
  // Returns whether a choice with so many devices inside a stage and so many sequences in a
  // micro-batch could be nearly as fast as the best that fits. It follows from the prices of uncut
  // units, because cuts save no work.
  bool may_win(int64_t inner, int64_t sequences) const;
  // Returns whether more sequences could win, given the times of cut units with two numbers of
  // them. Each further sequence is taken to need at least as long as the last ones did.
  bool may_win_with_more(int64_t inner, int64_t fewer, double fewer_s, int64_t more,
                         double more_s) const;
  // Returns whether replicas of whole models, which fit, would sum their gradients for nearly as
  // long as the backward pass that hides the sums, or longer. Larger micro-batches then save time
  // even where their passes do not.
  bool sums_slow_passes(int64_t inner, const UnitPrices& prices) const;
  // Returns whether the step is faster than that of the best choice that surely fits, or there is
  // none.
  bool may_be_best(double step_s) const;
  // Returns whether some choice with these axes and sequences, and less recomputation, is faster
  // than the best, but too large. More recomputation makes choices smaller and never faster.
  bool may_win_smaller(const std::vector<ChoiceAxis>& axes, int64_t sequences) const;
  static std::string axes_key(const std::vector<ChoiceAxis>& axes, int64_t sequences);
  // Returns the least time of a step in which micro-batches of so many sequences take passes_s on
  // `inner` devices: all devices are at work, and there is no bubble.
  double least_step_s(double passes_s, int64_t inner, int64_t sequences) const;
  // Adds the choices of one shape. `is_least`: this is the least level of recomputation allowed.
  void rank_shape(const Shape& shape, const Space& space, const std::string& recompute,
                  bool is_least, std::vector<PlanCandidate>& out);
  // Returns the schedules of the space that the question allows. A fixed schedule need not be one
  // of the space's: how many chunks it may have is found by making it.
  std::vector<SpaceSchedule> schedules_of(const Space& space) const;
  void rank_schedules(Choice choice, const Space& space, const Inside& inside,
                      std::vector<PlanCandidate>& out);
  // Adds a candidate for each kind of sharding, and each order of replicas and stages. Choices that
  // are far off are kept only if no ranked choice beats them in time and in memory.
  void rank_shards(Choice choice, const Inside& inside, bool is_far_off,
                   std::vector<PlanCandidate>& out);
  bool is_beaten(const Estimate& estimate) const;
  void note(const Estimate& estimate);
  // Adds the choice with all other borders between its stages.
  void rank_borders(const Choice& choice, std::vector<PlanCandidate>& out);
  // Returns the prices on each kind of nodes; empty: one of them refuses.
  std::vector<const UnitPrices*> price_kinds(UnitQuestion question);

  // Edits the dims of the axis inside a stage on the best choices of the best shapes, until no edit
  // makes these faster; the lists that are found join the space and are ranked in all shapes.
  void improve_lists(Space& space, const std::vector<std::string>& levels,
                     std::vector<PlanCandidate>& out);
  std::optional<DimList> improved_list(const PlanCandidate& start, const Space& space,
                                       const std::vector<std::string>& levels);
  // Returns the choice's list, or what improved_list() made of it, with dims for parts of a block
  // (scoped_dims.h) if these save time. Nothing is tried for choices slower than the fastest.
  std::optional<DimList> with_scopes(const PlanCandidate& start, std::optional<DimList> improved,
                                     const Space& space);
  std::vector<PlanCandidate> best_of_shapes(const std::vector<PlanCandidate>& ranked) const;
  // Adds the choices of all shapes. `improves_early`: better lists are looked for among choices
  // with the first level, so that levels that recompute more are asked only of lists that may win.
  void rank_shapes(Space& space, const std::vector<std::string>& levels,
                   std::vector<PlanCandidate>& out, bool improves_early);

  // Adds candidates where a choice that recomputes nothing would be fast enough but does not fit:
  // with cuts that give places with more micro-batches in flight fewer units, and with
  // recomputation of single units (partition.h).
  void refine(const Space& space, std::vector<PlanCandidate>& out);
  std::optional<PlanCandidate> with_own_recomputation(const std::vector<Choice>& levels);
  // Adds the best candidates that have halos, with these treated otherwise (halo_choices.h).
  void rank_halos(std::vector<PlanCandidate>& out);

  const PlanQuestion& question_;
  const Fold& fold_;
  bool is_small_;                // nothing is left out because a formula says that it is slower
  std::vector<int64_t> counts_;  // Fold::counts
  UnitPricer& pricer_;
  Estimator estimator_;
  // By devices inside a stage, recomputation, and the axes that were asked for.
  std::map<std::string, std::vector<Inside>> priced_;
  // Seconds of both passes of a micro-batch, by its sequences, where no op is cut and nothing is
  // recomputed; on the first kind of nodes.
  std::map<int64_t, double> uncut_s_;
  // The least time of a choice that does not surely fit, by axes and sequences, and by shape.
  std::map<std::string, std::map<Shape, double>> too_large_s_;
  std::set<std::string> edited_;  // sizes and lists of axes of which no edit was found to be faster
  bool plays_edits_ = false;
  // Whether kernels are so small that fewer sequences or cuts save no time, and there is memory for
  // all sequences.
  bool cuts_save_nothing_ = false;
  double limit_;       // of a device's memory; 0: none
  HaloChoice halos_;   // what the question fixes
  double best_s_ = 0;  // of the choices that fit by formula; 0: none yet
  // By memory: the least time of ranked choices that need no more. Only choices that no other one
  // beats in both time and memory are kept.
  std::map<double, double> least_s_;
  int64_t left_out_ = 0;
  std::string refusal_;
};

}  // namespace tessera
