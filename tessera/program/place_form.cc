// Place texts as text.
#include "tessera/program/place_form.h"

#include <fmt/format.h>

#include <set>

#include "tessera/program/instructions.h"
#include "tessera/program/text_parts.h"

namespace tessera {
namespace {

using program_text::op_text;
using program_text::quoted;
using program_text::tensor_text;
using program_text::write_name;

std::string names(const Axes& axes, const Mesh& mesh, std::string_view between) {
  std::vector<std::string> out;
  for (AxisId axis : axes) out.push_back(mesh.axis(axis).name);
  return fmt::format("{}", fmt::join(out, between));
}

// Returns for example "~3/2/1 8 of 16": kernel 3, stride 2, padding 1; the op's dim has 8 elements,
// the tensor's dim 16.
std::string window_text(const WindowRead& read) {
  const char* way = read.use == WindowUse::kOver ? "-" : read.use == WindowUse::kBeside ? "~" : "";
  return fmt::format("~{}{}/{}/{} {} of {}", way, read.window.kernel, read.window.stride,
                     read.window.padding, read.size, read.extent);
}

std::string layout_text(const Layout& layout, const Mesh& mesh, const std::vector<Dim>& dims) {
  std::vector<std::string> cuts;
  for (size_t d = 0; d < layout.shards.size(); ++d) {
    const Axes& axes = layout.shards[d];
    cuts.push_back(fmt::format("{}: {}", d < dims.size() ? dims[d].name : "?",
                               axes.empty() ? "-" : names(axes, mesh, ".")));
    if (layout.grain[d] != 1) cuts.back() += fmt::format("*{}", layout.grain[d]);
    if (const Layout::DimWindow* window = layout.window(d)) {
      cuts.back() += window_text(window->read);
      for (const WindowRead& read : window->behind) cuts.back() += " of " + window_text(read);
    }
  }
  std::string out = fmt::format("[{}]", fmt::join(cuts, ", "));
  for (const AxisPin& pin : layout.at)
    out += fmt::format(" at({}: {})", mesh.axis(pin.axis).name, pin.coordinate);
  if (!layout.partial.empty()) {
    out += fmt::format(" partial({}: {})", names(layout.partial, mesh, "."),
                       combiner_name(layout.combiner));
  }
  return out;
}

std::string_view order_name(StepOrder order) {
  switch (order) {
    case StepOrder::kAligned: return "aligned";
    case StepOrder::kRotated: return "rotated";
    case StepOrder::kNested: break;
  }
  return "nested";
}

// Returns for example "1: 0 of 2 size 16 (h) grown ~3/1/1 16 of 16 inside ~3/1/1 16 of 16 read
// ~3/1/1 16 of 16". Here the tensor's dim 1 is the first (0) of the two dims of the loop.
std::string rim_text(const StepPiece::Rim& rim, const Mesh& mesh) {
  std::string out = fmt::format("{}: {} of {} size {} ({})", rim.dim, rim.cut.position,
                                rim.cut.dims, rim.cut.size, names(rim.cut.axes, mesh, ", "));
  for (const WindowRead& read : rim.cut.grown) out += " grown " + window_text(read);
  for (const WindowRead& read : rim.cut.inside) out += " inside " + window_text(read);
  if (rim.read) out += " read " + window_text(*rim.read);
  return out;
}

std::string piece_text(const StepPiece& piece, const Mesh& mesh) {
  if (!piece.rims.empty()) {
    std::vector<std::string> rims;
    for (const StepPiece::Rim& rim : piece.rims) rims.push_back(rim_text(rim, mesh));
    return fmt::format(" step {} of {} rims {{{}}}", piece.step, piece.steps,
                       fmt::join(rims, "; "));
  }
  std::string out = fmt::format(" step {} of {} along {} inside {} {}", piece.step, piece.steps,
                                piece.dim, piece.prefix, order_name(piece.order));
  std::vector<std::string> skew;
  for (const SkewAxis& axis : piece.skew)
    skew.push_back((axis.falls ? "-" : "") + mesh.axis(axis.axis).name);
  if (!skew.empty()) out += fmt::format(" skew ({})", fmt::join(skew, ", "));
  if (piece.grain != 1) out += fmt::format(" grain {}", piece.grain);
  if (piece.read) out += fmt::format(" read {}", window_text(*piece.read));
  if (piece.queries != 0)
    out += fmt::format(" queries {} ({})", piece.queries, names(piece.query_axes, mesh, ", "));
  if (piece.reach != 0) out += fmt::format(" reach {}", piece.reach);
  return out;
}

class PlacePrinter {
 public:
  PlacePrinter(const std::vector<PlaceText>& texts, PlaceId place, const Graph& graph)
      : texts_(texts), place_(place), text_(texts[place.index()]), graph_(graph) {}

