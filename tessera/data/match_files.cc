#include "tessera/data/match_files.h"

#include <fmt/format.h>

#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

#include "tessera/base/text.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

bool has_wildcard(std::string_view text) { return text.find_first_of("*?[{") != text.npos; }

// Walks through the components of a glob from component `at` on, and adds the files that match to
// `found`.
class GlobWalk {
 public:
  explicit GlobWalk(const std::string& glob) {
    if (glob.starts_with('/')) root_ = "/";
    for (std::string& part : split_text(glob, '/')) {
      if (!part.empty()) parts_.push_back(std::move(part));
    }
    if (!parts_.empty() && parts_.back() == "**") parts_.push_back("*");
  }

  Result<std::vector<std::string>> run() {
    TESSERA_TRY_VOID(walk(root_, 0));
    return std::vector<std::string>(found_.begin(), found_.end());
  }

 private:
  Status walk(const fs::path& folder, size_t at) {
    std::error_code error;
    if (at == parts_.size()) {
      if (fs::is_regular_file(folder, error)) found_.insert(folder.lexically_normal().string());
      return {};
    }
    const std::string& part = parts_[at];
    if (!has_wildcard(part)) return walk(folder / part, at + 1);
    const bool any_depth = part == "**";
    if (any_depth) TESSERA_TRY_VOID(walk(folder, at + 1));
    const fs::path listed = folder.empty() ? fs::path(".") : folder;
    if (!fs::is_directory(listed, error)) return {};
    fs::directory_iterator entries(listed, error);
    for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
      const std::string name = entries->path().filename().string();
      if (name.starts_with('.') && !part.starts_with('.')) continue;
      if (!any_depth && !glob_match(part, name)) continue;
      const bool last = at + 1 == parts_.size();
      std::error_code ignored;
      const bool folder_below = entries->is_directory(ignored) && !entries->is_symlink(ignored);
      if (!last && !folder_below) continue;
      TESSERA_TRY_VOID(walk(folder / name, any_depth ? at : at + 1));
    }
    if (error) {
      return invalid_input(
          fmt::format("cannot read the folder '{}': {}", listed.string(), error.message()));
    }
    return {};
  }

  fs::path root_;
  std::vector<std::string> parts_;
  std::set<std::string> found_;
};

std::string no_match(const std::string& glob) {
  std::error_code ignored;
  if (fs::is_directory(glob, ignored)) {
    return fmt::format("'{}' is a folder; '{}' names the files in it", glob,
                       (fs::path(glob) / "**").string());
  }
  return fmt::format("no file matches '{}'", glob);
}

}  // namespace

Result<std::vector<std::string>> match_files(const std::string& glob) {
  return GlobWalk(glob).run();
}

Result<std::vector<std::string>> files_of(const std::vector<std::string>& globs,
                                          const std::string& beside) {
  std::set<std::string> paths;
  for (const std::string& glob : globs) {
    TESSERA_TRY(std::vector<std::string> found, match_files(glob));
    if (found.empty() && !beside.empty() && !glob.starts_with('/')) {
      TESSERA_TRY(found, match_files((fs::path(beside) / glob).string()));
    }
    if (found.empty()) return invalid_input(no_match(glob));
    paths.insert(found.begin(), found.end());
  }
  return std::vector<std::string>(paths.begin(), paths.end());
}

std::string found_file(const std::string& path, const std::string& beside) {
  std::error_code ignored;
  if (beside.empty() || path.starts_with('/') || fs::exists(path, ignored)) return path;
  const std::string other = (fs::path(beside) / path).string();
  return fs::exists(other, ignored) ? other : path;
}

}  // namespace tessera
