#include "conversions.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <mutex>

#include "tessera/comm/testing.h"
#include "tessera/plan/layout/test_layout_cases.h"

namespace tessera {
namespace {

using comm::ArrayView;
using comm::Communicator;
using Index = std::vector<int64_t>;

struct Pair {
  const Layout* from = nullptr;
  const Layout* to = nullptr;
  std::vector<ConversionStep> path;
};

// Returns the summand that a rank contributes to an element: an integer, so that any order of
// summation is exact.
int64_t summand(const Index& at, const Layout& layout, const std::vector<int64_t>& coordinates) {
  std::vector<int64_t> words = at;
  for (AxisId axis : layout.partial) words.push_back(coordinates[axis.index()]);
  const auto hash =
      stable_hash(reinterpret_cast<const char*>(words.data()), words.size() * sizeof(int64_t), 3);
  return static_cast<int64_t>(hash % 2001) - 1000;
}

// Returns the value that a rank holds of an element in `layout`, when the tensor's parts are those
// of `origin`: the sum over merged axes.
int64_t content(const Index& at, const Layout& origin, const Layout& layout, const Mesh& mesh,
                const std::vector<int64_t>& coordinates) {
  Axes merged;
  for (AxisId axis : origin.partial) {
    if (std::find(layout.partial.begin(), layout.partial.end(), axis) == layout.partial.end()) {
      merged.push_back(axis);
    }
  }
  int64_t sum = 0;
  for (int member : mesh.group(coordinates, merged)) {
    sum += summand(at, origin, mesh.coordinates(member));
  }
  return sum;
}

struct Array {
  std::vector<double> data;
  Box box;
  explicit Array(Box b) : data(static_cast<size_t>(b.volume())), box(std::move(b)) {}
  ArrayView view() {
    return {reinterpret_cast<std::byte*>(data.data()), box, row_major_strides(box.shape())};
  }
};

Redistribution redistribution(const ConversionCase& test, const Layout& from,
                              const ConversionStep& step, const std::vector<int>& members) {
  Redistribution what;
  what.kind = step.kind;
  what.dtype = DType::kFloat64;
  if (step.kind == CollectiveKind::kAllReduce || step.kind == CollectiveKind::kReduceScatter) {
    what.combiner = from.combiner;
  }
  for (int member : members) {
    const auto at = test.mesh.coordinates(member);
    what.hold.push_back(region_of(from, test.mesh, test.shape, at));
    what.need.push_back(region_of(step.to, test.mesh, test.shape, at));
  }
  return what;
}

// Runs one pair on one rank; returns the first fault, or "".
std::string run(const ConversionCase& test, const Pair& pair, Communicator& comm) {
  const auto mine = test.mesh.coordinates(comm.rank());
  Layout at = *pair.from;
  Array held(region_of(at, test.mesh, test.shape, mine));
  size_t next = 0;
  comm::testing::for_each_index(held.box, [&](const Index& index) {
    held.data[next++] = static_cast<double>(content(index, *pair.from, at, test.mesh, mine));
  });
  std::string error;
  for (const ConversionStep& step : pair.path) {
    Array made(region_of(step.to, test.mesh, test.shape, mine));
    if (step.slice) {
      if (!held.box.contains(made.box) && !made.box.empty()) return "a slice of what is not held";
      comm::copy_region(DType::kFloat64, held.view(), made.view(), made.box);
    } else {
      const std::vector<int> members = test.mesh.group(mine, step.axes);
      const Redistribution what = redistribution(test, at, step, members);
      const auto me = static_cast<size_t>(std::find(members.begin(), members.end(), comm.rank()) -
                                          members.begin());
      comm.counters() = {};
      comm.wait(comm.issue(comm.group(members), {{&what, held.view(), made.view()}},
                           {"op", "x", "axis"}));
      const Traffic counted = comm.counters().collectives[static_cast<size_t>(step.kind)];
      if (!(counted == traffic(what, me)) && error.empty()) {
        error = fmt::format("{}: counted {} bytes in {} messages, traffic() says {} in {}",
                            collective_name(step.kind), counted.bytes, counted.messages,
                            traffic(what, me).bytes, traffic(what, me).messages);
      }
    }
    held = std::move(made);
    at = step.to;
  }
  next = 0;
  comm::testing::for_each_index(held.box, [&](const Index& index) {
    const auto want = static_cast<double>(content(index, *pair.from, at, test.mesh, mine));
    if (held.data[next] != want && error.empty()) {
      error = fmt::format("element {} is {}, not {}", next, held.data[next], want);
    }
    ++next;
  });
  if (held.box != region_of(*pair.to, test.mesh, test.shape, mine)) error = "ends elsewhere";
  return error;
}

}  // namespace

int64_t expect_conversions_are_right(const ConversionCase& test) {
  std::vector<Pair> pairs;
  for (const Layout& from : test.layouts) {
    for (const Layout& to : test.layouts) {
      if (!convertible(from, to)) continue;
      pairs.push_back({&from, &to, conversion_path(from, to, test.mesh, test.shape)});
    }
  }
  std::mutex mutex;
  int failures = 0;
  const auto status =
      comm::run_threads(static_cast<int>(test.mesh.size()), {}, [&](Communicator& comm) {
        for (const Pair& pair : pairs) {
          const std::string error = run(test, pair, comm);
          if (error.empty()) continue;
          const std::lock_guard lock(mutex);
          if (++failures > 5) continue;
          ADD_FAILURE() << fmt::format("rank {}: {} -> {}: {}", comm.rank(),
                                       to_string(*pair.from, test.mesh, {}),
                                       to_string(*pair.to, test.mesh, {}), error);
        }
      });
  EXPECT_TRUE(status.has_value()) << (status ? "" : status.error().message);
  return static_cast<int64_t>(pairs.size());
}

}  // namespace tessera
