#include "tessera/runtime/device/stand_in.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/check.h"
#include "tessera/comm/gather_bytes.h"
#include "tessera/runtime/device/libtorch_device.h"
#include "tessera/runtime/device/played.h"
#include "tessera/runtime/device/staged_communicator.h"
#include "tessera/runtime/device/stand_in_nccl.h"
#include "tessera/runtime/kernels.h"
#include "tessera/runtime/kernels/tensor.h"

namespace tessera::device {
namespace {

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;
constexpr c10::DeviceIndex kDevices = 8;
// Streams of each of two pools of a device, for work of usual and of high priority, as CUDA has them.
constexpr c10::StreamId kStreams = 32;
constexpr int64_t kMemory = int64_t{32} << 30;  // of all devices; only touched pages are taken
constexpr int64_t kAlignment = 512;
constexpr int kNan = 0xFF;  // each byte of a NaN in every dtype

thread_local c10::DeviceIndex current_device = 0;
thread_local std::array<c10::StreamId, kDevices> current_stream{};

struct TimedPoint {
  std::shared_ptr<const Event> point;
  PlayedStream* stream = nullptr;
  std::shared_ptr<int64_t> ns;  // null: not timed
};

// The memory and streams of all stand-ins of the process; never destroyed, since libtorch frees
// tensors until the end.
class Machine {
 public:
  static Machine& get() {
    static Machine* machine = new Machine();
    return *machine;
  }

