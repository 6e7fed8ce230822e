#include "tessera/runtime/training/steering_file.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <utility>

#include "tessera/base/json_text.h"
#include "tessera/base/text_file.h"

namespace tessera {
namespace {

constexpr int64_t kMostBytes = 1 << 20;

Result<Steering> read_steering(const std::string& path) {
  TESSERA_TRY(const std::string text, read_text_file(path, kMostBytes));
  const auto json = parse_json(text);
  if (!json || !json->is_object())
    return invalid_input(fmt::format("{}: expected a JSON object, found another text", path));
  Steering out;
  for (const auto& [key, value] : json->items()) {
    if (key == "plan" && value.is_string()) {
      out.plan = value.get<std::string>();
    } else if (key == "stop" && value.is_boolean()) {
      out.stop = value.get<bool>();
    } else {
      return invalid_input(
          fmt::format("{}: expected \"plan\": TEXT or \"stop\": true, found {}: {}", path,
                      shown(nlohmann::json(key)), shown(value)));
    }
  }
  return out;
}

}  // namespace

SteeringFile::SteeringFile(std::string path, std::function<void(const std::string&)> note)
    : path_(std::move(path)), note_(std::move(note)) {}

Steering SteeringFile::look() {
  struct stat now {};
  if (::stat(path_.c_str(), &now) != 0) return {};
  const std::tuple<uint64_t, int64_t, int64_t, int64_t> found{
      now.st_ino, now.st_size, now.st_mtim.tv_sec, now.st_mtim.tv_nsec};
  if (std::exchange(seen_, found) == found) return {};
  const auto steering = read_steering(path_);
  if (steering) return *steering;
  note_(steering.error().message);
  return {};
}

}  // namespace tessera
