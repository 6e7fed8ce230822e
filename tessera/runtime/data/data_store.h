// The data store: reads the samples of arrays from files once, keeps them in the memory of the
// ranks, and sends a sample to another rank if that rank needs the sample for a step. Internal to
// the runtime.
//
//   TESSERA_TRY(auto store, DataStore::create(*source, graph, program, world, limit));   // reads
//   for each step:
//     store->begin(step, more);      // its samples are here; those of the next one are on their way
//     store->load(step, tensor, region, to)
//
// Who keeps what: the plan cuts each sample into pieces, one for each rank or for several ranks.
// The pieces are the cells of a grid; where pieces overlap (halos), the border of the cells is in
// the middle of the overlap. The k ranks that have the same piece divide the samples among them:
// rank i of the k keeps the cell of the samples n with n mod k = i. So every number is kept once,
// and a rank reads 1 / ranks of the files. In a plan that cuts samples in space, data moves only
// between ranks with the same piece, except for halos. Ranks that load nothing (those of later
// stages) keep nothing. After a change of the plan each sample stays at its owner.
//
// Under any plan the store loads the same values as the source loads from files. The samples of a
// step are a function of seed and step (arrays.h). So each rank knows what to send to which rank,
// and no rank has to ask for data. Each pair of ranks exchanges at most one message a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/program/program.h"
#include "tessera/runtime/data/data.h"

namespace tessera {

// A box of a sample, in the dims that a sample has in the input.
struct SamplePiece {
  int64_t sample = 0;
  Box box;
};

// A source of samples that are read by their numbers.
class SampleAccess {
 public:
  virtual ~SampleAccess() = default;
  virtual std::vector<std::string> inputs() const = 0;         // inputs of the model that are read
                                                               // from samples
  virtual Box sample_box(const std::string& input) const = 0;  // box of a whole sample
  virtual int64_t samples_of(const std::string& input) const = 0;
  virtual int64_t bytes_of_number(const std::string& input) const = 0;
  // Returns the number of the input's dims that come before the dims of a sample.
  virtual size_t leading_dims(const std::string& input) const = 0;
  // Returns the pieces that load() reads for the region, in the order in which it reads them; no
  // piece is empty.
  virtual std::vector<SamplePiece> pieces(int64_t step, const Tensor& tensor,
                                          const Box& region) const = 0;
  // Reads the numbers of the piece in the type that they have in the file: row-major, packed.
  virtual Status read_piece(const std::string& input, const SamplePiece& piece,
                            std::byte* to) const = 0;
  // Loads the region as load() does, but takes the numbers from memory in place of the file.
  // `numbers(i)` returns those of piece i of pieces().
  virtual Status load_pieces(int64_t step, const Tensor& tensor, const Box& region,
                             const kernels::Array& to,
                             const std::function<const std::byte*(size_t)>& numbers) const = 0;
};

class DataStore {
 public:
  // Reads the samples that this rank keeps. All ranks call this function together and get the same
  // error: a rank would keep more than `limit` bytes, or a file cannot be read. `graph` and
  // `program` are those of this rank; they must live until follow() replaces them or the store
  // ends. `source` and `world` outlive the store.
  static Result<std::unique_ptr<DataStore>> create(const DataSource& source, const Graph& graph,
                                                   const Program& program,
                                                   comm::Communicator& world, int64_t limit);
  ~DataStore();
  // Replaces the program whose regions are loaded. All ranks call this function together.
  void follow(const Graph& graph, const Program& program);
  // Waits for the samples of the step. With `more`, begins to send the samples of the next step.
  void begin(int64_t step, bool more);
  // Loads the region of an input in the step that began. Errors: those of DataSource::load.
  Status load(int64_t step, const Tensor& tensor, const Box& region,
              const kernels::Array& to) const;
  int64_t bytes_kept() const;   // bytes that this rank keeps, which are all that it has read
  int64_t bytes_moved() const;  // bytes that this rank has sent

 private:
  struct Impl;
  explicit DataStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
