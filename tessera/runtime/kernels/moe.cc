// Kinds of a mixture of experts (docs/reference/ops.md). A slot is a place for a token at an
// expert. Its number is expert * capacity + position, with the capacity of the whole op. A piece
// works on the slots of its experts and positions.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "tessera/runtime/kernels/nest.h"
#include "tessera/runtime/kernels/row_loops/rows.h"

namespace tessera::kernels {
namespace {

std::byte* at_index(const Array& array, int64_t i, int64_t j = 0, int64_t k = 0) {
  int64_t offset = i * array.strides[0];
  if (array.strides.size() > 1) offset += j * array.strides[1];
  if (array.strides.size() > 2) offset += k * array.strides[2];
  return array.data + offset * dtype_bytes(array.dtype);
}

int64_t& integer(std::byte* where) { return *reinterpret_cast<int64_t*>(where); }

// Sets `choice` to the indices of the choice.size() largest elements of p[0..n), the largest first.
// Among equal elements the first one is chosen. Elements of -infinity are chosen last.
template <class A>
void choose_largest(const A* p, int64_t n, std::vector<int64_t>& choice) {
  for (size_t c = 0; c < choice.size(); ++c) {
    const auto chosen = choice.begin() + static_cast<std::ptrdiff_t>(c);
    int64_t best = -1;
    for (int64_t e = 0; e < n; ++e) {
      if (std::find(choice.begin(), chosen, e) != chosen) continue;
      if (best < 0 || p[e] > p[best]) best = e;
    }
    *chosen = best;
  }
}

// Chooses the experts of a token by its probabilities plus the op's bias, if it has one, and only
// among the experts of the best groups (check_groups in graph/kinds/moe.cc says which).
template <class A>
class Chooser {
 public:
  // `bias`: the position of the bias among the inputs.
  Chooser(const KernelCall& call, size_t bias, int64_t experts, int64_t choices)
      : choice(static_cast<size_t>(choices)),
        experts_(experts),
        groups_(call.op->integer("groups")),
        scores_(static_cast<size_t>(experts)),
        sums_(static_cast<size_t>(groups_)),
        best_(static_cast<size_t>(call.op->integer("group_best"))),
        chosen_groups_(static_cast<size_t>(call.op->integer("top_groups"))) {
    if (call.inputs.size() > bias) bias_ = call.inputs[bias];
  }

  // Sets `choice` to the experts of the token with the probabilities p, the best one first.
  void choose(const A* p) {
    if (bias_.data == nullptr && groups_ == 1) return choose_largest(p, experts_, choice);
    for (int64_t e = 0; e < experts_; ++e) {
      scores_[static_cast<size_t>(e)] =
          p[e] + (bias_.data == nullptr ? A{0} : load_element<A>(at_index(bias_, e), bias_.dtype));
    }
    if (groups_ > 1) leave_best_groups();
    choose_largest(scores_.data(), experts_, choice);
  }

  std::vector<int64_t> choice;

 private:
  // Sets the scores of experts outside of the best groups to -infinity.
  void leave_best_groups() {
    const int64_t each = experts_ / groups_;
    for (int64_t g = 0; g < groups_; ++g) {
      const A* scores = scores_.data() + g * each;
      choose_largest(scores, each, best_);
      A sum = 0;
      for (const int64_t e : best_) sum += scores[e];
      sums_[static_cast<size_t>(g)] = sum;
    }
    choose_largest(sums_.data(), groups_, chosen_groups_);
    for (int64_t g = 0; g < groups_; ++g) {
      if (std::find(chosen_groups_.begin(), chosen_groups_.end(), g) != chosen_groups_.end())
        continue;
      std::fill_n(scores_.begin() + g * each, each, -std::numeric_limits<A>::infinity());
    }
  }

