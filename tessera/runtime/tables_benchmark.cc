// Compares tables that are looked up and updated by rows with PyTorch's EmbeddingBag with a sparse
// gradient and its sparse Adagrad (written in the ATen calls of torch.optim.Adagrad), on one
// thread. The two run in turn on tables of their own; times are the thread's on a processor, the
// least of the runs.
//
//   build/modules/runtime/tessera_runtime_benchmark --benchmark_filter=tables
//
// Counters: forward_ratio, update_ratio and step_ratio are PyTorch's time over ours (2 = twice as
// fast): the look-up, backward pass with Adagrad, and both.
#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tessera/base/check.h"
#include "tessera/graph/builder.h"
#include "tessera/runtime/kernels.h"
#include "tessera/runtime/kernels/tensor.h"

namespace tessera::kernels {
namespace {

struct Size {
  const char* name;
  int64_t rows, width, batch, bag;
  bool zipf;
};
constexpr Size kSizes[] = {
    {"1M_x_64_zipf", 1'000'000, 64, 2048, 20, true},
    {"1M_x_64_uniform", 1'000'000, 64, 2048, 20, false},
    {"1M_x_128_one_id", 1'000'000, 128, 8192, 1, true},
    {"10k_x_16_zipf", 10'000, 16, 8192, 10, true},
};
constexpr double kRate = 1e-2, kEps = 1e-10;

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Draws ids by Zipf's law with exponent 1.05, by the inverse of its continuous form.
std::vector<int64_t> ids_of(const Size& size) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> uniform;
  std::vector<int64_t> ids(static_cast<size_t>(size.batch * size.bag));
  const double most = std::pow(static_cast<double>(size.rows), -0.05);
  for (int64_t& id : ids) {
    const double u = uniform(random);
    const double rank = size.zipf ? std::pow(1 - u * (1 - most), -1 / 0.05) - 1
                                  : u * static_cast<double>(size.rows);
    // Ranks lie anywhere in the table.
    const auto at = std::clamp<int64_t>(static_cast<int64_t>(rank), 0, size.rows - 1);
    id = at * 7'919 % size.rows;
  }
  return ids;
}

struct Ours {
  explicit Ours(const Size& size) {
    const Dim rows{"rows", size.rows}, width{"width", size.width}, batch{"batch", size.batch},
        bag{"bag", size.bag};
    GraphBuilder g("tables");
    constexpr DType kFloat = DType::kFloat32;
    const TensorId table_id = g.input("table", {rows, width}, kFloat);
    const TensorId sum_id = g.input("sum", {rows, width}, kFloat);
    const TensorId ids_id = g.input("ids", {batch, bag}, DType::kInt64);
    const TensorId dy_id = g.input("dy", {batch, width}, kFloat);
    const TensorId lr_id = g.input("lr", {}, kFloat);
    const TensorId y_id = g.op1("forward", "embedding_bag", {ids_id, table_id});
    g.op("update", "row_adagrad", {table_id, sum_id, ids_id, dy_id, lr_id},
         {{"modes", std::string("sum")}, {"eps", kEps}});
    auto built = g.finish();
    TESSERA_CHECK(built.has_value(), "{}", built ? "" : built.error().message);
    graph = *built;
    const auto make = [&](TensorId id) {
      const Tensor& tensor = graph.tensor(id);
      return at::zeros(tensor.shape(), at::TensorOptions(scalar_type(tensor.dtype)));
    };
    table = make(table_id).uniform_(-1, 1);
    sum = make(sum_id).fill_(0.1);
    ids = make(ids_id);
    const std::vector<int64_t> values = ids_of(size);
    std::copy(values.begin(), values.end(), ids.data_ptr<int64_t>());
    dy = make(dy_id).uniform_(-1, 1);
    lr = make(lr_id).fill_(kRate);
    y = make(y_id);
    forward = prepare(0, {&ids, &table}, {&y});
    update = prepare(1, {&table, &sum, &ids, &dy, &lr}, {&table, &sum});
  }

