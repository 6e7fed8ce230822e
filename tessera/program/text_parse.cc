// parse_program: a hand-written parser, one line at a time (docs/reference/program-format.md).
#include <fmt/format.h>

#include <algorithm>

#include "tessera/program/text.h"
#include "tessera/program/text_parts.h"

namespace tessera {
namespace {

using program_text::Cursor;
using program_text::GraphNames;

class Parser {
 public:
  explicit Parser(const Graph& graph) : names_(graph) {}
  Result<Program> parse(std::string_view text, std::string_view file);

 private:
  void line(Cursor& in);
  void header(Cursor& in);
  void group(Cursor& in);
  void buffer(Cursor& in);
  void cache(Cursor& in);
  std::vector<BufferId> buffer_list(Cursor& in);
  FetchRows fetch_rows(Cursor& in);
  Home home(Cursor& in);
  void schedule(Cursor& in);
  Instruction instruction(Cursor& in);
  Compute compute(Cursor& in);
  Output output(Cursor& in);
  Issue issue(Cursor& in);
  NamedRows named_rows(Cursor& in);
  void coding(Cursor& in, std::optional<Codec>& codec, std::optional<View>* residual);
  Transfer transfer(Cursor& in);

  TensorId tensor(Cursor& in) const { return names_.tensor(in); }
  OpId op(Cursor& in) const { return names_.op(in); }
  BufferId buffer_id(Cursor& in);
  View view(Cursor& in);
  int handle(Cursor& in) {
    in.expect("#");
    return in.small();
  }
  BlockRef block(Cursor& in);

