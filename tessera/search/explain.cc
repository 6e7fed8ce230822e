#include "tessera/search/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tessera/base/memory_text.h"
#include "tessera/base/text.h"
#include "tessera/search/rank/estimate.h"

namespace tessera {
namespace {

std::string seconds_text(double seconds) { return fmt::format("{:.4g} ms", seconds * 1e3); }

// Returns the common part of the ops' paths: "blocks.3" for "blocks.3.attn.qkv" and
// "blocks.3.mlp.up".
std::string name_of(const Graph& forward, const FoldUnit& unit) {
  std::vector<std::string> common = split_text(forward.op(unit.ops.front()).path, '.');
  for (const OpId id : unit.ops) {
    const std::vector<std::string> own = split_text(forward.op(id).path, '.');
    size_t same = 0;
    while (same < std::min(own.size(), common.size()) && own[same] == common[same]) ++same;
    common.resize(same);
  }
  return common.empty() ? forward.op(unit.ops.front()).path : join(common, ".");
}

// Returns "tp: heads ffn; dp: batch" for the axes that cut ops of the unit; "whole" if no
// axis does.
std::string cuts_text(const Graph& forward, const FoldUnit& unit,
                      const std::vector<ChoiceAxis>& axes) {
  std::vector<std::string> parts;
  for (const ChoiceAxis& axis : axes) {
    std::vector<std::string> dims;
    for (const OpId id : unit.ops) {
      const std::string dim = axis.size > 1 ? cut_of(forward.op(id), axis).str() : "";
      if (!dim.empty() && std::find(dims.begin(), dims.end(), dim) == dims.end())
        dims.push_back(dim);
    }
    if (!dims.empty()) parts.push_back(fmt::format("{}: {}", axis.name, join(dims, " ")));
  }
  return parts.empty() ? "whole" : join(parts, "; ");
}

int64_t devices_on(const std::vector<ChoiceAxis>& axes) {
  int64_t out = 1;
  for (const ChoiceAxis& axis : axes) out *= axis.size;
  return out;
}

// The way in which one unit is cut and recomputed, and its costs.
struct Way {
  std::vector<ChoiceAxis> axes;  // the axes inside the stage
  std::string recompute;
  std::string text;
  double passes_s = 0, activation_bytes = 0;
  UnitPrice price;
};

class Explainer {
 public:
  Explainer(const PlanQuestion& question, const Graph& forward, const Fold& fold,
            UnitPricer& pricer, const Choice& choice)
      : question_(question),
        forward_(forward),
        fold_(fold),
        pricer_(pricer),
        choice_(choice),
        kinds_(*question.cluster) {}

  std::vector<PlanBlock> run(const std::vector<std::vector<ChoiceAxis>>& offered) {
    std::vector<PlanBlock> out;
    size_t stage = 0;
    const FoldUnit* before = nullptr;
    std::string before_text;
    for (size_t u = 0; u < fold_.units.size(); ++u) {
      while (stage + 1 < choice_.cuts.size() && choice_.cuts[stage + 1] <= u) ++stage;
      const FoldUnit& unit = fold_.units[u];
      const auto own = own_way(u, stage);
      if (!own) continue;
      const bool is_same = before != nullptr && before->run >= 0 && before->run == unit.run &&
                           before_text == own->text;
      before = &unit;
      before_text = own->text;
      if (is_same) {
        out.back().last = name_of(forward_, unit);
        ++out.back().units;
        // The first layer of a run has a price of its own. All later layers have the price of the
        // second, so a row shows that price as soon as it has two units.
        if (out.back().units == 2) fill(out.back(), u, stage, *own, offered);
        continue;
      }
      PlanBlock row;
      row.first = row.last = name_of(forward_, unit);
      row.units = 1;
      row.chosen = own->text;
      fill(row, u, stage, *own, offered);
      out.push_back(std::move(row));
    }
    return out;
  }

 private:
  std::vector<ChoiceAxis> inner_of(size_t u, size_t stage) const {
    std::vector<ChoiceAxis> axes = choice_.axes_of_stage(stage);
    if (!choice_.units.empty() && !choice_.units[u].dims.empty()) {
      for (size_t a = 0; a < axes.size(); ++a) axes[a].dims = choice_.units[u].dims[a];
    }
    axes.erase(axes.begin());
    return axes;
  }
  int64_t replicas(size_t stage) const { return choice_.axes_of_stage(stage).front().size; }
  int64_t sharded(size_t u) const {
    return choice_.units.empty() ? choice_.sharded
                                 : choice_.units[u].sharded.value_or(choice_.sharded);
  }

  std::optional<Way> priced(size_t u, size_t stage, std::vector<ChoiceAxis> axes,
                            const std::string& recompute) {
    UnitQuestion asked;
    asked.axes = axes;
    asked.sequences =
        std::max<int64_t>(1, question_.batch / choice_.micro_batches / replicas(stage));
    asked.recompute = recompute;
    asked.on = &kinds_.cluster(0);
    asked.halos = choice_.halos;
    if (!choice_.units.empty())
      asked.halos.layers = choice_.units[u].halo_layers.value_or(asked.halos.layers);
    const auto prices = pricer_.price(asked);
    if (!prices) return {};
    Way out;
    out.price = (*prices)->units[static_cast<size_t>(fold_.units[u].stand_in)];
    out.passes_s = out.price.forward_s + out.price.backward_s;
    out.activation_bytes = out.price.activation_bytes;
    out.text = cuts_text(forward_, fold_.units[u], axes);
    if (recompute != "none") out.text += "; recompute " + recompute;
    out.axes = std::move(axes);
    out.recompute = recompute;
    return out;
  }

