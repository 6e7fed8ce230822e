// The tables that an outline (price.h) fills: each value that has a price is in its table once.
// Private to tessera/simulate.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "tessera/simulate/price.h"

namespace tessera {

// Gives numbers to meetings of items (Item::match). Equal keys get equal numbers.
using Key = std::vector<int64_t>;
class Numbers {
 public:
  int32_t operator[](const Key& key) {
    return known_.try_emplace(key, static_cast<int32_t>(known_.size())).first->second;
  }

 private:
  std::map<Key, int32_t> known_;
};

// How many pieces of one tensor a rank of one class sends to another class, and a rank of the other
// class receives. If meshes differ, one side may have fewer pieces, n: the i-th piece of the other
// side then meets its piece (i mod n).
struct Crossing {
  int32_t sends = 0, receives = 0;
};
// Returns the key of a crossing. `smaller`: whether it belongs to the smaller micro-batches, which
// may cross in other pieces.
inline Key crossing_key(int32_t from, int32_t to, TensorId tensor, int64_t tag, bool smaller) {
  return {from, to, tensor.value, tag, smaller ? 1 : 0};
}

// Returns the index of the value in the table. Adds the value if the table does not have it yet.
template <class T>
int32_t entry(std::vector<T>& table, std::map<T, int32_t>& known, const T& value) {
  const auto [it, fresh] = known.try_emplace(value, static_cast<int32_t>(table.size()));
  if (fresh) table.push_back(value);
  return it->second;
}
// Gives numbers to works. Equal works of one part of the cluster get equal numbers.
class Works {
 public:
  explicit Works(std::vector<PricedWork>& table) : table_(table) {}
  int32_t operator()(int64_t part, OpWork work) {
    std::vector<int32_t>& alike =
        known_[{static_cast<double>(part), work.flops, work.bytes_read, work.m, work.n, work.k}];
    for (const int32_t id : alike) {
      const PricedWork& other = table_[static_cast<size_t>(id)];
      if (other.part == part && other.work == work) return id;
    }
    alike.push_back(static_cast<int32_t>(table_.size()));
    table_.push_back({part, std::move(work)});
    return alike.back();
  }

 private:
  std::vector<PricedWork>& table_;
  std::map<std::array<double, 6>, std::vector<int32_t>> known_;
};

}  // namespace tessera