  int64_t experts_, groups_;
  Array bias_;
  std::vector<A> scores_, sums_;
  std::vector<int64_t> best_, chosen_groups_;
};

// Returns the number by which the probabilities of the chosen experts are divided: their sum if
// weights are normalised, else 1.
template <class A>
A weight_scale(const A* p, const std::vector<int64_t>& choice, bool normalize) {
  if (!normalize) return 1;
  A sum = 0;
  for (const int64_t e : choice) sum += p[e];
  return sum;
}

// Prepares the kernel with input probs, attributes (top_k, capacity, normalize) and outputs (slot,
// weight, load, dropped).
Kernel route(const KernelCall& call) {
  return with_compute_type(call.inputs[0].dtype, [&]<class A>() -> Kernel {
    const Array probs = call.inputs[0], slot = call.outputs[0], weight = call.outputs[1],
                load = call.outputs[2], dropped = call.outputs[3];
    const Row<A> row(probs);
    const int64_t capacity = call.op->integer("capacity"), choices = slot.shape[2];
    const bool normalize = call.op->integer("normalize") == 1;
    const int64_t batch = probs.shape[0], seq = probs.shape[1], experts = row.size();
    auto chooser = std::make_shared<Chooser<A>>(call, 1, experts, choices);
    return [=] {
      for (int64_t b = 0; b < batch; ++b) {
        for (int64_t s = 0; s < seq; ++s) {
          const A* p = row.read(at_index(probs, b, s));
          chooser->choose(p);
          const A scale = weight_scale(p, chooser->choice, normalize);
          for (int64_t c = 0; c < choices; ++c) {
            const int64_t expert = chooser->choice[static_cast<size_t>(c)];
            integer(at_index(slot, b, s, c)) = expert;
            store_element(at_index(weight, b, s, c), weight.dtype, p[expert] / scale);
          }
        }
        for (int64_t e = 0; e < experts; ++e) integer(at_index(load, b, e)) = 0;
        int64_t without = 0;
        for (int64_t c = 0; c < choices; ++c) {  // first choices get slots before second ones
          for (int64_t s = 0; s < seq; ++s) {
            int64_t& number = integer(at_index(slot, b, s, c));
            const int64_t position = integer(at_index(load, b, number))++;
            const bool fits = position < capacity;
            number = fits ? number * capacity + position : -1;
            without += fits ? 0 : 1;
          }
        }
        integer(at_index(dropped, b)) = without;
      }
    };
  });
}

// Prepares the kernel with inputs (dweight, probs), attributes (top_k, normalize) and output
// dprobs. If weights are normalised, w_c = p_c / S, where S is the sum of the chosen p, and dp_c =
// (dw_c - sum_j dw_j w_j) / S; otherwise dp_c = dw_c.
Kernel route_grad(const KernelCall& call) {
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    const Array dweight = call.inputs[0], probs = call.inputs[1], dprobs = call.outputs[0];
    const Row<A> in(probs), out(dprobs), dw(dweight);
    const int64_t batch = probs.shape[0], seq = probs.shape[1];
    const bool normalize = call.op->integer("normalize") == 1;
    auto chooser = std::make_shared<Chooser<A>>(call, 2, in.size(), dw.size());
    return [=] {
      for (int64_t b = 0; b < batch; ++b) {
        for (int64_t s = 0; s < seq; ++s) {
          const A *p = in.read(at_index(probs, b, s)), *d = dw.read(at_index(dweight, b, s));
          chooser->choose(p);
          const std::vector<int64_t>& choice = chooser->choice;
          const A scale = weight_scale(p, choice, normalize);
          A mean = 0;
          for (size_t c = 0; c < choice.size() && normalize; ++c)
            mean += d[c] * p[choice[c]] / scale;
          A* dp = out.write(at_index(dprobs, b, s));
          std::fill_n(dp, out.size(), A{0});
          for (size_t c = 0; c < choice.size(); ++c) dp[choice[c]] = (d[c] - mean) / scale;
          out.commit(at_index(dprobs, b, s));
        }
      }
    };
  });
}

