// Products of graphs that are cut over ranks, on threads, against the product of one rank.
#include "tessera/runtime/graph_halo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tessera/base/philox.h"
#include "tessera/comm/threads.h"
#include "tessera/sparse/graphs/generate.h"
#include "tessera/sparse/graphs/read.h"
#include "tessera/test/source_dir.h"

namespace tessera::sparse {
namespace {

using ::testing::ElementsAre;

constexpr Sampler kSamplers[] = {Sampler::kNone, Sampler::kBucket, Sampler::kStride,
                                 Sampler::kQuadratic, Sampler::kPermutation};

// What one run of all ranks gives: rows of y and of dx, and the bytes and messages that each rank sent.
template <class T>
struct Outcome {
  std::vector<T> y, dx;
  std::vector<comm::Traffic> fetched, returned;
};
template <class T>
Outcome<T> run(const CsrGraph& graph, const RowCuts& cuts, const SpmmOptions& options,
               const std::vector<T>& x, const std::vector<T>& dy, int64_t features) {
  const std::vector<GraphPart> parts = cut_graph(graph, cuts, options.sampling);
  Outcome<T> out;
  out.y.resize(dy.size());
  out.dx.resize(x.size());
  out.fetched.resize(parts.size());
  out.returned.resize(parts.size());
  const Status status =
      comm::run_threads(static_cast<int>(parts.size()), {}, [&](comm::Communicator& comm) {
        const GraphPart& part = parts[comm.rank()];
        const std::vector<T> values(part.graph.values.begin(), part.graph.values.end());
        const auto matrix = [&](std::vector<T>& data) {
          return Matrix<T>{data.data(), static_cast<int64_t>(data.size()) / features, features,
                           features};
        };
        const auto constant = [&](const T* data, int64_t rows) {
          return Matrix<const T>{data, rows, features, features};
        };
        const int64_t own = part.own_nodes() * features;
        const int64_t first = part.first_row * features;
        std::vector<T> local(part.local_nodes() * features, T(-1e30)), y(own), dlocal(local.size());
        std::copy_n(x.data() + first, own, local.data());
        fetch_halo(comm, part, matrix(local));
        out.fetched[part.rank] = comm.counters().point_to_point;
        comm.reset_counters();
        EXPECT_TRUE(spmm(part.view<T>(values), options, constant(local.data(), part.local_nodes()),
                         matrix(y)));
        EXPECT_TRUE(spmm_grad_x(part.view<T>(values), options,
                                constant(dy.data() + first, part.own_nodes()), matrix(dlocal)));
        return_halo(comm, part, matrix(dlocal));
        out.returned[part.rank] = comm.counters().point_to_point;
        std::copy_n(y.data(), own, out.y.data() + first);
        std::copy_n(dlocal.data(), own, out.dx.data() + first);
      });
  EXPECT_TRUE(status) << status.error().message;
  for (const GraphPart& part : parts) {
    const size_t r = part.rank;
    int64_t receivers = 0, owners = 0;
    for (const auto& list : part.sends) receivers += list.empty() ? 0 : 1;
    for (size_t owner = 0; owner < parts.size(); ++owner)
      owners += part.halo_begin[owner + 1] > part.halo_begin[owner] ? 1 : 0;
    EXPECT_EQ(out.fetched[r], (comm::Traffic{halo_bytes(part, features, sizeof(T)), receivers}));
    EXPECT_EQ(out.returned[r], (comm::Traffic{returned_bytes(part, features, sizeof(T)), owners}));
  }
  return out;
}

template <class T>
std::vector<T> filled(int64_t size, uint64_t stream, bool whole_numbers) {
  std::vector<T> out(size);
  const Philox random{8, stream};
  for (int64_t i = 0; i < size; ++i) {
    const double value = random.normal(i);
    out[i] = static_cast<T>(whole_numbers ? std::round(4 * value) : value);
  }
  return out;
}

template <class T>
void compare_with_serial(bool whole_numbers) {
  constexpr int64_t kNodes = 157, kFeatures = 5;
  CsrGraph graph = power_law_graph({.nodes = kNodes, .edges = 1500, .seed = 6}).value();
  for (const T value : filled<T>(graph.edges(), 1, whole_numbers))
    graph.values.push_back(static_cast<float>(value));
  const std::vector<T> x = filled<T>(kNodes * kFeatures, 2, whole_numbers);
  const std::vector<T> dy = filled<T>(kNodes * kFeatures, 3, whole_numbers);
  const std::vector<T> values(graph.values.begin(), graph.values.end());
  for (const Sampler sampler : kSamplers) {
    for (const Reduce reduce : {Reduce::kSum, Reduce::kMean}) {
      if (whole_numbers && reduce == Reduce::kMean) continue;
      const SpmmOptions options{reduce, {sampler, sampler == Sampler::kNone ? 0 : 4, 7}, 0, false};
      std::vector<T> y(x.size()), dx(x.size());
      const auto in = [](const std::vector<T>& data) {
        return Matrix<const T>{data.data(), kNodes, kFeatures, kFeatures};
      };
      ASSERT_TRUE(spmm(view_of<T>(graph, values), options, in(x),
                       {y.data(), kNodes, kFeatures, kFeatures}));
      ASSERT_TRUE(spmm_grad_x(view_of<T>(graph, values), options, in(dy),
                              {dx.data(), kNodes, kFeatures, kFeatures}));
      for (const int64_t ranks : {1, 2, 3, 4, 6}) {
        for (const RowCuts& cuts :
             {cut_by_rows(kNodes, ranks), cut_by_work(graph, options.sampling, ranks)}) {
          const Outcome<T> found = run(graph, cuts, options, x, dy, kFeatures);
          EXPECT_EQ(found.y, y) << sampler_name(sampler) << ranks;
          if (whole_numbers) {
            EXPECT_EQ(found.dx, dx) << sampler_name(sampler) << ranks;
          } else {
            for (size_t i = 0; i < dx.size(); ++i)
              ASSERT_NEAR(found.dx[i], dx[i], 1e-12 * (1 + std::abs(dx[i])));
          }
        }
      }
    }
  }
}

TEST(PartitionedSpmm, rows_are_the_serial_ones_bit_for_bit_and_gradients_up_to_rounding) {
  compare_with_serial<double>(false);
}
TEST(PartitionedSpmm, gradients_of_whole_numbers_are_the_serial_ones_bit_for_bit) {
  compare_with_serial<double>(true);
  compare_with_serial<float>(true);
}

TEST(PartitionedSpmm, ranks_without_rows_take_part) {
  const CsrGraph graph = csr_from_edges(2, 2, {{0, 1}, {1, 0}}).value();
  const std::vector<double> x = {3, 5};
  const Outcome<double> found = run<double>(graph, cut_by_rows(2, 4), {}, x, x, 1);
  EXPECT_THAT(found.y, ElementsAre(5, 3));
  EXPECT_THAT(found.dx, ElementsAre(5, 3));
}

}  // namespace
}  // namespace tessera::sparse
