#include "tessera/export/recognize.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "tessera/base/text.h"
#include "tessera/export/compare.h"
#include "tessera/graph/kinds.h"
#include "tessera/plan/prepare.h"
#include "tessera/plan/recipes/parts.h"

namespace tessera {
namespace {

std::string list_text(const std::vector<std::string>& names) {
  if (names.size() == 1) return fmt::format("\"{}\"", names[0]);
  std::vector<std::string> quoted;
  for (const std::string& name : names) quoted.push_back(fmt::format("\"{}\"", name));
  return fmt::format("[{}]", join(quoted, ", "));
}

std::string at(const Plan& plan, int line, const std::string& entry) {
  const std::string where = line > 0 ? fmt::format("{}:{}", plan.file, line) : plan.file;
  return entry.empty() ? where : fmt::format("{} ({})", where, entry);
}

// Shortens a selector for messages, because planners write very long selectors.
std::string shown(const std::string& pattern) {
  constexpr size_t kMost = 60;
  return pattern.size() <= kMost ? pattern : pattern.substr(0, kMost - 3) + "...";
}

// Returns the line of a key at the top of a plan's text; 0 if the key is not there.
int line_of(const std::string& text, std::string_view key) {
  int line = 0;
  for (const std::string& one : split_text(text, '\n')) {
    ++line;
    const std::string_view rest = trim(one);
    const bool table = rest.starts_with(fmt::format("[{}", key));
    if (table || (rest.starts_with(key) && trim(rest.substr(key.size())).starts_with('=')))
      return line;
  }
  return 0;
}

class Recognizer {
 public:
  explicit Recognizer(const ExportQuestion& question)
      : question_(question),
        model_(*question.model),
        text_(question.plan),
        compute_(question.compute),
        compiler_(*question.compiler) {}

  Result<Recognized> run() {
    TESSERA_TRY(plan_, parse_plan(text_.text, text_.file));
    plan_.precision = computing_in(compute_, plan_.precision);
    TESSERA_TRY_VOID(check_entries());
    TESSERA_TRY(training_, compiler_.trained_graph(forward_of(question_.model), plan_));
    TESSERA_TRY(resolved_, resolve(plan_, *training_));
    resolved_.schedule.clear();  // targets know its name, and it may have millions of runs
    TESSERA_TRY_VOID(find_precision());
    TESSERA_TRY_VOID(find_parts());
    find_shards();
    TESSERA_TRY_VOID(find_degrees());
    TESSERA_TRY_VOID(find_stages());
    find_context();
    find_tensor_parts();
    TESSERA_TRY_VOID(find_recompute());
    TESSERA_TRY_VOID(compare());
    TESSERA_TRY_VOID(find_batch());
    return std::move(out_);
  }

 private:
  tl::unexpected<Error> refuse(const std::string& where, const std::string& why) const {
    return invalid_input(fmt::format("{}: {}", where, why));
  }
  std::string at_key(std::string_view key, const std::string& entry = "") const {
    return at(plan_, line_of(text_.text, key), entry);
  }

  // ---- things that no target can express
  Status check_entries() const {
    for (const StageEntry& stage : plan_.stages) {
      if (!stage.mesh.empty()) {
        return refuse(entry_text(plan_, stage),
                      "no target gives a stage a mesh of its own: expected one mesh for all");
      }
    }
    if (!plan_.schedule_table.empty()) {
      return refuse(at(plan_, plan_.schedule_line, "schedule"),
                    "no target takes a table: expected the name of a schedule");
    }
    if (!plan_.device_order.empty()) {
      return refuse(at(plan_, plan_.device_order.line, "device_order"),
                    "no target takes an order of devices");
    }
    for (const PinEntry& pin : plan_.pins) {
      return refuse(at(plan_, pin.line, fmt::format("pin of ops = \"{}\"", pin.ops)),
                    "the targets have no op on one rank of a group alone");
    }
    for (const LoopEntry& loop : plan_.loops) {
      return refuse(at(plan_, loop.line,
                       fmt::format("ops = \"{}\", dim = \"{}\"", shown(loop.ops), loop.dim)),
                    "no target has loops over time");
    }
    for (const CompressEntry& entry : plan_.compress) {
      return refuse(at(plan_, entry.line, fmt::format("tensors = \"{}\"", shown(entry.tensors))),
                    "no target compresses what is sent");
    }
    if (!plan_.expand.empty())
      return refuse(at(plan_, plan_.expand_line, "expand"), "no target takes ops apart");
    if (plan_.micro_batch_dim != "batch")
      return refuse(at_key("micro_batch_dim"), "targets make micro-batches of the batch alone");
    for (const StoreEntry& store : plan_.stores) {
      if (store.tier.value_or(Tier::kDevice) != Tier::kDevice)
        return refuse(entry_text(plan_, store), "targets keep all on the devices");
      if (store.keep_over)
        return refuse(entry_text(plan_, store), "no target keeps what is gathered in shards");
    }
    return {};
  }

