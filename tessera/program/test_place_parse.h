// For tests: reads the text form of place texts (docs/reference/place-text.md). Printing then
// parsing gives an equal text, so the printed form leaves nothing out.
//
//   const Result<PlaceText> same = parse_place_text(text, lowering.graph());
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/program/place_form.h"
#include "tessera/program/text_parts.h"

namespace tessera {

class PlaceParser {
  using Cursor = program_text::Cursor;
  using GraphNames = program_text::GraphNames;

 public:
  explicit PlaceParser(const Graph& graph) : names_(graph) {}

  Result<PlaceText> parse(std::string_view text, std::string_view file) {
    TESSERA_TRY_VOID(program_text::read_lines(text, file, [&](Cursor& in) { line(in); }));
    if (!place_.valid()) return invalid_input(fmt::format("{}:1: expected 'place N'", file));
    if (open_ != nullptr)
      return invalid_input(fmt::format("{}: expected '}}' before the end", file));
    const auto mesh = meshes_.find(place_);
    if (mesh == meshes_.end()) {
      return invalid_input(fmt::format("{}: expected 'mesh {} from ...', found none for this place",
                                       file, place_.value));
    }
    out_.mesh = mesh->second;
    return std::move(out_);
  }

 private:
  void line(Cursor& in) {
    if (open_ != nullptr) {
      if (in.accept("}")) {
        open_ = nullptr;
      } else {
        open_->push_back(instruction(in));
      }
    } else if (in.accept("place")) {
      place_ = PlaceId(in.small());
    } else if (!place_.valid()) {
      in.fail(fmt::format("expected 'place N', found {}", in.rest()));
    } else if (in.accept("mesh")) {
      mesh(in);
    } else if (in.accept("buffer")) {
      buffer(in);
    } else if (in.accept("home")) {
      out_.homes.push_back(home(in));
    } else if (in.accept("fetch")) {
      out_.fetches.push_back(home(in));
    } else {
      BlockRef ref = in.named<BlockKind>(
          kBlockKinds, [](BlockKind k) { return block_name(k); }, "block");
      if (in.accept("@")) ref.chunk = in.small();
      open_ = &out_.blocks[ref];
      in.expect("{");
      if (!open_->empty()) in.fail("this block is there twice");
    }
  }

  void mesh(Cursor& in) {
    const PlaceId place(in.small());
    Mesh out;
    in.expect("from");
    out.first_device = in.integer();
    in.expect("axes");
    out.axes = in.list([&] {
      MeshAxis axis;
      axis.name = in.quoted();
      axis.size = in.integer();
      in.expect("x");
      axis.stride = in.integer();
      return axis;
    });
    meshes_[place] = std::move(out);
  }

  void buffer(Cursor& in) {
    TextBuffer out;
    if (index(in) != static_cast<int>(out_.buffers.size()))
      in.fail(fmt::format("expected buffer %{}", out_.buffers.size()));
    out.name = in.quoted();
    in.expect("of");
    out.tensor = names_.tensor(in);
    out.dtype = in.dtype();
    out.tier = in.named<Tier>(3, tier_name, "tier");
    out.persistent = in.accept("persistent");
    out.accumulates = in.accept("accumulates");
    if (in.accept("slots")) out.slots = in.small();
    out.region = region(in, place_);
    out_.buffers.push_back(std::move(out));
  }

  TextHome home(Cursor& in) {
    TextHome out;
    out.tensor = names_.tensor(in);
    out.buffer = index(in);
    return out;
  }

  static int index(Cursor& in) {
    in.expect("%");
    return in.small();
  }
  static int handle(Cursor& in) {
    in.expect("#");
    return in.small();
  }

  // Reads the longest name of an axis of the place's mesh that comes next.
  AxisId axis(Cursor& in, PlaceId place) {
    AxisId found;
    const auto mesh = meshes_.find(place);
    if (mesh != meshes_.end()) {
      const std::vector<MeshAxis>& axes = mesh->second.axes;
      for (size_t a = 0; a < axes.size(); ++a) {
        Cursor ahead = in;
        const bool longer = !found.valid() || axes[a].name.size() > axes[found.index()].name.size();
        if (longer && ahead.accept(axes[a].name)) found = AxisId(a);
      }
      if (found.valid()) in.expect(axes[found.index()].name);
    }
    if (!found.valid())
      in.fail(fmt::format("expected an axis of mesh {}, found {}", place.value, in.rest()));
    return found;
  }
  Axes axes(Cursor& in, PlaceId place, std::string_view between) {
    Axes out;
    do out.push_back(axis(in, place));
    while (!in.failed() && in.accept(between));
    return out;
  }

