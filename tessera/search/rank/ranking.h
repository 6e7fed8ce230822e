// Ranks the choices of a space by formula. Prices of units are expensive, so few are computed. For
// example, because recomputation makes a step longer, a choice with recomputation is priced only if
// the choice without recomputation does not fit and is faster than the best choice that fits.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tessera/search/choices/dim_lists.h"
#include "tessera/search/question/answer.h"
#include "tessera/search/question/question.h"

namespace tessera {

// A schedule, and the numbers of chunks (stages of each place) that are tried with it.
struct SpaceSchedule {
  std::string name;
  std::vector<int64_t> chunks = {1};
};

// The choices that a planner tries. All degrees that divide the number of devices are tried.
struct Space {
  std::vector<DimList> lists;  // lists of dims for one axis inside a stage
  std::vector<DimPair> pairs;  // lists of dims for two axes inside a stage
  // Levels of recomputation, the least first; "none" is one of them.
  std::vector<std::string> recompute;
  std::vector<SpaceSchedule> schedules;  // schedules; choices without a pipeline have the first one
  // Whether single units may have a level of recomputation of their own, and whether borders
  // between stages may be moved away from the balance of the stages' times.
  bool own_units = false;
  // Whether the search may change the lists, and also tries other sizes of buckets and depths of
  // prefetching.
  bool own_lists = false;
  bool offloads = false;  // whether tensors may rest on the host (offload.h)
  // Whether choices may have these axes inside a stage; unset: all may.
  std::function<bool(const std::vector<ChoiceAxis>&)> takes = {};
  bool has_rings() const;  // whether some list has a ring ("seq~kv")
};

// Returns the numbers of devices that a search tries, each with the least number of replicas with
// which it is tried.
std::map<int64_t, int64_t> device_counts(const PlanQuestion& question);

class Ranking {
 public:
  // Makes a ranking. All arguments outlive it.
  Ranking(const PlanQuestion& question, const Fold& fold, UnitPricer& pricer);
  // Returns the ranked choices of the space, and adds better lists to the space if it finds any.
  std::vector<PlanCandidate> rank(Space& space);

  // Returns edits of the candidate: one border between stages moved by a unit, another number
  // of chunks, the last units of each stage with one level of recomputation more or less, other
  // treatment of halos (halo_choices.h) and other transfers (transfer_choices.h).
  std::vector<PlanCandidate> edits(const PlanCandidate& candidate, const Space& space);

  // Estimates a candidate anew before it is simulated: with its schedule simulated, if play() says
  // so, and if tensors rest on the host (offload.h) with prices that know it.
  void refine(PlanCandidate& candidate);
  // Sets whether refine() and edits() estimate with the schedule simulated
  // (Estimator::play_schedules). The default is false.
  void play(bool plays) { plays_ = plays; }
  // Sets the estimate of a choice whose units may have recomputation and halos of their own. Returns
  // false if some unit cannot be priced.
  bool estimate_own(PlanCandidate& candidate);

  // Sets the lists and pairs of a space to those that a DimListSearch finds on the smallest axis
  // that the devices allow. For small models adds all lists of one or two dims that cut in
  // different ways.
  void find_dims(Space& space);

  const std::string& last_refusal() const { return refusal_; }
  const Fold& fold() const { return fold_; }
  Estimator& estimator() { return estimator_; }
  // Returns the number of choices that were ranked but not returned, because they are far slower
  // than others and need no less memory.
  int64_t left_out() const { return left_out_; }

