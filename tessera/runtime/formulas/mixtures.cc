// Formulas of mixtures of experts. A slot is a place for a token at an expert; its number is expert *
// capacity + position, with the capacity of the whole op. A slot has at most one token, so that
// tokens are moved by looking up, in either direction, and nothing is added up in an order that
// could vary.
#include <ATen/ATen.h>

#include <limits>

#include "tessera/runtime/formulas/call.h"

namespace tessera::kernels {
namespace {

// Returns the places of the n largest elements along the last dim, the largest first; of equal ones
// the first.
at::Tensor largest(const at::Tensor& x, int64_t n) {
  return std::get<1>(at::sort(x, /*stable=*/true, -1, /*descending=*/true)).narrow(-1, 0, n);
}

// Returns the experts of each token, the best first (`Chooser` of kernels/moe.cc).
at::Tensor chosen_experts(const Call& c, const at::Tensor& probs, size_t bias, int64_t choices) {
  at::Tensor scores = c.has(bias) ? probs + c.in(bias) : probs;
  const int64_t groups = c.op().integer("groups");
  if (groups > 1) {
    const at::Tensor in_groups = scores.unflatten(-1, {groups, -1});
    const at::Tensor best = in_groups.gather(-1, largest(in_groups, c.op().integer("group_best")));
    at::Tensor sum = best.select(-1, 0);  // added one by one, as the kernel of the processor does
    for (int64_t i = 1; i < best.size(-1); ++i) sum = sum + best.select(-1, i);
    const at::Tensor counts = at::zeros_like(sum, at::TensorOptions(at::kBool))
                                  .scatter(-1, largest(sum, c.op().integer("top_groups")), 1)
                                  .unsqueeze(-1);
    const double never = -std::numeric_limits<double>::infinity();
    scores = at::where(counts, in_groups, at::full({}, never, scores.options())).flatten(-2);
  }
  return largest(scores, choices);
}

// Returns the number by which the probabilities of the chosen experts are divided.
at::Tensor weight_scale(const Call& c, const at::Tensor& picked) {
  return c.op().integer("normalize") == 1 ? picked.sum(-1, true) : at::ones({}, picked.options());
}

Values route(const Call& c) {
  const at::Tensor probs = c.in(0);
  const int64_t batch = probs.size(0), seq = probs.size(1), experts = probs.size(2),
                choices = c.output_size(0, 2), capacity = c.op().integer("capacity");
  const at::Tensor expert = chosen_experts(c, probs, 1, choices);
  const at::Tensor picked = probs.gather(-1, expert);
  // Slots are given out to all first choices in the order of the sequence, then to all second ones:
  // a choice's position is its place among those of its expert, which a stable sort makes neighbours.
  const at::Tensor queue = expert.transpose(1, 2).reshape({batch, choices * seq});
  const auto [sorted, from] = at::sort(queue, /*stable=*/true, -1, /*descending=*/false);
  const at::Tensor load =
      at::zeros({batch, experts}, queue.options()).scatter_add(1, queue, at::ones_like(queue));
  const at::Tensor begin = load.cumsum(-1) - load;
  const at::Tensor place = at::arange(choices * seq, queue.options()) - begin.gather(1, sorted);
  const at::Tensor position = at::zeros_like(queue).scatter(1, from, place);
  const at::Tensor fits = position < capacity;
  const at::Tensor slot = at::where(fits, queue * capacity + position, at::full_like(queue, -1));
  return {slot.reshape({batch, choices, seq}).transpose(1, 2), picked / weight_scale(c, picked),
          load, at::logical_not(fits).sum(-1)};
}

Values route_grad(const Call& c) {
  const at::Tensor dweight = c.in(0), probs = c.in(1);
  const at::Tensor expert = chosen_experts(c, probs, 2, dweight.size(-1));
  const at::Tensor picked = probs.gather(-1, expert), scale = weight_scale(c, picked);
  at::Tensor made = dweight;
  if (c.op().integer("normalize") == 1)
    made = (dweight - (dweight * picked / scale).sum(-1, true)) / scale;
  return {at::zeros_like(probs).scatter(-1, expert, made)};
}

// The slots of a call's box, and which of them its choices name.
struct Slots {
  // Reads the slot numbers [batch, seq, choice].
  Slots(const Call& c, const at::Tensor& numbers)
      : experts(c.interval("experts").size),
        batch(numbers.size(0)),
        positions(c.interval("capacity").size) {
    const int64_t capacity = c.whole("capacity");
    const at::Tensor known = at::clamp_min(numbers, 0);
    const at::Tensor expert = at::floor_divide(known, capacity) - c.interval("experts").begin,
                     position = at::remainder(known, capacity) - c.interval("capacity").begin;
    const auto inside = [](const at::Tensor& x, int64_t size) {
      return at::logical_and(x >= 0, x < size);
    };
    here = at::logical_and(numbers >= 0,
                           at::logical_and(inside(expert, experts), inside(position, positions)));
    const at::Tensor sample = at::arange(batch, numbers.options()).reshape({batch, 1, 1});
    row =
        at::where(here, (expert * batch + sample) * positions + position, at::zeros_like(numbers));
  }
  int64_t rows() const { return experts * batch * positions; }
  // Returns for each slot [experts, batch, capacity] the number of its choice in [batch, seq, choice],
  // and sets `taken` to whether it has one.
  at::Tensor choices(at::Tensor& taken) const {
    // The last element is where choices without a slot of the box go.
    const at::Tensor to = at::where(here, row, at::full_like(row, rows())).flatten();
    const at::Tensor from = at::full({rows() + 1}, -1, row.options())
                                .scatter(0, to, at::arange(to.numel(), row.options()))
                                .narrow(0, 0, rows());
    taken = (from >= 0).reshape({experts, batch, positions});
    return at::clamp_min(from, 0);
  }
  // Returns the rows of y, [experts, batch, capacity, ..], that choice i of each token names, 0 for
  // those without a slot: [batch, seq, ..].
  at::Tensor rows_of(const at::Tensor& y, int64_t i) const {
    const at::Tensor flat = y.flatten(0, 2), of = row.select(-1, i);
    std::vector<int64_t> shape = of.sizes().vec(), mask = shape;
    for (int64_t d = 1; d < flat.dim(); ++d) {
      shape.push_back(flat.size(d));
      mask.push_back(1);
    }
    return at::where(here.select(-1, i).reshape(mask),
                     flat.index_select(0, of.flatten()).reshape(shape),
                     at::zeros({}, flat.options()));
  }

