// The inputs, parameters and constants of a program as values of the lowering (Lowering of lower.h).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tessera/base/convert.h"
#include "tessera/import/pt2/lower.h"
#include "tessera/import/pt2/names.h"
#include "tessera/import/pt2/payloads.h"

namespace tessera::pt2 {

Result<Constant> Lowering::read_constant(const Payload& payload) const {
  const TensorMeta& meta = payload.meta;
  const auto count = constant_elements(meta.sizes);
  if (!count) {
    return invalid_input(
        fmt::format("{}: entry '{}': expected a buffer of at most {} elements, found {}",
                    archive_.path(), payload.entry, kMaxConstant, shape_text(meta.sizes)));
  }
  Constant out{meta.dtype, meta.sizes, {}};
  out.values.reserve(static_cast<size_t>(*count));
  TESSERA_TRY_VOID(read_payload(archive_, payload, [&](std::span<const char> piece) -> Status {
    const int64_t more = std::ssize(piece) / dtype_bytes(meta.dtype);
    const size_t at = out.values.size();
    out.values.resize(at + static_cast<size_t>(more));
    convert(meta.dtype, reinterpret_cast<const std::byte*>(piece.data()), DType::kFloat64,
            reinterpret_cast<std::byte*>(out.values.data() + at), more);
    return {};
  }));
  return out;
}

Status Lowering::add_parameter(const InputSpec& spec, const TensorMeta& meta) {
  const auto found = program_.payloads.find(spec.name);
  if (found == program_.payloads.end()) {
    return invalid_input(
        fmt::format("{}: parameter '{}': expected weights in the archive, found none",
                    archive_.path(), spec.name));
  }
  const Payload& payload = found->second;
  if (payload.meta.sizes != meta.sizes || payload.meta.dtype != meta.dtype) {
    return invalid_input(fmt::format("{}: parameter '{}': expected weights of {} {}, found {} {}",
                                     archive_.path(), spec.name, shape_text(meta.sizes),
                                     dtype_name(meta.dtype), shape_text(payload.meta.sizes),
                                     dtype_name(payload.meta.dtype)));
  }
  if (!is_floating(meta.dtype) || elements_of(meta.sizes).value_or(0) == 0) {
    return invalid_input(
        fmt::format("{}: parameter '{}': expected elements of a floating dtype, found {} {}",
                    archive_.path(), spec.name, shape_text(meta.sizes), dtype_name(meta.dtype)));
  }
  // Tied parameters have the same payload, so they share one slot.
  const std::string key = identity(payload);
  std::vector<Vars> dims;
  if (const auto tied = shared_.find(key); tied != shared_.end()) {
    Value value{tied->second, slot_dims_[tied->second], meta.dtype, {}};
    items_[spec.tensor] = std::move(value);
    memory_.tie(spec.tensor, sources_[tied->second].tensor);
    return {};
  }
  for (const int64_t size : meta.sizes) dims.push_back({dims_.fresh(size)});
  Value value = make(dims, meta.dtype);
  shared_[key] = value.slot;
  Source source{Role::kParameter, spec.name, dims, meta.dtype, payload.meta.requires_grad, {}};
  source.tensor = spec.tensor;
  source.weight = Weight{spec.name, meta.sizes, payload, {}};
  sources_[value.slot] = std::move(source);
  items_[spec.tensor] = std::move(value);
  memory_.add_lasting(spec.tensor);
  return {};
}

Status Lowering::add_inputs() {
  std::optional<Var> batch;
  for (const InputSpec& spec : program_.inputs) {
    const auto meta = program_.tensors.find(spec.tensor);
    if (meta == program_.tensors.end()) {
      return invalid_input(
          fmt::format("{}: input '{}': expected a tensor of the program, found none",
                      archive_.path(), spec.tensor));
    }
    if (spec.kind == InputSpec::Kind::kParameter) {
      TESSERA_TRY_VOID(add_parameter(spec, meta->second));
      continue;
    }
    if (spec.kind != InputSpec::Kind::kUser) {
      unread_[spec.tensor] = &spec;
      memory_.add_lasting(spec.tensor);
      continue;
    }
    const std::vector<int64_t>& sizes = meta->second.sizes;
    const DType dtype = meta->second.dtype;
    const bool fits = !sizes.empty() && sizes[0] >= 2 && elements_of(sizes).value_or(0) > 0;
    if (!fits || (dtype != DType::kInt64 && !is_floating(dtype))) {
      return invalid_input(fmt::format(
          "{}: input '{}': expected floating or int64 elements and a batch of at least 2 as the "
          "first dim, found {} {}",
          archive_.path(), spec.name, shape_text(sizes), dtype_name(dtype)));
    }
    std::vector<Vars> dims;
    for (const int64_t size : sizes) dims.push_back({dims_.fresh(size)});
    // All inputs are assumed to have the batch as their first dim, with the same samples.
    if (!batch) batch = dims[0][0];
    if (dims_.size(*batch) == sizes[0]) {
      dims_.unify({*batch}, dims[0]);
      hints_.add(dims[0], "batch", Sure::kRole);
    }
    if (dtype == DType::kInt64 && sizes.size() == 2) hints_.add(dims[1], "seq", Sure::kRole);
    for (size_t d = 1; d < dims.size(); ++d)
      hints_.add(dims[d], fmt::format("{}_{}", spec.name, d), Sure::kLast);
    Value value = make(dims, dtype);
    sources_[value.slot] = Source{Role::kInput, spec.name, dims, dtype, true, {}};
    items_[spec.tensor] = std::move(value);
  }
  return {};
}

const Lowering::Item* Lowering::item(std::string_view tensor) {
  if (const auto found = items_.find(tensor); found != items_.end()) return &found->second;
  const auto buffer = unread_.find(tensor);
  if (buffer == unread_.end()) return nullptr;
  const auto payload = program_.payloads.find(buffer->second->name);
  if (payload == program_.payloads.end()) {
    error_ = {.message =
                  fmt::format("{}: buffer '{}': expected its values in the archive, found none",
                              archive_.path(), buffer->second->name)};
    return nullptr;
  }
  Result<Constant> constant = read_constant(payload->second);
  if (!constant) {
    error_ = constant.error();
    return nullptr;
  }
  if (const Status kept = keep_constant(std::string(tensor), std::move(*constant)); !kept) {
    error_ = kept.error();
    return nullptr;
  }
  return &items_.find(tensor)->second;
}

// Stores a constant until its last reader has been lowered. Limits the elements kept and made.
Status Lowering::keep_constant(const std::string& tensor, Constant constant) {
  kept_ += constant.elements();
  computed_ += constant.elements();
  if (kept_ > kMaxConstants || computed_ > kMaxComputed) {
    return invalid_input(fmt::format(
        "{}: '{}': expected at most {} elements of tensors that are known at import, of which at "
        "most {} are needed at a time, found {} more",
        archive_.path(), tensor, kMaxComputed, kMaxConstants, constant.elements()));
  }
  items_[tensor] = std::move(constant);
  return {};
}

void Lowering::find_last_readers() {
  for (size_t i = 0; i < program_.nodes.size(); ++i) {
    for (const std::string& output : program_.nodes[i].outputs) last_readers_[output] = i;
    for (const auto& [argument, given] : program_.nodes[i].arguments) {
      for (const std::string& tensor : tensors_of(given)) last_readers_[tensor] = i;
    }
  }
  for (const OutputSpec& output : program_.outputs) last_readers_.erase(output.tensor);
}

void Lowering::drop_constants(size_t node) {
  const auto drop = [&](const std::string& tensor) {
    const auto last = last_readers_.find(tensor);
    if (last == last_readers_.end() || last->second > node) return;
    const auto found = items_.find(tensor);
    if (found == items_.end() || !std::holds_alternative<Constant>(found->second)) return;
    kept_ -= std::get<Constant>(found->second).elements();
    items_.erase(found);
  };
  for (const auto& [argument, given] : program_.nodes[node].arguments) {
    for (const std::string& tensor : tensors_of(given)) drop(tensor);
  }
  for (const std::string& output : program_.nodes[node].outputs) drop(output);
}

Value Lowering::repeated(Value value, const std::vector<int64_t>& sizes) {
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (size(value, d) == 1 && sizes[d] != 1) value.dims[d] = dims_.list(sizes[d]);
  }
  dims_.keep_distinct(value.flat());
  return value;
}

