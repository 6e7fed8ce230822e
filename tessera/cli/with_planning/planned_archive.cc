#include "tessera/cli/with_planning/planned_archive.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <list>
#include <utility>

#include "tessera/base/text.h"
#include "tessera/cli/planned_model.h"
#include "tessera/import/import.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kArchive = ".pt2";

// A folder for files of this process, which its destructor removes.
class Scratch {
 public:
  Scratch() {
    static int number = 0;
    std::error_code error;
    const fs::path parent = fs::temp_directory_path(error);
    path_ = ((error ? fs::path("/tmp") : parent) /
             fmt::format("tessera_model.{}.{}", ::getpid(), number++))
                .string();
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string_view archive_of(std::string_view text) {
  text = trim(text);
  if (text.ends_with(kArchive)) return text;
  const size_t at = text.find(std::string(kArchive) + ":");
  return at == std::string_view::npos ? std::string_view() : text.substr(0, at + kArchive.size());
}

}  // namespace

bool names_archive(const std::string& text) { return !archive_of(text).empty(); }

Result<std::string> planned_model_or_archive(const std::string& text, int64_t batch) {
  const std::string_view path = archive_of(text);
  if (path.empty()) return planned_model(text);
  TESSERA_TRY(const Importer* importer, importer_of(std::string(path)));
  static std::list<Scratch> folders;
  ImportRequest request{std::string(path), folders.emplace_back().path(), {}};
  request.model_only = true;
  if (const std::string_view keys = trim(text).substr(path.size()); !keys.empty()) {
    TESSERA_TRY(const Call call, parse_call(importer->name + std::string(keys)));
    for (const auto& [key, value] : call.arguments) request.settings[key] = value;
  }
  TESSERA_TRY_VOID(check_settings(*importer, request.settings, path));
  if (batch > 0) request.settings["batch"] = fmt::format("{}", batch);
  TESSERA_TRY(ImportReport report, importer->run(request));
  return std::move(report.model);
}

}  // namespace tessera::cli
