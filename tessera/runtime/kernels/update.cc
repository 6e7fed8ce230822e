// Optimizer steps, the norm of gradients, and the loss scale. Optimizer steps work element by
// element on equal regions of all operands, so any cut gives the same result.
#include <algorithm>
#include <cmath>
#include <functional>

#include "tessera/runtime/kernels/nest.h"
#include "tessera/runtime/kernels/row_loops/rows.h"

namespace tessera::kernels {
namespace {

// Prepares arrays of equal shape for loops over rows. A row is the last dim; if all arrays are
// contiguous, they become a single row of all elements.
void join_rows(std::vector<Array>& arrays) {
  const bool joined = std::all_of(arrays.begin(), arrays.end(), [](const Array& a) {
    return a.strides == row_major_strides(a.shape);
  });
  for (Array& array : arrays) {
    int64_t n = 1;
    for (const int64_t size : array.shape) n *= size;
    if (joined || array.shape.empty()) {
      array.shape = {n};
      array.strides = {1};
    }
  }
}

Array scalar_of(const KernelCall& call, size_t i) { return call.inputs[i]; }

// Makes the kernel of a skipped step, which copies each old value to its output. Nothing is copied
// if both have the same memory.
Kernel keep_old(const std::vector<std::pair<Array, Array>>& new_and_old) {
  std::vector<Kernel> copies;
  for (const auto& [made, old] : new_and_old) {
    if (made.data != old.data) copies.push_back(prepare_copy(old, made));
  }
  return [copies = std::move(copies)] {
    for (const Kernel& copy : copies) copy();
  };
}

// Returns whether the flag, an optional input, is present and not 0.
bool is_set(const Array& flag) {
  return flag.data != nullptr && load_element<double>(flag.data, flag.dtype) != 0;
}

Array optional_scalar(const KernelCall& call, size_t i) {
  return i < call.inputs.size() ? call.inputs[i] : Array{};
}

// Prepares the kernel with inputs (p, g, m, v, lr, step[, coefficient[, skip]]) and outputs (p',
// m', v').
Kernel adamw(const KernelCall& call) {
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    std::vector<Array> a{call.outputs[0], call.outputs[1], call.outputs[2], call.inputs[0],
                         call.inputs[1],  call.inputs[2],  call.inputs[3]};
    join_rows(a);
    const Nest<7> nest({&a[0], &a[1], &a[2], &a[3], &a[4], &a[5], &a[6]}, a[0].shape.size() - 1);
    const Row<A> p_out(a[0]), m_out(a[1]), v_out(a[2]), p(a[3]), g(a[4]), m(a[5]), v(a[6]);
    const Array lr = scalar_of(call, 4), step = scalar_of(call, 5);
    const Array coefficient = optional_scalar(call, 6), skip = optional_scalar(call, 7);
    const Kernel keep = keep_old({{call.outputs[0], call.inputs[0]},
                                  {call.outputs[1], call.inputs[2]},
                                  {call.outputs[2], call.inputs[3]}});
    const double beta1 = call.op->number("beta1", 0.9), beta2 = call.op->number("beta2", 0.95),
                 eps = call.op->number("eps", 1e-8), decay = call.op->number("weight_decay");
    const RowOps<A>& ops = row_ops<A>();
    return [=, &ops] {
      if (is_set(skip)) return keep();
      const double rate = load_element<double>(lr.data, lr.dtype),
                   t = load_element<double>(step.data, step.dtype);
      const double scale = coefficient.data == nullptr
                               ? 1.0
                               : load_element<double>(coefficient.data, coefficient.dtype);
      const AdamW<A> constants{static_cast<A>(scale),
                               static_cast<A>(beta1),
                               static_cast<A>(beta2),
                               static_cast<A>(1 - beta1),
                               static_cast<A>(1 - beta2),
                               static_cast<A>(1 - rate * decay),
                               static_cast<A>(rate / (1 - std::pow(beta1, t))),
                               static_cast<A>(1 / std::sqrt(1 - std::pow(beta2, t))),
                               static_cast<A>(eps)};
      nest.each([&](const std::array<std::byte*, 7>& at) {
        ops.adamw(p_out.write(at[0]), m_out.write(at[1]), v_out.write(at[2]), p.read(at[3]),
                  g.read(at[4]), m.read(at[5]), v.read(at[6]), constants, p.size());
        p_out.commit(at[0]);
        m_out.commit(at[1]);
        v_out.commit(at[2]);
      });
    };
  });
}

