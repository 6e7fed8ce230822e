// The data store: samples of arrays are read from files once, kept in the memory of the ranks, and
// sent between ranks if other ranks need them for a step. Internal to the runtime.
//
//   TESSERA_TRY(auto store, DataStore::create(*source, graph, program, world, limit));   // reads
//   for each step:
//     store->begin(step, more);      // its samples are here; those of the next one are on their way
//     store->load(step, tensor, region, to)
//
// The ranks' pieces of a sample, as the plan gives them, are the cells of a grid; where pieces
// overlap (halos) the border lies in the middle. The ranks that have the same piece share the
// samples of that cell in turn: the i-th of k keeps the samples n with n mod k = i. So every number
// is kept once, a rank reads 1 / ranks of the files, and in a plan that cuts samples in space a
// sample moves only between ranks with the same piece, except for halos. Ranks that load nothing
// (of later stages) keep nothing. After a change of the plan the owners stay the same.
//
// The store loads what the source loads from files under any plan. The samples of a step are a
// function of seed and step (arrays.h), so each rank knows what it sends to which rank, and no rank
// asks. Each pair of ranks exchanges at most one message a step.
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
#include "tessera/runtime/data.h"

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
  virtual std::vector<std::string> inputs() const = 0;         // of the model, that have samples
  virtual Box sample_box(const std::string& input) const = 0;  // a whole sample
  virtual int64_t samples_of(const std::string& input) const = 0;
  virtual int64_t bytes_of_number(const std::string& input) const = 0;
  // Returns the number of the input's dims before those of a sample.
  virtual size_t leading_dims(const std::string& input) const = 0;
  // Returns the pieces that load() reads for the region, in its order; no piece is empty.
  virtual std::vector<SamplePiece> pieces(int64_t step, const Tensor& tensor,
                                          const Box& region) const = 0;
  // Reads the numbers as they are in the file: row-major, packed.
  virtual Status read_piece(const std::string& input, const SamplePiece& piece,
                            std::byte* to) const = 0;
  // Loads as load() does, with numbers from memory in place of the file's: `numbers(i)` for piece
  // i.
  virtual Status load_pieces(int64_t step, const Tensor& tensor, const Box& region,
                             const kernels::Array& to,
                             const std::function<const std::byte*(size_t)>& numbers) const = 0;
};

class DataStore {
 public:
  // Reads what this rank keeps. All ranks call it together, and get the same error: a rank would
  // keep more than `limit` bytes, or a file cannot be read. `graph` and `program` are this rank's
  // and outlive the store or the next call of follow(), as `source` and `world` do.
  static Result<std::unique_ptr<DataStore>> create(const DataSource& source, const Graph& graph,
                                                   const Program& program,
                                                   comm::Communicator& world, int64_t limit);
  ~DataStore();
  // Makes another program the one that loads; all ranks call it together.
  void follow(const Graph& graph, const Program& program);
  // Waits for the samples of the step. With `more`, those of the next step are sent meanwhile.
  void begin(int64_t step, bool more);
  // Loads the region of an input in the step that began. Errors: those of DataSource::load.
  Status load(int64_t step, const Tensor& tensor, const Box& region,
              const kernels::Array& to) const;
  int64_t bytes_kept() const;   // bytes that this rank keeps; it has read as many
  int64_t bytes_moved() const;  // bytes that this rank has sent

 private:
  struct Impl;
  explicit DataStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