  // ---- precision
  Status find_precision() {
    const auto narrow = [](DType dtype) {
      return dtype == DType::kBFloat16 || dtype == DType::kFloat16 || dtype == DType::kFloat32;
    };
    ExportSettings& s = out_.settings;
    s.compute = storage_dtype(compute_) == DType::kFloat64
                    ? DType::kFloat64
                    : plan_.precision.compute.value_or(DType::kFloat32);
    s.gradient = plan_.precision.gradient.value_or(DType::kFloat32);
    const std::string where = at_key("precision");
    out_.origins["precision"] = where;
    if (!narrow(s.compute) || !narrow(s.gradient))
      return refuse(where, fmt::format("no target computes in {}", dtype_name(s.compute)));
    if (plan_.precision.state.value_or(DType::kFloat32) != DType::kFloat32 ||
        plan_.precision.parameter.value_or(DType::kFloat32) != DType::kFloat32)
      return refuse(where, "targets keep parameters and optimizer state in float32");
    return {};
  }

  // ---- the parts of axes
  // Returns the name of the axis in the mesh of the op's stage.
  const std::string& name_of(const Op& op, AxisId axis) const {
    const StageId stage = resolved_.ops[op.id.index()].stage;
    return resolved_.stages[stage.index()].mesh.axis(axis).name;
  }

  // Calls do(op, dim, split) for each dim of a forward op that the axis cuts.
  template <typename Do>
  void for_each_cut(const std::string& axis, const Do& act) const {
    for (const Op& op : training_->ops()) {
      if (op.phase != Phase::kForward) continue;
      const OpPlan& planned = resolved_.ops[op.id.index()];
      for (size_t d = 0; d < planned.dims.size(); ++d) {
        for (const AxisId id : planned.dims[d].axes) {
          if (name_of(op, id) == axis) act(op, op.annotation.dims[d].name, planned.dims[d]);
        }
      }
    }
  }

  Status find_part(const std::string& axis) {
    std::optional<std::pair<AxisPart, int>> found;  // the part and the plan's entry that gives it
    std::set<AxisPart> parts;
    const auto take = [&](AxisPart part, int entry) {
      parts.insert(part);
      // The axis gets the first of these parts that applies: experts, features, tokens, batch.
      if (!found || rank_of(part) < rank_of(found->first)) found = {part, entry};
    };
    int other = -1;
    bool cuts = false;
    for_each_cut(axis, [&](const Op& op, const std::string& dim, const DimSplit& split) {
      cuts = true;
      const auto work = info_of(op).work;
      const bool product = work == WorkClass::kMatmul;
      if (dim == "experts") {
        take(AxisPart::kEp, split.entry);
      } else if (dim == "batch") {
        take(AxisPart::kDp, split.entry);
      } else if (dim == "seq" && product) {
        take(AxisPart::kCp, split.entry);
      } else if (dim == "vocab" || (dim != "seq" && product)) {
        take(AxisPart::kTp, split.entry);
      } else if (other < 0) {
        other = split.entry;
      }
    });
    if (!cuts) return refuse(at_key("mesh"), fmt::format("the axis '{}' cuts nothing", axis));
    if (!found) {
      return refuse(entry_text(plan_, plan_.splits[static_cast<size_t>(other)]),
                    fmt::format("targets cut batch, tokens, heads, features or experts of "
                                "products; the axis '{}' cuts none of them",
                                axis));
    }
    if (parts.contains(AxisPart::kEp) && parts.contains(AxisPart::kTp)) {
      const std::string where =
          found->second < 0 ? at_key("split")
                            : entry_text(plan_, plan_.splits[static_cast<size_t>(found->second)]);
      return refuse(where,
                    fmt::format("targets are written with whole experts over replicas alone; "
                                "the axis '{}' cuts experts, and features of other products",
                                axis));
    }
    parts_.part[axis] = found->first;
    if (found->second >= 0) {
      out_.origins.try_emplace(std::string(part_name(found->first)),
                               entry_text(plan_, plan_.splits[static_cast<size_t>(found->second)]));
    }
    return {};
  }
  static int rank_of(AxisPart part) {
    switch (part) {
      case AxisPart::kEp: return 0;
      case AxisPart::kTp: return 1;
      case AxisPart::kCp: return 2;
      case AxisPart::kDp: return 3;
      case AxisPart::kReplicas: return 4;
      case AxisPart::kPp: return 5;
    }
    return 6;
  }