// Makes the kernel of an update that works element by element. The outputs and the first `Ins`
// inputs have equal dims; scalar inputs follow. In each run prepare() reads the scalars and returns
// a function from the values of the inputs to those of the outputs at one element. After the
// `scalars` scalar inputs the call may have a skip flag; if the flag is set, output i becomes input
// old[i] instead.
template <class A, size_t Outs, size_t Ins, class Prepare>
Kernel update_rows(const KernelCall& call, const std::array<size_t, Outs>& old, size_t scalars,
                   Prepare prepare) {
  std::vector<Array> a(call.outputs.begin(), call.outputs.begin() + Outs);
  a.insert(a.end(), call.inputs.begin(), call.inputs.begin() + Ins);
  join_rows(a);
  std::array<const Array*, Outs + Ins> arrays{};
  std::array<Row<A>, Outs + Ins> rows;
  for (size_t i = 0; i < arrays.size(); ++i) {
    arrays[i] = &a[i];
    rows[i] = Row<A>(a[i]);
  }
  const Nest<Outs + Ins> nest(arrays, a[0].shape.size() - 1);
  std::vector<std::pair<Array, Array>> kept;
  for (size_t i = 0; i < Outs; ++i) kept.emplace_back(call.outputs[i], call.inputs[old[i]]);
  const Kernel keep = keep_old(kept);
  const Array skip = optional_scalar(call, Ins + scalars);
  return [=] {
    if (is_set(skip)) return keep();
    const auto f = prepare();
    nest.each([&](const std::array<std::byte*, Outs + Ins>& at) {
      std::array<const A*, Ins> in{};
      std::array<A*, Outs> out{};
      for (size_t k = 0; k < Ins; ++k) in[k] = rows[Outs + k].read(at[Outs + k]);
      for (size_t k = 0; k < Outs; ++k) out[k] = rows[k].write(at[k]);
      for (int64_t i = 0; i < rows[0].size(); ++i) {
        std::array<A, Ins> x{};
        for (size_t k = 0; k < Ins; ++k) x[k] = in[k][i];
        const std::array<A, Outs> y = f(x);
        for (size_t k = 0; k < Outs; ++k) out[k][i] = y[k];
      }
      for (size_t k = 0; k < Outs; ++k) rows[k].commit(at[k]);
    });
  };
}

// Returns a function that reads the scalar input i; it returns `otherwise` if the call lacks
// this input.
template <class A>
std::function<A()> number_of(const KernelCall& call, size_t i, double otherwise = 1) {
  const Array scalar = optional_scalar(call, i);
  return [=] {
    return scalar.data == nullptr ? static_cast<A>(otherwise)
                                  : load_element<A>(scalar.data, scalar.dtype);
  };
}

// Prepares the kernel with inputs (p, g, m, lr[, coefficient[, skip]]) and outputs (p', m').
Kernel lion(const KernelCall& call) {
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    const auto lr = number_of<A>(call, 3), coefficient = number_of<A>(call, 4);
    const A beta1 = static_cast<A>(call.op->number("beta1")),
            beta2 = static_cast<A>(call.op->number("beta2")),
            decay = static_cast<A>(call.op->number("weight_decay")),
            least = static_cast<A>(call.op->number("least"));
    return update_rows<A, 2, 3>(call, {0, 2}, 2, [=] {
      return [=, rate = lr(), scale = coefficient()](const std::array<A, 3>& x) {
        const A p = x[0], g = scale * x[1], m = x[2];
        const A mean = beta1 * m + (1 - beta1) * g;
        const A sign = static_cast<A>((mean > least) - (mean < -least));
        return std::array<A, 2>{p - rate * (sign + decay * p), beta2 * m + (1 - beta2) * g};
      };
    });
  });
}

