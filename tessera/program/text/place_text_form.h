// The form of place texts (place_form.h) for printing and for parsing (text_io.h). Private to
// tessera/program.
#pragma once

#include <fmt/format.h>

#include <map>
#include <string_view>
#include <vector>

#include "tessera/program/text/text_io.h"

namespace tessera::program_text {

using Meshes = std::map<PlaceId, Mesh>;  // of the places that a text names

std::string_view order_name(StepOrder order);

// `Text` is `PlaceText` with a Reader and `const PlaceText` with a Writer. `graph` names the dims of
// layouts; only a Writer needs it.
template <class Io, class Text>
class PlaceForm {
 public:
  PlaceForm(Io& io, const Graph& graph, PlaceId& place, Meshes& meshes, Text& text)
      : io_(io), graph_(graph), place_(place), meshes_(meshes), text_(text) {}

  static constexpr std::string_view kUsage = "place N";

  // Handles all lines of a place text; with a Reader, the line that is being read. A Reader reads
  // the order of instructions where it is written.
  void lines(bool with_order) {
    io_.first_line("place ", kUsage, [&] { io_.number(place_); });
    io_.entries("mesh ", meshes_, [&](auto& place, auto& of) { mesh(place, of); });
    io_.lines("buffer ", text_.buffers, [&](size_t index, auto& x) { buffer(index, x); });
    io_.lines("home ", text_.homes, [&](size_t /*index*/, auto& x) { home(x); });
    io_.lines("fetch ", text_.fetches, [&](size_t /*index*/, auto& x) { home(x); });
    io_.blocks(text_.blocks, [&](auto& x) {
      instruction(x);
      if (io_.option(" at ", with_order)) io_.number(x.order);
    });
  }

  void instruction(auto& x) {
    instruction_form<TextCompute>(io_, x, [&] { body(x.body); });
  }

  void region(auto& region, PlaceId place, const std::vector<Dim>& dims) {
    io_.shared(region.layout, [&](auto& of) { layout(of, place, dims); });
    if (io_.option(" step ", static_cast<bool>(region.piece)))
      io_.shared(region.piece, [&](auto& of) { piece(of, place); });
  }

 private:
  template <class... Parts>
  void put(Parts&&... parts) {
    put_parts(io_, parts...);
  }

  // ---- meshes and axes
  void mesh(auto& place, auto& mesh) {
    put(place, " from ", mesh.first_device);
    io_.list(" axes [", ", ", "]", mesh.axes, [&](auto& axis) {
      io_.quoted(axis.name);
      put(" ", axis.size, " x ", axis.stride);
    });
  }

  // Handles an axis of the place's mesh, by name. Reads the longest name that comes next.
  void axis(PlaceId place, auto& id) {
    const auto mesh = meshes_.find(place);
    if constexpr (Io::kReads) {
      static const std::vector<MeshAxis> none;
      const std::vector<MeshAxis>& axes = mesh == meshes_.end() ? none : mesh->second.axes;
      id = {};
      for (size_t a = 0; a < axes.size(); ++a) {
        const bool longer = !id.valid() || axes[a].name.size() > axes[id.index()].name.size();
        if (longer && io_.next(axes[a].name, false)) id = AxisId(a);
      }
      if (id.valid()) io_.text(axes[id.index()].name);
      if (!id.valid())
        io_.fail(fmt::format("expected an axis of mesh {}, found {}", place.value, io_.rest()));
    } else {
      io_.text(mesh->second.axis(id).name);
    }
  }
  void axes(std::string_view between, auto& axes, PlaceId place) {
    io_.sequence(between, axes, [&](auto& id) { axis(place, id); });
  }
  void axis_list(std::string_view open, std::string_view close, auto& axes, PlaceId place) {
    io_.list(open, ", ", close, axes, [&](auto& id) { axis(place, id); });
  }

  // ---- regions
  // Handles for example "~3/2/1 8 of 16": kernel 3, stride 2, padding 1; the op's dim has 8 elements, the
  // tensor's dim 16.
  void window(auto& read) {
    io_.text("~");
    if (io_.option("-", read.use == WindowUse::kOver)) {
      io_.set(read.use, WindowUse::kOver);
    } else if (io_.option("~", read.use == WindowUse::kBeside)) {
      io_.set(read.use, WindowUse::kBeside);
    }
    put(read.window.kernel, "/", read.window.stride, "/", read.window.padding, " ", read.size,
        " of ", read.extent);
    if constexpr (Io::kReads) {
      if (read.window.kernel < 1 || read.window.stride < 1 || read.size < 0)
        io_.fail("expected a window of at least one element that moves");
    }
  }
  void window_if(std::string_view before, auto& read) {
    if (io_.option(before, read.has_value())) window(io_.value(read));
  }
  void windows(std::string_view before, auto& reads) {
    io_.repeated(before, reads, [&](auto& read) { window(read); });
  }

