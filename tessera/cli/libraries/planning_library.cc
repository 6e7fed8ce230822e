#include "tessera/cli/libraries/planning_library.h"

#include "tessera/cli/libraries/load_library.h"

namespace tessera::cli {

Result<const PlanningLibrary*> planning_library(const std::string& command) {
  const Library library{.file = "libtessera_planning.so",
                        .entry = "tessera_planning_library",
                        .linked = reinterpret_cast<void*>(&tessera_planning_library),
                        .what = "planning library",
                        .how_to_get_it = "make build"};
  TESSERA_TRY(void* const entry, load_library(library, command));
  return reinterpret_cast<decltype(&tessera_planning_library)>(entry)();
}

Result<std::string> find_auto(const AutoQuestion& question) {
  if (question.plan != "auto") return question.plan;
  TESSERA_TRY(const PlanningLibrary* library, planning_library("plan auto"));
  return library->plan_by_search(question);
}

}  // namespace tessera::cli
