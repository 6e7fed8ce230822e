// Sources made of other sources: some of their arrays under other names, several as one, and arrays
// that are boxes of others.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/state/source.h"

namespace tessera {

// Some arrays of a source under other names.
class Renamed : public TensorSource {
 public:
  explicit Renamed(std::shared_ptr<const TensorSource> from) : from_(std::move(from)) {}
  void add(std::string name, const SourceArray& array);
  std::string where() const override { return from_->where(); }
  const std::vector<SourceArray>& arrays() const override { return arrays_; }
  const SourceArray* find(std::string_view name) const override;
  Status read(const SourceArray& array, const Box& region, DType dtype,
              std::byte* out) const override;
  int64_t bytes_read() const override { return from_->bytes_read(); }

 private:
  std::shared_ptr<const TensorSource> from_;
  std::vector<SourceArray> arrays_;
  std::vector<SourceArray> originals_;
  std::map<std::string, size_t, std::less<>> by_name_;
};

// Returns the arrays of a source whose names begin and end so, under the names between, but for
// `not_these`.
std::unique_ptr<Renamed> part_of(const std::shared_ptr<const TensorSource>& source,
                                 const std::string& begin, const std::string& end,
                                 const std::set<std::string>& not_these);

// Several sources as one. Their names must differ.
class Joined : public TensorSource {
 public:
  // Adds the arrays of a source; `prefix` is put before their names.
  void add(std::shared_ptr<TensorSource> source, const std::string& prefix);
  std::string where() const override { return sources_.front()->where(); }
  const std::vector<SourceArray>& arrays() const override { return arrays_; }
  const SourceArray* find(std::string_view name) const override;
  Status read(const SourceArray& array, const Box& region, DType dtype,
              std::byte* out) const override;
  int64_t bytes_read() const override { return sources_.front()->bytes_read(); }

 private:
  std::vector<std::unique_ptr<TensorSource>> sources_;
  std::vector<SourceArray> arrays_;
  std::map<std::string, std::pair<size_t, size_t>, std::less<>> by_name_;
};

// Arrays that are boxes of another source's arrays, whose dims are split.
class Sliced : public TensorSource {
 public:
  explicit Sliced(std::shared_ptr<const TensorSource> from) : from_(std::move(from)) {}
  // `shape` is that of the new array; it has as many elements as the box, in the same order.
  void add(std::string name, std::vector<int64_t> shape, SourceArray split, Box box);
  std::string where() const override { return from_->where(); }
  const std::vector<SourceArray>& arrays() const override { return arrays_; }
  const SourceArray* find(std::string_view name) const override;
  Status read(const SourceArray& array, const Box& region, DType dtype,
              std::byte* out) const override;
  int64_t bytes_read() const override { return from_->bytes_read(); }

 private:
  struct Slice {
    SourceArray split;
    Box box;
  };
  std::shared_ptr<const TensorSource> from_;
  std::vector<SourceArray> arrays_;
  std::vector<Slice> slices_;
  std::map<std::string, size_t, std::less<>> by_name_;
};

// Arrays of which a source has every tile as one row: an array [X, Y] that is divided into equal
// tiles [x, y] is stored there as [X / x, Y / y, x * y].
class Untiled : public TensorSource {
 public:
  explicit Untiled(std::shared_ptr<const TensorSource> from) : from_(std::move(from)) {}
  // Adds an array of this shape. Returns whether the stored array can be divided so.
  bool add(const SourceArray& stored, std::vector<int64_t> shape);
  std::string where() const override { return from_->where(); }
  const std::vector<SourceArray>& arrays() const override { return arrays_; }
  const SourceArray* find(std::string_view name) const override;
  Status read(const SourceArray& array, const Box& region, DType dtype,
              std::byte* out) const override;
  int64_t bytes_read() const override { return from_->bytes_read(); }

 private:
  Status read_region(size_t array, const Box& region, DType dtype, std::byte* out) const;
  std::shared_ptr<const TensorSource> from_;
  std::vector<SourceArray> arrays_;
  std::vector<SourceArray> stored_;          // with the dims of a tile instead of its elements
  std::vector<std::vector<int64_t>> tiles_;  // the shape of one
  std::map<std::string, size_t, std::less<>> by_name_;
};

}  // namespace tessera
