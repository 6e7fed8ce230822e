#include "tessera/base/small_vector.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tessera/base/shared.h"
#include "tessera/base/shared_list.h"

namespace tessera {
namespace {

using Short = SmallVector<std::string, 2>;

std::vector<std::string> list(const Short& from) { return {from.begin(), from.end()}; }

// Whatever is done to both lists, the small vector holds what the vector holds, inside and beyond.
TEST(SmallVector, DoesWhatAVectorDoes) {
  std::mt19937 random(1);
  const auto below = [&](size_t n) { return random() % n; };
  Short mine;
  std::vector<std::string> expected;
  for (int i = 0; i < 2000; ++i) {
    const std::string word =
        "a word that is longer than a string keeps inside " + std::to_string(i);
    const auto at = static_cast<std::ptrdiff_t>(below(expected.size() + 1));
    switch (below(8)) {
      case 0:
        mine.push_back(word);
        expected.push_back(word);
        break;
      case 1:
        mine.insert(mine.begin() + at, word);
        expected.insert(expected.begin() + at, word);
        break;
      case 2: {
        const std::vector<std::string> more{word, "x", word};
        mine.insert(mine.begin() + at, more.begin(), more.end());
        expected.insert(expected.begin() + at, more.begin(), more.end());
        break;
      }
      case 3:
        mine.erase(mine.begin() + at, mine.end());
        expected.erase(expected.begin() + at, expected.end());
        break;
      case 4:
        if (expected.empty()) break;
        mine.push_back(mine.front());  // an element of its own
        expected.push_back(expected.front());
        break;
      case 5: {
        const size_t size = below(6);
        mine.resize(size, word);
        expected.resize(size, word);
        break;
      }
      case 6: {
        Short copy = mine, other{word};
        other = copy;
        mine = std::move(copy);
        EXPECT_EQ(other, mine);
        break;
      }
      default: erase_value(mine, std::string("x")); std::erase(expected, "x");
    }
    ASSERT_EQ(list(mine), expected) << "after " << i;
  }
}

TEST(SmallVector, OrderIsThatOfItsElements) {
  using Numbers = SmallVector<int, 2>;
  EXPECT_LT((Numbers{1, 2}), (Numbers{1, 2, 3}));
  EXPECT_LT((Numbers{1, 2, 3}), (Numbers{1, 3}));
  EXPECT_NE((Numbers{1}), (Numbers{1, 1}));
  EXPECT_EQ(Numbers(3, 7), (Numbers{7, 7, 7}));
}

TEST(Shared, AWriteLeavesTheOthersAsTheyWere) {
  Shared<std::string> a(std::string("one")), b = a;
  EXPECT_EQ(a, b);
  b.own() += " more";
  EXPECT_EQ(*a, "one");
  EXPECT_EQ(*b, "one more");
  EXPECT_FALSE(a == b);
  EXPECT_FALSE(Shared<std::string>());
  EXPECT_FALSE(Shared<std::string>() == Shared<std::string>(std::string()));
}

TEST(SharedList, AWriteLeavesTheOthersAsTheyWere) {
  SharedList<int> a{1, 2}, b = a;
  b.set(0, 9);
  EXPECT_EQ(a.list(), (std::vector<int>{1, 2}));
  EXPECT_EQ(b.list(), (std::vector<int>{9, 2}));
  EXPECT_EQ(SharedList<int>(), SharedList<int>(std::vector<int>()));
}

}  // namespace
}  // namespace tessera