// Prepares the kernel with inputs (p, g, sum, lr[, coefficient[, skip]]) and outputs (p', sum').
Kernel adagrad(const KernelCall& call) {
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    const auto lr = number_of<A>(call, 3), coefficient = number_of<A>(call, 4);
    const A eps = static_cast<A>(call.op->number("eps")),
            decay = static_cast<A>(call.op->number("weight_decay"));
    return update_rows<A, 2, 3>(call, {0, 2}, 2, [=] {
      return [=, rate = lr(), scale = coefficient()](const std::array<A, 3>& x) {
        const A g = scale * x[1] + decay * x[0], sum = x[2] + g * g;
        return std::array<A, 2>{x[0] - rate * (g / (std::sqrt(sum) + eps)), sum};
      };
    });
  });
}

// Prepares the kernel with inputs (p, g, m, v, step[, coefficient[, skip]]) and outputs (u,
// m', v').
Kernel adam_direction(const KernelCall& call) {
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    const auto step = number_of<A>(call, 4), coefficient = number_of<A>(call, 5);
    const A beta1 = static_cast<A>(call.op->number("beta1")),
            beta2 = static_cast<A>(call.op->number("beta2")),
            eps = static_cast<A>(call.op->number("eps")),
            decay = static_cast<A>(call.op->number("weight_decay"));
    return update_rows<A, 3, 4>(call, {0, 2, 3}, 2, [=] {
      const A t = step(), first = 1 / (1 - std::pow(beta1, t)),
              second = 1 / (1 - std::pow(beta2, t));
      return [=, scale = coefficient()](const std::array<A, 4>& x) {
        const A g = scale * x[1], m = beta1 * x[2] + (1 - beta1) * g,
                v = beta2 * x[3] + (1 - beta2) * g * g;
        const A u = m * first / (std::sqrt(v * second) + eps) + decay * x[0];
        return std::array<A, 3>{u, m, v};
      };
    });
  });
}

// Prepares the kernel with inputs (p, g, momentum[, coefficient[, skip]]) and outputs (u,
// momentum'). Only the dims of p are used.
Kernel momentum_direction(const KernelCall& call) {
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    const auto coefficient = number_of<A>(call, 3);
    const A momentum = static_cast<A>(call.op->number("momentum"));
    const bool nesterov = call.op->number("nesterov") != 0;
    return update_rows<A, 2, 3>(call, {0, 2}, 1, [=] {
      return [=, scale = coefficient()](const std::array<A, 3>& x) {
        const A g = scale * x[1], mean = momentum * x[2] + (1 - momentum) * g;
        return std::array<A, 2>{nesterov ? momentum * mean + (1 - momentum) * g : mean, mean};
      };
    });
  });
}

// Prepares the kernel with inputs (p, g, momentum, lr, ratio[, coefficient[, skip]]) and outputs
// (p', momentum').
Kernel lars(const KernelCall& call) {
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    const auto lr = number_of<A>(call, 3), ratio = number_of<A>(call, 4),
               coefficient = number_of<A>(call, 5);
    const A momentum = static_cast<A>(call.op->number("momentum")),
            decay = static_cast<A>(call.op->number("weight_decay"));
    return update_rows<A, 2, 3>(call, {0, 2}, 3, [=] {
      return [=, rate = lr() * ratio(), scale = coefficient()](const std::array<A, 3>& x) {
        const A v = momentum * x[2] + rate * (scale * x[1] + decay * x[0]);
        return std::array<A, 2>{x[0] - v, v};
      };
    });
  });
}

