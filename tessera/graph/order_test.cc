#include "tessera/graph/order.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>

#include "tessera/graph/builder.h"

namespace tessera {
namespace {

Order order(const std::string& text) {
  const auto parsed = parse_order(text);
  EXPECT_TRUE(parsed.has_value()) << text;
  return parsed.value_or(Order{});
}

std::vector<int64_t> positions(const std::string& text, int64_t size, Interval interval) {
  std::vector<int64_t> out;
  for (const OpRun& run : runs_of(order(text), size, interval)) {
    EXPECT_EQ(run.index, interval.begin + static_cast<int64_t>(out.size()));
    for (int64_t i = 0; i < run.size; ++i) out.push_back(run.first + i * run.stride);
  }
  return out;
}

TEST(Order, GivesThePositionsInTheOrderOfTheirIndices) {
  using Positions = std::vector<int64_t>;
  EXPECT_EQ(positions("", 4, {1, 2}), (Positions{1, 2}));
  EXPECT_EQ(positions("zigzag:4", 8, {0, 8}), (Positions{0, 1, 6, 7, 2, 3, 4, 5}));
  EXPECT_EQ(positions("zigzag:4", 8, {1, 4}), (Positions{1, 6, 7, 2}));
  EXPECT_EQ(positions("striped:3", 8, {0, 8}), (Positions{0, 3, 6, 1, 4, 7, 2, 5}));
  EXPECT_EQ(positions("striped:3", 8, {2, 3}), (Positions{6, 1, 4}));
}

TEST(Order, IsAPermutationForAnySize) {
  for (const std::string text : {"", "zigzag:2", "zigzag:6", "striped:1", "striped:5"}) {
    for (int64_t size = 0; size < 20; ++size) {
      std::vector<int64_t> found = positions(text, size, {0, size});
      std::sort(found.begin(), found.end());
      std::vector<int64_t> all(static_cast<size_t>(size));
      std::iota(all.begin(), all.end(), 0);
      EXPECT_EQ(found, all) << text << " " << size;
    }
  }
}

// The positions of an interval are those of the whole dim at its indices.
TEST(Order, IntervalsArePiecesOfTheWhole) {
  for (const std::string text :
       {"", "zigzag:2", "zigzag:6", "zigzag:8", "striped:1", "striped:5"}) {
    for (int64_t size = 1; size < 20; ++size) {
      const std::vector<int64_t> all = positions(text, size, {0, size});
      for (int64_t begin = 0; begin < size; ++begin) {
        for (int64_t count = 0; begin + count <= size; ++count) {
          const auto from = all.begin() + begin;
          EXPECT_EQ(positions(text, size, {begin, count}), std::vector<int64_t>(from, from + count))
              << text << " " << size << " " << begin << " " << count;
        }
      }
    }
  }
}

TEST(Order, ErrorsSayWhatIsAllowed) {
  for (const std::string text : {"zigzag", "zigzag:3", "zigzag:0", "spiral:4", "striped:x"}) {
    const auto parsed = parse_order(text);
    ASSERT_FALSE(parsed.has_value());
    EXPECT_EQ(parsed.error().message,
              "expected an order 'zigzag:P' with an even P or 'striped:P', found '" + text + "'");
  }
}

// ---- points that attention does not leave out
struct Form {
  int64_t queries = 1, keys = 1, causal = 0, window = 0;
  std::string order;
};

Op attention(const Form& form) {
  GraphBuilder g("attention");
  const Dim batch{"batch", 1}, heads{"heads", 1}, group{"group", 1}, features{"head_dim", 1};
  const Dim queries{"seq", form.queries}, keys{"seq", form.keys};
  const TensorId q = g.input("q", {batch, queries, heads, group, features}, DType::kFloat32);
  const TensorId k = g.input("k", {batch, keys, heads, features}, DType::kFloat32);
  const TensorId v = g.input("v", {batch, keys, heads, features}, DType::kFloat32);
  g.op("core", "attention", {q, k, v},
       {{"causal", form.causal}, {"window", form.window}, {"order", form.order}});
  EXPECT_TRUE(g.ok()) << g.finish().error().message;
  return g.ok() ? g.graph().ops().back() : Op{};
}

// Counts each pair of a query and a key of the box, by the definition of what attention sees.
double counted(const Form& form, Interval queries, Interval keys) {
  const std::vector<int64_t> of_query = positions(form.order, form.queries, queries),
                             of_key = positions(form.order, form.keys, keys);
  double points = 0;
  for (const int64_t q : of_query) {
    for (const int64_t k : of_key) {
      // If there are more keys than queries, the queries have the last positions.
      const int64_t apart = q + form.keys - form.queries - k;
      if (form.causal == 1 && apart < 0) continue;
      if (form.window > 0 && std::abs(apart) >= form.window) continue;
      points += form.causal == 1 && apart == 0 ? 0.5 : 1;
    }
  }
  return points;
}

void expect_counted(const Form& form) {
  const Op op = attention(form);
  ASSERT_FALSE(op.annotation.dims.empty());
  Box box;
  for (const OpDim& dim : op.annotation.dims) box.dims.push_back({0, dim.size});
  const auto query = static_cast<size_t>(op.annotation.find("seq")),
             key = static_cast<size_t>(op.annotation.find("kv"));
  for (const Interval queries :
       {Interval{0, form.queries}, Interval{1, form.queries - 2}, Interval{form.queries / 2, 1}}) {
    for (const Interval keys : {Interval{0, form.keys}, Interval{0, 3}, Interval{2, form.keys - 3},
                                Interval{form.keys - 1, 1}}) {
      box.dims[query] = queries;
      box.dims[key] = keys;
      EXPECT_DOUBLE_EQ(visible_points(op, box), counted(form, queries, keys))
          << "causal=" << form.causal << " window=" << form.window << " order=" << form.order
          << " queries " << queries.begin << "+" << queries.size << " of " << form.queries
          << ", keys " << keys.begin << "+" << keys.size << " of " << form.keys;
    }
  }
}

TEST(VisiblePoints, AreThoseThatAWindowAndACausalMaskLeave) {
  for (const int64_t causal : {0, 1}) {
    for (int64_t window = 0; window <= 9; ++window) {
      expect_counted({7, 7, causal, window, ""});
      expect_counted({4, 7, causal, window, ""});
      expect_counted({8, 8, causal, window, "zigzag:4"});
      expect_counted({7, 7, causal, window, "zigzag:2"});
      expect_counted({7, 7, causal, window, "striped:3"});
      expect_counted({8, 8, causal, window, "striped:2"});
    }
  }
}

}  // namespace
}  // namespace tessera
