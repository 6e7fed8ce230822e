// The data of a run. A DataSource loads the regions of the graph's inputs that the ranks' programs
// ask for. The value of an element depends only on the seed, the step and the element's place in
// the batch. So every plan trains on the same data, and a rank reads only what it needs. The
// position in the data needs no state: a run that continues at step s reads the same data as a run
// that was never stopped.
//
//   TESSERA_TRY(const auto data, open_data(config.data, {model, seed, "data", beside}));
//   TESSERA_TRY_VOID(data->load(step, tensor, region, to));
//
// There are five sources: tokens of files (data/corpus.h), arrays of samples (arrays.h), files of
// clicks (clicks.h), the nodes of a graph (nodes.h) and random numbers (inputs.h). A new source
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
  // the tensor's dtype. Thread-safe. Errors: data that does not fit the model, if this is found
  // only when the data is read.
  virtual Status load(int64_t step, const Tensor& tensor, const Box& region,
                      const kernels::Array& to) const = 0;
  virtual int64_t files() const = 0;  // number of files; 0: the source reads no files
  virtual int64_t bytes() const = 0;  // bytes of these files
  virtual int64_t samples() const {
    return 0;
  }  // number of samples in arrays; 0: the source has
     // no fixed number of samples
  // Returns how the steps visit the samples so that each counts once (DataWants::once); null: the
  // steps do not visit each sample once.
  virtual const SamplePasses* passes() const { return nullptr; }
  // Returns the bytes that load() reads from files for the region; bytes_read() returns all that it
  // has read so far. 0 if the source does not count bytes, as for text, whose windows overlap.
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
  std::string beside = "";      // a folder in which relative file names are also looked up
  bool in_order = false;  // for arrays: place i of the batches has sample i of the file, without a
                          // random order
  // For arrays and clicks: how many samples the steps visit (0: all), so that each sample counts
  // once (sample_passes.h). The steps end there. Without a value one pass over the samples
  // follows another.
  std::optional<int64_t> once = std::nullopt;
};
// Returns an error of one line that begins with "data: ". All errors of open_data have this form.
tl::unexpected<Error> data_error(std::string_view message);
Result<std::unique_ptr<DataSource>> open_data(const DataConfig& config, const DataWants& wants);

}  // namespace tessera