  PlayedStream& stream(const c10::Stream& which) {
    return stream(which.device_index(), which.id());
  }
  PlayedStream& stream(c10::DeviceIndex device, c10::StreamId id) {
    const std::lock_guard lock(mutex_);
    auto& made = streams_[{device, id}];
    if (made == nullptr) {
      const auto seed = static_cast<uint64_t>(device * (2 * kStreams + 1) + id);
      made = std::make_unique<PlayedStream>(played_.at(static_cast<size_t>(device)), seed, [] {
        struct Scope {
          c10::InferenceMode mode;
          kernels::ThreadScope kernels{1};
        };
        return std::make_shared<Scope>();
      });
    }
    return *made;
  }
  PlayedStream& current() {
    return stream(current_device, current_stream[static_cast<size_t>(current_device)]);
  }
  // Finishes all streams of a device.
  void finish(c10::DeviceIndex device) {
    std::vector<PlayedStream*> all;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [key, one] : streams_) {
        if (key.first == device) all.push_back(one.get());
      }
    }
    for (PlayedStream* one : all) one->finish();
  }
  c10::Stream from_pool(c10::DeviceIndex device, bool high) {
    std::atomic<c10::StreamId>& next = next_[2 * static_cast<size_t>(device) + (high ? 1 : 0)];
    const c10::StreamId id = 1 + (high ? kStreams : 0) + next++ % kStreams;
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, device), id);
  }

  // Returns the address at which threads of streams find what has the address `hidden`.
  std::byte* open(const void* hidden) const {
    return memory_->open() + (static_cast<const std::byte*>(hidden) - memory_->hidden());
  }

  c10::DataPtr allocate(size_t bytes) {
    auto* block = new Block{nullptr,
                            (static_cast<int64_t>(bytes) + kAlignment) / kAlignment * kAlignment,
                            current_device,
                            current_stream[static_cast<size_t>(current_device)],
                            {}};
    {
      const std::lock_guard lock(mutex_);
      std::vector<std::byte*>& free = free_[key_of(*block)];
      if (!free.empty()) {
        block->at = free.back();
        free.pop_back();
      } else {
        TORCH_CHECK_WITH(OutOfMemoryError, used_ + block->bytes <= kMemory,
                         "stand-in: no memory left");
        block->at = memory_->hidden() + used_;
        used_ += block->bytes;
      }
    }
    spoil(*block);
    return {block->at, block, [](void* context) { get().free(static_cast<Block*>(context)); },
            c10::Device(kType, block->device)};
  }
  // Keeps the memory from being used again, because another stream uses it too.
  static void keep_for(const c10::DataPtr& data, const c10::Stream& stream) {
    auto* block = static_cast<Block*>(data.get_context());
    if (block != nullptr && block->stream != stream.id()) block->shared = true;
  }

 private:
  struct Block {
    std::byte* at;
    int64_t bytes;
    c10::DeviceIndex device;
    c10::StreamId stream;  // which was current when it was allocated, and orders its uses
    bool shared = false;   // whether another stream uses it too
  };
  using Key = std::array<int64_t, 3>;

  Machine() {
    auto mapped = PlayedMemory::map(kMemory);
    TESSERA_CHECK(mapped.has_value(), "stand-in: {}", mapped.error().message);
    memory_ = std::move(*mapped);
    for (auto& one : played_) one = std::make_shared<PlayedDevice>();
  }

  static Key key_of(const Block& block) { return {block.device, block.stream, block.bytes}; }
  void spoil(const Block& block) {
    stream(block.device, block.stream).launch([to = open(block.at), bytes = block.bytes] {
      std::memset(to, kNan, static_cast<size_t>(bytes));
    });
  }
  void free(Block* block) {
    spoil(*block);
    if (!block->shared) {
      const std::lock_guard lock(mutex_);
      free_[key_of(*block)].push_back(block->at);
    }
    delete block;
  }

  std::mutex mutex_;  // guards all below but what is atomic or never changed
  std::unique_ptr<PlayedMemory> memory_;
  std::array<std::shared_ptr<PlayedDevice>, kDevices> played_;
  std::map<std::pair<c10::DeviceIndex, c10::StreamId>, std::unique_ptr<PlayedStream>> streams_;
  std::array<std::atomic<c10::StreamId>, 2 * kDevices> next_{};
  std::map<Key, std::vector<std::byte*>> free_;
  int64_t used_ = 0;
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device to) const override {
    return {kType, std::exchange(current_device, to.index())};
  }
  c10::Device getDevice() const override { return {kType, current_device}; }
  void setDevice(c10::Device to) const override { current_device = to.index(); }
  void uncheckedSetDevice(c10::Device to) const noexcept override { current_device = to.index(); }
  c10::Stream getStream(c10::Device of) const override {
    return c10::Stream(c10::Stream::UNSAFE, of, current_stream.at(static_cast<size_t>(of.index())));
  }
  c10::Stream getDefaultStream(c10::Device of) const override {
    return c10::Stream(c10::Stream::UNSAFE, of, 0);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device of, bool high) const override {
    return Machine::get().from_pool(of.index(), high);
  }
  c10::Stream getNewStream(c10::Device of, int /*priority*/) const override {
    return Machine::get().from_pool(of.index(), false);
  }
  c10::Stream exchangeStream(c10::Stream to) const override {
    const auto device = static_cast<size_t>(to.device_index());
    const c10::StreamId before = std::exchange(current_stream.at(device), to.id());
    return c10::Stream(c10::Stream::UNSAFE, to.device(), before);
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return &Machine::get().stream(stream);
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex /*device*/,
              const c10::EventFlag flag) const override {
    if (*event == nullptr) *event = new TimedPoint();
    auto& to = *static_cast<TimedPoint*>(*event);
    to.stream = &Machine::get().stream(stream);
    to.ns = nullptr;
    if (flag == c10::EventFlag::BACKEND_DEFAULT) {
      to.ns = std::make_shared<int64_t>(0);
      to.stream->stamp(*to.ns);
      to.stream->launch([kept = to.ns] {});
    }
    to.point = to.stream->record();
  }
  void block(void* event, const c10::Stream& stream) const override {
    Machine::get().stream(stream).wait(static_cast<TimedPoint*>(event)->point);
  }
  bool queryEvent(void* event) const override {
    const auto* point = static_cast<TimedPoint*>(event);
    return point == nullptr || point->stream->is_done(*point->point);
  }
  void destroyEvent(void* event, const c10::DeviceIndex /*device*/) const noexcept override {
    delete static_cast<TimedPoint*>(event);
  }
  void synchronizeEvent(void* event) const override {
    const auto& point = *static_cast<TimedPoint*>(event);
    point.stream->finish(*point.point);
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    Machine::get().stream(stream).finish();
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    Machine::get().finish(device);
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    Machine::keep_for(data, stream);
  }
  double elapsedTime(void* from, void* to, const c10::DeviceIndex /*device*/) const override {
    for (void* each : {from, to}) synchronizeEvent(each);
    constexpr double kNsPerMs = 1e6;
    return static_cast<double>(*static_cast<TimedPoint*>(to)->ns -
                               *static_cast<TimedPoint*>(from)->ns) /
           kNsPerMs;
  }
};