// Prepares the kernel with inputs (p, u, rate, lr[, skip]) and output p'.
Kernel apply_update(const KernelCall& call) {
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    const auto rate = number_of<A>(call, 2), lr = number_of<A>(call, 3);
    const A decay = static_cast<A>(call.op->number("weight_decay")),
            factor = static_cast<A>(call.op->number("factor"));
    return update_rows<A, 1, 2>(call, {0}, 2, [=] {
      return [=, kept = 1 - lr() * decay, by = factor * rate()](const std::array<A, 2>& x) {
        return std::array<A, 1>{kept * x[0] - by * x[1]};
      };
    });
  });
}

// Prepares the kernel with inputs (v, x, step[, skip]) and two equal outputs v'.
Kernel decayed_mean(const KernelCall& call) {
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    const auto step = number_of<A>(call, 2);
    const A decay = static_cast<A>(call.op->number("decay"));
    return update_rows<A, 2, 2>(call, {0, 0}, 1, [=] {
      return [=, share = std::pow(step(), -decay)](const std::array<A, 2>& x) {
        const A mean = x[0] + share * (x[1] - x[0]);
        return std::array<A, 2>{mean, mean};
      };
    });
  });
}

// Prepares the kernel with inputs (buffer, value) and one output, keep buffer + (1 - keep) (factor
// value + offset).
Kernel carry(const KernelCall& call) {
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    const A keep = static_cast<A>(call.op->number("keep")),
            factor = static_cast<A>(call.op->number("factor")),
            offset = static_cast<A>(call.op->number("offset"));
    return update_rows<A, 1, 2>(call, {0}, 0, [=] {
      return [=](const std::array<A, 2>& x) {
        return std::array<A, 1>{keep * x[0] + (1 - keep) * (factor * x[1] + offset)};
      };
    });
  });
}

// Prepares the kernel with inputs (square of weights, square of gradient[, coefficient]) and one
// output, trust |w| / (|g| + weight_decay |w|), or 1 if |w| or |g| is 0.
Kernel trust_ratio(const KernelCall& call) {
  const auto weights = number_of<double>(call, 0), gradient = number_of<double>(call, 1),
             coefficient = number_of<double>(call, 2);
  const double trust = call.op->number("trust"), decay = call.op->number("weight_decay");
  return [=, out = call.outputs[0]] {
    const double w = std::sqrt(weights()), g = coefficient() * std::sqrt(gradient());
    store_element(out.data, out.dtype, w > 0 && g > 0 ? trust * w / (g + decay * w) : 1.0);
  };
}

// Prepares the kernel with inputs (square of weights, square of direction, lr, step) and one
// output, the factor of the direction.
Kernel adafactor_rate(const KernelCall& call) {
  const auto weights = number_of<double>(call, 0), direction = number_of<double>(call, 1),
             lr = number_of<double>(call, 2), step = number_of<double>(call, 3);
  const auto elements = static_cast<double>(call.op->integer("elements"));
  const double least = call.op->number("least"), clip = call.op->number("clip");
  return [=, out = call.outputs[0]] {
    const double relative = std::min(lr(), 1 / std::sqrt(step()));
    const double scale = std::max(least, std::sqrt(weights() / elements));
    const double over = std::max(1.0, std::sqrt(direction() / elements) / clip);
    store_element(out.data, out.dtype, scale * relative / over);
  };
}

// Prepares sgd with Nesterov momentum: the step uses the gradient plus `momentum` times the new
// momentum buffer.
Kernel sgd_ahead(const KernelCall& call) {
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    const auto lr = number_of<A>(call, 3), coefficient = number_of<A>(call, 4);
    const A momentum = static_cast<A>(call.op->number("momentum")),
            decay = static_cast<A>(call.op->number("weight_decay"));
    return update_rows<A, 2, 3>(call, {0, 2}, 2, [=] {
      return [=, rate = lr(), scale = coefficient()](const std::array<A, 3>& x) {
        const A g = scale * x[1] + decay * x[0], b = momentum * x[2] + g;
        return std::array<A, 2>{x[0] - rate * (g + momentum * b), b};
      };
    });
  });
}

