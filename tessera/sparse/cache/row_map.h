// A hash map from row numbers to small values: open addressing, linear probing, at most half full,
// deletion without tombstones. The cache looks up the rows of announced batches a few million times
// a second; with std::unordered_map these look-ups would take most of its time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tessera::sparse {

template <class Value>
class RowMap {
 public:
  static constexpr uint32_t kNoRow = 0xFFFFFFFF;  // marks an empty cell

  size_t size() const { return size_; }
  size_t bytes() const { return cells_.capacity() * sizeof(Cell); }

  Value* find(uint32_t row) {
    return const_cast<Value*>(std::as_const(*this).find(row));  // NOLINT: of this object
  }
  const Value* find(uint32_t row) const {
    if (cells_.empty()) return nullptr;
    for (size_t at = home(row);; at = next(at)) {
      if (cells_[at].row == row) return &cells_[at].value;
      if (cells_[at].row == kNoRow) return nullptr;
    }
  }

  // Returns the value of the row, and true if the row was not in the map before.
  std::pair<Value*, bool> insert(uint32_t row) {
    if (2 * (size_ + 1) > cells_.size()) grow();
    size_t at = home(row);
    while (cells_[at].row != kNoRow && cells_[at].row != row) at = next(at);
    const bool fresh = cells_[at].row == kNoRow;
    if (fresh) {
      cells_[at] = {row, Value{}};
      ++size_;
    }
    return {&cells_[at].value, fresh};
  }

  void erase(uint32_t row) {
    if (cells_.empty()) return;
    size_t hole = home(row);
    while (cells_[hole].row != row) {
      if (cells_[hole].row == kNoRow) return;
      hole = next(hole);
    }
    // Moves later entries of the same run of cells into the hole, if the hole is on their probe
    // path.
    for (size_t at = next(hole); cells_[at].row != kNoRow; at = next(at)) {
      const size_t mask = cells_.size() - 1;
      if (((at - home(cells_[at].row)) & mask) >= ((at - hole) & mask)) {
        cells_[hole] = cells_[at];
        hole = at;
      }
    }
    cells_[hole].row = kNoRow;
    --size_;
  }

 private:
  struct Cell {
    uint32_t row = kNoRow;
    Value value;
  };
  size_t home(uint32_t row) const {
    return static_cast<size_t>((row * 0x9E3779B97F4A7C15ULL) >> shift_);
  }
  size_t next(size_t at) const { return (at + 1) & (cells_.size() - 1); }
  void grow() {
    std::vector<Cell> old = std::exchange(cells_, {});
    cells_.resize(old.empty() ? 64 : 2 * old.size());
    shift_ = 64;
    for (size_t size = cells_.size(); size > 1; size /= 2) --shift_;
    size_ = 0;
    for (const Cell& cell : old) {
      if (cell.row != kNoRow) *insert(cell.row).first = cell.value;
    }
  }

  std::vector<Cell> cells_;
  size_t size_ = 0;
  int shift_ = 64;
};

}  // namespace tessera::sparse