Value Lowering::filled(const std::vector<int64_t>& sizes, double value, DType dtype) {
  Value y = make(std::vector<Vars>(sizes.size()), dtype);
  steps_.push_back(
      {"", "number", [value, dtype, slot = y.slot](Emitter& e) {
         const std::string word(dtype_name(graph_dtype(dtype)));
         e.define(slot, {e.op("fill", {}, {{"value", value}, {"dims", ""}, {"dtype", word}}), {}});
       }});
  return repeated(std::move(y), sizes);
}

Value Lowering::materialise(const Constant& constant, const std::string& name) {
  const bool floating = is_floating(constant.dtype);
  if (!floating && all_equal(constant, constant.values[0]))
    return filled(constant.shape, constant.values[0], constant.dtype);
  Constant table = constant.shape.size() < 2 ? constant : without_repeats(constant);
  table.dtype = graph_dtype(constant.dtype);
  std::vector<Vars> dims;
  for (const int64_t size : table.shape) dims.push_back({dims_.fresh(size)});
  Value value = make(dims, constant.dtype);
  Source source{Role::kParameter, name, dims, table.dtype, false, {}};
  source.weight = Weight{name, table.shape, {}, std::move(table)};
  sources_[value.slot] = std::move(source);
  return repeated(std::move(value), constant.shape);
}

Result<Value> Lowering::value_of(std::string_view tensor) {
  if (const auto late = late_.find(tensor); late != late_.end()) {
    items_[std::string(tensor)] = late->second.make();
    late_.erase(late);
  }
  const Item* const found = item(tensor);
  if (found == nullptr && !error_.message.empty()) return tl::unexpected(error_);
  if (found == nullptr)
    return invalid_input(fmt::format("expected a tensor made before, found '{}'", tensor));
  if (const auto* value = std::get_if<Value>(found)) return *value;
  const auto* constant = std::get_if<Constant>(found);
  if (constant == nullptr || constant->values.empty())
    return invalid_input(fmt::format("expected a tensor with elements, found '{}'", tensor));
  const std::string name = constant_name(tensor);
  const auto known = materialised_.find(name);
  if (known != materialised_.end()) return known->second;
  return materialised_[name] = materialise(*constant, name);
}

}  // namespace tessera::pt2