struct Allocator final : c10::DeviceAllocator {
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t /*pool*/) override {}
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    Machine::keep_for(data, stream);
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex /*device*/) override {
    return {};
  }
  void resetAccumulatedStats(c10::DeviceIndex /*device*/) override {}
  void resetPeakStats(c10::DeviceIndex /*device*/) override {}
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex /*device*/) override {
    return {kMemory / kDevices, kMemory / kDevices};
  }
  c10::DataPtr allocate(size_t bytes) override { return Machine::get().allocate(bytes); }
  void copy_data(void* /*to*/, const void* /*from*/, size_t /*bytes*/) const override {
    TORCH_CHECK(false, "stand-in: storage is not copied by its allocator");
  }
};

Allocator& allocator() {
  static auto* one = new Allocator();
  return *one;
}

// Calls the work on the current stream, waits for it, and throws its exception.
void compute(const std::function<void()>& work) {
  PlayedStream& stream = Machine::get().current();
  std::exception_ptr failure;
  stream.launch([&] {
    try {
      work();
    } catch (...) {
      failure = std::current_exception();
    }
  });
  stream.finish();
  if (failure != nullptr) std::rethrow_exception(failure);
}

bool is_here(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kType;
}

// Returns a tensor of the processor over the same memory, for threads of streams.
at::Tensor opened(const at::Tensor& tensor) {
  if (!is_here(tensor)) return tensor;
  return at::for_blob(Machine::get().open(tensor.data_ptr()), tensor.sizes())
      .strides(tensor.strides())
      .options(at::TensorOptions(tensor.scalar_type()))
      .make_tensor();
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout> /*layout*/, std::optional<at::Device> device,
                 std::optional<bool> /*pin*/, std::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard on(device);
  return at::detail::empty_generic(size, &allocator(),
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout> /*layout*/,
                         std::optional<at::Device> device, std::optional<bool> /*pin*/) {
  const c10::OptionalDeviceGuard on(device);
  return at::detail::empty_strided_generic(size, stride, &allocator(),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(dtype));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  TORCH_CHECK(!is_here(from) || !is_here(to) || from.device() == to.device(),
              "stand-in: a copy between ", from.device(), " and ", to.device());
  const c10::DeviceGuard on(is_here(from) ? from.device() : to.device());
  const at::Tensor source = opened(from), target = opened(to);
  // The source of an upload may be written again as soon as the call returns; a copy in the device's
  // memory never waits.
  if (!is_here(from) || (!is_here(to) && !non_blocking)) {
    compute([&] { target.copy_(source); });
  } else {
    // The tensors themselves keep their memory until then.
    Machine::get().current().launch([source, target, from, to] { target.copy_(source); });
  }
  return to;
}

at::Tensor arrived(const at::Tensor& made, c10::Device device) {
  if (!made.defined()) return made;
  const at::Tensor to =
      at::empty_strided(made.sizes(), made.strides(), made.options().device(device));
  const at::Tensor there = opened(to);
  compute([&] { there.copy_(made); });
  return to;
}

// libtorch asks devices of others for convolutions by these two names.
at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
                       at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                       at::IntArrayRef output_padding, int64_t groups) {
  at::Tensor made;
  compute([&] {
    made =
        at::convolution(opened(input), opened(weight), bias ? std::optional(opened(*bias)) : bias,
                        stride, padding, dilation, transposed, output_padding, groups);
  });
  return arrived(made, input.device());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& dy, const at::Tensor& input, const at::Tensor& weight, at::IntArrayRef stride,
    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
    at::IntArrayRef output_padding, int64_t groups, std::array<bool, 3> wanted) {
  std::tuple<at::Tensor, at::Tensor, at::Tensor> made;
  compute([&] {
    made = at::convolution_backward(
        opened(dy), opened(input), opened(weight), at::OptionalIntArrayRef(), stride, padding,
        dilation, transposed, output_padding, groups, {wanted[0], wanted[1], false});
  });
  const auto there = [&](const at::Tensor& one) { return arrived(one, input.device()); };
  return {there(std::get<0>(made)), there(std::get<1>(made)), {}};
}

// Chooses the fused attention of GPUs, which is played by that of processors: for 16 bits, with fewer heads of keys if the
// caller has them.
int64_t attention_choice(const at::Tensor& q, const at::Tensor& /*k*/, const at::Tensor& /*v*/,
                         const std::optional<at::Tensor>& mask, double dropout, bool /*causal*/,
                         std::optional<double> /*scale*/, bool /*grouped*/) {
  constexpr int64_t kMath = 0, kFlash = 1;  // at::SDPBackend
  const bool narrow = q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf;
  return narrow && !mask && dropout == 0 ? kFlash : kMath;
}