  Region region(Cursor& in, PlaceId place) {
    Layout layout;
    in.expect("[");
    while (!in.failed() && !in.accept("]")) {
      if (!layout.shards.empty()) in.expect(",");
      in.until(':');
      in.expect(":");
      layout.shards.push_back(in.accept("-") ? Axes() : axes(in, place, "."));
      layout.grain.push_back(in.accept("*") ? in.integer() : 1);
      if (in.accept("~")) {
        layout.windows.push_back({layout.shards.size() - 1, window(in)});
        while (!in.failed() && in.accept("of")) {
          in.expect("~");
          layout.windows.back().behind.push_back(window(in));
        }
      }
    }
    while (!in.failed() && in.accept("at(")) {
      AxisPin pin;
      pin.axis = axis(in, place);
      in.expect(":");
      pin.coordinate = in.integer();
      in.expect(")");
      layout.at.push_back(pin);
    }
    if (in.accept("partial")) {
      in.expect("(");
      layout.partial = axes(in, place, ".");
      in.expect(":");
      const auto combiner = parse_combiner(in.word());
      if (combiner) layout.combiner = *combiner;
      if (!combiner) in.fail(combiner.error().message);
      in.expect(")");
    }
    Region out{std::move(layout), std::nullopt};
    if (in.accept("step")) out.piece = piece(in, place);
    return out;
  }

  // Reads what stands behind "~".
  static WindowRead window(Cursor& in) {
    WindowRead out;
    if (in.accept("-")) {
      out.use = WindowUse::kOver;
    } else if (in.accept("~")) {
      out.use = WindowUse::kBeside;
    }
    out.window.kernel = in.integer();
    in.expect("/");
    out.window.stride = in.integer();
    in.expect("/");
    out.window.padding = in.integer();
    out.size = in.integer();
    in.expect("of");
    out.extent = in.integer();
    if (!in.failed() && (out.window.kernel < 1 || out.window.stride < 1 || out.size < 0))
      in.fail("expected a window of at least one element that moves");
    return out;
  }

  StepPiece::Rim rim(Cursor& in, PlaceId place) {
    StepPiece::Rim out;
    out.dim = static_cast<size_t>(in.small());
    in.expect(":");
    out.cut.position = static_cast<size_t>(in.small());
    in.expect("of");
    out.cut.dims = static_cast<size_t>(in.small());
    in.expect("size");
    out.cut.size = in.integer();
    in.expect("(");
    out.cut.axes = axes(in, place, ",");
    in.expect(")");
    const auto windows = [&](const char* word, std::vector<WindowRead>& to) {
      while (!in.failed() && in.accept(word)) {
        in.expect("~");
        to.push_back(window(in));
      }
    };
    windows("grown", out.cut.grown);
    windows("inside", out.cut.inside);
    if (in.accept("read")) {
      in.expect("~");
      out.read = window(in);
    }
    return out;
  }

  StepPiece piece(Cursor& in, PlaceId place) {
    StepPiece out;
    out.step = in.integer();
    in.expect("of");
    out.steps = in.integer();
    if (in.accept("rims")) {
      in.expect("{");
      do {
        out.rims.push_back(rim(in, place));
      } while (!in.failed() && in.accept(";"));
      in.expect("}");
      if (!out.rims.empty()) out.dim = out.rims.front().dim;
      return out;
    }
    in.expect("along");
    out.dim = static_cast<size_t>(in.small());
    in.expect("inside");
    out.prefix = static_cast<size_t>(in.small());
    out.order = in.accept("aligned")   ? StepOrder::kAligned
                : in.accept("rotated") ? StepOrder::kRotated
                                       : StepOrder::kNested;
    if (out.order == StepOrder::kNested) in.expect("nested");
    if (in.accept("skew")) {
      in.expect("(");
      do {
        const bool falls = in.accept("-");
        out.skew.push_back({axis(in, place), falls});
      } while (!in.failed() && in.accept(","));
      in.expect(")");
    }
    if (in.accept("grain")) out.grain = in.integer();
    if (in.accept("read")) {
      in.expect("~");
      out.read = window(in);
    }
    if (in.accept("queries")) {
      out.queries = in.integer();
      in.expect("(");
      if (!in.accept(")")) {
        out.query_axes = axes(in, place, ",");
        in.expect(")");
      }
    }
    if (in.accept("reach")) out.reach = in.integer();
    return out;
  }

  TextView view(Cursor& in) { return view_at(in, place_); }
  TextView view_at(Cursor& in, PlaceId place) {
    TextView out;
    out.buffer = index(in);
    Cursor ahead = in;
    if (ahead.accept("[")) {
      out.region = region(in, place);
    } else if (out.buffer >= 0 && static_cast<size_t>(out.buffer) < out_.buffers.size()) {
      out.region = out_.buffers[static_cast<size_t>(out.buffer)].region;
    } else {
      in.fail(fmt::format("unknown buffer %{}", out.buffer));
    }
    return out;
  }

  TextOutput output(Cursor& in) {
    TextOutput out;
    out.write = in.write();
    out.tensor = names_.tensor(in);
    out.view = view(in);
    if (in.accept("term")) {
      out.term = in.small();
      in.expect("of");
      out.terms = in.small();
    }
    return out;
  }

