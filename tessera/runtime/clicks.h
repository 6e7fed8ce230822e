// Samples from a file of clicks (data/click_file.h): its parts by the names of the model's inputs,
// as data/click_arrays.h maps them.
//
//   TESSERA_TRY(const auto data, open_clicks("runs/day.clicks", {&model, seed, "data", beside}));
//
// The order of samples is that of arrays (arrays.h): with S samples a step and N in the file, place
// g = (step - 1) * S + i is sample g mod N of pass g div N, in an order of its own for each pass.
#pragma once

#include <memory>
#include <string>

#include "tessera/base/result.h"
#include "tessera/runtime/data.h"

namespace tessera {

// Opens a file of clicks. A model's input of ids may have room for more than the feature's longest
// bag: -1 stands behind each bag. The model's table may have more rows than the file's, and also
// fewer if no sample names a row that it lacks.
//
// Errors, one line each: a file that cannot be read or is damaged; inputs of the model that are not
// those of the file; another number of dense numbers; bags longer than the input; an id beyond the
// model's table. All are found here: load() does not fail.
Result<std::unique_ptr<DataSource>> open_clicks(const std::string& path, const DataWants& wants);

}  // namespace tessera