  Status find_parts() {
    for (const auto& [axis, size] : plan_.mesh) {
      parts_.size[axis] = size;
      if (axis == plan_.stage_axis) {
        parts_.part[axis] = AxisPart::kPp;
      } else if (size > 1) {
        TESSERA_TRY_VOID(find_part(axis));
      }
    }
    return {};
  }

  // For a role: the axes over which any of its matrices rests in shards, and the plan's entry that
  // says so.
  struct Shards {
    std::set<std::string> axes;
    int entry = -1;
  };
  Shards shards_of(Role role) const {
    Shards out;
    for (const Tensor& tensor : training_->tensors()) {
      if (tensor.role != role || !is_matrix(tensor)) continue;
      if (role == Role::kGradient && !training_->is_parameter_gradient(tensor.id)) continue;
      const TensorPlan& planned = resolved_.tensors[tensor.id.index()];
      for (const std::string& axis : axes_at_rest(resolved_, tensor)) {
        out.axes.insert(axis);
        out.entry = planned.over_entry;
      }
    }
    return out;
  }

  bool gathers_once() const {
    return std::any_of(
        training_->tensors().begin(), training_->tensors().end(), [&](const Tensor& tensor) {
          return resolved_.tensors[tensor.id.index()].keep == Keep::kStep &&
                 tensor.role == Role::kActivation && training_->parameter_of(tensor.id).valid();
        });
  }

  void find_shards() {
    const Shards states = shards_of(Role::kOptimizerState), gradients = shards_of(Role::kGradient),
                 parameters = shards_of(Role::kParameter);
    ExportSettings& s = out_.settings;
    const bool masters = gathers_once();
    int entry = -1;
    const auto take = [&](const Shards& shards, int64_t level) {
      if (shards.axes.empty()) return;
      s.zero = level;
      entry = shards.entry;
    };
    take(states, 1);
    take(gradients, 2);
    if (!masters) take(parameters, 3);
    if (entry >= 0)
      out_.origins["zero"] = entry_text(plan_, plan_.stores[static_cast<size_t>(entry)]);
    masters_ = masters || s.zero == 3 || s.zero == 0 || s.compute == DType::kFloat32;
    if (s.zero == 0) return;
    // Axes over which nothing is cut at rest get the part replicas.
    std::set<std::string> sharded = states.axes;
    sharded.insert(gradients.axes.begin(), gradients.axes.end());
    if (s.zero == 3) sharded.insert(parameters.axes.begin(), parameters.axes.end());
    for (auto& [axis, part] : parts_.part) {
      if (part == AxisPart::kDp && !sharded.contains(axis)) part = AxisPart::kReplicas;
    }
  }

