#include "tessera/program/text.h"

#include <fmt/format.h>

#include "tessera/program/text_parts.h"

namespace tessera {
namespace {

using program_text::quoted;
using program_text::write_name;

class Printer {
 public:
  Printer(const Program& program, const Graph& graph) : program_(program), graph_(graph) {}

  std::string header() const;
  std::string line(const Instruction& instruction) const;

 private:
  std::string tensor(TensorId id) const { return program_text::tensor_text(graph_, id); }
  std::string op(OpId id) const { return program_text::op_text(graph_, id); }
  std::string region(TensorId id, const Box& box) const { return tensor(id) + box.to_string(); }
  std::string view(const View& view) const {
    const bool known = view.buffer.valid() && view.buffer.index() < program_.buffers.size();
    const bool whole = known && view.box == Box::whole(program_.buffer(view.buffer).shape);
    return fmt::format("%{}{}", view.buffer.value, whole ? "" : view.box.to_string());
  }
  std::string boxes(const std::vector<Box>& boxes) const {
    std::vector<std::string> parts;
    for (const Box& box : boxes) parts.push_back(box.to_string());
    return "(" + join(parts, " ") + ")";
  }

  std::string coding(const std::optional<Codec>& codec, const std::optional<View>& residual) const {
    if (!codec) return "";
    return " with " + quoted(codec_text(*codec)) + (residual ? " residual " + view(*residual) : "");
  }

  std::string print(const Compute& compute) const;
  std::string print(const Output& output) const;
  std::string print(const Issue& issue) const;
  std::string print(const Send& send) const {
    return fmt::format("send #{} to {} tag {} {} {}{}", send.handle, send.peer, send.tag,
                       region(send.tensor, send.region), view(send.view),
                       coding(send.codec, send.residual));
  }
  std::string print(const Recv& recv) const {
    return fmt::format("recv #{} from {} tag {} {} {}{}", recv.handle, recv.peer, recv.tag,
                       region(recv.tensor, recv.region), view(recv.view),
                       coding(recv.codec, std::nullopt));
  }
  std::string print(const Wait& wait) const {
    return fmt::format("wait #{}{}", wait.handle,
                       wait.lag == 0 ? "" : fmt::format(" lag {}", wait.lag));
  }
  std::string print(const Copy& copy) const {
    const std::string write =
        copy.write == Write::kSet ? "" : fmt::format("{} ", write_name(copy.write));
    const std::string handle = copy.handle < 0 ? "" : fmt::format("#{} ", copy.handle);
    return fmt::format("copy {}{} {} -> {}{}", handle, region(copy.tensor, copy.region),
                       view(copy.from), write, view(copy.to));
  }
  std::string print(const Load& load) const {
    return fmt::format("load {} -> {}", region(load.tensor, load.region), view(load.to));
  }
  std::string print(const FetchRows& fetch) const {
    std::vector<std::string> ids;
    for (const RowIds& one : fetch.ids)
      ids.push_back(region(one.tensor, one.region) + (one.view ? " " + view(*one.view) : ""));
    return fmt::format("fetch_rows #{} cache {}{} ({}) expect {} in {} out", fetch.handle,
                       fetch.cache, fetch.ahead ? " ahead" : "", join(ids, ", "), fetch.expected_in,
                       fetch.expected_out);
  }
  std::string print(const ReleaseRows& release) const {
    return fmt::format("release_rows of {}{}", release.fetch, release.changed ? " changed" : "");
  }
  std::string print(const Free& free) const { return fmt::format("free %{}", free.buffer.value); }

