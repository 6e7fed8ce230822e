// Samples of clicks: the training data of recommenders. A sample has a label (0 or 1), `dense`
// numbers, and for each feature a bag of ids, which name rows of the feature's table. Bags may be
// empty.
//
//   TESSERA_TRY(const ClickFile file, ClickFile::open("train.clicks"));
//   ClickBatch batch;
//   file.read(click_samples(step, 1024, file.samples(), seed), batch);
//   const std::vector<int64_t> ids = padded(batch.bags[3], file.schema().features[3].bag);
//
// The ids of a feature and batch have two forms.
//   jagged  lengths[batch] and ids[sum of lengths], bag behind bag
//   padded  ids[batch, capacity], bags at the front of their rows and -1 behind them, as the op kind
//           `embedding_bag` takes them; beside them the same lengths
//
// The file (docs/reference/clicks-format.md) is mapped into memory. open() compares all of it with
// its head: lengths add up and stay within the feature's bag, ids are rows of their tables, labels
// are 0 or 1, dense numbers are finite. So reading cannot fail, and the statements of a damaged
// file decide no allocation. Errors are one line that names file, feature and sample.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/data/mapped_file.h"

namespace tessera {

struct ClickFeature {
  std::string name;  // at most 63 bytes
  int64_t rows = 0;  // of its table, below 2^32
  int64_t bag = 1;   // most ids of a sample, below 2^16
  friend bool operator==(const ClickFeature&, const ClickFeature&) = default;
};

struct ClickSchema {
  int64_t dense = 0;
  std::vector<ClickFeature> features;
  int64_t rows() const;  // rows of all tables together
  friend bool operator==(const ClickSchema&, const ClickSchema&) = default;
};
// Checks that names are distinct and not empty, and sizes in range. Errors lack the file.
Status check_schema(const ClickSchema& schema);

struct Bags {
  std::vector<int32_t> lengths;  // by sample
  std::vector<int64_t> ids;      // bag behind bag
  friend bool operator==(const Bags&, const Bags&) = default;
};
// Returns ids[samples, capacity], with -1 behind each bag. No bag is longer than `capacity`.
std::vector<int64_t> padded(const Bags& bags, int64_t capacity);

struct ClickBatch {
  std::vector<float> labels;  // [samples]
  std::vector<float> dense;   // [samples, dense]
  std::vector<Bags> bags;     // by feature
  int64_t samples() const { return std::ssize(labels); }
  friend bool operator==(const ClickBatch&, const ClickBatch&) = default;
};

class ClickFile {
 public:
  static Result<ClickFile> open(const std::string& path);

  const ClickSchema& schema() const { return schema_; }
  int64_t samples() const { return samples_; }
  int64_t bytes() const { return file_.size(); }
  int64_t ids(size_t feature) const { return ids_[feature]; }  // of all samples
  int64_t clicks() const { return clicks_; }                   // samples with label 1

  float label(int64_t sample) const;
  std::span<const float> dense(int64_t sample) const;
  std::span<const uint32_t> bag(size_t feature, int64_t sample) const;
  // Reads the samples of these numbers. Thread-safe, as all of this class.
  void read(std::span<const int64_t> samples, ClickBatch& batch) const;

 private:
  struct Block;
  Status read_head();
  Status find_blocks();
  Status check_block(int64_t block);
  Block block(int64_t number) const;
  tl::unexpected<Error> error(const std::string& message) const;

  std::string path_;
  MappedFile file_;
  ClickSchema schema_;
  int64_t samples_ = 0, clicks_ = 0;
  std::vector<int64_t> blocks_;  // begin of each block, and the end of the file
  std::vector<int64_t> ids_;     // by feature
};

// Writes a file sample by sample, keeping up to 256 samples in memory. The file gets its name, and
// is complete, when close() returns; until then, or without close(), no file of that name exists.
class ClickWriter {
 public:
  // Makes a writer. Errors: a schema that cannot be, a file that cannot be made.
  static Result<ClickWriter> create(const std::string& path, const ClickSchema& schema);
  ~ClickWriter();
  ClickWriter(ClickWriter&&) noexcept;
  ClickWriter& operator=(ClickWriter&&) noexcept;

  // Adds a sample. Errors: those of open() about the sample; faults of the disk.
  Status add(bool clicked, std::span<const float> dense,
             std::span<const std::vector<uint32_t>> bags);
  Status close();
  int64_t samples() const;

 private:
  struct State;
  explicit ClickWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tessera
