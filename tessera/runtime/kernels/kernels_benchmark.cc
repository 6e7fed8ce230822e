// Compares each hand-written kernel with libtorch's own op, on one thread, at the sizes of the
// models of benchmarks/run_peers.py (large: 2,048 tokens of 384; small: 1,024 tokens of 128). The
// two run in turn. The time reported is ours for one call, the least of the runs; counter
// `libtorch_us` is libtorch's, and `ratio` is ours / libtorch's. Times are the thread's on a
// processor, so that other programs on the machine disturb little.
//
//   build/modules/runtime/tessera_runtime_benchmark --benchmark_filter=gelu
//
// If libtorch lacks such an op, the row names the ops that replace it. Kernels that are calls of
// libtorch (products, copies, most element-wise ops, convolutions, pools) have no row.
#include <ATen/TensorOperators.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/native_dropout.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/nll_loss_backward.h>
#include <ATen/ops/nll_loss_forward.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/zeros.h>
#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tessera/base/check.h"
#include "tessera/graph/builder.h"
#include "tessera/runtime/kernels.h"
#include "tessera/runtime/kernels/tensor.h"

namespace tessera::kernels {
namespace {

using Tensors = std::vector<at::Tensor>;
using Theirs = std::function<void(Tensors& in, Tensors& out)>;  // libtorch's, on the same inputs

struct Size {
  const char* name;
  int64_t batch, seq, hidden, heads, vocab;
  int64_t tokens() const { return batch * seq; }
};
constexpr Size kSizes[] = {{"large", 8, 256, 384, 8, 256}, {"small", 8, 128, 128, 4, 256}};

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// A graph of one op with its memory. `out` on libtorch's side is memory of its own.
struct OneOp {
  using Inputs = std::function<std::vector<TensorId>(GraphBuilder&)>;
  // Makes it. `same` lists the inputs in whose memory the outputs lie; if empty, outputs have their
  // own.
  OneOp(const char* kind, const Attributes& attributes, const Inputs& inputs,
        const std::vector<size_t>& same) {
    GraphBuilder g("one");
    const std::vector<TensorId> ids = inputs(g);
    const std::vector<TensorId> outputs = g.op("op", kind, ids, attributes);
    auto built = g.finish();
    TESSERA_CHECK(built.has_value(), "{}", built ? "" : built.error().message);
    graph = *built;
    KernelCall call{&graph.ops()[0], {}, {}, {}, {}, &context};
    for (const OpDim& dim : call.op->annotation.dims) call.box.dims.push_back({0, dim.size});
    for (const TensorId id : ids) call.inputs.push_back(place(graph.tensor(id), in));
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Tensor& tensor = graph.tensor(outputs[i]);
      call.outputs.push_back(same.empty() ? place(tensor, mine) : call.inputs[same[i]]);
      place(tensor, out);
      call.add.push_back(false);
    }
    ours = prepare_kernel(call);
  }

  Array place(const Tensor& tensor, Tensors& list) {
    list.push_back(at::zeros(tensor.shape(), at::TensorOptions(scalar_type(tensor.dtype))));
    at::Tensor& made = list.back();
    if (tensor.dtype == DType::kInt64) {
      for (int64_t i = 0; i < made.numel(); ++i) made.data_ptr<int64_t>()[i] = i * 7919 % 251;
    } else {
      made.uniform_(tensor.name == "v" ? 0 : -1, 1);
    }
    return Array::contiguous(static_cast<std::byte*>(made.data_ptr()), tensor.dtype,
                             tensor.shape());
  }