  void layout(auto& layout, PlaceId place, const std::vector<Dim>& dims) {
    size_t d = 0;
    io_.list("[", ", ", "]", layout.shards, [&](auto& cut) {
      io_.label(d < dims.size() ? dims[d].name : "?");
      if (!io_.option("-", cut.empty())) axes(".", cut, place);
      if constexpr (Io::kReads) layout.grain.push_back(1);
      if (io_.option("*", layout.grain[d] != 1)) io_.number(layout.grain[d]);
      if (io_.next("~", layout.window(d) != nullptr)) {
        auto& of_dim = window_of(layout, d);
        window(of_dim.read);
        windows(" of ", of_dim.behind);
      }
      ++d;
    });
    io_.repeated(" at(", layout.at, [&](auto& pin) {
      axis(place, pin.axis);
      put(": ", pin.coordinate, ")");
    });
    if (io_.option(" partial(", !layout.partial.empty())) {
      axes(".", layout.partial, place);
      io_.text(": ");
      io_.combiner(layout.combiner);
      io_.text(")");
    }
  }
  static auto& window_of(auto& layout, size_t d) {
    if constexpr (Io::kReads) {
      return layout.windows.emplace_back(Layout::DimWindow{d, {}});
    } else {
      return *layout.window(d);
    }
  }

  void piece(auto& piece, PlaceId place) {
    put(piece.step, " of ", piece.steps);
    if (io_.next("rims", !piece.rims.empty())) {
      io_.list(" rims {", "; ", "}", piece.rims, [&](auto& of) { rim(of, place); });
      if (!piece.rims.empty()) io_.set(piece.dim, piece.rims.front().dim);
      return;
    }
    put(" along ", piece.dim, " inside ", piece.prefix, " ");
    io_.named(piece.order, 3, order_name, "order");
    if (io_.next("skew", !piece.skew.empty())) {
      io_.list(" skew (", ", ", ")", piece.skew, [&](auto& skew) {
        io_.set(skew.falls, io_.option("-", skew.falls));
        axis(place, skew.axis);
      });
    }
    if (io_.option(" grain ", piece.grain != 1)) io_.number(piece.grain);
    window_if(" read ", piece.read);
    if (io_.option(" queries ", piece.queries != 0)) {
      io_.number(piece.queries);
      axis_list(" (", ")", piece.query_axes, place);
    }
    if (io_.option(" reach ", piece.reach != 0)) io_.number(piece.reach);
  }
  // Handles for example "1: 0 of 2 size 16 (h) grown ~3/1/1 16 of 16 inside ~3/1/1 16 of 16 read ~3/1/1 16
  // of 16". Here the tensor's dim 1 is the first (0) of the two dims of the loop.
  void rim(auto& rim, PlaceId place) {
    put(rim.dim, ": ", rim.cut.position, " of ", rim.cut.dims, " size ", rim.cut.size);
    axis_list(" (", ")", rim.cut.axes, place);
    windows(" grown ", rim.cut.grown);
    windows(" inside ", rim.cut.inside);
    window_if(" read ", rim.read);
  }

  // ---- buffers and views
  const std::vector<Dim>& dims(TensorId tensor) const {
    static const std::vector<Dim> none;
    const bool known = tensor.valid() && tensor.index() < graph_.tensors().size();
    return known ? graph_.tensor(tensor).dims : none;
  }

  void buffer(size_t index, auto& buffer) {
    index_form(io_, index, "buffer ", "%");
    io_.text(" ");
    io_.quoted(buffer.name);
    io_.text(" of ");
    io_.tensor(buffer.tensor);
    io_.text(" ");
    io_.dtype(buffer.dtype);
    io_.text(" ");
    io_.named(buffer.tier, 3, tier_name, "tier");
    io_.set(buffer.persistent, io_.option(" persistent", buffer.persistent));
    io_.set(buffer.accumulates, io_.option(" accumulates", buffer.accumulates));
    if (io_.option(" slots ", buffer.slots > 1)) io_.number(buffer.slots);
    io_.text(" ");
    region(buffer.region, place_, dims(buffer.tensor));
  }
  void home(auto& home) {
    io_.tensor(home.tensor);
    put(" %", home.buffer);
  }