  int64_t experts, batch, positions;
  at::Tensor row,
      here;  // [batch, seq, choice]: the row in [experts, batch, capacity], if it is here
};

Values dispatch(const Call& c) {
  const at::Tensor x = c.in(0), numbers = c.in(1);
  const Slots slots(c, numbers);
  at::Tensor taken;
  const at::Tensor choice = slots.choices(taken);
  at::Tensor made = x.flatten(0, 1).index_select(0, at::floor_divide(choice, numbers.size(2)));
  if (c.has(2)) made = made * c.in(2).flatten().index_select(0, choice).unsqueeze(-1);
  made = made.reshape({slots.experts, slots.batch, slots.positions, x.size(-1)});
  return {at::where(taken.unsqueeze(-1), made, at::zeros({}, made.options()))};
}

Values combine(const Call& c) {
  const at::Tensor y = c.in(0), numbers = c.in(1);
  const Slots slots(c, numbers);
  at::Tensor sum;
  for (int64_t i = 0; i < numbers.size(2); ++i) {
    at::Tensor term = slots.rows_of(y, i);
    if (c.has(2)) term = term * c.in(2).select(-1, i).unsqueeze(-1);
    sum = i == 0 ? term : sum + term;
  }
  return {sum};
}

Values weight_grad(const Call& c) {
  const at::Tensor x = c.in(0), y = c.in(1), numbers = c.in(2);
  const Slots slots(c, numbers);
  std::vector<at::Tensor> of_choice;
  for (int64_t i = 0; i < numbers.size(2); ++i)
    of_choice.push_back((x * slots.rows_of(y, i)).sum(-1));
  return {at::stack(of_choice, -1)};
}

Values slot_weight(const Call& c) {
  const at::Tensor weight = c.in(0);
  const Slots slots(c, c.in(1));
  at::Tensor taken;
  const at::Tensor choice = slots.choices(taken);
  const at::Tensor made = weight.flatten().index_select(0, choice).reshape(taken.sizes());
  return {at::where(taken, made, at::zeros({}, made.options()))};
}

Values slot_weight_grad(const Call& c) {
  const at::Tensor numbers = c.in(1);
  const Slots slots(c, numbers);
  std::vector<at::Tensor> of_choice;
  for (int64_t i = 0; i < numbers.size(2); ++i) of_choice.push_back(slots.rows_of(c.in(0), i));
  return {at::stack(of_choice, -1)};
}

// Returns experts / (seq * top_k * seq), the factor of the balance loss (kernels/moe.cc).
double balance_factor(const Call& c) {
  const auto seq = static_cast<double>(c.whole("seq"));
  return static_cast<double>(c.whole("experts")) /
         (seq * seq * static_cast<double>(c.op().integer("top_k")));
}

Values balance(const Call& c) {
  const at::Tensor of_expert = c.in(0).sum(1);
  return {(of_expert * c.in(1).to(of_expert.scalar_type())).sum(-1) * balance_factor(c)};
}

Values balance_grad(const Call& c) {
  const at::Tensor dvalue = c.in(0);
  return {
      (dvalue.unsqueeze(-1) * balance_factor(c) * c.in(2).to(dvalue.scalar_type())).unsqueeze(1)};
}

Values z_loss(const Call& c) {
  return {at::square(at::logsumexp(c.in(0), {-1})).sum(1) / static_cast<double>(c.whole("seq"))};
}

Values z_loss_grad(const Call& c) {
  const at::Tensor logits = c.in(1), lse = at::logsumexp(logits, {-1}, true);
  const at::Tensor scale =
      c.in(0).to(logits.scalar_type()) * (2 / static_cast<double>(c.whole("seq")));
  return {scale.reshape({-1, 1, 1}) * lse * at::exp(logits - lse)};
}

}  // namespace

std::span<const Formula> mixture_formulas() {
  static const std::vector<Formula> formulas = {
      {"moe_route", route},
      {"moe_route_grad", route_grad},
      {"moe_dispatch", dispatch},
      {"moe_combine", combine},
      {"moe_weight_grad", weight_grad},
      {"moe_slot_weight", slot_weight},
      {"moe_slot_weight_grad", slot_weight_grad},
      {"moe_balance", balance},
      {"moe_balance_grad", balance_grad},
      {"moe_z_loss", z_loss},
      {"moe_z_loss_grad", z_loss_grad},
  };
  return formulas;
}

}  // namespace tessera::kernels