  Status find_degrees() {
    ExportSettings& s = out_.settings;
    s.pp = parts_.degree(AxisPart::kPp);
    s.replicas = parts_.degree(AxisPart::kReplicas);
    s.dp = parts_.degree(AxisPart::kDp);
    s.cp = parts_.degree(AxisPart::kCp);
    s.ep = parts_.degree(AxisPart::kEp);
    s.tp = parts_.degree(AxisPart::kTp);
    out_.origins["mesh"] = at_key("mesh");
    if (s.replicas > 1 && out_.origins.contains("dp"))
      out_.origins["replicas"] = out_.origins["dp"];
    // The two orders of ranks that targets know, as lists of parts, outermost first.
    using Order = std::vector<AxisPart>;
    const Order usual = {AxisPart::kPp, AxisPart::kReplicas, AxisPart::kDp,
                         AxisPart::kCp, AxisPart::kEp,       AxisPart::kTp};
    const Order inside = {AxisPart::kReplicas, AxisPart::kDp, AxisPart::kPp,
                          AxisPart::kCp,       AxisPart::kEp, AxisPart::kTp};
    const auto follows = [&](const Order& order) {
      auto reached = order.begin();
      for (const auto& [axis, size] : plan_.mesh) {
        if (size == 1) continue;
        const auto found = std::find(reached, order.end(), parts_.part.at(axis));
        if (found == order.end()) return false;
        reached = found;
      }
      return true;
    };
    if (follows(usual)) return {};
    s.stages_inside = follows(inside);
    if (s.stages_inside) return {};
    std::vector<std::string> names;
    for (const auto& [axis, size] : plan_.mesh) {
      if (size > 1) names.push_back(fmt::format("{} ({})", axis, part_name(parts_.part.at(axis))));
    }
    return refuse(at_key("mesh"),
                  fmt::format("targets number ranks by pp, dp, cp, ep, tp (tp varies fastest) or "
                              "dp, pp, cp, ep, tp; found {}",
                              join(names, ", ")));
  }

  // ---- stages
  std::string stage_text() const {
    return plan_.stages.empty() ? at_key("mesh") : entry_text(plan_, plan_.stages.front());
  }

  Status find_stages() {
    ExportSettings& s = out_.settings;
    s.micro_batches = plan_.micro_batches;
    s.schedule = s.pp == 1 && s.micro_batches == 1 ? "1f1b" : plan_.schedule;
    out_.origins["micro_batches"] =
        at(plan_, plan_.micro_batches_line, fmt::format("micro_batches = {}", s.micro_batches));
    out_.origins["schedule"] =
        at(plan_, plan_.schedule_line, fmt::format("schedule = \"{}\"", s.schedule));
    out_.origins["pp"] = stage_text();
    const int64_t stages = plan_.named_stages();
    if (s.schedule == "interleaved" && s.pp > 1) s.chunks = stages / s.pp;
    if (s.pp == 1) {
      if (stages == 1) return {};
      return refuse(stage_text(), "targets have a stage for each place: expected one stage");
    }
    std::vector<int64_t> blocks(static_cast<size_t>(stages));
    std::set<int> seen;
    for (const Op& op : training_->ops()) {
      if (op.phase != Phase::kForward || op.block < 0 || !is_weighty(op)) continue;
      if (seen.insert(op.block).second) ++blocks[resolved_.ops[op.id.index()].stage.index()];
    }
    const int64_t all = static_cast<int64_t>(seen.size());
    if (blocks != even_blocks(all, stages)) s.blocks = blocks;
    for (size_t stage = 1; stage + 1 < blocks.size(); ++stage) {
      if (blocks[stage] > 0) continue;
      const auto entry =
          std::find_if(plan_.stages.begin(), plan_.stages.end(),
                       [&](const auto& one) { return one.at == static_cast<int64_t>(stage); });
      return refuse(entry == plan_.stages.end() ? stage_text() : entry_text(plan_, *entry),
                    "targets have blocks on every stage between the first and the last");
    }
    out_.origins["blocks"] = stage_text();
    return {};
  }

  // ---- what is inside a layer
  // Returns whether attention whose tokens are cut works with the keys of all tokens at once, instead
  // of one rank's keys after the other's.
  bool gathers_keys() const {
    bool cuts = false, loops = false;
    for (const Op& op : training_->ops()) {
      if (op.phase != Phase::kForward || info_of(op).work != WorkClass::kAttention) continue;
      const OpPlan& planned = resolved_.ops[op.id.index()];
      for (size_t d = 0; d < planned.dims.size(); ++d) {
        cuts = cuts || (op.annotation.dims[d].name == "seq" && !planned.dims[d].axes.empty());
        loops = loops || planned.dims[d].steps > 1;
      }
    }
    return cuts && !loops;
  }