// Prepares the kernel with inputs (p, g, momentum, lr[, coefficient[, skip]]) and outputs
// (p', momentum').
Kernel sgd(const KernelCall& call) {
  if (call.op->number("nesterov") != 0) return sgd_ahead(call);
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    std::vector<Array> a{call.outputs[0], call.outputs[1], call.inputs[0], call.inputs[1],
                         call.inputs[2]};
    join_rows(a);
    const Nest<5> nest({&a[0], &a[1], &a[2], &a[3], &a[4]}, a[0].shape.size() - 1);
    const Row<A> p_out(a[0]), b_out(a[1]), p(a[2]), g(a[3]), b(a[4]);
    const Array lr = scalar_of(call, 3);
    const Array coefficient = optional_scalar(call, 4), skip = optional_scalar(call, 5);
    const Kernel keep =
        keep_old({{call.outputs[0], call.inputs[0]}, {call.outputs[1], call.inputs[2]}});
    const A momentum = static_cast<A>(call.op->number("momentum", 0.9));
    const A decay = static_cast<A>(call.op->number("weight_decay"));
    const RowOps<A>& ops = row_ops<A>();
    return [=, &ops] {
      if (is_set(skip)) return keep();
      const A rate = load_element<A>(lr.data, lr.dtype);
      const A scale =
          coefficient.data == nullptr ? A{1} : load_element<A>(coefficient.data, coefficient.dtype);
      nest.each([&](const std::array<std::byte*, 5>& at) {
        ops.sgd(p_out.write(at[0]), b_out.write(at[1]), p.read(at[2]), g.read(at[3]), b.read(at[4]),
                scale, decay, momentum, rate, p.size());
        p_out.commit(at[0]);
        b_out.commit(at[1]);
      });
    };
  });
}

// Prepares the kernel with input g and output s. The squares of a row are summed in the compute
// type, the sums of the rows in double.
Kernel sum_squares(const KernelCall& call) {
  return with_compute_type(call.inputs[0].dtype, [&]<class A>() -> Kernel {
    std::vector<Array> a{call.inputs[0]};
    join_rows(a);
    const Nest<1> nest({a.data()}, a[0].shape.size() - 1);
    const Row<A> row(a[0]);
    const Array out = call.outputs[0];
    const bool add = call.add[0];
    const RowOps<A>& ops = row_ops<A>();
    return [=, &ops] {
      double total = add ? load_element<double>(out.data, out.dtype) : 0.0;
      constexpr int64_t kChunk = 4096;
      nest.each([&](const std::array<std::byte*, 1>& at) {
        const A* values = row.read(at[0]);
        for (int64_t i = 0; i < row.size(); i += kChunk) {
          total +=
              static_cast<double>(ops.sum_squares(values + i, std::min(kChunk, row.size() - i)));
        }
      });
      store_element(out.data, out.dtype, total);
    };
  });
}

// Prepares the kernel with input total, attribute max_norm and one output, min(1, max_norm /
// (sqrt(total) + 1e-6)).
Kernel clip_coefficient(const KernelCall& call) {
  const Array total = call.inputs[0], out = call.outputs[0];
  const double max_norm = call.op->number("max_norm", 1.0);
  return [=] {
    const double norm = std::sqrt(load_element<double>(total.data, total.dtype));
    store_element(out.data, out.dtype, std::min(1.0, max_norm / (norm + 1e-6)));
  };
}

