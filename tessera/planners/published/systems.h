// Declares for reproduce.cc one function for each published system, which reads an instance and
// returns the answer.
#pragma once

#include "tessera/base/json_table.h"
#include "tessera/planners/published/reproduce.h"

namespace tessera::published {

using Json = nlohmann::ordered_json;

Result<Json> run_galvatron(const JsonTable& in, const Progress& progress);
Result<Json> run_alpa(const JsonTable& in, const Progress& progress);
Result<Json> run_terapipe(const JsonTable& in, const Progress& progress);
Result<Json> run_opfence(const JsonTable& in, const Progress& progress);
Result<Json> run_rannc(const JsonTable& in, const Progress& progress);
Result<Json> run_dtfm(const JsonTable& in, const Progress& progress);
Result<Json> run_splitbrain(const JsonTable& in, const Progress& progress);

}  // namespace tessera::published