  // Handles a view of a buffer of this place. Its region is not written if it is the buffer's.
  void view(auto& view) {
    put("%", view.buffer);
    const auto index = static_cast<size_t>(view.buffer);
    const auto* buffer =
        view.buffer >= 0 && index < text_.buffers.size() ? &text_.buffers[index] : nullptr;
    const bool own = buffer != nullptr && !(buffer->region == view.region);
    if (io_.next("[", own)) {
      region(view.region, place_, dims(buffer != nullptr ? buffer->tensor : TensorId()));
    } else if (buffer != nullptr) {
      io_.set(view.region, buffer->region);
    } else {
      io_.unknown(fmt::format("buffer %{} before", view.buffer));
    }
  }
  // Handles a view of a buffer of either place of a crossing.
  void view_at(auto& view, PlaceId place, TensorId tensor) {
    put("%", view.buffer);
    region(view.region, place, dims(tensor));
  }

  // ---- instructions
  void body(auto& x) {
    const bool known =
        io_.template alternative<TextCompute>("compute ", x, [&](auto& body) { compute(body); }) ||
        io_.template alternative<TextIssue>("issue #", x, [&](auto& body) { issue(body); }) ||
        io_.template alternative<TextCross>([](const TextCross& body) { return body.sends; },
                                            "send #", x, [&](auto& body) { cross(body, true); }) ||
        io_.template alternative<TextCross>([](const TextCross& body) { return !body.sends; },
                                            "recv #", x, [&](auto& body) { cross(body, false); }) ||
        io_.template alternative<TextWait>("wait #", x,
                                           [&](auto& body) { wait_form(io_, body); }) ||
        io_.template alternative<TextCopy>("copy ", x, [&](auto& body) { copy(body); }) ||
        io_.template alternative<TextLoad>("load ", x, [&](auto& body) {
          io_.tensor(body.tensor);
          io_.text(" -> ");
          view(body.to);
        });
    if (!known) io_.unknown("instruction");
  }

  void compute(auto& compute) {
    io_.op(compute.op);
    if (io_.option(" step ", compute.step != 0)) io_.number(compute.step);
    io_.list(" (", ", ", ")", compute.inputs, [&](auto& input) { view(input); });
    io_.list(" -> (", ", ", ")", compute.outputs,
             [&](auto& output) { output_form(io_, output, [&](auto& of) { view(of); }); });
  }

  void issue(auto& issue) {
    put(issue.handle, " ");
    io_.set(issue.classify, io_.option("classified", issue.classify));
    if (!issue.classify) io_.named(issue.kind, kCollectiveKinds, collective_name, "collective");
    if (io_.option(" by ", issue.combiner.has_value())) io_.combiner(io_.value(issue.combiner));
    axis_list(" over [", "]", issue.axes, place_);
    if (io_.option(" with ", issue.compression.has_value())) {
      auto& compression = io_.value(issue.compression);
      io_.codec(compression.codec);
      io_.set(compression.error_feedback, io_.option(" feedback", compression.error_feedback));
    }
    if (io_.option(" unit ", issue.unit >= 0)) io_.number(issue.unit);
    if (io_.option(" named ", issue.named.has_value())) {
      auto& named = io_.value(issue.named);
      io_.op(named.op);
      io_.list(" (", ", ", ")", named.ids, [&](auto& ids) { view(ids); });
    }
    io_.list(" {", "; ", "}", issue.transfers, [&](auto& transfer) {
      io_.tensor(transfer.tensor);
      io_.text(" ");
      view(transfer.from);
      io_.text(" -> ");
      view(transfer.to);
    });
  }

  void cross(auto& cross, bool sends) {
    io_.set(cross.sends, sends);
    put(cross.handle, " tag ", cross.tag, " ");
    io_.tensor(cross.tensor);
    put(" from ", cross.from_place, " ");
    view_at(cross.from, cross.from_place, cross.tensor);
    put(" to ", cross.to_place, " ");
    view_at(cross.to, cross.to_place, cross.tensor);
    routes(" routes", cross.routes);
    routes(" smaller", cross.smaller_routes);
  }
  void routes(std::string_view name, auto& routes) {
    if (!io_.option(name, routes != nullptr)) return;
    io_.shared(routes, [&](auto& all) {
      io_.list(" {", "; ", "}", all, [&](auto& route) {
        put(route.from, " -> ", route.to, " ");
        io_.box(route.region);
      });
    });
  }

  void copy(auto& copy) {
    copy_form(
        io_, copy, [&] { io_.tensor(copy.tensor); }, [&](auto& of) { view(of); });
  }

  Io& io_;
  const Graph& graph_;
  PlaceId& place_;
  Meshes& meshes_;
  Text& text_;
};

}  // namespace tessera::program_text