// Prepares the kernel with inputs (g[, scale]), attributes (dtype, factor) and one output, factor g
// / scale.
Kernel unscale(const KernelCall& call) {
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    std::vector<Array> a{call.outputs[0], call.inputs[0]};
    join_rows(a);
    const Nest<2> nest({&a[0], &a[1]}, a[0].shape.size() - 1);
    const Row<A> out(a[0]), g(a[1]);
    const Array scale = optional_scalar(call, 1);
    const double factor = call.op->number("factor", 1.0);
    return [=] {
      const double divisor =
          scale.data == nullptr ? 1.0 : load_element<double>(scale.data, scale.dtype);
      const A by = static_cast<A>(factor / divisor);
      nest.each([&](const std::array<std::byte*, 2>& at) {
        const A* from = g.read(at[1]);
        A* to = out.write(at[0]);
        for (int64_t i = 0; i < g.size(); ++i) to[i] = by * from[i];
        out.commit(at[0]);
      });
    };
  });
}

// Prepares the kernel with input g and one output: 1 if an element is not finite, else 0. The test
// is x
// - x, which is 0 for a finite x and NaN for any other.
Kernel non_finite(const KernelCall& call) {
  return with_compute_type(call.inputs[0].dtype, [&]<class A>() -> Kernel {
    std::vector<Array> a{call.inputs[0]};
    join_rows(a);
    const Nest<1> nest({a.data()}, a[0].shape.size() - 1);
    const Row<A> row(a[0]);
    const Array out = call.outputs[0];
    return [=] {
      A sum = 0;
      nest.each([&](const std::array<std::byte*, 1>& at) {
        const A* values = row.read(at[0]);
        for (int64_t i = 0; i < row.size(); ++i) sum += values[i] - values[i];
      });
      store_element(out.data, out.dtype, sum == 0 ? 0.0 : 1.0);
    };
  });
}

// Prepares the kernel with inputs (scale, clean, overflows, skipped, flag) and outputs (scale',
// clean', overflows', skipped'), the new values after a step; docs/reference/ops.md explains them.
Kernel loss_scale(const KernelCall& call) {
  const std::vector<Array> in = call.inputs, out = call.outputs;
  const double growth = call.op->number("growth"), backoff = call.op->number("backoff"),
               least = call.op->number("min"), most = call.op->number("max");
  const auto interval = static_cast<double>(call.op->integer("interval"));
  const auto hysteresis = static_cast<double>(call.op->integer("hysteresis"));
  return [=] {
    std::array<double, 5> s{};
    for (size_t i = 0; i < s.size(); ++i) s[i] = load_element<double>(in[i].data, in[i].dtype);
    auto& [scale, clean, overflows, skipped, flag] = s;
    if (flag != 0) {
      clean = 0;
      skipped += 1;
      overflows = std::min(overflows + 1, hysteresis);
      if (overflows >= hysteresis) scale = std::max(scale * backoff, least);
    } else if (++clean >= interval) {
      clean = overflows = 0;
      scale = std::min(scale * growth, most);
    }
    for (size_t i = 0; i < out.size(); ++i) store_element(out[i].data, out[i].dtype, s[i]);
  };
}

constexpr KernelInfo kUpdateKernels[] = {
    {"adamw", adamw},
    {"sgd", sgd},
    {"adagrad", adagrad},
    {"lion", lion},
    {"adam_direction", adam_direction},
    {"momentum_direction", momentum_direction},
    {"lars", lars},
    {"apply_update", apply_update},
    {"carry", carry},
    {"decayed_mean", decayed_mean},
    {"trust_ratio", trust_ratio},
    {"adafactor_rate", adafactor_rate},
    {"sum_squares", sum_squares, 0b1},
    {"clip_coefficient", clip_coefficient},
    {"unscale", unscale},
    {"non_finite", non_finite},
    {"loss_scale", loss_scale},
};

}  // namespace

std::span<const KernelInfo> update_kernels() { return kUpdateKernels; }

}  // namespace tessera::kernels