  Kernel prepare(size_t op, const std::vector<at::Tensor*>& in,
                 const std::vector<at::Tensor*>& out) {
    KernelCall call{&graph.ops()[op], {}, {}, {}, {}, &context};
    for (const OpDim& dim : call.op->annotation.dims) call.box.dims.push_back({0, dim.size});
    const auto array = [](const at::Tensor& tensor, DType dtype) {
      return Array::contiguous(static_cast<std::byte*>(tensor.data_ptr()), dtype,
                               tensor.sizes().vec());
    };
    for (size_t i = 0; i < in.size(); ++i)
      call.inputs.push_back(array(*in[i], graph.tensor(call.op->inputs[i]).dtype));
    for (size_t i = 0; i < out.size(); ++i) {
      call.outputs.push_back(array(*out[i], graph.tensor(call.op->outputs[i]).dtype));
      call.add.push_back(false);
    }
    return prepare_kernel(call);
  }

  Graph graph;
  KernelContext context;
  at::Tensor table, sum, ids, dy, lr, y;
  Kernel forward, update;
};

struct Theirs {
  Theirs(const Size& size, const Ours& ours)
      : rows(size.rows),
        table(ours.table.clone()),
        sum(ours.sum.clone()),
        ids(ours.ids.reshape({-1}).clone()),
        offsets(at::arange(0, size.batch * size.bag, size.bag, at::kLong)),
        dy(ours.dy.clone()) {}

  void forward() {
    std::tie(y, offset2bag, bag_size, maximum) =
        at::_embedding_bag(table, ids, offsets, false, 0, true);
  }
  // Runs the backward pass of EmbeddingBag(sparse=True), then a step of torch.optim.Adagrad on a
  // sparse gradient.
  void update() {
    const at::Tensor gradient = at::_embedding_bag_backward(dy, ids, offsets, offset2bag, bag_size,
                                                            maximum, rows, false, 0, true, {})
                                    .coalesce();
    const at::Tensor indices = gradient.indices(), values = gradient.values();
    const auto sparse = [&](const at::Tensor& of) {
      return at::sparse_coo_tensor(indices, of, gradient.sizes());
    };
    sum.add_(sparse(values.pow(2)));
    const at::Tensor root = sum.sparse_mask(gradient).values().sqrt_().add_(kEps);
    table.add_(sparse(values / root), -kRate);
  }

  int64_t rows;
  at::Tensor table, sum, ids, offsets, dy, y, offset2bag, bag_size, maximum;
};

void compare(benchmark::State& state, const Size& size) {
  const ThreadScope scope(1);
  Ours ours(size);
  Theirs theirs(size, ours);
  constexpr double kNever = std::numeric_limits<double>::infinity();
  double forward = kNever, update = kNever, their_forward = kNever, their_update = kNever;
  const auto least = [](double& best, const auto& f) {
    const double begin = thread_seconds();
    f();
    best = std::min(best, thread_seconds() - begin);
  };
  for ([[maybe_unused]] auto _ : state) {
    least(forward, ours.forward);
    least(their_forward, [&] { theirs.forward(); });
    least(update, ours.update);
    least(their_update, [&] { theirs.update(); });
    state.SetIterationTime(forward + update);
  }
  // Both do equal work: the tables agree after as many steps.
  const double apart = (ours.table - theirs.table).abs().max().item<double>();
  if (apart > 1e-3) state.SkipWithError(("tables differ by " + std::to_string(apart)).c_str());
  state.counters["forward_us"] = forward * 1e6;
  state.counters["update_us"] = update * 1e6;
  state.counters["forward_ratio"] = their_forward / forward;
  state.counters["update_ratio"] = their_update / update;
  state.counters["step_ratio"] = (their_forward + their_update) / (forward + update);
}

[[maybe_unused]] const bool registered = [] {
  for (const Size& size : kSizes) {
    benchmark::RegisterBenchmark(("tables/" + std::string(size.name)).c_str(),
                                 [&size](benchmark::State& state) { compare(state, size); })
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond)
        ->MinTime(2);
  }
  return true;
}();

}  // namespace
}  // namespace tessera::kernels
