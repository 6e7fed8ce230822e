// The data of a run: a DataSource gives the programs of the ranks the regions of the graph's inputs
// that they load. An element depends only on the seed, the step and its place in the batch. So
// every plan trains on the same data, a rank reads only what it needs, and the position in the data
// needs no state: a run that goes on at step s reads what it would have read.
//
//   TESSERA_TRY(const auto data, open_data(config.data, {model, seed, "data", beside}));
//   TESSERA_TRY_VOID(data->load(step, tensor, region, to));
//
// There are five sources: tokens of files (data/corpus.h), arrays of samples (arrays.h), files of
// clicks (clicks.h), the nodes of a graph (nodes.h) and random numbers (inputs.h). A further one
// implements load().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/base/result.h"
#include "tessera/data/data_config.h"
#include "tessera/models/model.h"
#include "tessera/runtime/kernels.h"

namespace tessera {

class SampleAccess;  // data_store.h
class SamplePasses;  // sample_passes.h

class DataSource {
 public:
  virtual ~DataSource() = default;
  // Loads the region of a graph input in a step, counted from 1; `to` has the region's shape and
  // the tensor's dtype. Thread-safe. Errors: data that does not fit the model, found while it is
  // read.
  virtual Status load(int64_t step, const Tensor& tensor, const Box& region,
                      const kernels::Array& to) const = 0;
  virtual int64_t files() const = 0;             // 0: none are read
  virtual int64_t bytes() const = 0;             // bytes of these files
  virtual int64_t samples() const { return 0; }  // of arrays, each once; 0: there is no such number
  // Returns how the steps visit samples so that each counts once (DataWants::once); null: they do
  // not.
  virtual const SamplePasses* passes() const { return nullptr; }
  // Returns the bytes that load() takes from files for the region (bytes_read(): has taken so far).
  // 0: not counted, as for text, whose windows overlap.
  virtual int64_t bytes_of(int64_t /*step*/, const Tensor& /*tensor*/,
                           const Box& /*region*/) const {
    return 0;
  }
  virtual int64_t bytes_read() const { return 0; }
  // Returns access to single samples, for a store that keeps them; null if this source has none.
  virtual const SampleAccess* samples_one_by_one() const { return nullptr; }
};

struct DataWants {
  const Model* model = nullptr;  // outlives the source
  int64_t seed = 1;
  std::string stream = "data";  // sources with different streams draw independently
  std::string beside = "";      // a folder: relative files may lie there too
  bool in_order = false;  // arrays: sample i of the batches is sample i of the file, none is drawn
  // For arrays and clicks: the steps visit so many samples of arrays (0: all), each once
  // (sample_passes.h), and do not begin anew. None: one pass follows another.
  std::optional<int64_t> once = std::nullopt;
};
// Returns an error of one line that begins with "data: ". All errors of open_data are such.
tl::unexpected<Error> data_error(std::string_view message);
Result<std::unique_ptr<DataSource>> open_data(const DataConfig& config, const DataWants& wants);

}  // namespace tessera