  void find_context() {
    ExportSettings& s = out_.settings;
    if (s.cp == 1) return;
    for (const auto& [axis, part] : parts_.part) {
      if (part != AxisPart::kCp) continue;
      for_each_cut(axis, [&](const Op& op, const std::string& dim, const DimSplit& split) {
        if (info_of(op).work != WorkClass::kAttention || dim == "seq" || dim == "batch") return;
        s.context = ContextForm::kHeads;
        if (split.entry >= 0) {
          out_.origins["context"] =
              entry_text(plan_, plan_.splits[static_cast<size_t>(split.entry)]);
        }
      });
    }
    if (s.context == ContextForm::kRing && gathers_keys()) s.context = ContextForm::kGather;
    out_.origins.try_emplace("context", out_.origins["cp"]);
    s.token_order = plan_.reorders.empty() ? "none" : plan_.reorders.front().as;
    out_.origins["token_order"] =
        plan_.reorders.empty() ? out_.origins["cp"] : at(plan_, plan_.reorders.front().line, "");
    if (s.context == ContextForm::kHeads || s.token_order != "none") return;
    // If the model does not allow a reordering of tokens, "zigzag" (the default) means the same as
    // "none" and is taken.
    ExportSettings ordered = s;
    ordered.token_order = "zigzag";
    const auto plan = plan_of(ordered, model_.graph);
    if (plan && plan->reorders.empty()) s.token_order = "zigzag";
  }

  // Finds what tp leaves whole, and whether it cuts tokens between the ops that it cuts.
  void find_tensor_parts() {
    ExportSettings& s = out_.settings;
    if (s.tp > 1) {
      for (const char* dim : {"heads", "ffn", "vocab"}) {
        const auto has = [&](const Op& op) {
          return op.phase == Phase::kForward && op.annotation.find(dim) >= 0;
        };
        if (std::any_of(training_->ops().begin(), training_->ops().end(), has)) s.whole.insert(dim);
      }
    }
    for (const auto& [axis, part] : parts_.part) {
      if (part != AxisPart::kTp) continue;
      for_each_cut(axis, [&](const Op& op, const std::string& dim, const DimSplit& split) {
        s.whole.erase(dim);
        if (dim != "seq" || op.block < 0 || is_weighty(op)) return;
        s.sequence_shard = true;
        if (split.entry >= 0) {
          out_.origins.try_emplace(
              "sequence_shard", entry_text(plan_, plan_.splits[static_cast<size_t>(split.entry)]));
        }
      });
    }
  }

  // ---- recomputation
  using Made = std::vector<bool>;  // by op: whether its result is recomputed

  Made made_again(const ResolvedPlan& resolved) const {
    Made out(training_->ops().size());
    for (const Op& op : training_->ops()) {
      if (op.phase != Phase::kForward) continue;
      out[op.id.index()] = std::any_of(op.outputs.begin(), op.outputs.end(), [&](TensorId output) {
        return resolved.tensors[output.index()].recompute;
      });
    }
    return out;
  }

  Result<Made> made_again_by(const std::string& word) const {
    recipes::PlanText text;
    TESSERA_TRY_VOID(recipes::recompute(text, model_.graph, word));
    TESSERA_TRY(Plan plan, parse_plan(text.str(), word));
    plan.precision = plan_.precision;
    plan.reorders = plan_.reorders;
    TESSERA_TRY(const ResolvedPlan resolved, resolve(plan, *training_));
    return made_again(resolved);
  }

  std::string entry_that_makes_again(const Made& ops) const {
    for (const Op& op : training_->ops()) {
      if (!ops[op.id.index()]) continue;
      for (const TensorId output : op.outputs) {
        const int entry = resolved_.tensors[output.index()].recompute_entry;
        if (entry >= 0) return entry_text(plan_, plan_.stores[static_cast<size_t>(entry)]);
      }
    }
    return plan_.file;
  }

