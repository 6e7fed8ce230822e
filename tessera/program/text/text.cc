// The text form of programs: one form for printing and for parsing (text_io.h).
#include "tessera/program/text/text.h"

#include <fmt/format.h>

#include "tessera/program/text/text_io.h"

namespace tessera {
namespace {

using program_text::Reader;
using program_text::Writer;

// `ProgramT` is `Program` with a Reader and `const Program` with a Writer.
template <class Io, class ProgramT>
class ProgramForm {
 public:
  ProgramForm(Io& io, ProgramT& program) : io_(io), program_(program) {}

  static constexpr std::string_view kUsage = "program rank R of N";

  // All lines of a program: with a Reader, the line that is being read.
  void lines() {
    ProgramT& p = program_;
    io_.first_line("program rank ", kUsage, [&] { put(p.rank, " of ", p.ranks); });
    io_.line("stages ", [&] {
      number_list(p.stages);
      io_.text(" coordinates ");
      number_list(p.coordinates);
    });
    io_.line("micro_batches ", [&] {
      put(p.micro_batches, " dim ");
      io_.quoted(p.micro_batch_dim);
      put(" size ", p.micro_batch_size);
      if (io_.option(" larger ", p.larger > 0)) io_.number(p.larger);
    });
    io_.line("arena ", [&] {
      put("device ", p.arena_bytes[0], " host ", p.arena_bytes[1], " disk ", p.arena_bytes[2]);
    });
    io_.lines("group ", p.groups, [&](size_t index, auto& x) { group(index, x); });
    io_.lines("buffer ", p.buffers, [&](size_t index, auto& x) { buffer(index, x); });
    io_.lines("cache held ", p.caches, [&](size_t /*index*/, auto& x) { cache(x); });
    io_.lines("home ", p.homes, [&](size_t /*index*/, auto& x) { home(x); });
    io_.lines("fetch ", p.fetches, [&](size_t /*index*/, auto& x) { home(x); });
    io_.line("schedule ", [&] {
      if (!io_.more(!p.schedule.empty())) return;
      io_.sequence(", ", p.schedule, [&](auto& run) {
        io_.block(run.block);
        put(" ", run.micro_batch);
      });
    });
    io_.blocks(p.blocks, [&](auto& x) { instruction(x); });
  }

  void instruction(auto& x) {
    program_text::instruction_form<Compute>(io_, x, [&] { body(x.body); });
  }

 private:
  template <class... Parts>
  void put(Parts&&... parts) {
    program_text::put_parts(io_, parts...);
  }
  void number_list(auto& list) {
    io_.list("[", ", ", "]", list, [&](auto& number) { io_.number(number); });
  }
  void group(size_t index, auto& group) {
    program_text::index_form(io_, index, "group ", "");
    put(" place ", group.place, " axes ");
    io_.list("[", ", ", "]", group.axes, [&](auto& axis) { io_.quoted(axis); });
    io_.text(" members ");
    number_list(group.members);
    put(" index ", group.index);
  }

  void buffer(size_t index, auto& buffer) {
    program_text::index_form(io_, index, "buffer ", "%");
    io_.set(buffer.id, BufferId(index));
    io_.text(" ");
    io_.quoted(buffer.name);
    io_.text(" of ");
    io_.tensor(buffer.tensor);
    io_.text(" ");
    io_.dtype(buffer.dtype);
    io_.text(" ");
    number_list(buffer.shape);
    io_.text(" ");
    io_.named(buffer.tier, 3, tier_name, "tier");
    io_.text(" ");
    io_.named(buffer.lifetime, 4, lifetime_name, "lifetime");
    put(" at ", buffer.offset);
    if (io_.option(" slots ", buffer.slots > 1)) put(buffer.slots, " x ", buffer.slot_bytes);
    if (io_.option(" places ", buffer.places > 0)) io_.number(buffer.places);
  }

  void cache(auto& cache) {
    const auto buffers = [&](auto& list) {
      io_.list("(", ", ", ")", list, [&](auto& id) { put("%", id); });
    };
    buffers(cache.held);
    io_.text(" rests ");
    buffers(cache.rests);
    put(" index %", cache.index, " rows ", cache.rows.begin, " size ", cache.rows.size, " slots ",
        cache.slots, " places ", cache.places, " policy ");
    io_.quoted(cache.policy);
    put(" window ", cache.window, " counted ", cache.counted);
  }

  void home(auto& home) {
    region(home);
    put(" %", home.buffer);
  }
  void region(auto& of) {
    io_.tensor(of.tensor);
    io_.box(of.region);
  }

  void view(auto& view) {
    put("%", view.buffer);
    const bool known = view.buffer.valid() && view.buffer.index() < program_.buffers.size();
    const auto whole = [&] { return Box::whole(program_.buffer(view.buffer).shape); };
    if (io_.next("[", !known || view.box != whole())) {
      io_.box(view.box);
    } else if (known) {
      io_.set(view.box, whole());
    } else {
      io_.unknown(fmt::format("buffer %{} before", view.buffer.value));
    }
  }
  void view_if(std::string_view before, auto& view) {
    if (io_.option(before, view.has_value())) this->view(io_.value(view));
  }