  TextCompute compute(Cursor& in) {
    TextCompute out;
    out.op = names_.op(in);
    if (in.accept("step")) out.step = in.integer();
    in.expect("(");
    while (!in.failed() && !in.accept(")")) {
      if (!out.inputs.empty()) in.expect(",");
      out.inputs.push_back(view(in));
    }
    in.expect("->");
    in.expect("(");
    while (!in.failed() && !in.accept(")")) {
      if (!out.outputs.empty()) in.expect(",");
      out.outputs.push_back(output(in));
    }
    return out;
  }

  TextIssue issue(Cursor& in) {
    TextIssue out;
    out.handle = handle(in);
    out.classify = in.accept("classified");
    if (!out.classify)
      out.kind = in.named<CollectiveKind>(kCollectiveKinds, collective_name, "collective");
    if (in.accept("by")) {
      const auto combiner = parse_combiner(in.word());
      if (combiner) out.combiner = *combiner;
      if (!combiner) in.fail(combiner.error().message);
    }
    in.expect("over");
    in.expect("[");
    out.axes = axes(in, place_, ",");
    in.expect("]");
    if (in.accept("with")) {
      const auto codec = parse_codec(in.quoted());
      if (!codec) in.fail(codec.error().message);
      if (codec) out.compression = Compression{*codec, in.accept("feedback")};
    }
    if (in.accept("unit")) out.unit = in.small();
    if (in.accept("named")) {
      out.named.emplace().op = names_.op(in);
      in.expect("(");
      while (!in.failed() && !in.accept(")")) {
        if (!out.named->ids.empty()) in.expect(",");
        out.named->ids.push_back(view(in));
      }
    }
    in.expect("{");
    do {
      TextTransfer transfer;
      transfer.tensor = names_.tensor(in);
      transfer.from = view(in);
      in.expect("->");
      transfer.to = view(in);
      out.transfers.push_back(std::move(transfer));
    } while (!in.failed() && in.accept(";"));
    in.expect("}");
    return out;
  }

  TextCross cross(Cursor& in, bool sends) {
    TextCross out;
    out.sends = sends;
    out.handle = handle(in);
    in.expect("tag");
    out.tag = in.integer();
    out.tensor = names_.tensor(in);
    in.expect("from");
    out.from_place = PlaceId(in.small());
    out.from = view_at(in, out.from_place);
    in.expect("to");
    out.to_place = PlaceId(in.small());
    out.to = view_at(in, out.to_place);
    if (in.accept("routes")) out.routes = routes(in);
    if (in.accept("smaller")) out.smaller_routes = routes(in);
    return out;
  }

  std::shared_ptr<const CrossRoutes> routes(Cursor& in) {
    CrossRoutes out;
    in.expect("{");
    while (!in.failed() && !in.accept("}")) {
      if (!out.empty()) in.expect(";");
      CrossRoute route;
      route.from = in.integer();
      in.expect("->");
      route.to = in.integer();
      route.region = in.box();
      out.push_back(std::move(route));
    }
    return std::make_shared<const CrossRoutes>(std::move(out));
  }

  TextCopy copy(Cursor& in) {
    TextCopy out;
    Cursor ahead = in;
    if (ahead.accept("#")) out.handle = handle(in);
    out.tensor = names_.tensor(in);
    out.from = view(in);
    in.expect("->");
    if (in.accept("add")) out.write = Write::kAdd;
    if (in.accept("add_except_first")) out.write = Write::kAddExceptFirst;
    out.to = view(in);
    return out;
  }

  TextInstruction instruction(Cursor& in) {
    TextInstruction out;
    if (in.accept("first")) out.when = When::kFirst;
    if (in.accept("last")) out.when = When::kLast;
    if (in.accept("compute")) {
      TextCompute body = compute(in);
      out.cause = body.op;
      out.body = std::move(body);
    } else if (in.accept("issue")) {
      out.body = issue(in);
    } else if (in.accept("send")) {
      out.body = cross(in, true);
    } else if (in.accept("recv")) {
      out.body = cross(in, false);
    } else if (in.accept("wait")) {
      TextWait body{handle(in), 0};
      if (in.accept("lag")) body.lag = in.small();
      out.body = body;
    } else if (in.accept("copy")) {
      out.body = copy(in);
    } else if (in.accept("load")) {
      TextLoad body;
      body.tensor = names_.tensor(in);
      in.expect("->");
      body.to = view(in);
      out.body = std::move(body);
    } else {
      in.fail(fmt::format("unknown instruction {}", in.rest()));
    }
    if (in.accept("for")) out.cause = names_.op(in);
    if (in.accept("at")) out.order = in.integer();
    return out;
  }

  const GraphNames names_;
  PlaceId place_;
  std::map<PlaceId, Mesh> meshes_;
  PlaceText out_;
  std::vector<TextInstruction>* open_ = nullptr;
};

// Reads a place text. Returns an error that names file and line.
inline Result<PlaceText> parse_place_text(std::string_view text, const Graph& graph,
                                          std::string_view file = "<place>") {
  return PlaceParser(graph).parse(text, file);
}

}  // namespace tessera
