// Executes the program of a rank: holds its memory, prepares its instructions and runs the steps.
//
// Length: one class, whose instructions share its arenas, prepared operands and what is under way.
#include "tessera/runtime/interpreter.h"

#include <fmt/format.h>

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>

#include "tessera/base/broken_invariant.h"
#include "tessera/base/check.h"
#include "tessera/base/doing.h"
#include "tessera/base/text.h"
#include "tessera/comm/coded.h"
#include "tessera/graph/ahead.h"
#include "tessera/graph/kinds.h"
#include "tessera/graph/pieces.h"
#include "tessera/program/ahead_part.h"
#include "tessera/program/communication.h"
#include "tessera/program/instructions.h"
#include "tessera/runtime/arena.h"
#include "tessera/runtime/cached_tables.h"
#include "tessera/runtime/copier.h"
#include "tessera/runtime/device/device.h"
#include "tessera/runtime/device/host_copies.h"
#include "tessera/runtime/device/open.h"
#include "tessera/runtime/formulas/formula.h"
#include "tessera/runtime/initialise.h"
#include "tessera/runtime/kernels/nest.h"
#include "tessera/runtime/roundings.h"
#include "tessera/runtime/row_exchange.h"
#include "tessera/runtime/tier_copy.h"

namespace tessera {
namespace {

using kernels::Array;
using kernels::Kernel;

constexpr size_t kTiers = 3;

// The buffers that an instruction touches, from which the peak of memory is found: for each tier
// the highest end of the buffers without slots, and a list of the buffers with slots.
struct Extent {
  std::array<int64_t, kTiers> plain{};
  std::vector<BufferId> slotted;
};

// The kernels of one compute instruction or one local copy. Micro-batches need different kernels
// (variants), because their boxes or the slots of their buffers differ.
struct Variants {
  bool moving = false;   // whether the box depends on the micro-batch
  int64_t slots = 1;     // least common multiple of the numbers of slots of its buffers
  bool varying = false;  // whether the first run sets the output and later runs add to it
  std::vector<std::optional<Kernel>> kernels;
  std::vector<Copier::Job> jobs;  // by variant, for a copy with a handle; empty: not prepared yet
};

// The operands of an instruction that communicates or loads, which are made before the first step.
// The lists have an element for each slot; `loads` has one for each micro-batch.
struct Operands {
  std::vector<std::vector<comm::Item>> items;  // operands of a collective
  std::vector<comm::ArrayView> views;          // operand of a message
  std::vector<std::pair<Box, Array>> loads;    // the region, and where it is loaded
};

// One run of a block.
struct Run {
  BlockRef block;
  int64_t micro_batch = 0;
  int64_t index = 0;  // number among the runs in the step of all blocks of its family
  bool first = false, last = false;
};

// The operations in flight under a handle of the program: one for each micro-batch, or only one if
// the instruction runs once a step.
struct Flight {
  std::vector<comm::Handle> pending;
  std::vector<std::unique_ptr<comm::CodedCall>> coded;  // messages to be decoded after the wait
  bool each_run = true;  // whether it is issued in every run of a block of a micro-batch
  bool copies = false;   // whether `pending` has tickets of the copier
  device::Stream* stream = nullptr;  // of the device, which begins the operations and waits for
                                     // them; null without a device
  comm::Communicator* communicator = nullptr;  // that the operations are given to
  std::vector<std::optional<device::HostCopies>> copies_on_host;  // for those of the host
  RowExchange* rows = nullptr;  // writes arriving rows to their places after the wait; null: none
  std::string name;             // key in profile()
};

// A piece of a stream's work in the step, for profile().
struct Timed {
  explicit Timed(std::string what) : name(std::move(what)) {}
  std::string name;
  int64_t start_ns = 0, end_ns = 0;
};
constexpr double kNsPerSecond = 1e9;

int64_t read_clock(RecordClock which) {
  timespec now{};
  clock_gettime(which == RecordClock::kSteady ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

}  // namespace

struct RankExecutor::Impl {
  const Graph& graph;
  const Program& program;
  comm::Communicator& world;         // connects the hosts
  comm::Communicator* communicator;  // moves arrays: the device's, or without one `world`
  ExecutorOptions options;
  kernels::ThreadScope thread;
  std::array<Arena, kTiers> arenas;  // those of device and host; without that of a device
  DiskFile disk;
  kernels::KernelContext context;
  std::unique_ptr<device::Device> device;  // null: the processor itself
  std::unique_ptr<device::Memory> device_memory;
  std::unique_ptr<comm::Communicator> device_communicator;
  std::array<int64_t, kTiers> peak{};
  CachedTables tables;
  ByBlock<std::vector<Extent>> extents;
  ByBlock<std::vector<Variants>> variants;
  std::vector<int> groups;  // the communicator's number of each group of the program
  std::unordered_map<int, Flight> flights;
  ByBlock<std::vector<std::vector<Redistribution>>> redistributions;  // by instruction, for issues
  ByBlock<std::vector<comm::Label>> labels;
  ByBlock<std::vector<int64_t>> micro_batches;  // for each run of the family in a step
  ByBlock<std::vector<Operands>> operands;
  ByBlock<std::map<size_t, RowExchange>> exchanges;  // by instruction, for exchanges of named rows
  std::vector<Run> schedule;                         // runs of a step, in order
  const LoadFunction* load = nullptr;
  const Observation* observed = nullptr;  // null unless an evaluation observes ops
  std::map<std::string, double> seconds;
  std::deque<Timed> timed;                    // of the step under way, on a device
  std::vector<Executed>* recorded = nullptr;  // where the step is recorded; null: nowhere
  RecordClock clock = RecordClock::kSteady;
  ByBlock<std::vector<bool>> of_forward;  // by instruction: whether an evaluation executes it; made
                                          // by the first evaluation
  std::optional<AheadPart> ahead;         // the part of the program that works for the next step
  bool filled = false, filling = false;   // filled: whether the part for the next step is there
  const ByBlock<std::vector<bool>>* executed = nullptr;  // instructions to execute; null: all
  Copier copier;                                         // ends before the memory that its jobs use
  // The streams of a device: computations; collectives and messages; copies between tiers. Last
  // members, so that their threads end first.
  std::unique_ptr<device::Stream> computing, messaging, copying;

  Impl(const Graph& g, const Program& p, comm::Communicator& c, ExecutorOptions o)
      : graph(g),
        program(p),
        world(c),
        communicator(&c),
        options(std::move(o)),
        thread(options.threads) {
    context.seed = options.seed;
  }

  // ---- memory
  // ---------------------------------------------------------------------------------------------------
  bool of_device(const Buffer& buffer) const {
    return device != nullptr && buffer.tier == Tier::kDevice;
  }
  device::Place place_of(const Buffer& buffer) const {
    return of_device(buffer) ? device->place() : device::Place{};
  }
  // Returns whether the device is an accelerator of libtorch, whose streams are not threads.
  bool accelerated() const { return device != nullptr && !device->place().is_processor(); }

  // Returns the address of a buffer. That of a device's memory is for the thread that asks.
  std::byte* buffer_data(const Buffer& buffer, int64_t micro_batch) const {
    std::byte* arena =
        of_device(buffer) ? device_memory->data() : arenas[static_cast<size_t>(buffer.tier)].data();
    return arena + buffer.offset_at(micro_batch);
  }

  TierArray tier_array(const View& view, int64_t micro_batch) const {
    const Buffer& buffer = program.buffer(view.buffer);
    TierArray result{{nullptr, buffer.dtype, view.box.shape(), row_major_strides(buffer.shape),
                      place_of(buffer)},
                     -1};
    int64_t begin = 0;
    for (size_t d = 0; d < view.box.rank(); ++d)
      begin += view.box.dims[d].begin * result.array.strides[d] * dtype_bytes(buffer.dtype);
    if (buffer.tier == Tier::kDisk) {
      result.offset = buffer.offset_at(micro_batch) + begin;
    } else {
      result.array.data = buffer_data(buffer, micro_batch) + begin;
    }
    return result;
  }

  Array array(const View& view, int64_t micro_batch) const {
    return tier_array(view, micro_batch).array;
  }

  void extend(Extent& extent, const View& view) const {
    const Buffer& buffer = program.buffer(view.buffer);
    if (buffer.bytes() == 0) return;  // an empty buffer may have the offset of another one
    if (buffer.slots > 1) {
      extent.slotted.push_back(buffer.id);
      return;
    }
    int64_t& end = extent.plain[static_cast<size_t>(buffer.tier)];
    end = std::max(end, buffer.offset + buffer.bytes());
  }

  void touch(const Extent& extent, int64_t micro_batch) {
    for (size_t tier = 0; tier < kTiers; ++tier)
      peak[tier] = std::max(peak[tier], extent.plain[tier]);
    for (BufferId id : extent.slotted) {
      const Buffer& buffer = program.buffer(id);
      int64_t& most = peak[static_cast<size_t>(buffer.tier)];
      most = std::max(most, buffer.offset_at(micro_batch) + buffer.bytes());
    }
  }

  int64_t slots_of(const View& view) const { return program.buffer(view.buffer).slots; }

  // ---- preparation
  // ----------------------------------------------------------------------------------------------
  Status prepare() {
    prepare_schedule();
    const comm::Counters before = world.counters();  // the program does not move what is told here
    TESSERA_TRY(device, device::open(options.device, &world));
    TESSERA_TRY_VOID(check_device());
    for (const Tier tier : {Tier::kDevice, Tier::kHost}) {
      const auto index = static_cast<size_t>(tier);
      const int64_t bytes = program.arena_bytes[index];
      if (device != nullptr && tier == Tier::kDevice) {
        TESSERA_TRY(device_memory, device->allocate(bytes));
      } else {
        TESSERA_TRY(arenas[index], Arena::create(tier, bytes));
      }
    }
    if (device != nullptr) {
      context.formulas = device->formulas();
      TESSERA_TRY(device_communicator, device->communicator(world, connections()));
      communicator = device_communicator.get();
      world.counters() = before;
      // A broken invariant on the thread of a stream is thrown, so that it reaches the host.
      struct Scope {
        kernels::ThreadScope kernels;
        ChecksThrow checks;
      };
      const auto enter = [threads = options.threads]() -> std::shared_ptr<void> {
        return std::shared_ptr<Scope>(new Scope{kernels::ThreadScope(threads), ChecksThrow()});
      };
      for (auto* stream : {&computing, &messaging, &copying}) *stream = device->stream(enter);
    }
    Status prepared;
    on_device([&] { prepared = prepare_program(); });
    return prepared;
  }

  // Checks that the device can do what the program asks for. Caches of rows read ids on the host in
  // the middle of a step, for which they need memory of the processor.
  Status check_device() const {
    if (!accelerated()) return {};
    const auto refused = [&](std::string_view what, const Instruction& instruction) {
      return invalid_input(fmt::format(
          "device {}: expected a program without {}, found one at op {}", options.device, what,
          instruction.cause.valid() ? graph.op(instruction.cause).path : "none"));
    };
    for (const auto& [ref, block] : program.blocks) {
      for (const Instruction& instruction : block) {
        const auto checked = match(
            instruction,
            [&](const Compute& compute) -> Status {
              const Op& op = graph.op(compute.op);
              if (on_host(compute) || kernels::has_formula(op)) return {};
              return refused(fmt::format("ops of kind {}", op.kind), instruction);
            },
            [&](const OneOf<FetchRows, ReleaseRows> auto&) -> Status {
              return refused("caches of rows", instruction);
            },
            [](const OneOf<Issue, Send, Recv, Copy, Load, Wait, Free> auto&) -> Status {
              return {};
            });
        TESSERA_TRY_VOID(checked);
      }
    }
    return {};
  }

  // Returns what this rank exchanges with others in a step.
  device::Connections connections() const {
    device::Connections found;
    for (const Group& group : program.groups) found.groups.push_back(group.members);
    for (const Run& run : schedule) {
      for (const Instruction& instruction : program.block(run.block)) {
        if (!runs_in(run, instruction)) continue;
        match(
            instruction,
            [&](const Send& one) {
              found.messages.push_back({program.rank, one.peer, tag_of(one.tag, run), one.tag});
            },
            [&](const Recv& one) {
              found.messages.push_back({one.peer, program.rank, tag_of(one.tag, run), one.tag});
            },
            [](const OneOf<Compute, Issue, Wait, Copy, Load, Free, FetchRows, ReleaseRows> auto&) {
            });
      }
    }
    return found;
  }

  // Returns whether the instruction is executed in this run of its block.
  static bool runs_in(const Run& run, const Instruction& instruction) {
    return (instruction.when != When::kFirst || run.first) &&
           (instruction.when != When::kLast || run.last);
  }

  // Returns whether the processor computes the op, on memory of the host.
  bool on_host(const Compute& compute) const {
    return !compute.outputs.empty() &&
           program.buffer(compute.outputs.front().view.buffer).tier != Tier::kDevice;
  }

  // Does what touches the memory of the device tier, where that may be done, and waits for it.
  void on_device(const std::function<void()>& work) const {
    if (device == nullptr) return work();
    computing->launch(work);
    computing->finish();
  }

  Status prepare_program() {
    auto file = DiskFile::create(CachedTables::disk_bytes(program));
    if (!file) return fault(fmt::format("rank {}: {}", program.rank, file.error().message));
    disk = std::move(*file);
    const Status cached = tables.prepare(
        graph, program, options, [this](BufferId id) { return buffer_data(program.buffer(id), 0); },
        [this] { return copier.wait_for_all(); });
    if (!cached) return fault(fmt::format("rank {}: {}", program.rank, cached.error().message));
    for (const Group& group : program.groups) groups.push_back(communicator->group(group.members));
    for (const auto& [ref, block] : program.blocks) {
      extents[ref].resize(block.size());
      variants[ref].resize(block.size());
      redistributions[ref].resize(block.size());
      labels[ref].resize(block.size());
      operands[ref].resize(block.size());
      for (size_t i = 0; i < block.size(); ++i) prepare_instruction(ref, i, block[i]);
    }
    TESSERA_TRY(ahead, ahead_part(program, graph));
    return {};
  }

  void prepare_schedule() {
    for (const BlockRunStep& entry : program.schedule)
      micro_batches[program.family(entry.block)].push_back(entry.micro_batch);
    ByBlock<int64_t> runs;
    for (const BlockRunStep& entry : program.schedule) {
      const BlockRef family = program.family(entry.block);
      const int64_t index = runs[family]++;
      const auto total = static_cast<int64_t>(micro_batches.at(family).size());
      schedule.push_back({entry.block, entry.micro_batch, index, index == 0, index + 1 == total});
    }
  }

  // Calls f with one micro-batch for each of the `slots` slots of a buffer: micro-batch m uses slot
  // m mod slots.
  template <class F>
  void each_place(int64_t slots, F&& f) const {
    for (int64_t m = 0; m < std::min(slots, program.micro_batches); ++m) f(m);
  }
  void prepare_items(const Issue& issue, const std::vector<Redistribution>& whats,
                     Operands& made) const {
    const auto me = static_cast<size_t>(program.groups[static_cast<size_t>(issue.group)].index);
    int64_t slots = 1;
    for (const Transfer& transfer : issue.transfers) {
      if (transfer.in) slots = std::lcm(slots, slots_of(*transfer.in));
      if (transfer.out) slots = std::lcm(slots, slots_of(*transfer.out));
    }
    each_place(slots, [&](int64_t m) {
      std::vector<comm::Item>& items = made.items.emplace_back();
      for (size_t t = 0; t < issue.transfers.size(); ++t) {
        const Transfer& transfer = issue.transfers[t];
        items.push_back({&whats[t], comm_view(transfer.in, transfer.hold[me], m),
                         comm_view(transfer.out, transfer.need[me], m)});
      }
    });
  }
  void prepare_views(const View& view, const Box& region, Operands& made) const {
    each_place(slots_of(view),
               [&](int64_t m) { made.views.push_back(comm_view(view, region, m)); });
  }
  void prepare_loads(const Load& one, Operands& made) const {
    const int dim = micro_batch_dim_of(program, graph.tensor(one.tensor));
    for (int64_t m = 0; m < program.micro_batches; ++m)
      made.loads.emplace_back(at_micro_batch(program, one.region, dim, m), array(one.to, m));
  }

  void prepare_instruction(BlockRef b, size_t i, const Instruction& instruction) {
    Extent& extent = extents[b][i];
    Variants& v = variants[b][i];
    Operands& made = operands[b][i];
    comm::Label& label = labels[b][i];
    if (instruction.cause.valid()) label.op = graph.op(instruction.cause).path;
    accesses(instruction, [&](const Access& access) {
      if (access.view != nullptr) extend(extent, *access.view);
    });
    match(
        instruction, [&](const Compute& compute) { prepare_variants(compute, v); },
        [&](const Issue& issue) {
          for (const Transfer& transfer : issue.transfers) {
            redistributions[b][i].push_back(
                {issue.kind, issue.combiner, issue.dtype, transfer.hold, transfer.need});
          }
          prepare_items(issue, redistributions[b][i], made);
          if (issue.named) {
            const Group& group = program.groups[static_cast<size_t>(issue.group)];
            exchanges[b].try_emplace(i, graph, issue, static_cast<size_t>(group.index));
          }
          label.tensor = moved_tensors(issue, graph);
          label.axis = join(program.groups[static_cast<size_t>(issue.group)].axes, "+");
          add_flight(issue.handle, b, instruction.when, std::string(collective_name(issue.kind)),
                     messaging);
          if (issue.codec || issue.named) flights.at(issue.handle).communicator = &of_host();
        },
        [&](const Send& send) {
          prepare_views(send.view, send.region, made);
          label.tensor = graph.tensor(send.tensor).name;
          add_flight(send.handle, b, instruction.when, "send", messaging);
          if (send.codec) flights.at(send.handle).communicator = &of_host();
        },
        [&](const Recv& receive) {
          prepare_views(receive.view, receive.region, made);
          label.tensor = graph.tensor(receive.tensor).name;
          add_flight(receive.handle, b, instruction.when, "receive", messaging);
          if (receive.codec) flights.at(receive.handle).communicator = &of_host();
        },
        [&](const Copy& copy) {
          v.slots = std::lcm(slots_of(copy.from), slots_of(copy.to));
          v.varying = copy.write == Write::kAddExceptFirst;
          v.kernels.resize(2 * static_cast<size_t>(places(v)));
          if (copy.handle < 0) return;
          label.tensor = graph.tensor(copy.tensor).name;
          v.jobs.resize(v.kernels.size());
          add_flight(copy.handle, b, instruction.when, "copy", copying);
          flights.at(copy.handle).copies = true;
        },
        [&](const FetchRows& fetch) {
          const RowCache& cache = program.caches[static_cast<size_t>(fetch.cache)];
          label.tensor = graph.tensor(program.buffer(cache.held.front()).tensor).name;
          add_flight(fetch.handle, b, instruction.when, "rows", computing);
          flights.at(fetch.handle).copies = true;
        },
        [&](const Load& one) { prepare_loads(one, made); },
        [](const OneOf<Wait, Free, ReleaseRows> auto&) {});
  }

  void prepare_variants(const Compute& compute, Variants& v) const {
    const Op& op = graph.op(compute.op);
    const int dim = micro_batch_dim_of(program, op.annotation);
    v.moving = dim >= 0 && program.micro_batches > 1 && reads_position(op, dim);
    for (const View& view : compute.inputs) v.slots = std::lcm(v.slots, slots_of(view));
    for (const Output& output : compute.outputs) {
      v.slots = std::lcm(v.slots, slots_of(output.view));
      v.varying = v.varying || output.write == Write::kAddExceptFirst;
    }
    v.kernels.resize(2 * static_cast<size_t>(places(v)));
  }

  // Returns how many variants an instruction needs; micro-batch m uses variant m modulo
  // this number.
  int64_t places(const Variants& v) const {
    return v.moving ? program.micro_batches : std::min(v.slots, program.micro_batches);
  }

  void add_flight(int handle, BlockRef block, When when, std::string name,
                  const std::unique_ptr<device::Stream>& stream) {
    Flight& flight = flights[handle];
    flight.stream = stream.get();
    flight.each_run = !block.once() && when == When::kAlways;
    flight.pending.assign(flight.each_run ? static_cast<size_t>(program.micro_batches) : 1,
                          comm::kNoHandle);
    flight.coded.resize(flight.pending.size());
    flight.copies_on_host.resize(flight.pending.size());
    flight.communicator = communicator;
    flight.name = std::move(name);
  }

  // ---- execution
  // ------------------------------------------------------------------------------------------------
  void run_step(int64_t step) {
    context.step = step;
    if (device == nullptr) {
      for (const Run& run : schedule) run_block(run);
      for (auto& [handle, flight] : flights) wait_all(flight);
    } else {
      run_on_streams();
    }
    if (context.evaluating) on_device([&] { expect(tables.end_evaluation(), {}); });
  }

  // Gives the step to the streams and waits until they have done it. If any of it failed, tells the
  // other ranks, since a stream of messages may be waiting for them.
  void run_on_streams() {
    try {
      for (const Run& run : schedule) run_block(run);
      for (auto& [handle, flight] : flights)
        flight.stream->launch([this, &flight = flight] { wait_all(flight); });
      for (device::Stream* stream : {computing.get(), messaging.get(), copying.get()})
        stream->finish();
    } catch (const comm::CommFault& failed) {
      world.abort(failed.message);
      throw;
    }
    for (const Timed& one : std::exchange(timed, {}))
      seconds[one.name] += static_cast<double>(one.end_ns - one.start_ns) / kNsPerSecond;
  }

  void expect(const Status& status, const comm::Label& where) const {
    if (status) return;
    throw comm::CommFault{fmt::format("rank {}: op {}, tensor {}: {}", program.rank,
                                      where.op.empty() ? "none" : where.op, where.tensor,
                                      status.error().message)};
  }

  // Finds which instructions an evaluation executes. These are the instructions of forward ops.
  // They are also, except in blocks of the backward pass, the collectives and copies that move
  // results of forward ops; these are needed because the loss becomes complete only at the end of
  // the step, perhaps in one collective with sums of the update. All ranks that take part in a
  // collective or a message decide in the same way. All waits are executed too, so that nothing is
  // in flight when a later micro-batch uses the slots of an earlier one; a wait for something that
  // was not issued does nothing.
  //
  // An evaluation runs these instructions in the same order as the step. So no value lives longer
  // than in the step, and the evaluation needs no other offsets of buffers.
  void find_forward() {
    if (!of_forward.empty()) return;
    const std::vector<bool> of_next_step = tessera::made_ahead(graph);
    const auto works_ahead = [&](OpId op) {
      const std::vector<TensorId>& made = graph.op(op).outputs;
      return !made.empty() && of_next_step[made[0].index()];
    };
    const auto made_forward = [&](TensorId tensor) {
      const OpId producer = graph.tensor(tensor).producer;
      return producer.valid() && graph.op(producer).phase == Phase::kForward &&
             !works_ahead(producer);
    };
    const auto moves = [&](const Issue& issue) {
      return std::any_of(issue.transfers.begin(), issue.transfers.end(),
                         [&](const Transfer& one) { return made_forward(one.tensor); });
    };
    for (const auto& [ref, block] : program.blocks) {
      std::vector<bool>& chosen = of_forward[ref];
      const bool backward = ref.kind == BlockKind::kBackward || ref.kind == BlockKind::kWeight;
      for (const Instruction& instruction : block) {
        const OpId cause = instruction.cause;
        const bool forward =
            cause.valid() && graph.op(cause).phase == Phase::kForward && !works_ahead(cause);
        chosen.push_back(match(
            instruction, [](const Wait&) { return true; },
            [&](const Issue& issue) { return forward || (!backward && moves(issue)); },
            [&](const Copy& copy) { return forward || (!backward && made_forward(copy.tensor)); },
            [&](const FetchRows& fetch) { return forward && !fetch.ahead; },
            [&](const OneOf<Compute, Send, Recv, Load, Free, ReleaseRows> auto&) {
              return forward;
            }));
      }
    }
  }

  void run_block(const Run& run) {
    const auto& block = program.block(run.block);
    if (block.empty()) return;
    const std::vector<Extent>& touched = extents.at(run.block);
    for (size_t i = 0; i < block.size(); ++i) {
      const Instruction& instruction = block[i];
      if (!runs_in(run, instruction)) continue;
      if (executed != nullptr && !executed->at(run.block)[i]) continue;
      touch(touched[i], run.micro_batch);
      Executed* times = nullptr;
      if (recorded != nullptr) {
        recorded->push_back({run.block, static_cast<int32_t>(i), run.micro_batch});
        times = &recorded->back();
      }
      if (device == nullptr) {
        execute_timed(run, i, instruction, times);
      } else {
        launch(run, i, instruction, times);
      }
    }
  }

  void execute_timed(const Run& run, size_t i, const Instruction& instruction, Executed* times) {
    if (times != nullptr) {
      times->start_ns = read_clock(clock);
      execute(run, i, instruction);
      times->end_ns = read_clock(clock);
    } else if (options.profile) {
      const auto begin = std::chrono::steady_clock::now();
      execute(run, i, instruction);
      seconds[profile_name(instruction)] +=
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    } else {
      execute(run, i, instruction);
    }
  }

  // Gives an instruction to the stream of the device that executes it. An operation that is issued
  // waits for the computations in front of it, and computations wait where the program waits; there
  // is no other order between streams.
  void launch(const Run& run, size_t i, const Instruction& instruction, Executed* times) {
    const auto on = [&](device::Stream& stream) {
      launch_timed(stream, instruction, times,
                   [this, run, i, &instruction] { execute(run, i, instruction); });
    };
    const auto issued_on = [&](device::Stream& stream) {
      stream.wait(computing->record());
      on(stream);
    };
    match(
        instruction,
        [&](const Compute& compute) {
          if (accelerated() && on_host(compute)) computing->finish();
          on(*computing);
        },
        [&](const OneOf<FetchRows, ReleaseRows> auto&) { on(*computing); },
        [&](const OneOf<Issue, Send, Recv> auto&) { issued_on(*messaging); },
        [&](const Copy& copy) { copy.handle < 0 ? on(*computing) : issued_on(*copying); },
        [&](const Wait& wait) {
          device::Stream& stream = *flights.at(wait.handle).stream;
          on(stream);
          if (&stream != computing.get()) computing->wait(stream.record());
        },
        [&](const Load& one) { launch_load(run, i, one, times); }, [](const Free&) {});
  }

  // Gives work to a stream, with the times at which the stream begins and ends it if they are wanted.
  void launch_timed(device::Stream& stream, const Instruction& instruction, Executed* times,
                    std::function<void()> work) {
    int64_t *start = nullptr, *end = nullptr;
    if (times != nullptr) {
      start = &times->start_ns;
      end = &times->end_ns;
    } else if (options.profile) {
      Timed& one = timed.emplace_back(profile_name(instruction));
      start = &one.start_ns;
      end = &one.end_ns;
    }
    if (start != nullptr) stream.stamp(*start);
    stream.launch(std::move(work));
    if (end != nullptr) stream.stamp(*end);
  }

  // Loads an input into memory of the host, from where the device takes it.
  void launch_load(const Run& run, size_t i, const Load& one, Executed* times) {
    const auto& [region, to] = at_place(operands[run.block][i].loads, run);
    if (region.empty()) return;
    const auto bytes = static_cast<size_t>(region.volume() * dtype_bytes(to.dtype));
    const auto values = std::make_shared<std::vector<std::byte>>(bytes);
    const Array from = Array::contiguous(values->data(), to.dtype, to.shape);
    load_values(one, region, from);
    launch_timed(*computing, program.block(run.block)[i], times, [values, from, &to = to] {
      if (const Kernel copy = kernels::prepare_copy(from, to)) copy();
    });
  }

  std::string profile_name(const Instruction& instruction) const {
    return match(
        instruction, [](const Compute& compute) { return compute.kind; },
        [&](const Wait& wait) { return "wait " + flights.at(wait.handle).name; },
        [](const Load&) { return std::string("load"); },
        [](const Copy&) { return std::string("copy"); },
        [](const Free&) { return std::string("free"); },
        [](const OneOf<FetchRows, ReleaseRows> auto&) { return std::string("rows"); },
        [](const OneOf<Issue, Send, Recv> auto&) { return std::string("issue"); });
  }

  void execute(const Run& run, size_t i, const Instruction& instruction) {
    match(
        instruction, [&](const Compute& compute) { execute_compute(run, i, compute); },
        [&](const Issue& issue) { execute_issue(run, i, issue); },
        [&](const Send& send) { execute_send(run, i, send); },
        [&](const Recv& receive) { execute_receive(run, i, receive); },
        [&](const Wait& wait) { execute_wait(run, wait); },
        [&](const Copy& copy) { execute_copy(run, i, copy); },
        [&](const FetchRows& fetch) { execute_fetch(run, i, fetch); },
        [&](const ReleaseRows& one) {
          expect(tables.release({one.fetch, one.changed && !filling}), labels[run.block][i]);
        },
        [&](const Load& one) { execute_load(run, i, one); }, [](const Free&) {});
  }

  std::optional<Kernel>& variant(const Run& run, size_t i) {
    Variants& v = variants[run.block][i];
    return v.kernels[variant_index(run, v)];
  }

  void execute_compute(const Run& run, size_t i, const Compute& compute) {
    try {
      std::optional<Kernel>& kernel = variant(run, i);
      if (!kernel) kernel = prepare_compute(run, compute);
      if (observed != nullptr && std::ranges::count(observed->ops, compute.op) > 0)
        show(run, compute);
      if (*kernel) (*kernel)();
      if (options.roundings != 0) round_sums(run, compute);
    } catch (const std::exception& error) {
      const Op& op = graph.op(compute.op);
      if (is_memory_exhausted(error)) {
        const Doing doing("computing", op.path);
        throw;
      }
      const std::string tensor = op.outputs.empty() ? "" : graph.tensor(op.outputs[0]).name;
      throw comm::CommFault{fmt::format("rank {}: op {} ({}), tensor {}: {}", program.rank, op.path,
                                        op.kind, tensor, first_line(error.what()))};
    }
  }

  void round_sums(const Run& run, const Compute& compute) const {
    std::vector<Array> made;
    for (const Output& output : compute.outputs)
      made.push_back(array(output.view, run.micro_batch));
    round_otherwise(graph, graph.op(compute.op), made, options.roundings, context.step);
  }

  Box box_of(const Run& run, const Compute& compute) const {
    return at_micro_batch(program, compute.box,
                          micro_batch_dim_of(program, graph.op(compute.op).annotation),
                          run.micro_batch);
  }

  void show(const Run& run, const Compute& compute) const {
    std::vector<Array> inputs;
    std::vector<std::vector<std::byte>> copies;  // of an accelerator's memory
    for (const View& view : compute.inputs) {
      inputs.push_back(array(view, run.micro_batch));
      if (inputs.back().place.is_processor()) continue;
      const Array from = std::exchange(
          inputs.back(), host_array(copies.emplace_back(), inputs.back().dtype, view.box.shape()));
      if (const Kernel copy = kernels::prepare_copy(from, inputs.back())) copy();
    }
    if (!copies.empty()) computing->finish();
    observed->see(graph.op(compute.op), box_of(run, compute), inputs);
  }

  // Returns a contiguous array in `memory`, which it makes large enough.
  static Array host_array(std::vector<std::byte>& memory, DType dtype, std::vector<int64_t> shape) {
    memory.resize(static_cast<size_t>(Box::whole(shape).volume() * dtype_bytes(dtype)));
    return Array::contiguous(memory.data(), dtype, std::move(shape));
  }

  static bool adds(Write write, const Run& run) {
    return write == Write::kAdd || (write == Write::kAddExceptFirst && !run.first);
  }

  Kernel prepare_compute(const Run& run, const Compute& compute) {
    const Op& op = graph.op(compute.op);
    kernels::KernelCall call;
    call.op = &op;
    call.box = box_of(run, compute);
    for (const View& view : compute.inputs) call.inputs.push_back(array(view, run.micro_batch));
    for (const Output& output : compute.outputs) {
      call.outputs.push_back(array(output.view, run.micro_batch));
      call.add.push_back(adds(output.write, run));
    }
    call.context = &context;
    const Kernel names = tables.name_places(op, compute, call);
    Kernel kernel = kernels::prepare_chosen(call);
    if (!names || !kernel) return kernel;
    return [names, kernel = std::move(kernel)] {
      names();
      kernel();
    };
  }

  void execute_fetch(const Run& run, size_t i, const FetchRows& fetch) {
    std::vector<Array> ids;
    for (const RowIds& one : fetch.ids) {
      if (one.view) ids.push_back(array(*one.view, run.micro_batch));
    }
    // Two sorts of look-ups are not counted: those of evaluations, and those for the part of a step
    // that fill_ahead() executes.
    const auto job = tables.fetch(fetch, context.step, context.evaluating || filling, ids);
    if (!job) expect(tl::unexpected(job.error()), labels[run.block][i]);
    if (*job != nullptr) start(run, fetch.handle, copier.submit(*job));
  }

  comm::ArrayView comm_view(const std::optional<View>& view, const Box& box,
                            int64_t micro_batch) const {
    if (!view) return {nullptr, box, row_major_strides(box.shape())};
    const Array memory = array(*view, micro_batch);
    return {memory.data, box, memory.strides};
  }

  void start(const Run& run, int handle, comm::Handle started,
             std::unique_ptr<comm::CodedCall> coded = nullptr,
             std::optional<device::HostCopies> copies = std::nullopt) {
    Flight& flight = flights.at(handle);
    const size_t slot = flight.each_run ? static_cast<size_t>(run.micro_batch) : 0;
    flight.coded[slot] = std::move(coded);
    flight.copies_on_host[slot] = std::move(copies);
    comm::Handle& pending = flight.pending[slot];
    TESSERA_CHECK(pending == comm::kNoHandle, "rank {}: handle #{} is issued again before its wait",
                  program.rank, handle);
    pending = started;
  }

  // Calls f with the view of each residual, in the order of the program.
  template <class F>
  void each_residual(F&& f) const {
    for (const auto& [ref, block] : program.blocks) {
      for (const Instruction& instruction : block) {
        accesses(instruction, [&](const Access& access) {
          if (access.mode == AccessMode::kUpdate) f(*access.view);
        });
      }
    }
  }

  float* residual_of(const std::optional<View>& view, device::HostCopies& copies) const {
    return view ? reinterpret_cast<float*>(copies.write(array(*view, 0)).data) : nullptr;
  }

  // Returns copies on the host, which are none but on an accelerator.
  device::HostCopies host_copies() const {
    return device::HostCopies([this](const std::byte* at) {
      return device == nullptr ? device::Place{} : device->place_of(at);
    });
  }
  // Returns the communicator for arrays that the host reaches.
  comm::Communicator& of_host() const { return accelerated() ? world : *communicator; }

  // Returns the element of `made` that was prepared for the run's micro-batch.
  template <class T>
  const T& at_place(const std::vector<T>& made, const Run& run) const {
    return made[static_cast<size_t>(run.micro_batch) % made.size()];
  }

  void execute_issue(const Run& run, size_t i, const Issue& issue) {
    const comm::Label& label = labels[run.block][i];
    const std::vector<comm::Item>& items = at_place(operands[run.block][i].items, run);
    if (issue.codec) {
      auto call = std::make_unique<comm::CodedCall>();
      const auto me = static_cast<size_t>(program.groups[static_cast<size_t>(issue.group)].index);
      device::HostCopies copies = host_copies();
      std::vector<comm::Item> there = items;
      for (comm::Item& item : there) {
        item.in = copies.read(item.what->dtype, item.in);
        item.out = copies.write(item.what->dtype, item.out);
      }
      const comm::Handle started =
          call->begin(of_host(), groups[static_cast<size_t>(issue.group)], me, there, *issue.codec,
                      residual_of(issue.residual, copies), label);
      return start(run, issue.handle, started, std::move(call), std::move(copies));
    }
    if (issue.named) return exchange_rows(run, i, issue);
    start(run, issue.handle,
          communicator->issue(groups[static_cast<size_t>(issue.group)], items, label));
  }

  void exchange_rows(const Run& run, size_t i, const Issue& issue) {
    RowExchange& exchange = exchanges.at(run.block).at(i);
    device::HostCopies copies = host_copies();
    std::vector<Array> ids;
    for (const View& view : issue.named->ids)
      ids.push_back(copies.read(array(view, run.micro_batch)));
    const Transfer& transfer = issue.transfers[0];
    std::optional<Array> in, out;
    if (transfer.in) in = copies.read(array(*transfer.in, run.micro_batch));
    if (transfer.out) out = copies.write(array(*transfer.out, run.micro_batch));
    const comm::Handle started = exchange.begin(of_host(), groups[static_cast<size_t>(issue.group)],
                                                ids, in, out, context.step, labels[run.block][i]);
    start(run, issue.handle, started, nullptr, std::move(copies));
    flights.at(issue.handle).rows = &exchange;
  }

  // Returns the tag of a message in a run. It differs between micro-batches, so that their messages
  // cannot be confused.
  int64_t tag_of(int64_t tag, const Run& run) const {
    return tag * program.micro_batches + run.micro_batch;
  }

  void execute_send(const Run& run, size_t i, const Send& send) {
    const DType dtype = program.buffer(send.view.buffer).dtype;
    if (send.codec) {
      auto call = std::make_unique<comm::CodedCall>();
      device::HostCopies copies = host_copies();
      const comm::ArrayView from = copies.read(dtype, at_place(operands[run.block][i].views, run));
      const comm::Handle started =
          call->begin_send(of_host(), send.peer, tag_of(send.tag, run), dtype, from, *send.codec,
                           residual_of(send.residual, copies), labels[run.block][i]);
      return start(run, send.handle, started, std::move(call), std::move(copies));
    }
    start(run, send.handle,
          communicator->issue_send(send.peer, tag_of(send.tag, run), dtype,
                                   at_place(operands[run.block][i].views, run),
                                   labels[run.block][i]));
  }

  void execute_receive(const Run& run, size_t i, const Recv& receive) {
    const DType dtype = program.buffer(receive.view.buffer).dtype;
    if (receive.codec) {
      auto call = std::make_unique<comm::CodedCall>();
      device::HostCopies copies = host_copies();
      const comm::ArrayView into = copies.write(dtype, at_place(operands[run.block][i].views, run));
      const comm::Handle started =
          call->begin_recv(of_host(), receive.peer, tag_of(receive.tag, run), dtype, into,
                           *receive.codec, labels[run.block][i]);
      return start(run, receive.handle, started, std::move(call), std::move(copies));
    }
    start(run, receive.handle,
          communicator->issue_recv(receive.peer, tag_of(receive.tag, run), dtype,
                                   at_place(operands[run.block][i].views, run),
                                   labels[run.block][i]));
  }

  void wait_on(Flight& flight, size_t slot) {
    const comm::Handle handle = std::exchange(flight.pending[slot], comm::kNoHandle);
    if (handle != comm::kNoHandle && flight.copies) {
      if (const Status status = copier.wait(handle); !status)
        throw comm::CommFault{status.error().message, status.error().code};
    } else if (handle != comm::kNoHandle) {
      flight.communicator->wait(handle);
    }
    if (const auto call = std::exchange(flight.coded[slot], nullptr)) call->finish();
    if (RowExchange* rows = std::exchange(flight.rows, nullptr)) rows->finish();
    if (auto copies = std::exchange(flight.copies_on_host[slot], std::nullopt)) copies->give_back();
  }
  void wait_all(Flight& flight) {
    for (size_t slot = 0; slot < flight.pending.size(); ++slot) wait_on(flight, slot);
  }

  void execute_wait(const Run& run, const Wait& wait) {
    Flight& flight = flights.at(wait.handle);
    if (run.block.once() || !flight.each_run) {
      wait_all(flight);
      return;
    }
    if (wait.lag > run.index) return;
    const int64_t micro_batch =
        wait.lag == 0 ? run.micro_batch
                      : micro_batches.at(
                            program.family(run.block))[static_cast<size_t>(run.index - wait.lag)];
    wait_on(flight, static_cast<size_t>(micro_batch));
  }

  size_t variant_index(const Run& run, const Variants& v) const {
    const int64_t place = run.micro_batch % places(v);
    return static_cast<size_t>(2 * place + (v.varying && run.first ? 1 : 0));
  }

  void submit_copy(const Run& run, size_t i, const Copy& copy) {
    Variants& v = variants[run.block][i];
    Copier::Job& job = v.jobs[variant_index(run, v)];
    if (!job) {
      const comm::Label& label = labels[run.block][i];
      job = [move = prepare_move(tier_array(copy.from, run.micro_batch),
                                 tier_array(copy.to, run.micro_batch), adds(copy.write, run)),
             where = fmt::format("rank {}: op {}, tensor {}", program.rank,
                                 label.op.empty() ? "none" : label.op, label.tensor)]() -> Status {
        const Status status = move();
        if (!status) return fault(fmt::format("{}: {}", where, status.error().message));
        return {};
      };
    }
    if (device == nullptr) return start(run, copy.handle, copier.submit(&job));
    if (!accelerated()) return start(run, copy.handle, copier.submit_late(&job));
    // The copying stream is the current one, and copies of memory do not wait.
    if (const Status status = job(); !status)
      throw comm::CommFault{status.error().message, status.error().code};
  }

  // Prepares a copy between tiers. One between a file and an accelerator goes through memory of the
  // host, for which the host waits.
  Copier::Job prepare_move(const TierArray& from, const TierArray& to, bool add) {
    const bool apart = from.array.place != to.array.place && (from.on_disk() || to.on_disk());
    if (!apart) return prepare_tier_copy(from, to, add, disk);
    const auto memory = std::make_shared<std::vector<std::byte>>();
    const TierArray between{host_array(*memory, to.array.dtype, to.array.shape), -1};
    Copier::Job first = prepare_tier_copy(from, between, false, disk),
                second = prepare_tier_copy(between, to, add, disk);
    return [this, memory, first = std::move(first), second = std::move(second)]() -> Status {
      TESSERA_TRY_VOID(first());
      copying->finish();
      return second();
    };
  }

  void execute_copy(const Run& run, size_t i, const Copy& copy) {
    if (copy.handle >= 0) return submit_copy(run, i, copy);
    std::optional<Kernel>& kernel = variant(run, i);
    if (!kernel) {
      const Array from = array(copy.from, run.micro_batch), to = array(copy.to, run.micro_batch);
      kernel =
          adds(copy.write, run) ? kernels::prepare_add(from, to) : kernels::prepare_copy(from, to);
    }
    if (*kernel) (*kernel)();
  }

  // Loads an input. An input that is marked as one of the next step gets the data of the next step.
  // When fill_ahead() executes only the part that works ahead, `load` already gives the data of
  // that next step.
  void execute_load(const Run& run, size_t i, const Load& one) {
    const auto& [region, to] = at_place(operands[run.block][i].loads, run);
    if (!region.empty()) load_values(one, region, to);
  }

  void load_values(const Load& one, const Box& region, const Array& to) {
    const Tensor& tensor = graph.tensor(one.tensor);
    if (!is_of_next_step(tensor)) return (*load)(tensor, region, to);
    const Tensor& now = graph.tensor(tensor.of);
    if (filling) return (*load)(now, region, to);
    TESSERA_CHECK(options.ahead, "nobody gives the next batch's '{}'", now.name);
    options.ahead(context.step + 1, now, region, to);
  }

  // Executes the part of the program that works ahead for step `step`, on the inputs that `load`
  // gives, so that the step finds its results.
  void fill_ahead(int64_t step) {
    filling = true;
    executed = &ahead->instructions;
    run_step(step);
    executed = nullptr;
    filling = false;
  }
};

RankExecutor::RankExecutor() = default;
RankExecutor::~RankExecutor() = default;

Result<std::unique_ptr<RankExecutor>> RankExecutor::create(const Graph& graph,
                                                           const Program& program,
                                                           comm::Communicator& communicator,
                                                           ExecutorOptions options) {
  kernels::configure_process();
  std::unique_ptr<RankExecutor> executor(new RankExecutor());
  executor->impl_ = std::make_unique<Impl>(graph, program, communicator, options);
  TESSERA_TRY_VOID(executor->impl_->prepare());
  return executor;
}

void RankExecutor::initialise(const std::set<TensorId>& but) {
  impl_->filled = false;
  const Origins origins(impl_->graph);
  for (const Home& home : impl_->program.homes) {
    const View whole{home.buffer, Box::whole(impl_->program.buffer(home.buffer).shape)};
    Extent extent;
    impl_->extend(extent, whole);
    impl_->touch(extent, 0);
    if (but.contains(home.tensor)) continue;
    const Buffer& buffer = impl_->program.buffer(impl_->tables.rest_of(home.buffer));
    const auto init = [&](const Array& to) {
      const PieceOrigin origin = origins.of(home.tensor);
      tessera::initialise(whole_of(impl_->graph.tensor(home.tensor), origin),
                          origin.in_whole(home.region), impl_->options.seed, to);
    };
    if (buffer.tier != Tier::kDisk && !impl_->of_device(buffer)) {
      init(impl_->array({buffer.id, whole.box}, 0));
      continue;
    }
    if (buffer.id != home.buffer && !impl_->of_device(buffer))
      continue;  // rows in a file get their initial values when they
                 // are read
    HostArray values{home.tensor, home.region, buffer.dtype, {}};
    values.data.resize(static_cast<size_t>(buffer.bytes()));
    init(Array::contiguous(values.data.data(), buffer.dtype, buffer.shape));
    write(home, values);
  }
  for (const BufferId id : impl_->tables.beside_homes()) {
    Extent extent;
    impl_->extend(extent, {id, Box::whole(impl_->program.buffer(id).shape)});
    impl_->touch(extent, 0);
  }
  std::vector<std::vector<float>> zeros;
  for (const int64_t size : residual_sizes()) zeros.emplace_back(static_cast<size_t>(size), 0.0F);
  set_residuals(zeros);
}

void RankExecutor::take_memory() {
  for (const Arena& arena : impl_->arenas) arena.populate();
}

void RankExecutor::run_step(int64_t step, const LoadFunction& load) {
  impl_->load = &load;
  if (impl_->ahead && !std::exchange(impl_->filled, true)) {
    std::vector<Executed>* recorded = std::exchange(impl_->recorded, nullptr);
    impl_->fill_ahead(step);
    impl_->recorded = recorded;
  }
  impl_->run_step(step);
  impl_->recorded = nullptr;
}

void RankExecutor::evaluate(int64_t step, const LoadFunction& load, const Observation* observed) {
  const std::vector<std::vector<float>> saved = residuals();
  impl_->find_forward();
  impl_->load = &load;
  // An evaluation has batches of its own, so the results that were made ahead for the next training
  // step are saved here and written back after the evaluation.
  std::vector<HostArray> of_next_step;
  if (impl_->ahead) {
    for (const Home& home : impl_->ahead->homes) of_next_step.push_back(read(home));
    impl_->fill_ahead(step);
  }
  impl_->observed = observed;
  impl_->context.evaluating = true;
  impl_->executed = &impl_->of_forward;
  impl_->run_step(step);
  impl_->executed = nullptr;
  impl_->context.evaluating = false;
  impl_->observed = nullptr;
  for (size_t i = 0; i < of_next_step.size(); ++i) {
    const bool filled = impl_->filled;
    write(impl_->ahead->homes[i], of_next_step[i]);
    impl_->filled = filled;
  }
  set_residuals(saved);
}

void RankExecutor::record(std::vector<Executed>* into, RecordClock clock) {
  impl_->recorded = into;
  impl_->clock = clock;
  if (into == nullptr) return;
  size_t room = 0;
  for (const BlockRunStep& entry : impl_->program.schedule)
    room += impl_->program.block(entry.block).size();
  into->clear();
  into->reserve(room);
}

void RankExecutor::check_disk(const Status& status, const Home& home) const {
  if (status) return;
  throw comm::CommFault{fmt::format("rank {}: op none, tensor {}: {}", impl_->program.rank,
                                    impl_->graph.tensor(home.tensor).name, status.error().message)};
}

HostArray RankExecutor::read(const Home& home) const {
  const Buffer& buffer = impl_->program.buffer(home.buffer);
  HostArray result{home.tensor, home.region, buffer.dtype, {}};
  if (CachedRows* rows = impl_->tables.rows_of(home.buffer)) {
    result.data.resize(static_cast<size_t>(home.region.volume() * dtype_bytes(buffer.dtype)));
    check_disk(rows->read(home.buffer, result.data.data()), home);
    return result;
  }
  TESSERA_CHECK(buffer.bytes() == home.region.volume() * dtype_bytes(buffer.dtype), "home {} of {}",
                buffer.name, home.region.to_string());
  result.data.resize(static_cast<size_t>(buffer.bytes()));
  if (buffer.tier == Tier::kDisk) {
    check_disk(impl_->disk.read(buffer.offset, result.data.data(), buffer.bytes()), home);
  } else if (impl_->of_device(buffer)) {
    impl_->device->download(*impl_->computing, *impl_->device_memory, buffer.offset_at(0),
                            result.data.data(), buffer.bytes());
  } else {
    const std::byte* from = impl_->buffer_data(buffer, 0);
    std::copy(from, from + buffer.bytes(), result.data.begin());
  }
  return result;
}

void RankExecutor::write(const Home& home, const HostArray& array) {
  impl_->filled = false;
  const Buffer& buffer = impl_->program.buffer(home.buffer);
  TESSERA_CHECK(array.region == home.region && array.dtype == buffer.dtype,
                "home {} of {}, array of {}", buffer.name, home.region.to_string(),
                array.region.to_string());
  if (CachedRows* rows = impl_->tables.rows_of(home.buffer)) {
    check_disk(rows->write(home.buffer, array.data.data()), home);
  } else if (buffer.tier == Tier::kDisk) {
    check_disk(impl_->disk.write(buffer.offset, array.data.data(), buffer.bytes()), home);
  } else if (impl_->of_device(buffer)) {
    impl_->device->upload(*impl_->computing, *impl_->device_memory, buffer.offset_at(0),
                          array.data.data(), buffer.bytes());
  } else {
    std::copy(array.data.begin(), array.data.end(), impl_->buffer_data(buffer, 0));
  }
}

std::byte* RankExecutor::memory(const Home& home) {
  impl_->filled = false;
  if (CachedRows* rows = impl_->tables.rows_of(home.buffer)) return rows->rest(home.buffer, true);
  const Buffer& buffer = impl_->program.buffer(home.buffer);
  TESSERA_CHECK(buffer.bytes() == home.region.volume() * dtype_bytes(buffer.dtype), "home {} of {}",
                buffer.name, home.region.to_string());
  const bool reached = buffer.tier != Tier::kDisk && !impl_->of_device(buffer);
  return reached ? impl_->buffer_data(buffer, 0) : nullptr;
}
const std::byte* RankExecutor::memory(const Home& home) const {
  if (CachedRows* rows = impl_->tables.rows_of(home.buffer)) return rows->rest(home.buffer, false);
  const bool filled = impl_->filled;
  const std::byte* at = const_cast<RankExecutor*>(this)->memory(
      home);  // NOLINT(cppcoreguidelines-pro-type-const-cast)
  impl_->filled = filled;
  return at;
}

std::vector<int64_t> RankExecutor::residual_sizes() const {
  std::vector<int64_t> sizes;
  impl_->each_residual([&](const View& view) { sizes.push_back(view.box.volume()); });
  return sizes;
}

std::vector<std::vector<float>> RankExecutor::residuals() const {
  std::vector<std::vector<float>> found;
  impl_->on_device([&] {
    impl_->each_residual([&](const View& view) {
      device::HostCopies copies = impl_->host_copies();
      const auto* from = reinterpret_cast<const float*>(copies.read(impl_->array(view, 0)).data);
      found.emplace_back(from, from + view.box.volume());
    });
  });
  return found;
}

void RankExecutor::set_residuals(const std::vector<std::vector<float>>& values) {
  impl_->on_device([&] {
    size_t next = 0;
    impl_->each_residual([&](const View& view) {
      device::HostCopies copies = impl_->host_copies();
      std::ranges::copy(values.at(next++), impl_->residual_of(view, copies));
      copies.give_back();
    });
  });
}

std::array<int64_t, 3> RankExecutor::peak_bytes() const { return impl_->peak; }
std::vector<RowCacheReport> RankExecutor::row_caches() const { return impl_->tables.reports(); }
const std::map<std::string, double>& RankExecutor::profile() const { return impl_->seconds; }

std::optional<double> read_loss(const RankExecutor& executor, const Program& program,
                                TensorId loss) {
  for (const Home& home : program.fetches) {
    if (home.tensor == loss && !home.region.empty()) return executor.read(home).values().at(0);
  }
  return std::nullopt;
}

}  // namespace tessera
