// What a rank's buffers hold while the verifier interprets its program: contents, memory that is
// alive, and memory that communication in flight reads or writes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/program/verify_prepare.h"

namespace tessera::verifying {

// A failed check, without its place. An empty rule: no failure.
struct Failure {
  std::string rule;
  TensorId tensor;
  std::string message;
  explicit operator bool() const { return !rule.empty(); }
};

struct InFlight {
  size_t communication = 0;
  int handle = 0;
  bool writes = false;
  Box box;
};

// One copy of a buffer: kMicroBatch buffers have one a slot.
struct Instance {
  std::vector<Piece> content;
  std::vector<InFlight> in_flight;
  bool alive = false;
  bool freed = false;
};

class RankState {
 public:
  RankState(const Graph& graph, const PreparedProgram& prepared);

  // Homes hold their tensors.
  Failure begin_step();
  void begin_block() { touched_.clear(); }
  Failure end_block();  // buffers of lifetime kBlock end here

  // Checks that `view` holds `region` of `tensor`; appends its pieces, relative to the view, to
  // `out` if given. `named`: the reader reads no rows but those that these rows of it name; null: all.
  Failure read(const View& view, int64_t micro_batch, TensorId tensor, const Box& region,
               bool complete, std::vector<Piece>* out, const RowsThere* named = nullptr);
  // Puts pieces, relative to the view, there instead of what it held. `aliases`: inputs that this
  // may overwrite.
  Failure write(const View& view, int64_t micro_batch, const std::vector<Piece>& pieces,
                const View* alias);
  // Merges pieces, relative to the view, into what it holds, which must be the same region of the
  // tensor.
  Failure add(const View& view, int64_t micro_batch, const std::vector<Piece>& pieces,
              Combiner combiner = Combiner::kSum);
  Failure free(BufferId buffer, int64_t micro_batch);
  Failure free_slots(BufferId buffer);  // of all micro-batches

  // `adds`: what it writes is added to what is there.
  Failure start(const View& view, int64_t micro_batch, bool writes, size_t communication,
                int handle, bool adds = false);
  // Ends what `start` began; for a view that is written, puts the pieces there.
  Failure finish(const View& view, int64_t micro_batch, bool writes, size_t communication,
                 const std::vector<Piece>* pieces);

 private:
  size_t instance_of(BufferId buffer, int64_t micro_batch) const;
  Failure make_alive(BufferId buffer, size_t instance, const View* alias, int64_t micro_batch);
  void kill(size_t instance);
  Failure conflict(const Instance& instance, const View& view, bool writes,
                   const std::string& verb) const;
  Failure missing_rows(const Piece& piece, const View& view, const RowsThere* named) const;
  void put(Instance& instance, const View& view, const std::vector<Piece>& pieces);
  int64_t address(size_t instance) const;

  const Graph& graph_;
  const Program& program_;
  bool planned_;
  std::vector<size_t> first_;        // instance of slot 0, by buffer
  std::vector<BufferId> buffer_of_;  // by instance
  std::vector<Instance> instances_;
  std::array<std::map<int64_t, size_t>, 3> arena_;  // alive instances by their first byte
  std::vector<size_t> touched_;                     // kBlock instances written in this run
};

}  // namespace tessera::verifying