  Status find_recompute() {
    const Made wanted = made_again(resolved_);
    if (std::find(wanted.begin(), wanted.end(), true) == wanted.end()) return {};
    out_.origins["recompute"] = entry_that_makes_again(wanted);
    Made covered(wanted.size());
    std::vector<std::string> modules;
    for (const std::string& word : recipes::recompute_argument().choices) {
      if (word == "none") continue;
      const auto made = made_again_by(word);
      if (!made) continue;  // the model has no such module
      if (*made == wanted) {
        out_.settings.recompute = word;
        return {};
      }
      bool inside = word != "selective" && word != "full", more = false;
      for (size_t i = 0; i < wanted.size(); ++i) {
        inside = inside && (!(*made)[i] || wanted[i]);
        more = more || ((*made)[i] && !covered[i]);
      }
      if (!inside || !more) continue;
      for (size_t i = 0; i < wanted.size(); ++i) covered[i] = covered[i] || (*made)[i];
      modules.push_back(word);
    }
    Made rest(wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) rest[i] = wanted[i] && !covered[i];
    if (const auto left = std::find(rest.begin(), rest.end(), true); left != rest.end()) {
      const auto op = static_cast<size_t>(left - rest.begin());
      return refuse(entry_that_makes_again(rest),
                    fmt::format("targets make whole blocks or modules of all blocks again ({}); "
                                "'{}' is made again in another set",
                                join(recipes::recompute_argument().choices, ", "),
                                training_->ops()[op].path));
    }
    out_.settings.recompute = join(modules, "+");
    return {};
  }

  // ---- batch
  Status find_batch() {
    ExportSettings& s = out_.settings;
    s.batch = model_.batch;
    if (plan_.bucket_bytes != Plan{}.bucket_bytes) s.bucket_bytes = plan_.bucket_bytes;
    const int64_t pieces = s.replicas_of_batch() * s.micro_batches;
    if (s.batch % pieces != 0) {
      return refuse(out_.origins["micro_batches"],
                    fmt::format("targets have micro-batches of one size: expected a batch that {} "
                                "replicas x {} micro-batches divide, found {}",
                                s.replicas_of_batch(), s.micro_batches, s.batch));
    }
    if (!plan_.prefetch) return {};
    out_.origins["gathered_ahead"] = at_key("prefetch");
    if (s.zero < 3) return {};
    if (plan_.prefetch->units != "blocks.*") {
      return refuse(
          out_.origins["gathered_ahead"],
          fmt::format("targets gather block by block: expected units = \"blocks.*\", found "
                      "\"{}\"",
                      shown(plan_.prefetch->units)));
    }
    s.gathered_ahead = plan_.prefetch->ahead;
    return {};
  }

  Status compare() {
    auto canonical = plan_of(out_.settings, model_.graph);
    if (!canonical) return refuse(at_key("mesh"), canonical.error().message);
    canonical->precision = plan_.precision;
    if (canonical->reorders != plan_.reorders) {
      return refuse(plan_.reorders.empty() ? at_key("mesh")
                                           : at(plan_, plan_.reorders.front().line, "reorder"),
                    "targets reorder the tokens of a ring as zigzag or striped pieces, as many as "
                    "fit the ring");
    }
    TESSERA_TRY(const ResolvedPlan expected, resolve(*canonical, *training_));
    TESSERA_TRY(Differences found,
                find_differences({resolved_, parts_, plan_}, expected, *training_, masters_));
    out_.notes = std::move(found.notes);
    return {};
  }

  const ExportQuestion& question_;
  const Model& model_;
  const PlanText& text_;
  DType compute_;
  Compiler& compiler_;
  Plan plan_;
  std::shared_ptr<const Graph> training_;
  ResolvedPlan resolved_;
  AxisParts parts_;
  bool masters_ = true;  // whether masters rest in shards as optimizer state does
  Recognized out_;
};

}  // namespace

std::string entry_text(const Plan& plan, const SplitEntry& entry) {
  return at(plan, entry.line,
            fmt::format("ops = \"{}\", dim = \"{}\", over = {}", shown(entry.ops), entry.dim,
                        list_text(entry.over)));
}
std::string entry_text(const Plan& plan, const StoreEntry& entry) {
  return at(plan, entry.line, fmt::format("tensors = \"{}\"", shown(entry.tensors)));
}
std::string entry_text(const Plan& plan, const StageEntry& entry) {
  return at(plan, entry.line, fmt::format("ops = \"{}\", at = {}", shown(entry.ops), entry.at));
}

Result<Recognized> recognize(const ExportQuestion& question) { return Recognizer(question).run(); }

}  // namespace tessera
