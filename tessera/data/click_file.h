// Samples of clicks: the training data of recommenders. A sample has a label (0 or 1), `dense`
// numbers, and for each feature a bag of ids, which name rows of the feature's table. Bags may be
// empty.
//
//   TESSERA_TRY(const ClickFile file, ClickFile::open("train.clicks"));
//   ClickBatch batch;
//   file.read(click_samples(step, 1024, file.samples(), seed), batch);
//   const std::vector<int64_t> ids = padded(batch.bags[3], file.schema().features[3].bag);
//
// The ids of one feature for a batch have two forms:
//   jagged  lengths[batch] and ids[sum of lengths]: the bags one after the other, without padding
//   padded  ids[batch, capacity]: each row has the ids of one bag and then -1 up to its end, as the
//           op kind `embedding_bag` takes them; the lengths are those of the jagged form
//
// The file (docs/reference/clicks-format.md) is mapped into memory. open() compares its whole
// contents with its head: lengths add up and stay within the feature's bag, ids are rows of their
// tables, labels are 0 or 1, dense numbers are finite. So reading cannot fail later, and no memory
// is allocated for a size that a damaged file states. Errors are one line that names file, feature
// and sample.
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
  int64_t rows = 0;  // rows of the feature's table, below 2^32
  int64_t bag = 1;   // the most ids that a sample has, below 2^16
  friend bool operator==(const ClickFeature&, const ClickFeature&) = default;
};

struct ClickSchema {
  int64_t dense = 0;
  std::vector<ClickFeature> features;
  int64_t rows() const;  // rows of all tables together
  friend bool operator==(const ClickSchema&, const ClickSchema&) = default;
};
// Checks that the names are distinct and not empty and that the sizes are in range. The errors do
// not name a file.
Status check_schema(const ClickSchema& schema);

struct Bags {
  std::vector<int32_t> lengths;  // by sample
  std::vector<int64_t> ids;      // the bags one after the other
  friend bool operator==(const Bags&, const Bags&) = default;
};
// Returns ids[samples, capacity]: each row has the ids of one bag and then -1 up to its end. No bag
// may be longer than `capacity`.
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
  int64_t ids(size_t feature) const { return ids_[feature]; }  // ids of all samples together
  int64_t clicks() const { return clicks_; }                   // number of samples with label 1

  float label(int64_t sample) const;
  std::span<const float> dense(int64_t sample) const;
  std::span<const uint32_t> bag(size_t feature, int64_t sample) const;
  // Reads the samples with these numbers. All functions of this class are thread-safe.
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
  std::vector<int64_t> blocks_;  // where each block of the file begins, and the file's size
  std::vector<int64_t> ids_;     // number of ids, by feature
};

// Writes a file sample by sample and keeps up to 256 samples in memory. The file gets its name when
// close() returns, and is complete then. Before that, or if close() is never called, no file of
// this name exists.
class ClickWriter {
 public:
  // Makes a writer. Errors: an invalid schema (check_schema); the file cannot be made.
  static Result<ClickWriter> create(const std::string& path, const ClickSchema& schema);
  ~ClickWriter();
  ClickWriter(ClickWriter&&) noexcept;
  ClickWriter& operator=(ClickWriter&&) noexcept;

  // Adds a sample. Errors: the sample breaks a rule that open() checks; faults of the disk.
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