  std::optional<Way> own_way(size_t u, size_t stage) {
    std::string recompute = choice_.recompute;
    if (!choice_.units.empty()) recompute = choice_.units[u].recompute.value_or(recompute);
    auto out = priced(u, stage, inner_of(u, stage), recompute);
    if (out && sharded(u) > 0) out->text += fmt::format("; sharded {}", sharded(u));
    return out;
  }

  void fill(PlanBlock& row, size_t u, size_t stage, const Way& own,
            const std::vector<std::vector<ChoiceAxis>>& offered) {
    row.passes_s = own.passes_s;
    row.activation_bytes = own.activation_bytes;
    row.resting_bytes = resting_bytes(own.price, choice_, sharded(u), replicas(stage));
    row.next.clear();
    std::vector<std::pair<std::vector<ChoiceAxis>, std::string>> others;
    for (const auto& axes : offered) {
      if (devices_on(axes) == devices_on(own.axes)) others.emplace_back(axes, own.recompute);
    }
    for (const char* level : {"none", "selective", "full"}) {
      if (fold_.units[u].run >= 0 && level != own.recompute) others.emplace_back(own.axes, level);
    }
    std::set<std::string> known = {
        fmt::format("{} {}", cuts_text(forward_, fold_.units[u], own.axes), own.recompute)};
    for (const auto& [axes, recompute] : others) {
      const std::string key =
          fmt::format("{} {}", cuts_text(forward_, fold_.units[u], axes), recompute);
      if (!known.insert(key).second) continue;
      const auto other = priced(u, stage, axes, recompute);
      if (!other || (!row.next.empty() && other->passes_s >= row.next_s)) continue;
      row.next = other->text;
      row.next_s = other->passes_s;
      row.next_activation_bytes = other->activation_bytes;
    }
  }

  const PlanQuestion& question_;
  const Graph& forward_;
  const Fold& fold_;
  UnitPricer& pricer_;
  const Choice& choice_;
  Kinds kinds_;
};

// Returns what keeps this row from being faster.
std::string binds(const PlanBlock& row) {
  if (row.next.empty()) return "no other way";
  const double more = row.next_s / row.passes_s - 1;
  if (more < 0) {
    return row.next_activation_bytes > row.activation_bytes ? "memory binds"
                                                            : "what lies around it decides";
  }
  return fmt::format("{:.1f} % slower", more * 100);
}

std::string row_text(const PlanBlock& row) {
  const std::string units =
      row.units > 1 ? fmt::format("{} to {} ({})", row.first, row.last, row.units) : row.first;
  std::string out =
      fmt::format("  {}\n      {}\n      {} a micro-batch each, {} of activations, {} at rest\n",
                  units, row.chosen, seconds_text(row.passes_s), memory_text(row.activation_bytes),
                  memory_text(row.resting_bytes));
  if (row.next.empty()) return out;
  return out + fmt::format("      next best {}: {}, {} of activations ({})\n", row.next,
                           seconds_text(row.next_s), memory_text(row.next_activation_bytes),
                           binds(row));
}

void add_change(const PlanAnswer& answer, const std::optional<PlanCandidate>& changed,
                const std::string& what, std::string& out) {
  if (!changed) return;
  const double now = *answer.simulated[*answer.best].step_s, then = *changed->step_s;
  out += fmt::format(
      "  with twice {}: {:.4g} s, {}: {}\n", what, then,
      then < .998 * now ? fmt::format("{:.1f} % less", (1 - then / now) * 100) : "no gain",
      changed->name());
}

}  // namespace

std::vector<PlanBlock> explain_blocks(const PlanQuestion& question, const Graph& forward,
                                      const Fold& fold, UnitPricer& pricer, const Choice& choice,
                                      const std::vector<std::vector<ChoiceAxis>>& offered) {
  return Explainer(question, forward, fold, pricer, choice).run(offered);
}

std::optional<PlanCandidate> answer_after(const PlanQuestion& question, const Planner& planner,
                                          const std::string& change) {
  Cluster changed = *question.cluster;
  if (!apply_what_if(changed, change)) return {};
  PlanQuestion again = question;
  again.cluster = &changed;
  again.explain = false;
  const auto answer = planner.find(again);
  if (!answer || !answer->best) return {};
  return answer->simulated[*answer->best];
}

std::string explanation_text(const PlanAnswer& answer) {
  std::string out = "\nBlocks (both passes; of one unit of the row):\n";
  for (const PlanBlock& row : answer.blocks) out += row_text(row);
  if (answer.with_twice_memory || answer.with_twice_rates) {
    out += "\nThe answer of the same search:\n";
    add_change(answer, answer.with_twice_memory, "the memory", out);
    add_change(answer, answer.with_twice_rates, "the rates of all links", out);
  }
  return out;
}

}  // namespace tessera