// Finds the memory of a slot in an array of slots [experts, batch, capacity, hidden] of a piece.
class Slots {
 public:
  Slots(const KernelCall& call, const Array& array) : array_(array) {
    const Annotation& annotation = call.op->annotation;
    const auto dim = [&](const char* name) { return static_cast<size_t>(annotation.find(name)); };
    capacity_ = annotation.dims[dim("capacity")].size;
    experts_ = call.box.dims[dim("experts")];
    positions_ = call.box.dims[dim("capacity")];
  }
  const Array& array() const { return array_; }
  std::byte* find(int64_t number, int64_t b) const {  // null: dropped token, or other piece
    if (number < 0) return nullptr;
    const int64_t expert = number / capacity_ - experts_.begin,
                  position = number % capacity_ - positions_.begin;
    if (expert < 0 || expert >= experts_.size || position < 0 || position >= positions_.size)
      return nullptr;
    return at_index(array_, expert, b, position);
  }

 private:
  Array array_;
  int64_t capacity_ = 1;
  Interval experts_, positions_;
};

// Returns the weight of choice c of token s; 1 if the call has no weights.
template <class A>
A weight_at(const Array& weight, int64_t b, int64_t s, int64_t c) {
  return weight.data == nullptr ? A{1} : load_element<A>(at_index(weight, b, s, c), weight.dtype);
}
Array weights_of(const KernelCall& call) {
  return call.inputs.size() == 3 ? call.inputs[2] : Array{};
}

// Prepares the kernel with inputs (x, slot[, weight]), attributes (experts, capacity) and output y.
Kernel dispatch(const KernelCall& call) {
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    const Array x = call.inputs[0], slot = call.inputs[1], weight = weights_of(call);
    const Slots slots(call, call.outputs[0]);
    const Row<A> in(x), out(slots.array());
    const Nest<1> all({&slots.array()}, 3);
    const bool add = call.add[0];
    const RowOps<A>& ops = row_ops<A>();
    return [=, &ops] {
      if (!add) {
        all.each([&](const std::array<std::byte*, 1>& row) {
          std::fill_n(out.write(row[0]), out.size(), A{0});
          out.commit(row[0]);
        });
      }
      for (int64_t b = 0; b < slot.shape[0]; ++b) {
        for (int64_t s = 0; s < slot.shape[1]; ++s) {
          for (int64_t c = 0; c < slot.shape[2]; ++c) {
            std::byte* row = slots.find(integer(at_index(slot, b, s, c)), b);
            if (row == nullptr) continue;
            out.read(row);  // reads the present values, to add to them
            ops.multiply_add(out.write(row), in.read(at_index(x, b, s)),
                             weight_at<A>(weight, b, s, c), out.size());
            out.commit(row);
          }
        }
      }
    };
  });
}

// Prepares the kernel with inputs (y, slot[, weight]) and output x.
Kernel combine(const KernelCall& call) {
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    const Array x = call.outputs[0], slot = call.inputs[1], weight = weights_of(call);
    const Slots slots(call, call.inputs[0]);
    const Row<A> in(slots.array()), out(x);
    const bool add = call.add[0];
    const RowOps<A>& ops = row_ops<A>();
    return [=, &ops] {
      for (int64_t b = 0; b < slot.shape[0]; ++b) {
        for (int64_t s = 0; s < slot.shape[1]; ++s) {
          std::byte* token = at_index(x, b, s);
          if (add) out.read(token);
          A* sum = out.write(token);
          if (!add) std::fill_n(sum, out.size(), A{0});
          for (int64_t c = 0; c < slot.shape[2]; ++c) {
            const std::byte* row = slots.find(integer(at_index(slot, b, s, c)), b);
            if (row != nullptr)
              ops.multiply_add(sum, in.read(row), weight_at<A>(weight, b, s, c), out.size());
          }
          out.commit(token);
        }
      }
    };
  });
}

