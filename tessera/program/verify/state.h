// The state of a rank's buffers while the verifier interprets the rank's program: what the buffers
// hold, which are alive, and which boxes are read or written by communication in flight.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/program/verify/prepare.h"

namespace tessera::verifying {

// An `InFlight` is a box of a buffer that a communication uses which was issued and not awaited.
struct InFlight {
  size_t communication = 0;
  int handle = 0;
  bool writes = false;
  Box box;
};

// An `Instance` is one copy of a buffer: a kMicroBatch buffer has one for each slot, any other
// buffer has only one.
struct Instance {
  std::vector<Piece> content;
  std::vector<InFlight> in_flight;
  bool alive = false;
  bool freed = false;
};

class RankState {
 public:
  RankState(const Graph& graph, const PreparedProgram& prepared);

  // Makes the buffers of the homes hold their tensors, as they do before a step.
  Failure begin_step();
  void begin_block() { touched_.clear(); }
  Failure end_block();  // ends buffers of lifetime kBlock

  // Checks that `view` holds `region` of `tensor`, as a complete value if `complete` is set.
  // Appends the pieces of the view, relative to the view, to `out` unless it is null. `named`: the
  // reader needs only the rows that these ids name; null: it needs all rows.
  Failure read(const View& view, int64_t micro_batch, TensorId tensor, const Box& region,
               bool complete, std::vector<Piece>* out, const RowsThere* named = nullptr);
  // Replaces the content of the view by pieces, which are relative to the view. `alias`: the view
  // of an input whose memory the output may overwrite; null: none.
  Failure write(const View& view, int64_t micro_batch, const std::vector<Piece>& pieces,
                const View* alias);
  // Merges pieces, relative to the view, into the content of the view, which must be the same
  // region of the tensor.
  Failure add(const View& view, int64_t micro_batch, const std::vector<Piece>& pieces,
              Combiner combiner = Combiner::kSum);
  Failure free(BufferId buffer, int64_t micro_batch);
  Failure free_slots(BufferId buffer);  // frees the buffer in all slots

  // Begins a communication that reads or writes the view. `adds`: it adds to the present content
  // instead of replacing it.
  Failure start(const View& view, int64_t micro_batch, bool writes, size_t communication,
                int handle, bool adds = false);
  // Ends the communication that `start` began. If the communication writes, the view holds the
  // pieces afterwards.
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
  std::vector<size_t> first_;        // by buffer: the instance of slot 0
  std::vector<BufferId> buffer_of_;  // by instance
  std::vector<Instance> instances_;
  std::array<std::map<int64_t, size_t>, 3> arena_;  // alive instances by their first byte
  std::vector<size_t> touched_;                     // kBlock instances written in this run
};

}  // namespace tessera::verifying