 private:
  // Returns the choice with other numbers of chunks, whose stages are balanced anew.
  std::vector<Choice> chunk_edits(const Choice& from);
  // Returns whether one device needs hardly more time for many sequences than for `least`
  // sequences, and has far more memory than the many sequences need. `least`: of the
  // smallest micro-batch.
  bool all_fit_and_none_is_longer(int64_t least);
  // Returns the entries of which lists may be made: dims_to_cut() without rings or work classes if
  // the question switches these mechanisms off.
  std::vector<std::string> dims_offered() const;
  // Returns lists that every search tries, whether or not trials find them: those of the baseline
  // (megatron_grid()), and for small models all lists of one or two dims.
  std::vector<DimList> lists_to_add() const;
  // Numbers into which the devices are divided; inner: devices of the axes inside a stage.
  struct Shape {
    int64_t stages, replicas, inner;
    friend auto operator<=>(const Shape&, const Shape&) = default;
  };
  // Returns all ways to divide the devices. `rings`: whether lists have rings. Axes with rings may
  // be larger than most_inner() if needs_rings().
  std::vector<Shape> shapes(bool rings) const;
  // Returns the most devices that axes inside a stage may have together; axes with rings may have
  // more if needs_rings().
  int64_t most_inner() const;
  bool needs_rings() const;
  // A way to cut a stage, with the sequences of a micro-batch of one replica.
  struct Inside {
    std::vector<ChoiceAxis> axes;
    int64_t sequences = 1;
    std::vector<const UnitPrices*> by_kind;  // prices on each kind of nodes
  };
  // Returns the ways to cut a stage with so many devices inside: each one is a list of axes
  // with dims.
  std::vector<std::vector<ChoiceAxis>> axes_inside(int64_t inner, const Space& space) const;
  // Returns the ways of axes_inside() with prices, for each number of sequences of a micro-batch
  // that is worth ranking. Numbers of sequences rise until more sequences save no time. Leaves out
  // ways that another way with as many sequences beats clearly in time, and does not exceed in
  // memory. `is_least`: whether `recompute` is the least level that the question allows.
  const std::vector<Inside>& priced(int64_t inner, const Space& space, const std::string& recompute,
                                    bool is_least);
  // Stores the time of both passes of a micro-batch if no op is cut. The bounds below use it.
  void note_uncut(int64_t sequences, double seconds);
  // Returns whether a choice with so many devices inside a stage and so many sequences in a
  // micro-batch could be nearly as fast as the best choice that fits. The bound is computed from
  // the prices of uncut units, because cuts save no work.
  bool may_win(int64_t inner, int64_t sequences) const;
  // Returns whether a choice with even more sequences in a micro-batch could win, given the times
  // of the passes with `fewer` and with `more` sequences. It assumes that each further sequence
  // takes at least as long as each of the last (more - fewer) sequences did.
  bool may_win_with_more(int64_t inner, int64_t fewer, double fewer_s, int64_t more,
                         double more_s) const;
  // Returns whether the sums of gradients would cost time: whether replicas of the whole model fit
  // and would need more than a share (kCostlySums) of the backward pass for the sums. Larger
  // micro-batches then save time, because their longer backward pass hides more of the sums.
  bool sums_slow_passes(int64_t inner, const UnitPrices& prices) const;
  // Returns whether the merit is better than that of the best choice that surely fits. True if no
  // choice surely fits.
  bool is_best(const Merit& merit) const { return !best_ || merit < *best_; }
  // Returns whether a choice that takes at least step_s on so many devices could be better than the
  // best one, although formulas err, if it needed no memory.
  bool may_be_best(double step_s, int64_t devices) const;
  // Returns may_be_best() of a choice on any number of devices, of which all are always at work.
  // device_s: the seconds that one device would need.
  bool may_be_best_on_some(double device_s) const;
  // Returns whether some choice with these axes and sequences and with less recomputation would be
  // better than the best one if it needed no memory. Only then can more recomputation win, because
  // it makes choices smaller and never faster.
  bool may_win_smaller(const std::vector<ChoiceAxis>& axes, int64_t sequences) const;
  static std::string axes_key(const std::vector<ChoiceAxis>& axes, int64_t sequences);
  // Returns the seconds that one device would need at least for a step if micro-batches of so many
  // sequences take passes_s on `inner` devices.
  double least_work_s(double passes_s, int64_t inner, int64_t sequences) const;
  // Returns the merit of a choice as if it needed no memory.
  Merit at_no_memory(const PlanCandidate& candidate) const;
  Choice choice_of(const Shape& shape, const Inside& inside, const std::string& recompute) const;
  // Adds the choices of one shape. `is_least`: whether `recompute` is the least level that the
  // question allows.
  void rank_shape(const Shape& shape, const Space& space, const std::string& recompute,
                  bool is_least, std::vector<PlanCandidate>& out);
  // Returns the schedules of the space that the question allows. A fixed schedule need not be one
  // of the space's. All numbers of chunks in kChunks are then returned, and those are dropped later
  // with which the schedule cannot be made.
  std::vector<SpaceSchedule> schedules_of(const Space& space) const;
  void rank_schedules(Choice choice, const Space& space, const Inside& inside,
                      std::vector<PlanCandidate>& out);
  // Adds a candidate for each value of Choice::sharded and of Choice::replicas_apart. If the choice
  // `is_hopeless`, replicas are not apart, and candidates are kept only if no ranked choice beats
  // them in both merit and memory.
  void rank_shards(Choice choice, const Inside& inside, bool is_hopeless,
                   std::vector<PlanCandidate>& out);
  bool is_beaten(const PlanCandidate& candidate) const;
  void note(const PlanCandidate& candidate);
  void note_best(const PlanCandidate& candidate);
  // Adds the choice with every other way to cut the units into its stages.
  void rank_borders(const Choice& choice, std::vector<PlanCandidate>& out);
  // Returns the prices on each kind of nodes; none if the units cannot be priced on one of them.
  std::vector<const UnitPrices*> price_kinds(UnitQuestion question);