  void body(auto& x) {
    const bool known = io_.template alternative<Compute>("compute ", x, [&](auto& body) {
      compute(body);
    }) || io_.template alternative<Issue>("issue #", x, [&](auto& body) {
      issue(body);
    }) || io_.template alternative<Send>("send #", x, [&](auto& body) {
      message(body, " to ");
      coding(body.codec);
      view_if(" residual ", body.residual);
    }) || io_.template alternative<Recv>("recv #", x, [&](auto& body) {
      message(body, " from ");
      coding(body.codec);
    }) || io_.template alternative<Wait>("wait #", x, [&](auto& body) {
      program_text::wait_form(io_, body);
    }) || io_.template alternative<Copy>("copy ", x, [&](auto& body) {
      copy(body);
    }) || io_.template alternative<Load>("load ", x, [&](auto& body) {
      region(body);
      io_.text(" -> ");
      view(body.to);
    }) || io_.template alternative<Free>("free ", x, [&](auto& body) {
      put("%", body.buffer);
    }) || io_.template alternative<FetchRows>("fetch_rows #", x, [&](auto& body) {
      fetch(body);
    }) || io_.template alternative<ReleaseRows>("release_rows of ", x, [&](auto& body) {
      io_.number(body.fetch);
      io_.set(body.changed, io_.option(" changed", body.changed));
    });
    if (!known) io_.unknown("instruction");
  }

  void compute(auto& compute) {
    io_.op(compute.op);
    io_.text(" ");
    io_.word(compute.kind);
    io_.text(" ");
    io_.box(compute.box);
    io_.list(" (", ", ", ")", compute.inputs, [&](auto& input) { view(input); });
    io_.list(" -> (", ", ", ")", compute.outputs, [&](auto& output) {
      program_text::output_form(io_, output, [&](auto& of) { view(of); });
    });
    io_.attributes(compute.attributes);
  }

  void issue(auto& issue) {
    put(issue.handle, " ");
    io_.named(issue.kind, kCollectiveKinds, collective_name, "collective");
    if (io_.option(" by ", issue.combiner.has_value())) io_.combiner(io_.value(issue.combiner));
    io_.text(" ");
    io_.dtype(issue.dtype);
    put(" group ", issue.group);
    coding(issue.codec);
    view_if(" residual ", issue.residual);
    if (io_.option(" named ", issue.named.has_value())) named_rows(io_.value(issue.named));
    io_.list(" {", "; ", "}", issue.transfers, [&](auto& transfer) {
      const auto boxes = [&](std::string_view open, auto& list) {
        io_.list(open, " ", ")", list, [&](auto& box) { io_.box(box); });
      };
      io_.tensor(transfer.tensor);
      boxes(" (", transfer.hold);
      boxes(" -> (", transfer.need);
      view_if(" in ", transfer.in);
      view_if(" out ", transfer.out);
    });
  }
  void named_rows(auto& named) {
    io_.op(named.op);
    io_.list(" (", ", ", ")", named.ids, [&](auto& ids) { view(ids); });
    put(" most ", named.most);
    io_.list(" rows (", " ", ")", named.rows, [&](auto& rows) { io_.interval(rows); });
    if (io_.option(" counted ", !named.counted.empty())) number_list(named.counted);
  }
  void coding(auto& codec) {
    if (io_.option(" with ", codec.has_value())) io_.codec(io_.value(codec));
  }

  void message(auto& message, std::string_view direction) {
    put(message.handle, direction, message.peer, " tag ", message.tag, " ");
    region(message);
    io_.text(" ");
    view(message.view);
  }

  void copy(auto& copy) {
    program_text::copy_form(
        io_, copy, [&] { region(copy); }, [&](auto& of) { view(of); });
  }

  void fetch(auto& fetch) {
    put(fetch.handle, " cache ", fetch.cache);
    io_.set(fetch.ahead, io_.option(" ahead", fetch.ahead));
    io_.list(" (", ", ", ")", fetch.ids, [&](auto& ids) {
      region(ids);
      if (!io_.next("%", ids.view.has_value())) return;
      io_.text(" ");
      view(io_.value(ids.view));
    });
    put(" expect ", fetch.expected_in, " in ", fetch.expected_out, " out");
  }

  Io& io_;
  ProgramT& program_;
};

}  // namespace

std::string to_text(const Program& program, const Graph& graph) {
  Writer out(graph);
  ProgramForm(out, program).lines();
  return out.take();
}

std::string to_text(const Instruction& instruction, const Program& program, const Graph& graph) {
  Writer out(graph);
  ProgramForm(out, program).instruction(instruction);
  return out.take();
}

Result<Program> parse_program(std::string_view text, const Graph& graph, std::string_view file) {
  Program program;
  Reader in(graph);
  ProgramForm form(in, program);
  TESSERA_TRY_VOID(in.read(text, file, form.kUsage, [&] { form.lines(); }));
  return program;
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
