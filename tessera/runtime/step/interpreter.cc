#include "tessera/runtime/step/interpreter.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/graph/pieces.h"
#include "tessera/runtime/device/host_copies.h"
#include "tessera/runtime/initialise.h"
#include "tessera/runtime/step/evaluated_part.h"
#include "tessera/runtime/step/rank_step.h"

namespace tessera {
namespace {

using kernels::Array;

}  // namespace

struct RankExecutor::Impl : RankStep {
  using RankStep::RankStep;
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
    impl_->memory.extend(extent, whole);
    impl_->memory.touch(extent, 0);
    if (but.contains(home.tensor)) continue;
    const Buffer& buffer = impl_->program.buffer(impl_->tables.rest_of(home.buffer));
    const auto init = [&](const Array& to) {
      const PieceOrigin origin = origins.of(home.tensor);
      tessera::initialise(whole_of(impl_->graph.tensor(home.tensor), origin),
                          origin.in_whole(home.region), impl_->options.seed, to);
    };
    if (buffer.tier != Tier::kDisk && !impl_->memory.of_device(buffer)) {
      init(impl_->memory.array({buffer.id, whole.box}, 0));
      continue;
    }
    if (buffer.id != home.buffer && !impl_->memory.of_device(buffer))
      continue;  // rows in a file get their initial values when they
                 // are read
    HostArray values{home.tensor, home.region, buffer.dtype, {}};
    values.data.resize(static_cast<size_t>(buffer.bytes()));
    init(Array::contiguous(values.data.data(), buffer.dtype, buffer.shape));
    write(home, values);
  }
  for (const BufferId id : impl_->tables.beside_homes()) {
    Extent extent;
    impl_->memory.extend(extent, {id, Box::whole(impl_->program.buffer(id).shape)});
    impl_->memory.touch(extent, 0);
  }
  std::vector<std::vector<float>> zeros;
  for (const int64_t size : residual_sizes()) zeros.emplace_back(static_cast<size_t>(size), 0.0F);
  set_residuals(zeros);
}

void RankExecutor::take_memory() { impl_->memory.populate(); }

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
  if (impl_->of_forward.empty()) impl_->of_forward = evaluated_part(impl_->program, impl_->graph);
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
    check_disk(impl_->memory.disk().read(buffer.offset, result.data.data(), buffer.bytes()), home);
  } else if (impl_->memory.of_device(buffer)) {
    impl_->device->download(*impl_->computing, impl_->memory.of_device(), buffer.offset_at(0),
                            result.data.data(), buffer.bytes());
  } else {
    const std::byte* from = impl_->memory.data(buffer, 0);
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
    check_disk(impl_->memory.disk().write(buffer.offset, array.data.data(), buffer.bytes()), home);
  } else if (impl_->memory.of_device(buffer)) {
    impl_->device->upload(*impl_->computing, impl_->memory.of_device(), buffer.offset_at(0),
                          array.data.data(), buffer.bytes());
  } else {
    std::copy(array.data.begin(), array.data.end(), impl_->memory.data(buffer, 0));
  }
}

std::byte* RankExecutor::memory(const Home& home) {
  impl_->filled = false;
  if (CachedRows* rows = impl_->tables.rows_of(home.buffer)) return rows->rest(home.buffer, true);
  const Buffer& buffer = impl_->program.buffer(home.buffer);
  TESSERA_CHECK(buffer.bytes() == home.region.volume() * dtype_bytes(buffer.dtype), "home {} of {}",
                buffer.name, home.region.to_string());
  const bool reached = buffer.tier != Tier::kDisk && !impl_->memory.of_device(buffer);
  return reached ? impl_->memory.data(buffer, 0) : nullptr;
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
      device::HostCopies copies = impl_->memory.host_copies();
      const auto* from =
          reinterpret_cast<const float*>(copies.read(impl_->memory.array(view, 0)).data);
      found.emplace_back(from, from + view.box.volume());
    });
  });
  return found;
}

void RankExecutor::set_residuals(const std::vector<std::vector<float>>& values) {
  impl_->on_device([&] {
    size_t next = 0;
    impl_->each_residual([&](const View& view) {
      device::HostCopies copies = impl_->memory.host_copies();
      std::ranges::copy(values.at(next++), impl_->residual_of(view, copies));
      copies.give_back();
    });
  });
}

std::array<int64_t, 3> RankExecutor::peak_bytes() const { return impl_->memory.peak(); }
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