  std::string header() const {
    std::set<PlaceId> named{place_};
    for (const auto& [ref, block] : text_.blocks) {
      for (const TextInstruction& instruction : block) {
        if (const auto* cross = std::get_if<TextCross>(&instruction.body))
          named.insert({cross->from_place, cross->to_place});
      }
    }
    std::string out = fmt::format("place {}\n", place_.value);
    for (PlaceId place : named) {
      const Mesh& mesh = texts_[place.index()].mesh;
      std::vector<std::string> axes;
      for (const MeshAxis& axis : mesh.axes)
        axes.push_back(fmt::format("{} {} x {}", quoted(axis.name), axis.size, axis.stride));
      out += fmt::format("mesh {} from {} axes [{}]\n", place.value, mesh.first_device,
                         fmt::join(axes, ", "));
    }
    for (size_t b = 0; b < text_.buffers.size(); ++b) {
      const TextBuffer& buffer = text_.buffers[b];
      out += fmt::format("buffer %{} {} of {} {} {}{}{}{} {}\n", b, quoted(buffer.name),
                         tensor_text(graph_, buffer.tensor), dtype_name(buffer.dtype),
                         tier_name(buffer.tier), buffer.persistent ? " persistent" : "",
                         buffer.accumulates ? " accumulates" : "",
                         buffer.slots > 1 ? fmt::format(" slots {}", buffer.slots) : "",
                         to_text(buffer.region, text_.mesh, dims(buffer.tensor)));
    }
    for (const TextHome& home : text_.homes)
      out += fmt::format("home {} %{}\n", tensor_text(graph_, home.tensor), home.buffer);
    for (const TextHome& home : text_.fetches)
      out += fmt::format("fetch {} %{}\n", tensor_text(graph_, home.tensor), home.buffer);
    return out;
  }

  std::string line(const TextInstruction& instruction) const {
    std::string out;
    if (instruction.when == When::kFirst) out = "first ";
    if (instruction.when == When::kLast) out = "last ";
    out += match(
        instruction, [&](const TextCompute& body) { return print(body); },
        [&](const TextIssue& body) { return print(body); },
        [&](const TextCross& body) { return print(body); },
        [&](const TextWait& body) {
          return fmt::format("wait #{}{}", body.handle,
                             body.lag == 0 ? "" : fmt::format(" lag {}", body.lag));
        },
        [&](const TextCopy& body) {
          return fmt::format(
              "copy {}{} {} -> {}{}", body.handle < 0 ? "" : fmt::format("#{} ", body.handle),
              tensor_text(graph_, body.tensor), view(body.from),
              body.write == Write::kSet ? "" : fmt::format("{} ", write_name(body.write)),
              view(body.to));
        },
        [&](const TextLoad& body) {
          return fmt::format("load {} -> {}", tensor_text(graph_, body.tensor), view(body.to));
        });
    const auto* compute = std::get_if<TextCompute>(&instruction.body);
    if (instruction.cause != (compute != nullptr ? compute->op : OpId()))
      out += " for " + op_text(graph_, instruction.cause);
    return out;
  }

 private:
  std::vector<Dim> dims(TensorId tensor) const {
    const bool known = tensor.valid() && tensor.index() < graph_.tensors().size();
    return known ? graph_.tensor(tensor).dims : std::vector<Dim>();
  }
  std::string view(const TextView& view) const {
    const auto buffer = static_cast<size_t>(view.buffer);
    if (view.buffer < 0 || buffer >= text_.buffers.size() ||
        text_.buffers[buffer].region == view.region)
      return fmt::format("%{}", view.buffer);
    return view_at(view, place_, text_.buffers[buffer].tensor);
  }
  // Returns the text of the view, always with its region.
  std::string view_at(const TextView& view, PlaceId place, TensorId tensor) const {
    return fmt::format("%{}{}", view.buffer,
                       to_text(view.region, texts_[place.index()].mesh, dims(tensor)));
  }