  const GraphNames names_;
  Program program_;
  bool started_ = false;
  std::vector<Instruction>* open_ = nullptr;
};

BufferId Parser::buffer_id(Cursor& in) {
  in.expect("%");
  return BufferId(in.small());
}

View Parser::view(Cursor& in) {
  View out;
  out.buffer = buffer_id(in);
  if (in.failed()) return out;
  Cursor ahead = in;
  if (ahead.accept("[")) {
    out.box = in.box();
  } else if (out.buffer.valid() && out.buffer.index() < program_.buffers.size()) {
    out.box = Box::whole(program_.buffer(out.buffer).shape);
  } else {
    in.fail(fmt::format("unknown buffer %{}", out.buffer.value));
  }
  return out;
}

BlockRef Parser::block(Cursor& in) {
  const auto name = [](BlockKind kind) { return block_name(kind); };
  BlockRef out = in.named<BlockKind>(kBlockKinds, name, "block");
  if (in.accept("@")) out.chunk = in.small();
  return out;
}

void Parser::group(Cursor& in) {
  if (in.integer() != static_cast<int64_t>(program_.groups.size())) {
    in.fail(fmt::format("expected group {}", program_.groups.size()));
  }
  Group out;
  in.expect("place");
  out.place = PlaceId(in.small());
  in.expect("axes");
  out.axes = in.names();
  in.expect("members");
  for (int64_t member : in.integers()) out.members.push_back(static_cast<int>(member));
  in.expect("index");
  out.index = in.small();
  program_.groups.push_back(std::move(out));
}

void Parser::buffer(Cursor& in) {
  Buffer out;
  out.id = buffer_id(in);
  if (out.id != BufferId(program_.buffers.size())) {
    in.fail(fmt::format("expected buffer %{}", program_.buffers.size()));
  }
  out.name = in.quoted();
  in.expect("of");
  out.tensor = tensor(in);
  out.dtype = in.dtype();
  out.shape = in.integers();
  out.tier = in.named<Tier>(3, tier_name, "tier");
  out.lifetime = in.named<Lifetime>(4, lifetime_name, "lifetime");
  in.expect("at");
  out.offset = in.integer();
  if (in.accept("slots")) {
    out.slots = in.integer();
    in.expect("x");
    out.slot_bytes = in.integer();
  }
  if (in.accept("places")) out.places = in.integer();
  program_.buffers.push_back(std::move(out));
}

std::vector<BufferId> Parser::buffer_list(Cursor& in) {
  std::vector<BufferId> out;
  in.expect("(");
  if (in.accept(")")) return out;
  do {
    out.push_back(buffer_id(in));
  } while (!in.failed() && in.accept(","));
  in.expect(")");
  return out;
}

void Parser::cache(Cursor& in) {
  RowCache out;
  in.expect("held");
  out.held = buffer_list(in);
  in.expect("rests");
  out.rests = buffer_list(in);
  in.expect("index");
  out.index = buffer_id(in);
  in.expect("rows");
  out.rows.begin = in.integer();
  in.expect("size");
  out.rows.size = in.integer();
  in.expect("slots");
  out.slots = in.integer();
  in.expect("places");
  out.places = in.integer();
  in.expect("policy");
  out.policy = in.quoted();
  in.expect("window");
  out.window = in.integer();
  in.expect("counted");
  out.counted = in.integer();
  program_.caches.push_back(std::move(out));
}

FetchRows Parser::fetch_rows(Cursor& in) {
  FetchRows out;
  out.handle = handle(in);
  in.expect("cache");
  out.cache = in.small();
  out.ahead = in.accept("ahead");
  in.expect("(");
  do {
    RowIds ids;
    ids.tensor = tensor(in);
    ids.region = in.box();
    if (Cursor next = in; next.accept("%")) ids.view = view(in);
    out.ids.push_back(std::move(ids));
  } while (!in.failed() && in.accept(","));
  in.expect(")");
  in.expect("expect");
  out.expected_in = in.integer();
  in.expect("in");
  out.expected_out = in.integer();
  in.expect("out");
  return out;
}

Home Parser::home(Cursor& in) {
  Home out;
  out.tensor = tensor(in);
  out.region = in.box();
  out.buffer = buffer_id(in);
  return out;
}

void Parser::schedule(Cursor& in) {
  if (in.at_end()) return;
  do {
    BlockRunStep step;
    step.block = block(in);
    step.micro_batch = in.integer();
    program_.schedule.push_back(step);
  } while (!in.failed() && in.accept(","));
}

void Parser::header(Cursor& in) {
  if (in.accept("program")) {
    started_ = true;
    in.expect("rank");
    program_.rank = in.small();
    in.expect("of");
    program_.ranks = in.integer();
  } else if (!started_) {
    in.fail(fmt::format("expected 'program rank R of N', found {}", in.rest()));
  } else if (in.accept("stages")) {
    for (int64_t stage : in.integers())
      program_.stages.push_back(StageId(static_cast<int32_t>(stage)));
    in.expect("coordinates");
    program_.coordinates = in.integers();
  } else if (in.accept("micro_batches")) {
    program_.micro_batches = in.integer();
    in.expect("dim");
    program_.micro_batch_dim = in.quoted();
    in.expect("size");
    program_.micro_batch_size = in.integer();
    if (in.accept("larger")) program_.larger = in.integer();
  } else if (in.accept("arena")) {
    for (size_t tier = 0; tier < 3; ++tier) {
      in.expect(tier_name(static_cast<Tier>(tier)));
      program_.arena_bytes[tier] = in.integer();
    }
  } else if (in.accept("group")) {
    group(in);
  } else if (in.accept("buffer")) {
    buffer(in);
  } else if (in.accept("cache")) {
    cache(in);
  } else if (in.accept("home")) {
    program_.homes.push_back(home(in));
  } else if (in.accept("fetch")) {
    program_.fetches.push_back(home(in));
  } else if (in.accept("schedule")) {
    schedule(in);
  } else {
    open_ = &program_.block(block(in));
    in.expect("{");
    if (!open_->empty()) in.fail("this block is there twice");
  }
}

Output Parser::output(Cursor& in) {
  Output out;
  out.write = in.write();
  out.tensor = tensor(in);
  out.view = view(in);
  if (in.accept("term")) {
    out.term = in.small();
    in.expect("of");
    out.terms = in.small();
  }
  return out;
}

Compute Parser::compute(Cursor& in) {
  Compute out;
  out.op = op(in);
  out.kind = in.word();
  out.box = in.box();
  in.expect("(");
  if (!in.accept(")")) {
    do {
      out.inputs.push_back(view(in));
    } while (!in.failed() && in.accept(","));
    in.expect(")");
  }
  in.expect("->");
  in.expect("(");
  if (!in.accept(")")) {
    do {
      out.outputs.push_back(output(in));
    } while (!in.failed() && in.accept(","));
    in.expect(")");
  }
  if (in.accept("{")) {
    do {
      const std::string name = in.word();
      in.expect("=");
      out.attributes[name] = in.attribute();
    } while (!in.failed() && in.accept(","));
    in.expect("}");
  }
  return out;
}

Transfer Parser::transfer(Cursor& in) {
  Transfer out;
  out.tensor = tensor(in);
  for (SharedBoxes* boxes : {&out.hold, &out.need}) {
    if (boxes == &out.need) in.expect("->");
    in.expect("(");
    while (!in.failed() && !in.accept(")")) boxes->push_back(in.box());
  }
  if (in.accept("in")) out.in = view(in);
  if (in.accept("out")) out.out = view(in);
  return out;
}

void Parser::coding(Cursor& in, std::optional<Codec>& codec, std::optional<View>* residual) {
  if (!in.accept("with")) return;
  const auto parsed = parse_codec(in.quoted());
  if (parsed) codec = *parsed;
  if (!parsed) in.fail(parsed.error().message);
  if (residual != nullptr && in.accept("residual")) *residual = view(in);
}

NamedRows Parser::named_rows(Cursor& in) {
  NamedRows out;
  out.op = op(in);
  in.expect("(");
  while (!in.failed() && !in.accept(")")) {
    if (!out.ids.empty()) in.expect(",");
    out.ids.push_back(view(in));
  }
  in.expect("most");
  out.most = in.integer();
  in.expect("rows");
  in.expect("(");
  while (!in.failed() && !in.accept(")")) {
    const int64_t begin = in.integer();
    in.expect(":");
    out.rows.push_back({begin, in.integer() - begin});
  }
  if (in.accept("counted")) out.counted = in.integers();
  return out;
}

Issue Parser::issue(Cursor& in) {
  Issue out;
  out.handle = handle(in);
  out.kind = in.named<CollectiveKind>(kCollectiveKinds, collective_name, "collective");
  if (in.accept("by")) {
    const auto combiner = parse_combiner(in.word());
    if (combiner) out.combiner = *combiner;
    if (!combiner) in.fail(combiner.error().message);
  }
  out.dtype = in.dtype();
  in.expect("group");
  out.group = in.small();
  coding(in, out.codec, &out.residual);
  if (in.accept("named")) out.named = named_rows(in);
  in.expect("{");
  if (in.accept("}")) return out;
  do {
    out.transfers.push_back(transfer(in));
  } while (!in.failed() && in.accept(";"));
  in.expect("}");
  return out;
}

Instruction Parser::instruction(Cursor& in) {
  Instruction out;
  if (in.accept("first")) out.when = When::kFirst;
  if (in.accept("last")) out.when = When::kLast;
  if (in.accept("compute")) {
    Compute body = compute(in);
    out.cause = body.op;
    out.body = std::move(body);
  } else if (in.accept("issue")) {
    out.body = issue(in);
  } else if (in.accept("wait")) {
    Wait body{handle(in), 0};
    if (in.accept("lag")) body.lag = in.small();
    out.body = body;
  } else if (in.accept("copy")) {
    Copy body;
    Cursor ahead = in;
    if (ahead.accept("#")) body.handle = handle(in);
    body.tensor = tensor(in);
    body.region = in.box();
    body.from = view(in);
    in.expect("->");
    if (in.accept("add")) body.write = Write::kAdd;
    if (in.accept("add_except_first")) body.write = Write::kAddExceptFirst;
    body.to = view(in);
    out.body = std::move(body);
  } else if (in.accept("load")) {
    Load body;
    body.tensor = tensor(in);
    body.region = in.box();
    in.expect("->");
    body.to = view(in);
    out.body = std::move(body);
  } else if (in.accept("fetch_rows")) {
    out.body = fetch_rows(in);
  } else if (in.accept("release_rows")) {
    ReleaseRows body;
    in.expect("of");
    body.fetch = in.small();
    body.changed = in.accept("changed");
    out.body = body;
  } else if (in.accept("free")) {
    out.body = Free{buffer_id(in)};
  } else {
    const bool sends = in.accept("send");
    if (!sends && !in.accept("recv")) in.fail(fmt::format("unknown instruction {}", in.rest()));
    const int number = handle(in);
    in.expect(sends ? "to" : "from");
    const int peer = in.small();
    in.expect("tag");
    const int64_t tag = in.integer();
    const TensorId what = tensor(in);
    Box region = in.box();
    View where = view(in);
    std::optional<Codec> codec;
    std::optional<View> residual;
    coding(in, codec, sends ? &residual : nullptr);
    if (sends) {
      out.body =
          Send{number, peer, tag, what, std::move(region), std::move(where), codec, residual};
    } else {
      out.body = Recv{number, peer, tag, what, std::move(region), std::move(where), codec};
    }
  }
  if (in.accept("for")) out.cause = op(in);
  return out;
}

void Parser::line(Cursor& in) {
  if (open_ == nullptr) {
    header(in);
  } else if (in.accept("}")) {
    open_ = nullptr;
  } else {
    open_->push_back(instruction(in));
  }
}

Result<Program> Parser::parse(std::string_view text, std::string_view file) {
  TESSERA_TRY_VOID(program_text::read_lines(text, file, [&](Cursor& in) { line(in); }));
  if (!started_) return invalid_input(fmt::format("{}:1: expected 'program rank R of N'", file));
  if (open_ != nullptr) {
    const auto ends = std::count(text.begin(), text.end(), '\n');
    return invalid_input(fmt::format("{}:{}: expected '}}' before the end", file,
                                     ends + (text.ends_with('\n') ? 0 : 1)));
  }
  return std::move(program_);
}

}  // namespace

Result<Program> parse_program(std::string_view text, const Graph& graph, std::string_view file) {
  return Parser(graph).parse(text, file);
}

}  // namespace tessera
