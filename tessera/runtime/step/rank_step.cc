#include "tessera/runtime/step/rank_step.h"

#include <fmt/format.h>

#include <time.h>

#include <chrono>

#include "tessera/base/broken_invariant.h"
#include "tessera/runtime/device/host_copies.h"
#include "tessera/runtime/device/open.h"
#include "tessera/runtime/formulas/formula.h"
#include "tessera/runtime/step/execute.h"

namespace tessera {
namespace {

using kernels::Array;
using kernels::Kernel;

constexpr double kNsPerSecond = 1e9;

int64_t read_clock(RecordClock which) {
  timespec now{};
  clock_gettime(which == RecordClock::kSteady ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

void add_flight(RankStep& r, BlockRef block, const Instruction& instruction) {
  const auto add = [&](int handle, std::string_view name, comm::Communicator* by,
                       const std::unique_ptr<device::Stream>& stream) {
    r.flights.add(handle, block, instruction.when, std::string(name), by, stream.get());
  };
  match(
      instruction,
      [&](const Issue& issue) {
        add(issue.handle, collective_name(issue.kind),
            issue.codec || issue.named ? &r.of_host() : r.communicator, r.messaging);
      },
      [&](const Send& send) {
        add(send.handle, "send", send.codec ? &r.of_host() : r.communicator, r.messaging);
      },
      [&](const Recv& receive) {
        add(receive.handle, "receive", receive.codec ? &r.of_host() : r.communicator, r.messaging);
      },
      [&](const Copy& copy) {
        if (copy.handle >= 0) add(copy.handle, "copy", nullptr, r.copying);
      },
      [&](const FetchRows& fetch) { add(fetch.handle, "rows", nullptr, r.computing); },
      [](const OneOf<Compute, Load, Wait, Free, ReleaseRows> auto&) {});
}

// Returns the name under which the time of the instruction is counted.
std::string profile_name(const Flights& flights, const Instruction& instruction) {
  return match(
      instruction, [](const Compute& compute) { return compute.kind; },
      [&](const Wait& wait) { return "wait " + flights.name_of(wait.handle); },
      [](const Load&) { return std::string("load"); },
      [](const Copy&) { return std::string("copy"); },
      [](const Free&) { return std::string("free"); },
      [](const OneOf<FetchRows, ReleaseRows> auto&) { return std::string("rows"); },
      [](const OneOf<Issue, Send, Recv> auto&) { return std::string("issue"); });
}

}  // namespace

Status RankStep::prepare() {
  prepared = prepare_schedule(program);
  const comm::Counters before = world.counters();  // the program does not move what is told here
  TESSERA_TRY(device, device::open(options.device, &world));
  TESSERA_TRY_VOID(memory.take(device.get()));
  if (memory.accelerated()) TESSERA_TRY_VOID(check_for_accelerator(program, graph, options.device));
  if (device != nullptr) {
    context.formulas = device->formulas();
    TESSERA_TRY(device_communicator,
                device->communicator(world, connections_of(program, prepared.schedule)));
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
  Status status;
  on_device([&] { status = prepare_program(); });
  return status;
}

void RankStep::on_device(const std::function<void()>& work) const {
  if (device == nullptr) return work();
  computing->launch(work);
  computing->finish();
}

Status RankStep::prepare_program() {
  const auto of_rank = [&](const Status& status) {
    return status ? status
                  : fault(fmt::format("rank {}: {}", program.rank, status.error().message));
  };
  TESSERA_TRY_VOID(of_rank(memory.take_disk(CachedTables::disk_bytes(program))));
  TESSERA_TRY_VOID(of_rank(tables.prepare(
      graph, program, options, [this](BufferId id) { return memory.data(program.buffer(id), 0); },
      [this] { return copier.wait_for_all(); })));
  for (const Group& group : program.groups) groups.push_back(communicator->group(group.members));
  prepare_instructions(graph, program, memory, prepared);
  for (const auto& [ref, block] : program.blocks) {
    for (const Instruction& instruction : block) add_flight(*this, ref, instruction);
  }
  TESSERA_TRY(ahead, ahead_part(program, graph));
  return {};
}

void RankStep::run_step(int64_t step) {
  context.step = step;
  if (device == nullptr) {
    for (const StepRun& run : prepared.schedule) run_block(run);
    flights.wait_for_all();
  } else {
    run_on_streams();
  }
  if (context.evaluating) on_device([&] { expect(tables.end_evaluation(), {}); });
}

void RankStep::run_on_streams() {
  try {
    for (const StepRun& run : prepared.schedule) run_block(run);
    flights.wait_for_all();
    for (device::Stream* stream : {computing.get(), messaging.get(), copying.get()})
      stream->finish();
  } catch (const comm::CommFault& failed) {
    world.abort(failed.message);
    throw;
  }
  for (const Timed& one : std::exchange(timed, {}))
    seconds[one.name] += static_cast<double>(one.end_ns - one.start_ns) / kNsPerSecond;
}

void RankStep::expect(const Status& status, const comm::Label& where) const {
  if (status) return;
  throw comm::CommFault{fmt::format("rank {}: op {}, tensor {}: {}", program.rank,
                                    where.op.empty() ? "none" : where.op, where.tensor,
                                    status.error().message)};
}

void RankStep::run_block(const StepRun& run) {
  const auto& block = program.block(run.block);
  if (block.empty()) return;
  for (size_t i = 0; i < block.size(); ++i) {
    const Instruction& instruction = block[i];
    if (!run.executes(instruction)) continue;
    if (executed != nullptr && !executed->at(run.block)[i]) continue;
    PreparedInstruction& made = prepared.at(run.block, i);
    memory.touch(made.touched, run.micro_batch);
    Executed* times = nullptr;
    if (recorded != nullptr) {
      recorded->push_back({run.block, static_cast<int32_t>(i), run.micro_batch});
      times = &recorded->back();
    }
    if (device == nullptr) {
      execute_timed(run, instruction, made, times);
    } else {
      launch(run, instruction, made, times);
    }
  }
}

void RankStep::execute_timed(const StepRun& run, const Instruction& instruction,
                             PreparedInstruction& made, Executed* times) {
  if (times != nullptr) {
    times->start_ns = read_clock(clock);
    execute(*this, run, instruction, made);
    times->end_ns = read_clock(clock);
  } else if (options.profile) {
    const auto begin = std::chrono::steady_clock::now();
    execute(*this, run, instruction, made);
    seconds[profile_name(flights, instruction)] +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  } else {
    execute(*this, run, instruction, made);
  }
}

void RankStep::launch(const StepRun& run, const Instruction& instruction, PreparedInstruction& made,
                      Executed* times) {
  const auto on = [&](device::Stream& stream) {
    launch_timed(stream, instruction, times,
                 [this, run, &instruction, &made] { execute(*this, run, instruction, made); });
  };
  const auto issued_on = [&](device::Stream& stream) {
    stream.wait(computing->record());
    on(stream);
  };
  match(
      instruction,
      [&](const Compute& compute) {
        if (memory.accelerated() && on_host(program, compute)) computing->finish();
        on(*computing);
      },
      [&](const OneOf<FetchRows, ReleaseRows> auto&) { on(*computing); },
      [&](const OneOf<Issue, Send, Recv> auto&) { issued_on(*messaging); },
      [&](const Copy& copy) { copy.handle < 0 ? on(*computing) : issued_on(*copying); },
      [&](const Wait& wait) {
        device::Stream& stream = *flights.stream_of(wait.handle);
        on(stream);
        if (&stream != computing.get()) computing->wait(stream.record());
      },
      [&](const Load& one) { launch_load(run, instruction, one, made, times); },
      [](const Free&) {});
}

void RankStep::launch_timed(device::Stream& stream, const Instruction& instruction, Executed* times,
                            std::function<void()> work) {
  int64_t *start = nullptr, *end = nullptr;
  if (times != nullptr) {
    start = &times->start_ns;
    end = &times->end_ns;
  } else if (options.profile) {
    Timed& one = timed.emplace_back(profile_name(flights, instruction));
    start = &one.start_ns;
    end = &one.end_ns;
  }
  if (start != nullptr) stream.stamp(*start);
  stream.launch(std::move(work));
  if (end != nullptr) stream.stamp(*end);
}

void RankStep::launch_load(const StepRun& run, const Instruction& instruction, const Load& one,
                           const PreparedInstruction& made, Executed* times) {
  const auto& [region, to] = PreparedInstruction::of_run(made.loads, run);
  if (region.empty()) return;
  const auto bytes = static_cast<size_t>(region.volume() * dtype_bytes(to.dtype));
  const auto values = std::make_shared<std::vector<std::byte>>(bytes);
  const Array from = Array::contiguous(values->data(), to.dtype, to.shape);
  load_values(*this, one, region, from);
  launch_timed(*computing, instruction, times, [values, from, &to = to] {
    if (const Kernel copy = kernels::prepare_copy(from, to)) copy();
  });
}

float* RankStep::residual_of(const std::optional<View>& view, device::HostCopies& copies) const {
  return view ? reinterpret_cast<float*>(copies.write(memory.array(*view, 0)).data) : nullptr;
}

void RankStep::fill_ahead(int64_t step) {
  filling = true;
  executed = &ahead->instructions;
  run_step(step);
  executed = nullptr;
  filling = false;
}

}  // namespace tessera
