#include "tessera/cli/with_planning/commands.h"

#include <array>

#include "tessera/import/convert/convert.h"
#include "tessera/import/pt2.h"

extern "C" const tessera::cli::PlanningLibrary* tessera_planning_library() {
  using namespace tessera::cli;
  static constexpr std::array<LibraryCommand, 12> kCommands = {{{"plan", add_plan},
                                                                {"predict", add_predict},
                                                                {"accuracy", add_accuracy},
                                                                {"simulate", add_simulate},
                                                                {"report", add_report},
                                                                {"reproduce", add_reproduce},
                                                                {"shard", add_shard},
                                                                {"cluster", add_cluster},
                                                                {"export", add_export},
                                                                {"import", add_import},
                                                                {"order", add_order},
                                                                {"check", add_check}}};
  static constexpr PlanningLibrary kLibrary{.commands = kCommands,
                                            .plan_by_search = plan_by_search,
                                            .archive_graph = tessera::archive_graph,
                                            .convert_checkpoint = tessera::convert_checkpoint};
  return &kLibrary;
}
