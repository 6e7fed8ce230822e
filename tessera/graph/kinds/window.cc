#include "tessera/graph/kinds/window.h"

#include <fmt/format.h>

#include "tessera/base/text.h"

namespace tessera::kinds {
namespace {

bool plain(const Window& window) { return window == Window{}; }

}  // namespace

std::vector<Dim> Windows::positions() const {
  std::vector<Dim> out = spatial;
  for (size_t i = 0; i < out.size(); ++i) {
    const Window& w = windows[i];
    out[i].size = (out[i].size + 2 * w.padding - w.kernel) / w.stride + 1;
  }
  return out;
}

std::string Windows::spell_through(WindowUse use) const {
  const char* way = use == WindowUse::kOver ? "-" : use == WindowUse::kBeside ? "~" : "";
  std::string out;
  for (size_t i = 0; i < spatial.size(); ++i) {
    const Window& w = windows[i];
    out += (out.empty() ? "" : " ") + spatial[i].name;
    if (!plain(w)) out += fmt::format("~{}{}/{}/{}", way, w.kernel, w.stride, w.padding);
  }
  return out;
}

std::string Windows::spell_plain() const { return spell(spatial); }

int64_t Windows::volume() const {
  int64_t volume = 1;
  for (const Window& window : windows) volume *= window.kernel;
  return volume;
}

Result<std::vector<int64_t>> window_numbers(const Operands& x, std::string_view attribute,
                                            size_t count, int64_t least) {
  std::vector<int64_t> numbers;
  for (const std::string& word : words(x.text(attribute))) {
    const auto number = parse_int(word);
    if (!number || *number < least) {
      return invalid_input(fmt::format("expected {} of at least {}, found \"{}\"", attribute, least,
                                       x.text(attribute)));
    }
    numbers.push_back(*number);
  }
  if (numbers.size() == 1) numbers.resize(count, numbers.front());
  if (numbers.size() == count) return numbers;
  return invalid_input(fmt::format("expected {} with 1 or {} numbers, found \"{}\"", attribute,
                                   count, x.text(attribute)));
}

Result<Windows> read_windows(const Operands& x, std::vector<Dim> spatial,
                             const std::vector<int64_t>& kernel) {
  if (spatial.empty() || spatial.size() > 3) {
    return invalid_input(fmt::format("expected 1 to 3 spatial dims, found {}", spatial.size()));
  }
  TESSERA_TRY(const std::vector<int64_t> stride, window_numbers(x, "stride", spatial.size(), 1));
  TESSERA_TRY(const std::vector<int64_t> padding, window_numbers(x, "padding", spatial.size(), 0));
  Windows out;
  out.spatial = std::move(spatial);
  for (size_t i = 0; i < out.spatial.size(); ++i) {
    out.windows.push_back({kernel[i], stride[i], padding[i]});
    const Dim& dim = out.spatial[i];
    if (padding[i] >= kernel[i] || dim.size + 2 * padding[i] < kernel[i]) {
      return invalid_input(
          fmt::format("expected a window that fits dim '{}' of {}, found kernel {} with padding {}",
                      dim.name, dim.size, kernel[i], padding[i]));
    }
  }
  return out;
}

std::vector<Dim> join_dims(std::vector<Dim> lead, const std::vector<Dim>& rest) {
  lead.insert(lead.end(), rest.begin(), rest.end());
  return lead;
}

}  // namespace tessera::kinds