at::Tensor of_all_heads(const at::Tensor& keys, const at::Tensor& q) {
  return keys.repeat_interleave(q.size(1) / keys.size(1), 1);
}

using FlashResult = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt,
                               c10::SymInt, at::Tensor, at::Tensor, at::Tensor>;

FlashResult attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double dropout,
                      bool causal, bool /*mask*/, std::optional<double> scale) {
  std::tuple<at::Tensor, at::Tensor> made;
  compute([&] {
    const at::Tensor queries = opened(q);
    made = at::_scaled_dot_product_flash_attention_for_cpu(queries, of_all_heads(opened(k), q),
                                                           of_all_heads(opened(v), q), dropout,
                                                           causal, {}, scale);
    std::get<1>(made) = std::get<1>(made).contiguous();
  });
  const auto device = q.device();
  return {arrived(std::get<0>(made), device),
          arrived(std::get<1>(made), device),
          {},
          {},
          q.size(2),
          k.size(2),
          {},
          {},
          {}};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> attention_backward(
    const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor& y, const at::Tensor& lse, const at::Tensor& /*queries*/,
    const at::Tensor& /*keys*/, c10::SymInt /*most_queries*/, c10::SymInt /*most_keys*/,
    double dropout, bool causal, const at::Tensor& /*seed*/, const at::Tensor& /*offset*/,
    std::optional<double> scale) {
  std::tuple<at::Tensor, at::Tensor, at::Tensor> made;
  compute([&] {
    made = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        opened(dy), opened(q), of_all_heads(opened(k), q), of_all_heads(opened(v), q), opened(y),
        opened(lse), dropout, causal, {}, scale);
    const auto summed = [&](const at::Tensor& x) {
      return x.unflatten(1, {k.size(1), q.size(1) / k.size(1)}).sum(2);
    };
    std::get<1>(made) = summed(std::get<1>(made));
    std::get<2>(made) = summed(std::get<2>(made));
  });
  const auto there = [&](const at::Tensor& one) { return arrived(one, q.device()); };
  return {there(std::get<0>(made)), there(std::get<1>(made)), there(std::get<2>(made))};
}

at::Scalar read_element(const at::Tensor& /*from*/) {
  TORCH_CHECK(false, "the host reads a number of an accelerator");
}

// Operators whose result has a size that depends on values.
const std::set<std::string_view>& refused() {
  static const std::set<std::string_view> names = {"aten::nonzero",    "aten::masked_select",
                                                   "aten::equal",      "aten::_unique2",
                                                   "aten::unique_dim", "aten::bincount"};
  return names;
}

bool is_mask(const at::Tensor& index) {
  return index.defined() && (index.scalar_type() == at::kBool || index.scalar_type() == at::kByte);
}

// The operands of a call of an operator, on their way to the processor and back.
class Operands {
 public:
  explicit Operands(const c10::OperatorHandle& op) : name_(op.schema().name()) {}

  at::Tensor take(const at::Tensor& given) {
    if (!given.defined()) return given;
    TORCH_CHECK(is_here(given) || given.dim() == 0, name_,
                ": expected tensors of an accelerator, found one of ", given.device());
    if (is_here(given)) device_ = given.device();
    // Room that an operator gives its result a size in.
    if (is_here(given) && given.numel() == 0)
      return at::empty({0}, at::TensorOptions(given.scalar_type()));
    return opened(given);
  }
  c10::IValue take(const c10::IValue& given) {
    if (given.isTensor()) return take(given.toTensor());
    if (given.isDevice()) return c10::Device(at::kCPU);
    if (given.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& one : given.toTensorVector()) list.push_back(take(one));
      return list;
    }
    if (given.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& one : given.toOptionalTensorVector()) {
        TORCH_CHECK(!one || !is_mask(*one), name_, ": an index by a mask");
        list.push_back(one ? std::optional(take(*one)) : std::nullopt);
      }
      return list;
    }
    return given;
  }
  c10::IValue give(const c10::IValue& made) const {
    if (made.isTensor()) return arrived(made.toTensor(), device_);
    if (!made.isTensorList()) return made;
    c10::List<at::Tensor> list;
    for (const at::Tensor& one : made.toTensorVector()) list.push_back(arrived(one, device_));
    return list;
  }

  c10::Device device() const { return device_; }

 private:
  const std::string name_;
  c10::Device device_{kType, current_device};
};