  const Program& program_;
  const Graph& graph_;
};

std::string attribute_text(const Attribute& attribute) {
  if (const auto* integer = std::get_if<int64_t>(&attribute)) return fmt::format("{}", *integer);
  if (const auto* text = std::get_if<std::string>(&attribute)) return quoted(*text);
  std::string number = fmt::format("{}", std::get<double>(attribute));
  if (number.find_first_of(".eni") == std::string::npos) number += ".0";
  return number;
}

std::string numbers(const std::vector<int64_t>& values) {
  return fmt::format("[{}]", fmt::join(values, ", "));
}

std::string Printer::print(const Output& output) const {
  std::string out =
      fmt::format("{} {} {}", write_name(output.write), tensor(output.tensor), view(output.view));
  if (output.term != 0 || output.terms != 1) {
    out += fmt::format(" term {} of {}", output.term, output.terms);
  }
  return out;
}

std::string Printer::print(const Compute& compute) const {
  std::vector<std::string> inputs, outputs, attributes;
  for (const View& input : compute.inputs) inputs.push_back(view(input));
  for (const Output& output : compute.outputs) outputs.push_back(print(output));
  for (const auto& [name, value] : compute.attributes) {
    attributes.push_back(fmt::format("{} = {}", name, attribute_text(value)));
  }
  std::string out = fmt::format("compute {} {} {} ({}) -> ({})", op(compute.op), compute.kind,
                                compute.box.to_string(), join(inputs, ", "), join(outputs, ", "));
  if (!attributes.empty()) out += fmt::format(" {{{}}}", join(attributes, ", "));
  return out;
}

std::string Printer::print(const Issue& issue) const {
  std::string out = fmt::format("issue #{} {}", issue.handle, collective_name(issue.kind));
  if (issue.combiner) out += fmt::format(" by {}", combiner_name(*issue.combiner));
  out += fmt::format(" {} group {}{}", dtype_name(issue.dtype), issue.group,
                     coding(issue.codec, issue.residual));
  std::vector<std::string> transfers;
  for (const Transfer& transfer : issue.transfers) {
    std::string text = fmt::format("{} {} -> {}", tensor(transfer.tensor), boxes(transfer.hold),
                                   boxes(transfer.need));
    if (transfer.in) text += " in " + view(*transfer.in);
    if (transfer.out) text += " out " + view(*transfer.out);
    transfers.push_back(std::move(text));
  }
  if (issue.named) {
    std::vector<std::string> ids, rows;
    for (const View& one : issue.named->ids) ids.push_back(view(one));
    for (const Interval& own : issue.named->rows)
      rows.push_back(fmt::format("{}:{}", own.begin, own.end()));
    out += fmt::format(" named {} ({}) most {} rows ({})", op(issue.named->op), join(ids, ", "),
                       issue.named->most, join(rows, " "));
    if (!issue.named->counted.empty()) out += " counted " + numbers(issue.named->counted);
  }
  return out + " {" + join(transfers, "; ") + "}";
}

std::string Printer::line(const Instruction& instruction) const {
  std::string out;
  if (instruction.when == When::kFirst) out = "first ";
  if (instruction.when == When::kLast) out = "last ";
  out += std::visit([&](const auto& body) { return print(body); }, instruction.body);
  const auto* compute = std::get_if<Compute>(&instruction.body);
  const OpId usual = compute != nullptr ? compute->op : OpId();
  if (instruction.cause != usual) out += " for " + op(instruction.cause);
  return out;
}

std::string Printer::header() const {
  const Program& p = program_;
  std::string out = fmt::format("program rank {} of {}\n", p.rank, p.ranks);
  std::vector<int32_t> stages;
  for (StageId stage : p.stages) stages.push_back(stage.value);
  out +=
      fmt::format("stages [{}] coordinates {}\n", fmt::join(stages, ", "), numbers(p.coordinates));
  out +=
      fmt::format("micro_batches {} dim {} size {}{}\n", p.micro_batches, quoted(p.micro_batch_dim),
                  p.micro_batch_size, p.larger > 0 ? fmt::format(" larger {}", p.larger) : "");
  out += fmt::format("arena device {} host {} disk {}\n", p.arena_bytes[0], p.arena_bytes[1],
                     p.arena_bytes[2]);
  for (size_t g = 0; g < p.groups.size(); ++g) {
    const Group& group = p.groups[g];
    std::vector<std::string> axes;
    for (const std::string& axis : group.axes) axes.push_back(quoted(axis));
    out += fmt::format("group {} place {} axes [{}] members [{}] index {}\n", g, group.place.value,
                       fmt::join(axes, ", "), fmt::join(group.members, ", "), group.index);
  }
  for (const Buffer& b : p.buffers) {
    out += fmt::format("buffer %{} {} of {} {} {} {} {} at {}", b.id.value, quoted(b.name),
                       tensor(b.tensor), dtype_name(b.dtype), numbers(b.shape), tier_name(b.tier),
                       lifetime_name(b.lifetime), b.offset);
    if (b.slots > 1) out += fmt::format(" slots {} x {}", b.slots, b.slot_bytes);
    if (b.places > 0) out += fmt::format(" places {}", b.places);
    out += "\n";
  }
  const auto buffers = [](const std::vector<BufferId>& ids) {
    std::vector<std::string> parts;
    for (const BufferId id : ids) parts.push_back(fmt::format("%{}", id.value));
    return "(" + join(parts, ", ") + ")";
  };
  for (const RowCache& c : p.caches) {
    out += fmt::format(
        "cache held {} rests {} index %{} rows {} size {} slots {} places {} policy {} window {} "
        "counted {}\n",
        buffers(c.held), buffers(c.rests), c.index.value, c.rows.begin, c.rows.size, c.slots,
        c.places, quoted(c.policy), c.window, c.counted);
  }
  for (const Home& h : p.homes) {
    out += fmt::format("home {} %{}\n", region(h.tensor, h.region), h.buffer.value);
  }
  for (const Home& h : p.fetches) {
    out += fmt::format("fetch {} %{}\n", region(h.tensor, h.region), h.buffer.value);
  }
  std::vector<std::string> steps;
  for (const BlockRunStep& step : p.schedule) {
    steps.push_back(fmt::format("{} {}", block_name(step.block), step.micro_batch));
  }
  return out + fmt::format("schedule {}\n", join(steps, ", "));
}

}  // namespace

std::string to_text(const Program& program, const Graph& graph) {
  const Printer printer(program, graph);
  std::string out = printer.header();
  for (const auto& [ref, block] : program.blocks) {
    if (block.empty()) continue;
    out += fmt::format("{} {{\n", block_name(ref));
    for (const Instruction& instruction : block) {
      out += "  " + printer.line(instruction) + "\n";
    }
    out += "}\n";
  }
  return out;
}

std::string to_text(const Instruction& instruction, const Program& program, const Graph& graph) {
  return Printer(program, graph).line(instruction);
}

std::string label(const Instruction& instruction, const Graph& graph) {
  struct Visitor {
    const Graph& graph;
    std::string operator()(const Compute& compute) const {
      const bool known = compute.op.valid() && compute.op.index() < graph.ops().size();
      return "compute " + (known ? graph.op(compute.op).path : compute.kind);
    }
    std::string operator()(const Issue& issue) const {
      return fmt::format("issue #{} {}", issue.handle, collective_name(issue.kind));
    }
    std::string operator()(const Send& send) const {
      return fmt::format("send #{} to {}", send.handle, send.peer);
    }
    std::string operator()(const Recv& recv) const {
      return fmt::format("recv #{} from {}", recv.handle, recv.peer);
    }
    std::string operator()(const Wait& wait) const { return fmt::format("wait #{}", wait.handle); }
    std::string operator()(const Copy& copy) const {
      return fmt::format("copy {}%{} -> %{}",
                         copy.handle < 0 ? "" : fmt::format("#{} ", copy.handle),
                         copy.from.buffer.value, copy.to.buffer.value);
    }
    std::string operator()(const Load& load) const {
      return fmt::format("load %{}", load.to.buffer.value);
    }
    std::string operator()(const Free& free) const {
      return fmt::format("free %{}", free.buffer.value);
    }
    std::string operator()(const FetchRows& fetch) const {
      return fmt::format("fetch_rows #{} cache {}", fetch.handle, fetch.cache);
    }
    std::string operator()(const ReleaseRows& release) const {
      return fmt::format("release_rows of {}", release.fetch);
    }
  };
  return std::visit(Visitor{graph}, instruction.body);
}

}  // namespace tessera
