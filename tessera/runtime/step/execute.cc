#include "tessera/runtime/step/execute.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/base/doing.h"
#include "tessera/comm/coded.h"
#include "tessera/graph/ahead.h"
#include "tessera/program/communication.h"
#include "tessera/runtime/arrays/roundings.h"
#include "tessera/runtime/device/host_copies.h"
#include "tessera/runtime/formulas/formula.h"

namespace tessera {

using kernels::Array;
using kernels::Kernel;

void load_values(RankStep& r, const Load& one, const Box& region, const Array& to) {
  const Tensor& tensor = r.graph.tensor(one.tensor);
  if (!is_of_next_step(tensor)) return (*r.load)(tensor, region, to);
  const Tensor& now = r.graph.tensor(tensor.of);
  if (r.filling) return (*r.load)(now, region, to);
  TESSERA_CHECK(r.options.ahead, "nobody gives the next batch's '{}'", now.name);
  r.options.ahead(r.context.step + 1, now, region, to);
}

namespace {

std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

// Returns a contiguous array in `memory`, which it makes large enough.
Array host_array(std::vector<std::byte>& memory, DType dtype, std::vector<int64_t> shape) {
  memory.resize(static_cast<size_t>(Box::whole(shape).volume() * dtype_bytes(dtype)));
  return Array::contiguous(memory.data(), dtype, std::move(shape));
}

void round_sums(const RankStep& r, const StepRun& run, const Compute& compute) {
  std::vector<Array> made;
  for (const Output& output : compute.outputs)
    made.push_back(r.memory.array(output.view, run.micro_batch));
  round_otherwise(r.graph, r.graph.op(compute.op), made, r.options.roundings, r.context.step);
}

Box box_of(const RankStep& r, const StepRun& run, const Compute& compute) {
  return at_micro_batch(r.program, compute.box,
                        micro_batch_dim_of(r.program, r.graph.op(compute.op).annotation),
                        run.micro_batch);
}

void show(const RankStep& r, const StepRun& run, const Compute& compute) {
  std::vector<Array> inputs;
  std::vector<std::vector<std::byte>> copies;  // of an accelerator's memory
  for (const View& view : compute.inputs) {
    inputs.push_back(r.memory.array(view, run.micro_batch));
    if (inputs.back().place.is_processor()) continue;
    const Array from = std::exchange(
        inputs.back(), host_array(copies.emplace_back(), inputs.back().dtype, view.box.shape()));
    if (const Kernel copy = kernels::prepare_copy(from, inputs.back())) copy();
  }
  if (!copies.empty()) r.computing->finish();
  r.observed->see(r.graph.op(compute.op), box_of(r, run, compute), inputs);
}

Kernel prepare_compute(RankStep& r, const StepRun& run, const Compute& compute) {
  const Op& op = r.graph.op(compute.op);
  kernels::KernelCall call;
  call.op = &op;
  call.box = box_of(r, run, compute);
  for (const View& view : compute.inputs)
    call.inputs.push_back(r.memory.array(view, run.micro_batch));
  for (const Output& output : compute.outputs) {
    call.outputs.push_back(r.memory.array(output.view, run.micro_batch));
    call.add.push_back(run.adds(output.write));
  }
  call.context = &r.context;
  const Kernel names = r.tables.name_places(op, compute, call);
  Kernel kernel = kernels::prepare_chosen(call);
  if (!names || !kernel) return kernel;
  return [names, kernel = std::move(kernel)] {
    names();
    kernel();
  };
}

void execute_compute(RankStep& r, const StepRun& run, const Compute& compute,
                     PreparedInstruction& made) {
  try {
    std::optional<Kernel>& kernel = made.kernels[made.variant(run)];
    if (!kernel) kernel = prepare_compute(r, run, compute);
    if (r.observed != nullptr && std::ranges::count(r.observed->ops, compute.op) > 0)
      show(r, run, compute);
    if (*kernel) (*kernel)();
    if (r.options.roundings != 0) round_sums(r, run, compute);
  } catch (const std::exception& error) {
    const Op& op = r.graph.op(compute.op);
    if (is_memory_exhausted(error)) {
      const Doing doing("computing", op.path);
      throw;
    }
    const std::string tensor = op.outputs.empty() ? "" : r.graph.tensor(op.outputs[0]).name;
    throw comm::CommFault{fmt::format("rank {}: op {} ({}), tensor {}: {}", r.program.rank, op.path,
                                      op.kind, tensor, first_line(error.what()))};
  }
}

void execute_fetch(RankStep& r, const StepRun& run, const FetchRows& fetch,
                   PreparedInstruction& made) {
  std::vector<Array> ids;
  for (const RowIds& one : fetch.ids) {
    if (one.view) ids.push_back(r.memory.array(*one.view, run.micro_batch));
  }
  // Two sorts of look-ups are not counted: those of evaluations, and those for the part of a step
  // that fill_ahead() executes.
  const auto job = r.tables.fetch(fetch, r.context.step, r.context.evaluating || r.filling, ids);
  if (!job) r.expect(tl::unexpected(job.error()), made.label);
  if (*job != nullptr) r.flights.start(run, fetch.handle, {r.copier.submit(*job)});
}

void exchange_rows(RankStep& r, const StepRun& run, const Issue& issue, PreparedInstruction& made) {
  RowExchange& exchange = *made.exchange;
  device::HostCopies copies = r.memory.host_copies();
  std::vector<Array> ids;
  for (const View& view : issue.named->ids)
    ids.push_back(copies.read(r.memory.array(view, run.micro_batch)));
  const Transfer& transfer = issue.transfers[0];
  std::optional<Array> in, out;
  if (transfer.in) in = copies.read(r.memory.array(*transfer.in, run.micro_batch));
  if (transfer.out) out = copies.write(r.memory.array(*transfer.out, run.micro_batch));
  const comm::Handle started =
      exchange.begin(r.of_host(), r.groups[static_cast<size_t>(issue.group)], ids, in, out,
                     r.context.step, made.label);
  r.flights.start(run, issue.handle, {started, nullptr, std::move(copies), &exchange});
}

void execute_issue(RankStep& r, const StepRun& run, const Issue& issue, PreparedInstruction& made) {
  const comm::Label& label = made.label;
  const std::vector<comm::Item>& items = PreparedInstruction::of_run(made.items, run);
  if (issue.codec) {
    auto call = std::make_unique<comm::CodedCall>();
    const auto me = static_cast<size_t>(r.program.groups[static_cast<size_t>(issue.group)].index);
    device::HostCopies copies = r.memory.host_copies();
    std::vector<comm::Item> there = items;
    for (comm::Item& item : there) {
      item.in = copies.read(item.what->dtype, item.in);
      item.out = copies.write(item.what->dtype, item.out);
    }
    const comm::Handle started =
        call->begin(r.of_host(), r.groups[static_cast<size_t>(issue.group)], me, there,
                    *issue.codec, r.residual_of(issue.residual, copies), label);
    return r.flights.start(run, issue.handle, {started, std::move(call), std::move(copies)});
  }
  if (issue.named) return exchange_rows(r, run, issue, made);
  r.flights.start(
      run, issue.handle,
      {r.communicator->issue(r.groups[static_cast<size_t>(issue.group)], items, label)});
}

void execute_send(RankStep& r, const StepRun& run, const Send& send, PreparedInstruction& made) {
  const DType dtype = r.program.buffer(send.view.buffer).dtype;
  if (send.codec) {
    auto call = std::make_unique<comm::CodedCall>();
    device::HostCopies copies = r.memory.host_copies();
    const comm::ArrayView from = copies.read(dtype, PreparedInstruction::of_run(made.views, run));
    const comm::Handle started =
        call->begin_send(r.of_host(), send.peer, tag_in(run, send.tag, r.program), dtype, from,
                         *send.codec, r.residual_of(send.residual, copies), made.label);
    return r.flights.start(run, send.handle, {started, std::move(call), std::move(copies)});
  }
  r.flights.start(
      run, send.handle,
      {r.communicator->issue_send(send.peer, tag_in(run, send.tag, r.program), dtype,
                                  PreparedInstruction::of_run(made.views, run), made.label)});
}

void execute_receive(RankStep& r, const StepRun& run, const Recv& receive,
                     PreparedInstruction& made) {
  const DType dtype = r.program.buffer(receive.view.buffer).dtype;
  if (receive.codec) {
    auto call = std::make_unique<comm::CodedCall>();
    device::HostCopies copies = r.memory.host_copies();
    const comm::ArrayView into = copies.write(dtype, PreparedInstruction::of_run(made.views, run));
    const comm::Handle started =
        call->begin_recv(r.of_host(), receive.peer, tag_in(run, receive.tag, r.program), dtype,
                         into, *receive.codec, made.label);
    return r.flights.start(run, receive.handle, {started, std::move(call), std::move(copies)});
  }
  r.flights.start(
      run, receive.handle,
      {r.communicator->issue_recv(receive.peer, tag_in(run, receive.tag, r.program), dtype,
                                  PreparedInstruction::of_run(made.views, run), made.label)});
}

// Prepares a copy between tiers. One between a file and an accelerator goes through memory of the
// host, for which the host waits.
Copier::Job prepare_move(RankStep& r, const TierArray& from, const TierArray& to, bool add) {
  const bool apart = from.array.place != to.array.place && (from.on_disk() || to.on_disk());
  if (!apart) return prepare_tier_copy(from, to, add, r.memory.disk());
  const auto bytes = std::make_shared<std::vector<std::byte>>();
  const TierArray between{host_array(*bytes, to.array.dtype, to.array.shape), -1};
  Copier::Job first = prepare_tier_copy(from, between, false, r.memory.disk()),
              second = prepare_tier_copy(between, to, add, r.memory.disk());
  return [&r, bytes, first = std::move(first), second = std::move(second)]() -> Status {
    TESSERA_TRY_VOID(first());
    r.copying->finish();
    return second();
  };
}

void submit_copy(RankStep& r, const StepRun& run, const Copy& copy, PreparedInstruction& made) {
  Copier::Job& job = made.jobs[made.variant(run)];
  if (!job) {
    const comm::Label& label = made.label;
    job = [move = prepare_move(r, r.memory.tier_array(copy.from, run.micro_batch),
                               r.memory.tier_array(copy.to, run.micro_batch), run.adds(copy.write)),
           where = fmt::format("rank {}: op {}, tensor {}", r.program.rank,
                               label.op.empty() ? "none" : label.op, label.tensor)]() -> Status {
      const Status status = move();
      if (!status) return fault(fmt::format("{}: {}", where, status.error().message));
      return {};
    };
  }
  if (r.device == nullptr) return r.flights.start(run, copy.handle, {r.copier.submit(&job)});
  if (!r.memory.accelerated())
    return r.flights.start(run, copy.handle, {r.copier.submit_late(&job)});
  // The copying stream is the current one, and copies of memory do not wait.
  if (const Status status = job(); !status)
    throw comm::CommFault{status.error().message, status.error().code};
}

void execute_copy(RankStep& r, const StepRun& run, const Copy& copy, PreparedInstruction& made) {
  if (copy.handle >= 0) return submit_copy(r, run, copy, made);
  std::optional<Kernel>& kernel = made.kernels[made.variant(run)];
  if (!kernel) {
    const Array from = r.memory.array(copy.from, run.micro_batch),
                to = r.memory.array(copy.to, run.micro_batch);
    kernel =
        run.adds(copy.write) ? kernels::prepare_add(from, to) : kernels::prepare_copy(from, to);
  }
  if (*kernel) (*kernel)();
}

void execute_load(RankStep& r, const StepRun& run, const Load& one, PreparedInstruction& made) {
  const auto& [region, to] = PreparedInstruction::of_run(made.loads, run);
  if (!region.empty()) load_values(r, one, region, to);
}

}  // namespace

void execute(RankStep& r, const StepRun& run, const Instruction& instruction,
             PreparedInstruction& made) {
  match(
      instruction, [&](const Compute& compute) { execute_compute(r, run, compute, made); },
      [&](const Issue& issue) { execute_issue(r, run, issue, made); },
      [&](const Send& send) { execute_send(r, run, send, made); },
      [&](const Recv& receive) { execute_receive(r, run, receive, made); },
      [&](const Wait& wait) { r.flights.wait(run, wait, r.prepared.micro_batches); },
      [&](const Copy& copy) { execute_copy(r, run, copy, made); },
      [&](const FetchRows& fetch) { execute_fetch(r, run, fetch, made); },
      [&](const ReleaseRows& one) {
        r.expect(r.tables.release({one.fetch, one.changed && !r.filling}), made.label);
      },
      [&](const Load& one) { execute_load(r, run, one, made); }, [](const Free&) {});
}

}  // namespace tessera