// Gives an operand that was written what the processor's kernel made of its size.
void resize_as(const at::Tensor& given, const at::Tensor& made) {
  if (!is_here(given) || given.numel() != 0 || made.numel() == 0) return;
  const at::Tensor there = arrived(made, given.device());
  given.unsafeGetTensorImpl()->set_storage_keep_dtype(there.storage());
  given.unsafeGetTensorImpl()->set_sizes_and_strides(there.sizes(), there.strides());
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

// Returns the operand that the operator returns as this result.
std::optional<size_t> returned_operand(const c10::FunctionSchema& schema, size_t result) {
  const c10::Argument& returned = schema.returns()[result];
  for (size_t i = 0; is_written(returned) && i < schema.arguments().size(); ++i) {
    const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
    if (alias != nullptr && alias->beforeSets() == returned.alias_info()->beforeSets()) return i;
  }
  return std::nullopt;
}

// Returns whether all results are operands that are there, so that nobody waits for their sizes.
bool works_in_place(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& given) {
  for (size_t i = 0; i < schema.returns().size(); ++i) {
    const auto operand = returned_operand(schema, i);
    if (!operand || !given[*operand].isTensor() || given[*operand].toTensor().numel() == 0)
      return false;
  }
  return std::ranges::any_of(schema.arguments(), is_written);
}

void call_operator(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  TORCH_CHECK(!refused().contains(schema.name()), schema.name(), ": the host waits for its size");
  const std::vector<c10::IValue> given = torch::jit::pop(*stack, schema.arguments().size());
  Operands operands(op);
  torch::jit::Stack there;
  for (const c10::IValue& one : given) there.push_back(operands.take(one));
  const c10::DeviceGuard on(operands.device());
  if (works_in_place(schema, given)) {
    // The operands themselves keep their memory until then.
    Machine::get().current().launch([op, there, given]() mutable { op.callBoxed(&there); });
    for (size_t i = 0; i < schema.returns().size(); ++i)
      torch::jit::push(*stack, given[*returned_operand(schema, i)]);
    return;
  }
  const std::vector<c10::IValue> taken = there;
  compute([&] { op.callBoxed(&there); });
  for (size_t i = 0; i < given.size(); ++i) {
    if (is_written(schema.arguments()[i]) && given[i].isTensor())
      resize_as(given[i].toTensor(), taken[i].toTensor());
  }
  for (size_t i = 0; i < there.size(); ++i) {
    const auto operand = returned_operand(schema, i);
    torch::jit::push(*stack, operand ? given[*operand] : operands.give(there[i]));
  }
}

void install() {
  static const bool once = [] {
    c10::impl::registerDeviceGuard(kType, new Guard());
    c10::SetAllocator(kType, &allocator());
    static auto* all = new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1,
                                          __FILE__, __LINE__);
    all->fallback(torch::CppFunction::makeFromBoxedFunction<&call_operator>());
    static auto* aten = new torch::Library(torch::Library::IMPL, "aten",
                                           c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
    aten->impl("empty.memory_format", &empty);
    aten->impl("empty_strided", &empty_strided);
    aten->impl("as_strided", &at::native::as_strided_tensorimpl);
    aten->impl("view", &at::native::view);
    aten->impl("_reshape_alias", &at::native::_reshape_alias);
    aten->impl("_copy_from", &copy_from);
    aten->impl("_fused_sdp_choice", &attention_choice);
    aten->impl("_scaled_dot_product_flash_attention", &attention);
    aten->impl("_scaled_dot_product_flash_attention_backward", &attention_backward);
    aten->impl("convolution_overrideable", &convolution);
    aten->impl("convolution_backward_overrideable", &convolution_backward);
    aten->impl("_local_scalar_dense", &read_element);
    return true;
  }();
  (void)once;
}

}  // namespace

std::byte* opened_address(const void* hidden) { return Machine::get().open(hidden); }

std::unique_ptr<Device> stand_in(int index, bool through_host) {
  install();
  const Place place{static_cast<int8_t>(kType), static_cast<int8_t>(index % kDevices)};
  return libtorch_device(
      place, "stand-in, played by the processor",
      [place, through_host](comm::Communicator& world, const Connections& connections,
                            PlaceOf where) -> Result<std::unique_ptr<comm::Communicator>> {
        const std::vector<pid_t> processes = comm::gather_values(world, getpid());
        const bool apart = std::ranges::count(processes, processes.front()) != world.size();
        if (through_host || apart || world.size() > kDevices)
          return staged_communicator(world, std::move(where));
        return nccl_communicator(stand_in_nccl(), world, connections, place, std::move(where));
      });
}

}  // namespace tessera::device