  Graph graph;
  KernelContext context;
  Tensors in, mine, out;
  Kernel ours;
};

void compare(benchmark::State& state, OneOp& one, const Theirs& theirs) {
  const ThreadScope scope(1);
  double least = std::numeric_limits<double>::infinity(), least_theirs = least;
  const auto spent = [](const auto& f) {
    const double begin = thread_seconds();
    f();
    return thread_seconds() - begin;
  };
  for ([[maybe_unused]] auto _ : state) {
    const double mine = spent(one.ours);
    least = std::min(least, mine);
    least_theirs = std::min(least_theirs, spent([&] { theirs(one.in, one.out); }));
    state.SetIterationTime(mine);
  }
  state.counters["ours_us"] = least * 1e6;
  state.counters["libtorch_us"] = least_theirs * 1e6;
  state.counters["ratio"] = least / least_theirs;
}

TensorId input(GraphBuilder& g, const char* name, std::vector<Dim> dims,
               DType dtype = DType::kFloat32) {
  return g.input(name, std::move(dims), dtype);
}

struct Row {
  const char* name;
  const char* kind;
  std::function<Attributes(const Size&)> attributes;
  std::function<std::vector<TensorId>(GraphBuilder&, const Size&)> inputs;
  std::function<Theirs(const Size&)> theirs;
  std::vector<size_t> same = {};  // as of OneOp
};

std::vector<Dim> tokens(const Size& s, int64_t width) {
  return {{"b", s.batch}, {"s", s.seq}, {"h", width}};
}
Attributes none(const Size&) { return {}; }
Theirs always(Theirs f) { return f; }

// Returns `count` inputs [tokens, width].
auto equal(size_t count, int64_t Size::*width, int64_t times) {
  return [=](GraphBuilder& g, const Size& s) {
    std::vector<TensorId> ids;
    for (size_t i = 0; i < count; ++i)
      ids.push_back(input(g, ("x" + std::to_string(i)).c_str(), tokens(s, times * (s.*width))));
    return ids;
  };
}

std::vector<TensorId> attention_inputs(GraphBuilder& g, const Size& s, bool backward) {
  const Dim b{"b", s.batch}, t{"s", s.seq}, n{"n", s.heads}, one{"g", 1},
      d{"d", s.hidden / s.heads};
  const std::vector<Dim> wide{b, t, n, one, d}, keys{b, t, n, d};
  std::vector<TensorId> ids{input(g, "q", wide), input(g, "k", keys), input(g, "v", keys)};
  if (!backward) return ids;
  ids.insert(ids.begin(), input(g, "do", wide));
  ids.push_back(input(g, "o", wide));
  ids.push_back(input(g, "lse", {b, t, n, one}));
  return ids;
}

// [b, s, n, (1,) d] -> [b, n, s, d]
at::Tensor heads_first(const at::Tensor& x) {
  return (x.dim() == 5 ? x.select(3, 0) : x).transpose(1, 2);
}

at::Tensor by_token(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

const std::vector<Row>& rows() {
  static const std::vector<Row> all = {
      {"gelu", "gelu", none, equal(1, &Size::hidden, 4),
       [](const Size&) {
         return always([](Tensors& in, Tensors& out) { at::gelu_out(out[0], in[0], "tanh"); });
       }},
      {"gelu_grad", "gelu_grad", none, equal(2, &Size::hidden, 4),
       [](const Size&) {
         return always([](Tensors& in, Tensors& out) {
           at::gelu_backward_out(out[0], in[0], in[1], "tanh");
         });
       }},
      {"silu", "silu", none, equal(1, &Size::hidden, 4),
       [](const Size&) {
         return always([](Tensors& in, Tensors& out) { at::silu_out(out[0], in[0]); });
       }},
      {"silu_grad", "silu_grad", none, equal(2, &Size::hidden, 4),
       [](const Size&) {
         return always(
             [](Tensors& in, Tensors& out) { at::silu_backward_out(out[0], in[0], in[1]); });
       }},
      {"softmax", "softmax",
       [](const Size&) {
         return Attributes{{"dim", std::string("h")}};
       },
       equal(1, &Size::vocab, 1),
       [](const Size&) {
         return always(
             [](Tensors& in, Tensors& out) { at::_softmax_out(out[0], in[0], -1, false); });
       }},
      {"softmax_grad", "softmax_grad",
       [](const Size&) {
         return Attributes{{"dim", std::string("h")}};
       },
       equal(2, &Size::vocab, 1),
       [](const Size&) {
         return always([](Tensors& in, Tensors& out) {
           at::_softmax_backward_data_out(out[0], in[0], in[1], -1, at::kFloat);
         });
       }},
      {"logsumexp_reduce", "logsumexp_reduce",
       [](const Size&) {
         return Attributes{{"dim", std::string("h")}};
       },
       equal(1, &Size::vocab, 1),
       [](const Size&) {
         return always([](Tensors& in, Tensors& out) { at::logsumexp_out(out[0], in[0], {-1}); });
       }},
      {"layer_norm", "layer_norm", none,
       [](GraphBuilder& g, const Size& s) {
         const Dim h{"h", s.hidden};
         return std::vector{input(g, "x", tokens(s, s.hidden)), input(g, "gamma", {h}),
                            input(g, "beta", {h})};
       },
       [](const Size& s) {
         return always([h = s.hidden](Tensors& in, Tensors&) {
           benchmark::DoNotOptimize(at::native_layer_norm(in[0], {h}, in[1], in[2], 1e-5));
         });
       }},
      {"layer_norm_grad", "layer_norm_grad", none,
       [](GraphBuilder& g, const Size& s) {
         const std::vector<Dim> row{{"b", s.batch}, {"s", s.seq}};
         return std::vector{input(g, "dy", tokens(s, s.hidden)), input(g, "x", tokens(s, s.hidden)),
                            input(g, "gamma", {{"h", s.hidden}}), input(g, "mean", row),
                            input(g, "rstd", row)};
       },
       [](const Size& s) {
         return always([h = s.hidden](Tensors& in, Tensors&) {
           benchmark::DoNotOptimize(at::native_layer_norm_backward(
               in[0], in[1], {h}, in[3].unsqueeze(-1), in[4].unsqueeze(-1), in[2], in[2],
               {true, true, true}));
         });
       }},
      {"rms_norm", "rms_norm", none,
       [](GraphBuilder& g, const Size& s) {
         return std::vector{input(g, "x", tokens(s, s.hidden)),
                            input(g, "gamma", {{"h", s.hidden}})};
       },
       [](const Size& s) {
         return always([h = s.hidden](Tensors& in, Tensors&) {
           benchmark::DoNotOptimize(at::rms_norm(in[0], {h}, in[1], 1e-5));
         });
       }},
      {"rotary (beside two products and a concatenation)", "rotary", none,
       [](GraphBuilder& g, const Size& s) {
         const int64_t d = s.hidden / s.heads;
         const std::vector<Dim> table{{"s", s.seq}, {"p", d / 2}};
         return std::vector{input(g, "x", {{"b", s.batch}, {"s", s.seq}, {"n", s.heads}, {"d", d}}),
                            input(g, "cos", table), input(g, "sin", table)};
       },
       [](const Size&) {
         return always([](Tensors& in, Tensors& out) {
           const int64_t half = in[0].size(-1) / 2;
           const at::Tensor a = in[0].narrow(-1, 0, half), b = in[0].narrow(-1, half, half),
                            c = in[1].unsqueeze(1), s = in[2].unsqueeze(1);
           at::cat_out(out[0], {a * c - b * s, b * c + a * s}, -1);
         });
       }},
      {"embedding", "embedding", none,
       [](GraphBuilder& g, const Size& s) {
         return std::vector{input(g, "ids", {{"b", s.batch}, {"s", s.seq}}, DType::kInt64),
                            input(g, "table", {{"v", s.vocab}, {"h", s.hidden}})};
       },
       [](const Size&) {
         return always(
             [](Tensors& in, Tensors&) { benchmark::DoNotOptimize(at::embedding(in[1], in[0])); });
       }},
      {"embedding_grad", "embedding_grad",
       [](const Size& s) {
         return Attributes{{"vocab", s.vocab}, {"vocab_name", std::string("v")}};
       },
       [](GraphBuilder& g, const Size& s) {
         return std::vector{input(g, "ids", {{"b", s.batch}, {"s", s.seq}}, DType::kInt64),
                            input(g, "dy", tokens(s, s.hidden))};
       },
       [](const Size& s) {
         return always([v = s.vocab](Tensors& in, Tensors&) {
           benchmark::DoNotOptimize(at::embedding_dense_backward(in[1], in[0], v, -1, false));
         });
       }},
      {"cross_entropy (beside log_softmax and nll_loss)", "cross_entropy", none,
       [](GraphBuilder& g, const Size& s) {
         return std::vector{input(g, "x", tokens(s, s.vocab)),
                            input(g, "targets", {{"b", s.batch}, {"s", s.seq}}, DType::kInt64)};
       },
       [](const Size&) {
         return always([](Tensors& in, Tensors&) {
           benchmark::DoNotOptimize(at::nll_loss_forward(
               at::_log_softmax(by_token(in[0]), -1, false), in[1].reshape({-1}), {}, 1, -100));
         });
       }},
      {"cross_entropy_grad (beside those of log_softmax and nll_loss)", "cross_entropy_grad", none,
       [](GraphBuilder& g, const Size& s) {
         const std::vector<Dim> row{{"b", s.batch}, {"s", s.seq}};
         return std::vector{input(g, "x", tokens(s, s.vocab)),
                            input(g, "targets", row, DType::kInt64), input(g, "lse", row),
                            input(g, "dlse", row), input(g, "dpicked", row)};
       },
       [](const Size& s) {
         const at::Tensor weight = at::zeros({}).fill_(static_cast<double>(s.tokens())),
                          loss = at::zeros({}).fill_(1);
         return always([=](Tensors& in, Tensors&) {
           const at::Tensor log_p = by_token(in[0]);
           const at::Tensor g =
               at::nll_loss_backward(loss, log_p, in[1].reshape({-1}), {}, 1, -100, weight);
           benchmark::DoNotOptimize(at::_log_softmax_backward_data(g, log_p, -1, at::kFloat));
         });
       }},
      {"dropout", "dropout",
       [](const Size&) {
         return Attributes{{"p", 0.1}, {"key", std::string("k")}};
       },
       equal(1, &Size::hidden, 1),
       [](const Size&) {
         return always([](Tensors& in, Tensors&) {
           benchmark::DoNotOptimize(at::native_dropout(in[0], 0.1, true));
         });
       }},
      {"adamw",
       "adamw",
       [](const Size&) {
         return Attributes{{"weight_decay", 0.1}};
       },
       [](GraphBuilder& g, const Size& s) {
         const std::vector<Dim> w{{"h", s.hidden}, {"f", 4 * s.hidden}};
         return std::vector{input(g, "p", w), input(g, "g", w),   input(g, "m", w),
                            input(g, "v", w), input(g, "lr", {}), input(g, "step", {})};
       },
       [](const Size&) {
         return always([](Tensors& in, Tensors&) {
           in[5].fill_(3);
           at::_fused_adamw_({in[0]}, {in[1]}, {in[2]}, {in[3]}, {}, {in[5]}, 1e-3, 0.9, 0.95, 0.1,
                             1e-8, false, false);
         });
       },
       {0, 2, 3}},
      {"sgd",
       "sgd",
       none,
       [](GraphBuilder& g, const Size& s) {
         const std::vector<Dim> w{{"h", s.hidden}, {"f", 4 * s.hidden}};
         return std::vector{input(g, "p", w), input(g, "g", w), input(g, "b", w),
                            input(g, "lr", {})};
       },
       [](const Size&) {
         return always([](Tensors& in, Tensors&) {
           at::_fused_sgd_({in[0]}, {in[1]}, {in[2]}, 0, 0.9, 1e-3, 0, false, false, false);
         });
       },
       {0, 2}},
      {"sum_squares (beside a dot product)", "sum_squares", none, equal(1, &Size::hidden, 1),
       [](const Size&) {
         return always([](Tensors& in, Tensors& out) {
           const at::Tensor x = in[0].reshape({-1});
           at::dot_out(out[0], x, x);
         });
       }},
      {"attention", "attention",
       [](const Size&) {
         return Attributes{{"causal", int64_t{1}}};
       },
       [](GraphBuilder& g, const Size& s) { return attention_inputs(g, s, false); },
       [](const Size&) {
         return always([](Tensors& in, Tensors&) {
           benchmark::DoNotOptimize(at::_scaled_dot_product_flash_attention_for_cpu(
               heads_first(in[0]), heads_first(in[1]), heads_first(in[2]), 0.0, true));
         });
       }},
      {"attention_grad", "attention_grad",
       [](const Size&) {
         return Attributes{{"causal", int64_t{1}}};
       },
       [](GraphBuilder& g, const Size& s) { return attention_inputs(g, s, true); },
       [](const Size&) {
         return always([](Tensors& in, Tensors&) {
           benchmark::DoNotOptimize(at::_scaled_dot_product_flash_attention_for_cpu_backward(
               heads_first(in[0]), heads_first(in[1]), heads_first(in[2]), heads_first(in[3]),
               heads_first(in[4]), in[5].select(3, 0).transpose(1, 2).contiguous(), 0.0, true));
         });
       }},
      // The product is libtorch's; our part is the bias, copied under it.
      {"linear with bias (beside addmm)", "einsum",
       [](const Size&) {
         return Attributes{{"spec", std::string("b s h+, h f, f -> b s f")}};
       },
       [](GraphBuilder& g, const Size& s) {
         const Dim f{"f", 4 * s.hidden};
         return std::vector{input(g, "x", tokens(s, s.hidden)), input(g, "w", {{"h", s.hidden}, f}),
                            input(g, "bias", {f})};
       },
       [](const Size&) {
         return always([](Tensors& in, Tensors& out) {
           at::Tensor y = out[0].view({-1, out[0].size(-1)});
           at::addmm_out(y, in[2], by_token(in[0]), in[1]);
         });
       }},
  };
  return all;
}

const int registered = [] {
  configure_process();
  for (const Row& row : rows()) {
    for (const Size& size : kSizes) {
      benchmark::RegisterBenchmark((std::string(row.name) + "/" + size.name).c_str(),
                                   [&row, &size](benchmark::State& state) {
                                     const ThreadScope scope(1);
                                     OneOp one(
                                         row.kind, row.attributes(size),
                                         [&](GraphBuilder& g) { return row.inputs(g, size); },
                                         row.same);
                                     compare(state, one, row.theirs(size));
                                   })
          ->UseManualTime()
          ->MinTime(0.2)
          ->Unit(benchmark::kMicrosecond);
    }
  }
  return 0;
}();

}  // namespace
}  // namespace tessera::kernels
