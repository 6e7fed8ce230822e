// Reads samples from a file of clicks (data/click_file.h). data/click_arrays.h says which part of
// the file each input of the model gets.
//
//   TESSERA_TRY(const auto data, open_clicks("runs/day.clicks", {&model, seed, "data", beside}));
//
// The order of samples is as for arrays (arrays.h): with S samples a step and N samples in the
// file, place i of a step has the number g = (step - 1) * S + i and holds sample g mod N of pass g
// div N. Each pass has an order of its own.
#pragma once

#include <memory>
#include <string>

#include "tessera/base/result.h"
#include "tessera/runtime/data/data.h"

namespace tessera {

// Opens a file of clicks. A model's input of ids may have more places than the feature's longest
// bag has ids; the places after each bag's ids are filled with -1. The model's table may have more
// rows than the file says, and also fewer, if no sample names a row that the model's table lacks.
//
// Errors, one line each: a file that cannot be read or is damaged; inputs of the model that the
// file does not have; a number of dense features that differs from the model's; bags longer
// than the input; an id beyond the model's table. All errors are found here, so that load()
// does not fail.
Result<std::unique_ptr<DataSource>> open_clicks(const std::string& path, const DataWants& wants);

}  // namespace tessera
