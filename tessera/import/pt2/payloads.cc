#include "tessera/import/pt2/payloads.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "tessera/import/pt2/names.h"

namespace tessera::pt2 {
namespace {

constexpr size_t kCopiedBytes = 4 << 20;

// Returns whether the elements are stored contiguously in row-major order of the dims.
bool in_order(const TensorMeta& meta) {
  int64_t stride = 1;
  for (size_t d = meta.sizes.size(); d-- > 0;) {
    if (meta.sizes[d] != 1 && meta.strides[d] != stride) return false;
    stride *= meta.sizes[d];
  }
  return true;
}

// Returns whether all indices of the tensor are different elements of the entry. Checks the dims
// from the smallest stride to the largest: the stride of a dim must be larger than the distance
// that all dims before it reach. The tensor must be within its entry.
bool each_element_once(const TensorMeta& meta) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size
  for (size_t d = 0; d < meta.sizes.size(); ++d) {
    if (meta.sizes[d] > 1) dims.emplace_back(meta.strides[d], meta.sizes[d]);
  }
  std::sort(dims.begin(), dims.end());
  int64_t reached = 0;
  for (const auto& [stride, size] : dims) {
    if (stride <= reached) return false;
    reached += (size - 1) * stride;
  }
  return true;
}

struct Held {
  const std::string* name;
  const Payload* payload;
  bool parameter;
  int64_t begin, end;  // range of bytes in the entry that has the elements
};

// Checks that two tensors of an entry overlap only if neither is a parameter, or if they are tied:
// both parameters with the same elements in the same order.
Status check_entry(const Archive& archive, std::vector<Held>& tensors) {
  std::sort(tensors.begin(), tensors.end(),
            [](const Held& a, const Held& b) { return a.begin < b.begin; });
  // The tensor with the largest `end` so far, and the parameter with the largest `end` so far.
  const Held *furthest = nullptr, *parameter = nullptr;
  for (const Held& held : tensors) {
    const Held* const other = held.parameter ? furthest : parameter;
    const bool same = other != nullptr && identity(*other->payload) == identity(*held.payload) &&
                      other->parameter == held.parameter;
    if (other != nullptr && held.begin < other->end && !same) {
      return invalid_input(fmt::format(
          "{}: '{}' and '{}': expected elements of their own, or all of them shared by two "
          "parameters, found bytes {} to {} and {} to {} of entry '{}'",
          archive.path(), *other->name, *held.name, other->begin, other->end, held.begin, held.end,
          held.payload->entry));
    }
    if (furthest == nullptr || held.end > furthest->end) furthest = &held;
    if (held.parameter && (parameter == nullptr || held.end > parameter->end)) parameter = &held;
  }
  return {};
}

}  // namespace

std::optional<int64_t> elements_reached(const TensorMeta& meta) {
  int64_t last = meta.storage_offset;
  for (size_t d = 0; d < meta.sizes.size(); ++d) {
    if (meta.sizes[d] == 0) return 0;
    int64_t more = 0;
    if (__builtin_mul_overflow(meta.sizes[d] - 1, meta.strides[d], &more) ||
        __builtin_add_overflow(last, more, &last))
      return std::nullopt;
  }
  int64_t end = 0;
  if (__builtin_add_overflow(last, 1, &end)) return std::nullopt;
  return end;
}

std::string identity(const Payload& payload) {
  if (!payload.absent.empty()) return "absent " + payload.absent;
  return fmt::format("{} {} {} [{}] [{}]", payload.entry, dtype_name(payload.meta.dtype),
                     payload.meta.storage_offset, fmt::join(payload.meta.sizes, ","),
                     fmt::join(payload.meta.strides, ","));
}

Status check_payloads(const Archive& archive, const Program& program) {
  std::set<std::string_view> parameters;
  for (const InputSpec& spec : program.inputs) {
    if (spec.kind == InputSpec::Kind::kParameter) parameters.insert(spec.name);
  }
  std::map<std::string_view, std::vector<Held>> entries;
  int64_t repeated = 0;  // elements of buffers in excess of the elements that their entries store
  for (const auto& [name, payload] : program.payloads) {
    const TensorMeta& meta = payload.meta;
    const int64_t count = elements_of(meta.sizes).value_or(0);
    if (count == 0 || !payload.absent.empty()) continue;
    const bool parameter = payload.parameter || parameters.contains(name);
    TESSERA_TRY(const int64_t bytes, archive.size(payload.entry));
    const int64_t width = dtype_bytes(meta.dtype), stored = bytes / width;
    const auto failed = [&](std::string_view expected) {
      return invalid_input(fmt::format("{}: {} '{}': expected {} in entry '{}', found {} bytes",
                                       archive.path(), parameter ? "parameter" : "buffer", name,
                                       expected, payload.entry, bytes));
    };
    const std::optional<int64_t> reached = elements_reached(meta);
    if (!reached || *reached > stored) return failed(fmt::format("its {} elements", count));
    if (parameter && !each_element_once(meta))
      return failed(fmt::format("each of its {} elements once", count));
    repeated += std::max<int64_t>(count - stored, 0);
    if (repeated > kMaxConstants) {
      return failed(fmt::format(
          "at most {} elements of all buffers together that are repetitions, and {} elements",
          kMaxConstants, count));
    }
    entries[payload.entry].push_back(
        {&name, &payload, parameter, meta.storage_offset * width, *reached * width});
  }
  for (auto& [entry, tensors] : entries) {
    TESSERA_TRY_VOID(check_entry(archive, tensors));
  }
  return {};
}

Status read_payload(const Archive& archive, const Payload& payload,
                    const std::function<Status(std::span<const char>)>& visit) {
  const TensorMeta& meta = payload.meta;
  const int64_t width = dtype_bytes(meta.dtype), begin = meta.storage_offset * width;
  const int64_t count = elements_of(meta.sizes).value_or(0);
  if (count == 0) return {};
  if (!payload.absent.empty()) {
    return invalid_input(fmt::format(
        "{}: '{}': expected its {} elements in the archive, found none: the module was exported "
        "under meta or fake tensors, and the graph depends on their values",
        archive.path(), payload.absent, count));
  }
  if (in_order(meta)) return archive.read(payload.entry, begin, count * width, visit);
  std::vector<char> all;
  const int64_t reached = elements_reached(meta).value_or(0) * width;
  all.reserve(static_cast<size_t>(reached - begin));
  TESSERA_TRY_VOID(archive.read(payload.entry, begin, reached - begin,
                                [&](std::span<const char> piece) -> Status {
                                  all.insert(all.end(), piece.begin(), piece.end());
                                  return {};
                                }));
  std::vector<char> piece;
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, place = 0;
    for (size_t d = meta.sizes.size(); d-- > 0;) {
      place += rest % meta.sizes[d] * meta.strides[d];
      rest /= meta.sizes[d];
    }
    const auto at = all.begin() + place * width;
    piece.insert(piece.end(), at, at + width);
    if (piece.size() < kCopiedBytes && i + 1 < count) continue;
    TESSERA_TRY_VOID(visit(piece));
    piece.clear();
  }
  return {};
}

}  // namespace tessera::pt2
