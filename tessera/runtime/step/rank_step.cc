#include "tessera/runtime/step/rank_step.h"

#include <fmt/format.h>

#include <time.h>

#include <algorithm>
#include <chrono>
#include <exception>

#include "tessera/base/broken_invariant.h"
#include "tessera/base/check.h"
#include "tessera/base/doing.h"
#include "tessera/comm/coded.h"
#include "tessera/graph/ahead.h"
#include "tessera/program/communication.h"
#include "tessera/runtime/arrays/roundings.h"
#include "tessera/runtime/device/host_copies.h"
#include "tessera/runtime/device/open.h"
#include "tessera/runtime/formulas/formula.h"

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

std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
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
    for (const Instruction& instruction : block) add_flight(ref, instruction);
  }
  TESSERA_TRY(ahead, ahead_part(program, graph));
  return {};
}

void RankStep::add_flight(BlockRef block, const Instruction& instruction) {
  const auto add = [&](int handle, std::string_view name, comm::Communicator* by,
                       const std::unique_ptr<device::Stream>& stream) {
    flights.add(handle, block, instruction.when, std::string(name), by, stream.get());
  };
  match(
      instruction,
      [&](const Issue& issue) {
        add(issue.handle, collective_name(issue.kind),
            issue.codec || issue.named ? &of_host() : communicator, messaging);
      },
      [&](const Send& send) {
        add(send.handle, "send", send.codec ? &of_host() : communicator, messaging);
      },
      [&](const Recv& receive) {
        add(receive.handle, "receive", receive.codec ? &of_host() : communicator, messaging);
      },
      [&](const Copy& copy) {
        if (copy.handle >= 0) add(copy.handle, "copy", nullptr, copying);
      },
      [&](const FetchRows& fetch) { add(fetch.handle, "rows", nullptr, computing); },
      [](const OneOf<Compute, Load, Wait, Free, ReleaseRows> auto&) {});
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
    execute(run, instruction, made);
    times->end_ns = read_clock(clock);
  } else if (options.profile) {
    const auto begin = std::chrono::steady_clock::now();
    execute(run, instruction, made);
    seconds[profile_name(instruction)] +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  } else {
    execute(run, instruction, made);
  }
}

