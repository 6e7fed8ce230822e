// Oracle: elements one by one.
#include "tessera/state/box_runs.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace tessera {
namespace {

// Returns the index, in a row-major array of `box`, of the element at a place of the whole.
int64_t index_in(const Box& box, const std::vector<int64_t>& place) {
  int64_t index = 0;
  for (size_t d = 0; d < box.rank(); ++d)
    index = index * box.dims[d].size + place[d] - box.dims[d].begin;
  return index;
}

std::vector<std::vector<int64_t>> places_of(const Box& box) {
  std::vector<std::vector<int64_t>> places;
  std::vector<int64_t> at;
  for (const Interval& one : box.dims) at.push_back(one.begin);
  for (int64_t left = box.volume(); left > 0; --left) {
    places.push_back(at);
    for (size_t d = at.size(); d-- > 0 && ++at[d] == box.dims[d].end();) at[d] = box.dims[d].begin;
  }
  return places;
}

class Boxes {
 public:
  // Returns a random box inside `in`; it often takes all of a dim.
  Box inside(const Box& in) {
    Box box = in;
    for (Interval& one : box.dims) {
      if (random_() % 2 == 0 || one.size == 0) continue;
      const auto begin = static_cast<int64_t>(random_() % static_cast<uint64_t>(one.size));
      one.size = 1 + static_cast<int64_t>(random_() % static_cast<uint64_t>(one.size - begin));
      one.begin += begin;
    }
    return box;
  }

 private:
  std::mt19937_64 random_{11};
};

TEST(BoxRuns, TheyAreTheElementsOfBothArraysInOrder) {
  Boxes boxes;
  for (int i = 0; i < 500; ++i) {
    const Box whole =
        Box::whole(i % 7 == 0 ? std::vector<int64_t>{} : std::vector<int64_t>{4, 3, 5});
    const Box a = boxes.inside(whole), b = boxes.inside(whole), common = intersect(a, b);
    if (common.rank() > 0 && common.empty()) {
      EXPECT_EQ(BoxRuns(common, a, b).count(), 0);
      continue;
    }
    const BoxRuns runs(common, a, b);
    const auto places = places_of(common);
    ASSERT_EQ(runs.count() * runs.length(), static_cast<int64_t>(places.size()));
    for (int64_t k = 0; k < runs.count(); ++k) {
      for (int64_t e = 0; e < runs.length(); ++e) {
        const auto& place = places[static_cast<size_t>(k * runs.length() + e)];
        ASSERT_EQ(runs.at(k).in_a + e, index_in(a, place)) << common.to_string();
        ASSERT_EQ(runs.at(k).in_b + e, index_in(b, place)) << common.to_string();
      }
    }
  }
}

TEST(BoxRuns, AnyStretchOfWhatIsCutOut) {
  Boxes boxes;
  std::mt19937_64 random(13);
  for (int i = 0; i < 500; ++i) {
    const Box from = boxes.inside(Box::whole({4, 3, 5})), box = boxes.inside(from);
    std::vector<int16_t> values(static_cast<size_t>(from.volume())), expected;
    for (size_t k = 0; k < values.size(); ++k) values[k] = static_cast<int16_t>(k * 257 + 3);
    for (const auto& place : places_of(box))
      expected.push_back(values[static_cast<size_t>(index_in(from, place))]);
    const auto bytes = static_cast<int64_t>(expected.size() * 2);
    const auto begin = static_cast<int64_t>(random() % static_cast<uint64_t>(bytes));
    const auto count = static_cast<int64_t>(random() % static_cast<uint64_t>(bytes - begin + 1));
    std::vector<std::byte> found(static_cast<size_t>(count));
    copy_cut_out(2, reinterpret_cast<const std::byte*>(values.data()), from, box, begin, count,
                 found.data());
    EXPECT_EQ(std::memcmp(found.data(), reinterpret_cast<const std::byte*>(expected.data()) + begin,
                          found.size()),
              0)
        << from.to_string() << box.to_string() << " " << begin << " " << count;
  }
}

}  // namespace
}  // namespace tessera
