// Collects the changes that make mutations of programs (mutate.h). Each method looks at one place
// of a program and adds the changes of its classes there. Private to mutate.cc and
// mutate_counts.cc.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/mutate.h"

namespace tessera::mutating {

using Programs = std::vector<Program>;
using Change = std::function<void(Programs&)>;

struct Place {
  size_t rank = 0;
  BlockRef block;
  size_t index = 0;
};

struct Candidate {
  std::string description;
  Change change;
};

Instruction& at(Programs& programs, const Place& place);

class Mutator {
 public:
  Mutator(const Graph& graph, const Programs& programs, size_t per_kind);

  std::vector<Mutation> run(const std::set<std::string>& only);

 private:
  const Instruction& get(const Place& place) const {
    return programs_[place.rank].block(place.block)[place.index];
  }
  int64_t runs(size_t rank, BlockRef block) const { return programs_[rank].runs(block); }
  static std::set<BufferId> used_buffers(const Program& program);
  // Returns whether something that the instruction writes is read or stays.
  bool matters(const Place& place) const;
  // `of`: what is changed at the place, if the instruction does not say it.
  void add(const std::string& kind, const Place& place, Change change, const std::string& of = "");
  std::vector<Candidate>& candidates(const std::string& kind);

  void computes(const Place& place);
  void operands(const Place& place);
  void outputs(const Place& place);
  void attributes(const Place& place);
  void transport(const Place& place);
  void messages(const Place& place);
  void coding(const Place& place);
  void collectives(const Place& place);
  void waits(const Place& place);
  void order(const Place& place);
  void memory(const Place& place);
  void names(const Place& place);
  void fetches(const Place& place);
  void releases(const Place& place);
  bool touches_rows(const Place& place) const;
  void factors(const Place& place);
  void addends(const Place& place);
  void sums(const Place& place);
  void reductions(const Place& place);
  void schedules(size_t rank);
  void arenas(size_t rank);
  std::vector<Place> partners(const Place& place) const;
  std::optional<Place> awaited(const Place& issue) const;
  std::vector<Mutation> apply(const std::set<std::string>& only) const;

  const Graph& graph_;
  const Programs& programs_;
  size_t per_kind_;
  std::vector<std::set<BufferId>> used_;  // by rank: the buffers that are read
  std::vector<std::pair<std::string, std::vector<Candidate>>> kinds_;
};

}  // namespace tessera::mutating