void RankStep::launch(const StepRun& run, const Instruction& instruction, PreparedInstruction& made,
                      Executed* times) {
  const auto on = [&](device::Stream& stream) {
    launch_timed(stream, instruction, times,
                 [this, run, &instruction, &made] { execute(run, instruction, made); });
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
    Timed& one = timed.emplace_back(profile_name(instruction));
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
  load_values(one, region, from);
  launch_timed(*computing, instruction, times, [values, from, &to = to] {
    if (const Kernel copy = kernels::prepare_copy(from, to)) copy();
  });
}

std::string RankStep::profile_name(const Instruction& instruction) const {
  return match(
      instruction, [](const Compute& compute) { return compute.kind; },
      [&](const Wait& wait) { return "wait " + flights.name_of(wait.handle); },
      [](const Load&) { return std::string("load"); },
      [](const Copy&) { return std::string("copy"); },
      [](const Free&) { return std::string("free"); },
      [](const OneOf<FetchRows, ReleaseRows> auto&) { return std::string("rows"); },
      [](const OneOf<Issue, Send, Recv> auto&) { return std::string("issue"); });
}

void RankStep::execute(const StepRun& run, const Instruction& instruction,
                       PreparedInstruction& made) {
  match(
      instruction, [&](const Compute& compute) { execute_compute(run, compute, made); },
      [&](const Issue& issue) { execute_issue(run, issue, made); },
      [&](const Send& send) { execute_send(run, send, made); },
      [&](const Recv& receive) { execute_receive(run, receive, made); },
      [&](const Wait& wait) { flights.wait(run, wait, prepared.micro_batches); },
      [&](const Copy& copy) { execute_copy(run, copy, made); },
      [&](const FetchRows& fetch) { execute_fetch(run, fetch, made); },
      [&](const ReleaseRows& one) {
        expect(tables.release({one.fetch, one.changed && !filling}), made.label);
      },
      [&](const Load& one) { execute_load(run, one, made); }, [](const Free&) {});
}

void RankStep::execute_compute(const StepRun& run, const Compute& compute,
                               PreparedInstruction& made) {
  try {
    std::optional<Kernel>& kernel = made.kernels[made.variant(run)];
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

void RankStep::round_sums(const StepRun& run, const Compute& compute) const {
  std::vector<Array> made;
  for (const Output& output : compute.outputs)
    made.push_back(memory.array(output.view, run.micro_batch));
  round_otherwise(graph, graph.op(compute.op), made, options.roundings, context.step);
}

Box RankStep::box_of(const StepRun& run, const Compute& compute) const {
  return at_micro_batch(program, compute.box,
                        micro_batch_dim_of(program, graph.op(compute.op).annotation),
                        run.micro_batch);
}

void RankStep::show(const StepRun& run, const Compute& compute) const {
  std::vector<Array> inputs;
  std::vector<std::vector<std::byte>> copies;  // of an accelerator's memory
  for (const View& view : compute.inputs) {
    inputs.push_back(memory.array(view, run.micro_batch));
    if (inputs.back().place.is_processor()) continue;
    const Array from = std::exchange(
        inputs.back(), host_array(copies.emplace_back(), inputs.back().dtype, view.box.shape()));
    if (const Kernel copy = kernels::prepare_copy(from, inputs.back())) copy();
  }
  if (!copies.empty()) computing->finish();
  observed->see(graph.op(compute.op), box_of(run, compute), inputs);
}

Array RankStep::host_array(std::vector<std::byte>& memory, DType dtype,
                           std::vector<int64_t> shape) {
  memory.resize(static_cast<size_t>(Box::whole(shape).volume() * dtype_bytes(dtype)));
  return Array::contiguous(memory.data(), dtype, std::move(shape));
}

Kernel RankStep::prepare_compute(const StepRun& run, const Compute& compute) {
  const Op& op = graph.op(compute.op);
  kernels::KernelCall call;
  call.op = &op;
  call.box = box_of(run, compute);
  for (const View& view : compute.inputs)
    call.inputs.push_back(memory.array(view, run.micro_batch));
  for (const Output& output : compute.outputs) {
    call.outputs.push_back(memory.array(output.view, run.micro_batch));
    call.add.push_back(run.adds(output.write));
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

void RankStep::execute_fetch(const StepRun& run, const FetchRows& fetch,
                             PreparedInstruction& made) {
  std::vector<Array> ids;
  for (const RowIds& one : fetch.ids) {
    if (one.view) ids.push_back(memory.array(*one.view, run.micro_batch));
  }
  // Two sorts of look-ups are not counted: those of evaluations, and those for the part of a step
  // that fill_ahead() executes.
  const auto job = tables.fetch(fetch, context.step, context.evaluating || filling, ids);
  if (!job) expect(tl::unexpected(job.error()), made.label);
  if (*job != nullptr) flights.start(run, fetch.handle, {copier.submit(*job)});
}

float* RankStep::residual_of(const std::optional<View>& view, device::HostCopies& copies) const {
  return view ? reinterpret_cast<float*>(copies.write(memory.array(*view, 0)).data) : nullptr;
}

void RankStep::execute_issue(const StepRun& run, const Issue& issue, PreparedInstruction& made) {
  const comm::Label& label = made.label;
  const std::vector<comm::Item>& items = PreparedInstruction::of_run(made.items, run);
  if (issue.codec) {
    auto call = std::make_unique<comm::CodedCall>();
    const auto me = static_cast<size_t>(program.groups[static_cast<size_t>(issue.group)].index);
    device::HostCopies copies = memory.host_copies();
    std::vector<comm::Item> there = items;
    for (comm::Item& item : there) {
      item.in = copies.read(item.what->dtype, item.in);
      item.out = copies.write(item.what->dtype, item.out);
    }
    const comm::Handle started =
        call->begin(of_host(), groups[static_cast<size_t>(issue.group)], me, there, *issue.codec,
                    residual_of(issue.residual, copies), label);
    return flights.start(run, issue.handle, {started, std::move(call), std::move(copies)});
  }
  if (issue.named) return exchange_rows(run, issue, made);
  flights.start(run, issue.handle,
                {communicator->issue(groups[static_cast<size_t>(issue.group)], items, label)});
}

void RankStep::exchange_rows(const StepRun& run, const Issue& issue, PreparedInstruction& made) {
  RowExchange& exchange = *made.exchange;
  device::HostCopies copies = memory.host_copies();
  std::vector<Array> ids;
  for (const View& view : issue.named->ids)
    ids.push_back(copies.read(memory.array(view, run.micro_batch)));
  const Transfer& transfer = issue.transfers[0];
  std::optional<Array> in, out;
  if (transfer.in) in = copies.read(memory.array(*transfer.in, run.micro_batch));
  if (transfer.out) out = copies.write(memory.array(*transfer.out, run.micro_batch));
  const comm::Handle started = exchange.begin(of_host(), groups[static_cast<size_t>(issue.group)],
                                              ids, in, out, context.step, made.label);
  flights.start(run, issue.handle, {started, nullptr, std::move(copies), &exchange});
}

void RankStep::execute_send(const StepRun& run, const Send& send, PreparedInstruction& made) {
  const DType dtype = program.buffer(send.view.buffer).dtype;
  if (send.codec) {
    auto call = std::make_unique<comm::CodedCall>();
    device::HostCopies copies = memory.host_copies();
    const comm::ArrayView from = copies.read(dtype, PreparedInstruction::of_run(made.views, run));
    const comm::Handle started =
        call->begin_send(of_host(), send.peer, tag_in(run, send.tag, program), dtype, from,
                         *send.codec, residual_of(send.residual, copies), made.label);
    return flights.start(run, send.handle, {started, std::move(call), std::move(copies)});
  }
  flights.start(
      run, send.handle,
      {communicator->issue_send(send.peer, tag_in(run, send.tag, program), dtype,
                                PreparedInstruction::of_run(made.views, run), made.label)});
}

void RankStep::execute_receive(const StepRun& run, const Recv& receive, PreparedInstruction& made) {
  const DType dtype = program.buffer(receive.view.buffer).dtype;
  if (receive.codec) {
    auto call = std::make_unique<comm::CodedCall>();
    device::HostCopies copies = memory.host_copies();
    const comm::ArrayView into = copies.write(dtype, PreparedInstruction::of_run(made.views, run));
    const comm::Handle started =
        call->begin_recv(of_host(), receive.peer, tag_in(run, receive.tag, program), dtype, into,
                         *receive.codec, made.label);
    return flights.start(run, receive.handle, {started, std::move(call), std::move(copies)});
  }
  flights.start(
      run, receive.handle,
      {communicator->issue_recv(receive.peer, tag_in(run, receive.tag, program), dtype,
                                PreparedInstruction::of_run(made.views, run), made.label)});
}

void RankStep::submit_copy(const StepRun& run, const Copy& copy, PreparedInstruction& made) {
  Copier::Job& job = made.jobs[made.variant(run)];
  if (!job) {
    const comm::Label& label = made.label;
    job = [move = prepare_move(memory.tier_array(copy.from, run.micro_batch),
                               memory.tier_array(copy.to, run.micro_batch), run.adds(copy.write)),
           where = fmt::format("rank {}: op {}, tensor {}", program.rank,
                               label.op.empty() ? "none" : label.op, label.tensor)]() -> Status {
      const Status status = move();
      if (!status) return fault(fmt::format("{}: {}", where, status.error().message));
      return {};
    };
  }
  if (device == nullptr) return flights.start(run, copy.handle, {copier.submit(&job)});
  if (!memory.accelerated()) return flights.start(run, copy.handle, {copier.submit_late(&job)});
  // The copying stream is the current one, and copies of memory do not wait.
  if (const Status status = job(); !status)
    throw comm::CommFault{status.error().message, status.error().code};
}

Copier::Job RankStep::prepare_move(const TierArray& from, const TierArray& to, bool add) {
  const bool apart = from.array.place != to.array.place && (from.on_disk() || to.on_disk());
  if (!apart) return prepare_tier_copy(from, to, add, memory.disk());
  const auto bytes = std::make_shared<std::vector<std::byte>>();
  const TierArray between{host_array(*bytes, to.array.dtype, to.array.shape), -1};
  Copier::Job first = prepare_tier_copy(from, between, false, memory.disk()),
              second = prepare_tier_copy(between, to, add, memory.disk());
  return [this, bytes, first = std::move(first), second = std::move(second)]() -> Status {
    TESSERA_TRY_VOID(first());
    copying->finish();
    return second();
  };
}

void RankStep::execute_copy(const StepRun& run, const Copy& copy, PreparedInstruction& made) {
  if (copy.handle >= 0) return submit_copy(run, copy, made);
  std::optional<Kernel>& kernel = made.kernels[made.variant(run)];
  if (!kernel) {
    const Array from = memory.array(copy.from, run.micro_batch),
                to = memory.array(copy.to, run.micro_batch);
    kernel =
        run.adds(copy.write) ? kernels::prepare_add(from, to) : kernels::prepare_copy(from, to);
  }
  if (*kernel) (*kernel)();
}

void RankStep::execute_load(const StepRun& run, const Load& one, PreparedInstruction& made) {
  const auto& [region, to] = PreparedInstruction::of_run(made.loads, run);
  if (!region.empty()) load_values(one, region, to);
}

void RankStep::load_values(const Load& one, const Box& region, const Array& to) {
  const Tensor& tensor = graph.tensor(one.tensor);
  if (!is_of_next_step(tensor)) return (*load)(tensor, region, to);
  const Tensor& now = graph.tensor(tensor.of);
  if (filling) return (*load)(now, region, to);
  TESSERA_CHECK(options.ahead, "nobody gives the next batch's '{}'", now.name);
  options.ahead(context.step + 1, now, region, to);
}

void RankStep::fill_ahead(int64_t step) {
  filling = true;
  executed = &ahead->instructions;
  run_step(step);
  executed = nullptr;
  filling = false;
}

}  // namespace tessera