  std::string print(const TextCompute& compute) const {
    std::vector<std::string> inputs, outputs;
    for (const TextView& input : compute.inputs) inputs.push_back(view(input));
    for (const TextOutput& output : compute.outputs) {
      outputs.push_back(fmt::format("{} {} {}", write_name(output.write),
                                    tensor_text(graph_, output.tensor), view(output.view)));
      if (output.term != 0 || output.terms != 1)
        outputs.back() += fmt::format(" term {} of {}", output.term, output.terms);
    }
    return fmt::format("compute {}{} ({}) -> ({})", op_text(graph_, compute.op),
                       compute.step == 0 ? "" : fmt::format(" step {}", compute.step),
                       fmt::join(inputs, ", "), fmt::join(outputs, ", "));
  }
  std::string print(const TextIssue& issue) const {
    std::string out = fmt::format("issue #{} {}", issue.handle,
                                  issue.classify ? "classified" : collective_name(issue.kind));
    if (issue.combiner) out += fmt::format(" by {}", combiner_name(*issue.combiner));
    out += fmt::format(" over [{}]", names(issue.axes, text_.mesh, ", "));
    if (issue.compression) {
      out += " with " + quoted(codec_text(issue.compression->codec));
      if (issue.compression->error_feedback) out += " feedback";
    }
    if (issue.unit >= 0) out += fmt::format(" unit {}", issue.unit);
    if (issue.named) {
      std::vector<std::string> ids;
      for (const TextView& one : issue.named->ids) ids.push_back(view(one));
      out += fmt::format(" named {} ({})", op_text(graph_, issue.named->op), fmt::join(ids, ", "));
    }
    std::vector<std::string> transfers;
    for (const TextTransfer& transfer : issue.transfers) {
      transfers.push_back(fmt::format("{} {} -> {}", tensor_text(graph_, transfer.tensor),
                                      view(transfer.from), view(transfer.to)));
    }
    return out + fmt::format(" {{{}}}", fmt::join(transfers, "; "));
  }
  std::string print(const TextCross& cross) const {
    std::string out =
        fmt::format("{} #{} tag {} {} from {} {} to {} {}", cross.sends ? "send" : "recv",
                    cross.handle, cross.tag, tensor_text(graph_, cross.tensor),
                    cross.from_place.value, view_at(cross.from, cross.from_place, cross.tensor),
                    cross.to_place.value, view_at(cross.to, cross.to_place, cross.tensor));
    const auto add = [&](const char* name, const std::shared_ptr<const CrossRoutes>& routes) {
      if (routes == nullptr) return;
      std::vector<std::string> all;
      for (const CrossRoute& route : *routes)
        all.push_back(fmt::format("{} -> {} {}", route.from, route.to, route.region.to_string()));
      out += fmt::format(" {} {{{}}}", name, fmt::join(all, "; "));
    };
    add("routes", cross.routes);
    add("smaller", cross.smaller_routes);
    return out;
  }

  const std::vector<PlaceText>& texts_;
  const PlaceId place_;
  const PlaceText& text_;
  const Graph& graph_;
};

}  // namespace

std::string to_text(const Region& region, const Mesh& mesh, const std::vector<Dim>& dims) {
  return layout_text(region.layout, mesh, dims) +
         (region.piece ? piece_text(*region.piece, mesh) : "");
}

std::string to_text(const std::vector<PlaceText>& texts, PlaceId place, const Graph& graph,
                    bool with_order) {
  const PlacePrinter printer(texts, place, graph);
  std::string out = printer.header();
  for (const auto& [ref, block] : texts[place.index()].blocks) {
    if (block.empty()) continue;
    out += fmt::format("{} {{\n", block_name(ref));
    for (const TextInstruction& instruction : block) {
      out += "  " + printer.line(instruction);
      out += with_order ? fmt::format(" at {}\n", instruction.order) : "\n";
    }
    out += "}\n";
  }
  return out;
}

std::string to_text(const TextInstruction& instruction, const std::vector<PlaceText>& texts,
                    PlaceId place, const Graph& graph) {
  return PlacePrinter(texts, place, graph).line(instruction);
}

}  // namespace tessera
