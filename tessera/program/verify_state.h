// The state of a rank's buffers while the verifier interprets its program: contents, memory that is
// alive, and memory that communication in flight reads or writes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/program/verify_prepare.h"

namespace tessera::verifying {

// A failed check, without its position in the program. An empty rule means no failure.
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

// An `Instance` is one copy of a buffer: kMicroBatch buffers have one for each slot.
struct Instance {
  std::vector<Piece> content;
  std::vector<InFlight> in_flight;
  bool alive = false;
  bool freed = false;
};

class RankState {
 public:
  RankState(const Graph& graph, const PreparedProgram& prepared);

  // Fills the homes with their tensors.
  Failure begin_step();
  void begin_block() { touched_.clear(); }
  Failure end_block();  // ends buffers of lifetime kBlock

  // Checks that `view` holds `region` of `tensor`; appends its pieces, relative to the view, to
  // `out` if given. `named`: the reader reads only the rows that these rows of it name; null: all
  // rows.
  Failure read(const View& view, int64_t micro_batch, TensorId tensor, const Box& region,
               bool complete, std::vector<Piece>* out, const RowsThere* named = nullptr);
  // Replaces the content of the view by pieces, which are relative to the view. `alias`: an input
  // that this may overwrite.
  Failure write(const View& view, int64_t micro_batch, const std::vector<Piece>& pieces,
                const View* alias);
  // Merges pieces, relative to the view, into the content of the view, which must be the same
  // region of the tensor.
  Failure add(const View& view, int64_t micro_batch, const std::vector<Piece>& pieces,
              Combiner combiner = Combiner::kSum);
  Failure free(BufferId buffer, int64_t micro_batch);
  Failure free_slots(BufferId buffer);  // in all slots

  // Begins a communication that uses the view. `adds`: the communication adds to the present
  // content.
  Failure start(const View& view, int64_t micro_batch, bool writes, size_t communication,
                int handle, bool adds = false);
  // Ends what `start` began; puts the pieces into a view that is written.
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