  // Edits the list of dims of the best choices of the best shapes, as long as edits make these
  // choices faster. Adds the lists that it finds to the space, and ranks them in all shapes.
  void improve_lists(Space& space, const std::vector<std::string>& levels,
                     std::vector<PlanCandidate>& out);
  std::optional<DimList> improved_list(const PlanCandidate& start, const Space& space,
                                       const std::vector<std::string>& levels);
  // Returns the list with entries for parts of a block (scoped_dims.h) if these save time, else
  // `improved`. It begins with `improved`, the result of improved_list(), or the choice's own list
  // if that is nothing. Choices that are clearly slower than the fastest one are not tried.
  std::optional<DimList> with_scopes(const PlanCandidate& start, std::optional<DimList> improved,
                                     const Space& space);
  std::vector<PlanCandidate> best_of_shapes(const std::vector<PlanCandidate>& ranked) const;
  // Adds the choices of all shapes. `improves_early`: whether to call improve_lists() after the
  // first level of recomputation, so that further levels are ranked for the better lists, too.
  void rank_shapes(Space& space, const std::vector<std::string>& levels,
                   std::vector<PlanCandidate>& out, bool improves_early);

  // Adds candidates for choices that recompute nothing, would be fast enough, and do not fit. Their
  // cuts give fewer units to places with more micro-batches in flight, and single units are
  // recomputed (partition.h).
  void recompute_units(const Space& space, std::vector<PlanCandidate>& out);
  std::optional<PlanCandidate> with_own_recomputation(const std::vector<Choice>& levels);
  // Adds edits of the best candidates that have halos, in which the halos are treated
  // otherwise (halo_choices.h).
  void rank_halos(std::vector<PlanCandidate>& out);

  const PlanQuestion& question_;
  const Fold& fold_;
  bool is_small_;  // small models leave no choice out because a formula says that it is slower
  std::vector<int64_t> counts_;  // Fold::counts
  // The numbers of devices that are tried, each with the least number of replicas with which it is.
  std::map<int64_t, int64_t> device_counts_;
  UnitPricer& pricer_;
  Estimator estimator_;
  // Cache of priced(), by devices inside a stage, recomputation, and axes.
  std::map<std::string, std::vector<Inside>> priced_;
  // Seconds of both passes of a micro-batch if no op is cut and nothing is recomputed, by its
  // number of sequences. Empty if there are several kinds of nodes.
  std::map<int64_t, double> uncut_s_;
  // The best at_no_memory() of the ranked choices, by axes_key(), then by shape.
  std::map<std::string, std::map<Shape, std::optional<Merit>>> at_no_memory_;
  // Axes whose edits were tried, or that resulted from them: size and cuts_of().
  std::set<std::string> edited_;
  bool plays_ = false;
  // Whether kernels are so small that neither fewer sequences nor cuts save time, and memory
  // suffices for all sequences.
  bool cuts_save_nothing_ = false;
  double limit_;               // of a device's memory; 0: none
  HaloChoice halos_;           // what the question fixes
  std::optional<Merit> best_;  // of the choices that surely fit by formula
  // The ranked choices that no other one beats in both merit and memory: their merits, by memory.
  std::map<double, Merit> unbeaten_;
  int64_t left_out_ = 0;
  std::string refusal_;
};

}  // namespace tessera