// Prepares the kernel with inputs (weight, slot), attributes (experts, capacity) and output y.
Kernel slot_weight(const KernelCall& call) {
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    const Array weight = call.inputs[0], slot = call.inputs[1];
    const Slots slots(call, call.outputs[0]);
    const Nest<1> all({&slots.array()}, 3);
    const DType dtype = weight.dtype;
    const bool add = call.add[0];
    return [=] {
      if (!add)
        all.each([&](const std::array<std::byte*, 1>& one) { store_element(one[0], dtype, A{0}); });
      for (int64_t b = 0; b < slot.shape[0]; ++b) {
        for (int64_t s = 0; s < slot.shape[1]; ++s) {
          for (int64_t c = 0; c < slot.shape[2]; ++c) {
            std::byte* one = slots.find(integer(at_index(slot, b, s, c)), b);
            if (one == nullptr) continue;
            store_element(one, dtype, load_element<A>(one, dtype) + weight_at<A>(weight, b, s, c));
          }
        }
      }
    };
  });
}

// Prepares the kernel with inputs (dy, slot) and output dweight.
Kernel slot_weight_grad(const KernelCall& call) {
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    const Array slot = call.inputs[1], dweight = call.outputs[0];
    const Slots slots(call, call.inputs[0]);
    const bool add = call.add[0];
    return [=] {
      for (int64_t b = 0; b < slot.shape[0]; ++b) {
        for (int64_t s = 0; s < slot.shape[1]; ++s) {
          for (int64_t c = 0; c < slot.shape[2]; ++c) {
            const std::byte* one = slots.find(integer(at_index(slot, b, s, c)), b);
            std::byte* out = at_index(dweight, b, s, c);
            A value = add ? load_element<A>(out, dweight.dtype) : A{0};
            if (one != nullptr) value += load_element<A>(one, dweight.dtype);
            store_element(out, dweight.dtype, value);
          }
        }
      }
    };
  });
}

// Prepares the kernel with inputs (x, y, slot) and output dweight.
Kernel weight_grad(const KernelCall& call) {
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    const Array x = call.inputs[0], slot = call.inputs[2], dweight = call.outputs[0];
    const Slots slots(call, call.inputs[1]);
    const Row<A> token(x), row(slots.array());
    const bool add = call.add[0];
    const RowOps<A>& ops = row_ops<A>();
    return [=, &ops] {
      for (int64_t b = 0; b < slot.shape[0]; ++b) {
        for (int64_t s = 0; s < slot.shape[1]; ++s) {
          const A* values = token.read(at_index(x, b, s));
          for (int64_t c = 0; c < slot.shape[2]; ++c) {
            const std::byte* other = slots.find(integer(at_index(slot, b, s, c)), b);
            std::byte* out = at_index(dweight, b, s, c);
            A sum = add ? load_element<A>(out, dweight.dtype) : A{0};
            if (other != nullptr) sum += ops.dot(values, row.read(other), token.size());
            store_element(out, dweight.dtype, sum);
          }
        }
      }
    };
  });
}

// Returns the size that the dim has in the whole op.
double full_size(const Op& op, const char* dim) {
  return static_cast<double>(op.annotation.dims[static_cast<size_t>(op.annotation.find(dim))].size);
}

// Returns experts / (seq * top_k * seq), the factor of the balance loss. The loss sums, over the
// experts, the expert's share of all choices times its mean probability. With this factor it is 1
// if experts are balanced.
double balance_factor(const Op& op) {
  const double seq = full_size(op, "seq");
  return full_size(op, "experts") / (seq * seq * static_cast<double>(op.integer("top_k")));
}

template <class A>
A log_sum_exp(const RowOps<A>& ops, const A* x, int64_t n) {
  const A highest = ops.max(x, n);
  return highest + std::log(ops.sum_exp(x, highest, n));
}

// Prepares the kernel with inputs (probs, load), attribute top_k and output value.
Kernel balance(const KernelCall& call) {
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    const Array probs = call.inputs[0], load = call.inputs[1], value = call.outputs[0];
    const Row<A> row(probs);
    const A factor = static_cast<A>(balance_factor(*call.op));
    const bool add = call.add[0];
    return [=] {
      for (int64_t b = 0; b < probs.shape[0]; ++b) {
        A sum = 0;
        for (int64_t s = 0; s < probs.shape[1]; ++s) {
          const A* p = row.read(at_index(probs, b, s));
          for (int64_t e = 0; e < row.size(); ++e)
            sum += p[e] * static_cast<A>(integer(at_index(load, b, e)));
        }
        std::byte* out = at_index(value, b);
        const A old = add ? load_element<A>(out, value.dtype) : A{0};
        store_element(out, value.dtype, old + factor * sum);
      }
    };
  });
}

