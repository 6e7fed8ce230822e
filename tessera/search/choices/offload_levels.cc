#include "tessera/search/choices/offload_levels.h"

#include <algorithm>

namespace tessera {

const std::vector<OffloadLevel>& offload_levels() {
  static const std::vector<OffloadLevel> all = {
      {"optimizer", "optimizer state", 1, ""},
      {"states", "optimizer state, gradients and parameters", 2, "step"},
      {"all", "optimizer state, gradients, parameters and activations", 2, "block", true}};
  return all;
}

const OffloadLevel* find_offload_level(const std::string& name) {
  const auto found = std::ranges::find(offload_levels(), name, &OffloadLevel::name);
  return found == offload_levels().end() ? nullptr : &*found;
}

const std::vector<std::string>& offload_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out = {"none"};
    for (const OffloadLevel& level : offload_levels()) out.push_back(level.name);
    return out;
  }();
  return names;
}

std::string offload_text(const std::string& name) {
  const OffloadLevel* level = find_offload_level(name);
  return level != nullptr ? level->what : "";
}

void write_offload(recipes::PlanText& text, const std::string& name) {
  const OffloadLevel* level = find_offload_level(name);
  if (level == nullptr) return;
  text.rest_in("optimizer.*", "host", "1");
  if (level->keep_parameters.empty()) return;
  text.rest_in("role:parameter", "host", "1", level->keep_parameters);
  text.rest_in("role:gradient", "host", "1");
  if (level->activations) text.rest_in("role:activation", "host", "1");
}

}  // namespace tessera