// Prepares the kernel with inputs (dvalue, probs, load), attribute top_k and output dprobs. Does
// not read the values of probs, which only gives the dims.
Kernel balance_grad(const KernelCall& call) {
  return with_compute_type(call.inputs[0].dtype, [&]<class A>() -> Kernel {
    const Array dvalue = call.inputs[0], load = call.inputs[2], dprobs = call.outputs[0];
    const A factor = static_cast<A>(balance_factor(*call.op));
    return [=] {
      for (int64_t b = 0; b < dprobs.shape[0]; ++b) {
        const A scale = factor * load_element<A>(at_index(dvalue, b), dvalue.dtype);
        for (int64_t s = 0; s < dprobs.shape[1]; ++s) {
          for (int64_t e = 0; e < dprobs.shape[2]; ++e) {
            const A count = static_cast<A>(integer(at_index(load, b, e)));
            store_element(at_index(dprobs, b, s, e), dprobs.dtype, scale * count);
          }
        }
      }
    };
  });
}

// Prepares the kernel with input logits and output value, which is the mean over seq of lse^2.
Kernel z_loss(const KernelCall& call) {
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    const Array logits = call.inputs[0], value = call.outputs[0];
    const Row<A> row(logits);
    const A factor = static_cast<A>(1 / full_size(*call.op, "seq"));
    const bool add = call.add[0];
    const RowOps<A>& ops = row_ops<A>();
    return [=, &ops] {
      for (int64_t b = 0; b < logits.shape[0]; ++b) {
        A sum = 0;
        for (int64_t s = 0; s < logits.shape[1]; ++s) {
          const A lse = log_sum_exp(ops, row.read(at_index(logits, b, s)), row.size());
          sum += lse * lse;
        }
        std::byte* out = at_index(value, b);
        const A old = add ? load_element<A>(out, value.dtype) : A{0};
        store_element(out, value.dtype, old + factor * sum);
      }
    };
  });
}

// Prepares the kernel with inputs (dvalue, logits) and output dlogits, which is dvalue 2 lse
// exp(logits - lse) / seq.
Kernel z_loss_grad(const KernelCall& call) {
  return with_compute_type(call.inputs[0].dtype, [&]<class A>() -> Kernel {
    const Array dvalue = call.inputs[0], logits = call.inputs[1], dlogits = call.outputs[0];
    const Row<A> in(logits), out(dlogits);
    const A factor = static_cast<A>(2 / full_size(*call.op, "seq"));
    const RowOps<A>& ops = row_ops<A>();
    return [=, &ops] {
      for (int64_t b = 0; b < logits.shape[0]; ++b) {
        const A scale = factor * load_element<A>(at_index(dvalue, b), dvalue.dtype);
        for (int64_t s = 0; s < logits.shape[1]; ++s) {
          const A* x = in.read(at_index(logits, b, s));
          const A lse = log_sum_exp(ops, x, in.size());
          ops.exp_shifted(out.write(at_index(dlogits, b, s)), x, lse, scale * lse, in.size());
          out.commit(at_index(dlogits, b, s));
        }
      }
    };
  });
}

constexpr KernelInfo kMoeKernels[] = {
    {"moe_route", route},
    {"moe_route_grad", route_grad},
    {"moe_dispatch", dispatch, 0b1},
    {"moe_combine", combine, 0b1},
    {"moe_weight_grad", weight_grad, 0b1},
    {"moe_slot_weight", slot_weight, 0b1},
    {"moe_slot_weight_grad", slot_weight_grad, 0b1},
    {"moe_balance", balance, 0b1},
    {"moe_balance_grad", balance_grad},
    {"moe_z_loss", z_loss, 0b1},
    {"moe_z_loss_grad", z_loss_grad},
};

}  // namespace

std::span<const KernelInfo> moe_kernels() { return kMoeKernels; }

}  // namespace tessera::kernels
